#include "engine/model/mask_expression.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <optional>

#include "kernels/params/tensor_view.h"

namespace attnscope {
namespace {

constexpr int kDeepestMask = 64;  // of one expression in another

struct NamedMaskPart {
  std::string_view name;
  as_mask_op op;
};
constexpr NamedMaskPart kMaskVariables[] = {{"q_idx", AS_MASK_Q_IDX},
                                            {"kv_idx", AS_MASK_KV_IDX},
                                            {"head", AS_MASK_HEAD},
                                            {"request", AS_MASK_REQUEST},
                                            {"score", AS_MASK_SCORE}};
constexpr NamedMaskPart kMaskFunctions[] = {{"abs", AS_MASK_ABS},   {"floor", AS_MASK_FLOOR},
                                            {"exp2", AS_MASK_EXP2}, {"tanh", AS_MASK_TANH},
                                            {"min", AS_MASK_MIN},   {"max", AS_MASK_MAX}};

// Text is parsed as it stands in the place of the name, with $1 for its argument.
struct NamedMaskText {
  std::string_view name, text;
  bool has_argument, is_score;
};
constexpr NamedMaskText kNamedMasks[] = {
    {"causal", "kv_idx <= q_idx", false, false},
    {"sliding", "kv_idx <= q_idx && q_idx - kv_idx < $1", true, false},
    {"prefix_lm", "kv_idx < $1 || kv_idx <= q_idx", true, false},
    {"alibi", "score - exp2(-8 * (head + 1) / $1) * abs(q_idx - kv_idx)", true, true},
    {"soft_cap", "$1 * tanh(score / $1)", true, true},
};

struct MaskOperator {
  std::string_view sign;
  as_mask_op op;
};
// By how much they bind; of two that begin alike the longer one first.
const std::vector<std::vector<MaskOperator>> kMaskLevels = {
    {{"||", AS_MASK_OR}},
    {{"&&", AS_MASK_AND}},
    {{"<=", AS_MASK_LE},
     {">=", AS_MASK_GE},
     {"==", AS_MASK_EQ},
     {"!=", AS_MASK_NE},
     {"<", AS_MASK_LT},
     {">", AS_MASK_GT}},
    {{"+", AS_MASK_ADD}, {"-", AS_MASK_SUB}},
    {{"//", AS_MASK_FLOOR_DIV}, {"*", AS_MASK_MUL}, {"/", AS_MASK_DIV}, {"%", AS_MASK_MOD}},
};
constexpr std::size_t kMaskComparisons = 2;  // do not follow one another

constexpr const char* kMaskAllowed =
    "allowed: q_idx, kv_idx, head, request, numbers, score in score functions; abs, floor, exp2, "
    "tanh, min, max; causal, sliding(n), prefix_lm(n), document(start, ..); alibi(heads), "
    "soft_cap(cap)";

bool is_mask_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }
bool is_mask_digit(char c) { return c >= '0' && c <= '9'; }

class MaskParser {
 public:
  MaskParser(std::string_view text, bool is_score) : text_(text), is_score_(is_score) {}

  Result<MaskCode> parse() {
    expression(0);
    skip();
    if (!error_ && at_ < text_.size())
      fail(fmt::format("{} is not expected", here()), kMaskAllowed);
    if (error_) return *error_;
    return std::move(code_);
  }

 private:
  void fail(const std::string& what, const std::string& next) {
    if (!error_) error_ = bad_input(fmt::format("column {}: {}", at_ + 1, what), next);
  }

  void skip() {
    while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\t')) ++at_;
  }

  // What stands there, as errors show it.
  std::string here() const {
    if (at_ >= text_.size()) return "the end";
    const unsigned char c = static_cast<unsigned char>(text_[at_]);
    return c >= 0x20 && c < 0x7f ? fmt::format("\"{}\"", text_[at_])
                                 : fmt::format("byte {:#04x}", c);
  }

  bool take(std::string_view sign) {
    skip();
    if (error_ || !text_.substr(at_).starts_with(sign)) return false;
    at_ += sign.size();
    return true;
  }

  void expect(std::string_view sign) {
    if (!take(sign)) fail(fmt::format("{} where \"{}\" is due", here(), sign), kMaskAllowed);
  }

  void emit(as_mask_op op, double number = 0) {
    if (error_) return;
    held_ += 1 - as_mask_operands(op);
    if (held_ > AS_MASK_STACK) {
      return fail(fmt::format("more than {} values at once", AS_MASK_STACK),
                  "put what is computed first to the left");
    }
    if (code_.instructions.size() >= AS_MASK_CODE_LENGTH) {
      return fail(fmt::format("more than {} instructions", AS_MASK_CODE_LENGTH),
                  "say it with fewer names and numbers");
    }
    code_.instructions.push_back({static_cast<double>(op), number});
  }

  void expression(int depth) {
    if (depth > kDeepestMask) {
      return fail(fmt::format("more than {} parentheses inside one another", kDeepestMask),
                  "use fewer");
    }
    level(0, depth);
    if (!take("?")) return;
    expression(depth + 1);
    expect(":");
    expression(depth + 1);
    emit(AS_MASK_SELECT);
  }

  const MaskOperator* operator_of(std::size_t binds) {
    for (const MaskOperator& o : kMaskLevels[binds]) {
      if (take(o.sign)) return &o;
    }
    return nullptr;
  }

  void level(std::size_t binds, int depth) {
    if (binds == kMaskLevels.size()) return unary(depth);
    level(binds + 1, depth);
    while (const MaskOperator* o = error_ ? nullptr : operator_of(binds)) {
      level(binds + 1, depth);
      emit(o->op);
      if (binds == kMaskComparisons) break;
    }
  }

  void unary(int depth) {
    if (depth > kDeepestMask) return fail("too many signs one behind the other", "use fewer");
    if (take("-")) {
      unary(depth + 1);
      return emit(AS_MASK_NEG);
    }
    skip();
    if (!text_.substr(at_).starts_with("!=") && take("!")) {
      unary(depth + 1);
      return emit(AS_MASK_NOT);
    }
    primary(depth);
  }

  void primary(int depth) {
    if (take("(")) {
      expression(depth + 1);
      return expect(")");
    }
    if (error_) return;
    if (at_ < text_.size() && (is_mask_digit(text_[at_]) || text_[at_] == '.')) {
      return emit(AS_MASK_NUMBER, number());
    }
    if (at_ < text_.size() && is_mask_letter(text_[at_])) return name(depth);
    fail(fmt::format("{} where a value is due", here()), kMaskAllowed);
  }

  double number() {
    skip();
    double value = 0;
    const char* first = text_.data() + at_;
    const auto [end, code] = std::from_chars(first, text_.data() + text_.size(), value);
    if (code != std::errc() || !std::isfinite(value)) {
      fail(fmt::format("{} begins no finite number", here()), "such as 64 or 0.5");
      return 0;
    }
    at_ += static_cast<std::size_t>(end - first);
    return value;
  }

  // Arguments that have to be numbers, in parentheses.
  std::vector<double> numbers(std::string_view of) {
    std::vector<double> all;
    expect("(");
    do {
      skip();
      const bool begins = at_ < text_.size() && (is_mask_digit(text_[at_]) || text_[at_] == '.');
      if (!begins) fail(fmt::format("{} where {} takes a number", here(), of), "such as 64");
      if (!error_) all.push_back(number());
    } while (take(","));
    expect(")");
    return all;
  }

  void name(int depth) {
    const std::size_t begin = at_;
    while (at_ < text_.size() && (is_mask_letter(text_[at_]) || is_mask_digit(text_[at_]))) ++at_;
    const std::string_view found = text_.substr(begin, at_ - begin);
    const auto is = [&](const auto& entry) { return entry.name == found; };
    if (const auto v = std::ranges::find_if(kMaskVariables, is); v != std::end(kMaskVariables)) {
      if (v->op != AS_MASK_SCORE || is_score_) return emit(v->op);
      at_ = begin;
      return fail("a mask has no score", "give it as a score function");
    }
    if (const auto f = std::ranges::find_if(kMaskFunctions, is); f != std::end(kMaskFunctions)) {
      expect("(");
      expression(depth + 1);
      if (as_mask_operands(f->op) == 2) {
        expect(",");
        expression(depth + 1);
      }
      expect(")");
      return emit(f->op);
    }
    if (found == "document") return documents(begin);
    if (const auto n = std::ranges::find_if(kNamedMasks, is); n != std::end(kNamedMasks)) {
      return named(*n, begin);
    }
    at_ = begin;
    fail(fmt::format("\"{}\" is no name", found.substr(0, 40)), kMaskAllowed);
  }

  // Query and key have as many starts of documents at or before them.
  void documents(std::size_t begin) {
    const std::vector<double> starts = numbers("document");
    if (error_) return;
    std::string count[2];
    for (int side = 0; side < 2; ++side) {
      for (const double start : starts) {
        count[side] += fmt::format("{}({} >= {})", count[side].empty() ? "" : " + ",
                                   side == 0 ? "q_idx" : "kv_idx", start);
      }
    }
    insert(fmt::format("({}) == ({})", count[0], count[1]), begin);
  }

  void named(const NamedMaskText& n, std::size_t begin) {
    const std::vector<double> given = n.has_argument ? numbers(n.name) : std::vector<double>{};
    if (error_) return;
    const std::size_t behind = at_;
    at_ = begin;
    if (n.is_score && !is_score_) {
      return fail(fmt::format("{} is a score function, and this is a mask", n.name),
                  "give it as a score function");
    }
    if (n.has_argument && (given.size() != 1 || !(given[0] > 0))) {
      return fail(fmt::format("{} takes one number above 0", n.name),
                  fmt::format("such as {}(64)", n.name));
    }
    at_ = behind;
    std::string text(n.text);
    for (std::size_t i = text.find("$1"); i != std::string::npos; i = text.find("$1")) {
      text.replace(i, 2, fmt::format("{}", given[0]));
    }
    insert(text, begin);
  }

  // What a name stands for.
  void insert(const std::string& text, std::size_t begin) {
    const Result<MaskCode> code = MaskParser(text, is_score_).parse();
    if (!code) {
      at_ = begin;
      return fail("this name needs more than an expression may have", "use fewer numbers");
    }
    for (const MaskInstruction& i : code->instructions) {
      emit(static_cast<as_mask_op>(static_cast<int>(i.op)), i.number);
    }
  }

  const std::string_view text_;
  const bool is_score_;
  std::size_t at_ = 0;
  int held_ = 0;
  MaskCode code_;
  std::optional<Error> error_;
};

}  // namespace

as_tensor MaskCode::tensor() const {
  static_assert(sizeof(MaskInstruction) == 2 * sizeof(double));
  if (instructions.empty()) return no_tensor();
  return make_tensor(&instructions.front().op, {static_cast<std::int64_t>(instructions.size()), 2});
}

bool MaskCode::uses(as_mask_op variable) const {
  return std::ranges::any_of(instructions, [&](const MaskInstruction& i) {
    return i.op == static_cast<double>(variable);
  });
}

Result<MaskCode> parse_mask(std::string_view text) { return MaskParser(text, false).parse(); }
Result<MaskCode> parse_score(std::string_view text) { return MaskParser(text, true).parse(); }

}  // namespace attnscope
