#include "app/views/stop_condition.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <vector>

#include "app/text/format.h"
#include "app/views/top_k_view.h"
#include "engine/io/nearest.h"
#include "engine/io/printable.h"
#include "engine/trace/tap_stats.h"
#include "kernels/params/op_table.h"
#include "kernels/params/tensor_view.h"

namespace attnscope {
namespace {

constexpr std::size_t kLongestStop = 200;

struct VerdictWord {
  const char* word;
  Verdict verdict;
};
constexpr VerdictWord kVerdictWords[] = {{"wrong", Verdict::kWrong},
                                         {"near_tie", Verdict::kNearTie},
                                         {"quantisation", Verdict::kQuantisation},
                                         {"rounding", Verdict::kRounding}};

// A figure of a result; NaN where it has none.
struct FigureWord {
  const char* word;
  const char* said;  // "{} is NUMBER"
  double (*of)(const TapResult&);
};
constexpr double kNone = std::numeric_limits<double>::quiet_NaN();
constexpr FigureWord kFigureWords[] = {
    {"budget", "used of its tolerance", [](const TapResult& r) { return r.budget_used; }},
    {"max_abs", "largest error",
     [](const TapResult& r) { return r.introduced ? r.introduced->max_abs : kNone; }},
    {"max_rel", "largest relative error",
     [](const TapResult& r) { return r.introduced ? r.introduced->max_rel : kNone; }},
    {"max_ulp", "largest error in units in the last place",
     [](const TapResult& r) { return r.introduced ? r.introduced->max_ulp : kNone; }},
    {"cosine", "cosine difference",
     [](const TapResult& r) { return r.introduced ? r.introduced->cosine : kNone; }},
    {"differing", "elements that differ",
     [](const TapResult& r) {
       return r.introduced ? static_cast<double>(r.introduced->differing) : kNone;
     }},
    {"inherited", "largest inherited error",
     [](const TapResult& r) { return r.inherited ? r.inherited->max_abs : kNone; }},
    {"mass_moved", "share of a head's attention moved",
     [](const TapResult& r) { return r.mass_moved.value_or(kNone); }},
};

struct ValueWord {
  const char* word;
  double (*of)(const TapStats&);
};
constexpr ValueWord kValueWords[] = {
    {"min", [](const TapStats& s) { return s.min; }},
    {"max", [](const TapStats& s) { return s.max; }},
    {"mean", [](const TapStats& s) { return s.mean; }},
    {"l2", [](const TapStats& s) { return s.l2; }},
    {"nans", [](const TapStats& s) { return static_cast<double>(s.nans); }},
    {"infinities", [](const TapStats& s) { return static_cast<double>(s.infinities); }},
};
constexpr int kNans = 4;

struct EventWord {
  const char* word;
  CacheEventKind kind;
};
constexpr EventWord kEventWords[] = {
    {"admit", CacheEventKind::kAdmit},      {"finish", CacheEventKind::kFinish},
    {"abort", CacheEventKind::kAbort},      {"preempt", CacheEventKind::kPreempt},
    {"hit", CacheEventKind::kHit},          {"allocate", CacheEventKind::kAllocate},
    {"touch", CacheEventKind::kTouch},      {"free", CacheEventKind::kFree},
    {"evict", CacheEventKind::kUnhash},     {"drop", CacheEventKind::kDrop},
    {"swap_out", CacheEventKind::kSwapOut}, {"swap_in", CacheEventKind::kSwapIn}};

template <class Word, std::size_t kCount>
int find_word(const Word (&words)[kCount], std::string_view word) {
  const auto* found = std::find_if(std::begin(words), std::end(words),
                                   [&](const Word& w) { return word == w.word; });
  return found == std::end(words) ? -1 : static_cast<int>(found - std::begin(words));
}

std::vector<std::string> all_words() {
  std::vector<std::string> words;
  for (const auto& w : kVerdictWords) words.emplace_back(w.word);
  for (const auto& w : kFigureWords) words.emplace_back(w.word);
  for (const auto& w : kValueWords) words.emplace_back(w.word);
  for (const char* word : {"nan", "margin", "null_read"}) words.emplace_back(word);
  for (const auto& w : kEventWords) words.emplace_back(w.word);
  return words;
}

std::string tap_words(const Place& place, const std::string& tap) {
  std::string text = as_op_find(place.op)->name;
  if (!tap.empty()) text += "." + tap;
  return place.layer < 0 ? text : fmt::format("{} of layer {}", text, place.layer);
}

template <class Number>
bool to_number(std::string_view word, Number& out) {
  const auto [end, problem] = std::from_chars(word.data(), word.data() + word.size(), out);
  return problem == std::errc() && end == word.data() + word.size();
}

// Values that the op was to write: elsewhere copies are NaN.
std::optional<TapStats> written_stats(const OpTrace& op, const TapCopy& tap) {
  TapStats stats;
  if (tap.stats) {
    stats = *tap.stats;
  } else if (present(tap.value) && as_tensor_numel(&tap.value) > 0) {
    stats = tap_stats(tap.value);
  } else {
    return std::nullopt;
  }
  if (stats.nans == 0) return stats;
  if (present(tap.reference)) {
    stats.nans = std::max<std::int64_t>(0, stats.nans - tap_stats(tap.reference).nans);
    return stats;
  }
  const as_op_info* info = as_op_find(op.place.op);
  for (std::uint32_t i = 0; i < info->num_taps; ++i) {
    if (tap.name == info->taps[i].name && info->taps[i].mask != AS_MASK_ALL) stats.nans = 0;
  }
  return stats;
}

}  // namespace

std::string stop_words() { return fmt::format("{}", fmt::join(all_words(), ", ")); }

// What is left of the text, word by word.
struct StopCondition::Words {
  explicit Words(std::string_view text) : rest(text) {}
  std::string_view next() {
    while (!rest.empty() && rest.front() == ' ') rest.remove_prefix(1);
    if (rest.empty()) return {};
    std::size_t end = rest.find_first_of(" <>");
    if (end == 0) end = 1;  // < and > need no spaces
    const std::string_view word = rest.substr(0, end);
    rest.remove_prefix(word.size());
    return word;
  }
  std::string_view rest;
};

Result<StopCondition> StopCondition::parse(std::string_view text) {
  const auto refused = [&](const std::string& what, std::string hint = {}) {
    if (hint.empty()) hint = "a condition begins with one of: " + stop_words();
    return usage_error(fmt::format("stop '{}': {}", printable(text.substr(0, 60)), what),
                       std::move(hint));
  };
  if (text.size() > kLongestStop) {
    return refused("is too long", fmt::format("at most {} characters", kLongestStop));
  }
  StopCondition stop;
  Words words(text);
  const std::string first(words.next());
  if (first.empty()) return refused("is empty");
  stop.text_ = text;
  Result<void> read;
  if (const int v = find_word(kVerdictWords, first); v >= 0) {
    stop.verdict_ = kVerdictWords[v].verdict;
    read = stop.read_of(words);
  } else if (const int f = find_word(kFigureWords, first); f >= 0) {
    stop.kind_ = Kind::kFigure;
    stop.figure_ = f;
    read = stop.read_bound(words);
  } else if (const int s = find_word(kValueWords, first); s >= 0) {
    stop.kind_ = Kind::kValue;
    stop.figure_ = s;
    read = stop.read_bound(words);
  } else if (first == "nan") {
    stop.kind_ = Kind::kValue;
    stop.figure_ = kNans;
    read = stop.read_of(words);
  } else if (first == "margin") {
    stop.kind_ = Kind::kMargin;
    read = stop.read_bound(words);
  } else if (first == "null_read") {
    stop.kind_ = Kind::kNullRead;
    read = stop.read_of(words);
  } else if (const int e = find_word(kEventWords, first); e >= 0) {
    stop.kind_ = Kind::kEvent;
    stop.event_ = kEventWords[e].kind;
    read = stop.read_event(words);
  } else {
    const std::string near = did_you_mean(first, all_words());
    return refused(fmt::format("'{}' is no condition", printable(first)),
                   near + "allowed: " + stop_words());
  }
  if (!read) return refused(read.error().message, read.error().hint);
  if (const std::string_view more = words.next(); !more.empty()) {
    return refused(fmt::format("'{}' is too much", printable(more)),
                   "one condition a stop; add another one");
  }
  return stop;
}

Result<void> StopCondition::read_bound(Words& words) {
  const std::string_view sign = words.next();
  if (sign != ">" && sign != "<") {
    return usage_error("no > or < behind the figure", "such as budget > 0.5");
  }
  above_ = sign == ">";
  const std::string_view number = words.next();
  if (!to_number(number, bound_) || !std::isfinite(bound_)) {
    return usage_error(fmt::format("'{}' is no number", printable(number)), "such as 0.5 or 1e-3");
  }
  return read_of(words);
}

Result<void> StopCondition::read_of(Words& words) {
  const Words before = words;
  const std::string_view of = words.next();
  if (of.empty()) return {};
  if (of != "of") {
    words = before;
    return {};
  }
  constexpr const char* kSuch = "such as sparse_attention, 3/wo_b or q_b_proj.y";
  std::string_view what = words.next();
  if (const auto slash = what.find('/'); slash != std::string_view::npos) {
    const std::string_view layer = what.substr(0, slash);
    if (layer == "-") {
      layer_ = -1;
    } else if (!to_number(layer, layer_) || layer_ < 0) {
      return usage_error(fmt::format("'{}' is no layer", printable(layer)), kSuch);
    }
    what.remove_prefix(slash + 1);
    if (what.empty()) return {};  // any op of the layer
  }
  const auto dot = what.find('.');
  const std::string name(what.substr(0, dot));
  op_ = as_step_op_by_name(name.c_str());
  if (op_ < 0) {
    return usage_error(fmt::format("'{}' is no op", printable(name)),
                       did_you_mean(name, op_names()) + kSuch);
  }
  if (dot == std::string_view::npos) return {};
  tap_ = what.substr(dot + 1);
  const as_op_info* info = as_op_find(op_);
  std::vector<std::string> taps;
  for (std::uint32_t i = 0; i < info->num_taps; ++i) taps.emplace_back(info->taps[i].name);
  // Results have taps of their own beside those, such as k_cache.read.
  const std::string stem = tap_.substr(0, tap_.find('.'));
  if (std::ranges::find(taps, stem) == taps.end()) {
    return usage_error(fmt::format("{} has no tap '{}'", name, printable(tap_)),
                       fmt::format("its taps: {}", fmt::join(taps, ", ")));
  }
  return {};
}

Result<void> StopCondition::read_event(Words& words) {
  while (true) {
    const Words before = words;
    const std::string_view of = words.next();
    if (of != "block" && of != "request") {
      words = before;
      return {};
    }
    std::int64_t& number = of == "block" ? block_ : request_;
    const std::string_view word = words.next();
    if (!to_number(word, number) || number < 0) {
      return usage_error(fmt::format("'{}' is no number of a {}", printable(word), of),
                         fmt::format("such as {} 2", of));
    }
  }
}

std::optional<StopHit> StopCondition::find(const SessionInfo& info, const StepSummary& step,
                                           const StepTrace* trace) const {
  if (kind_ == Kind::kEvent) return find_event(step);
  if (!needs_trace()) return find_result(step);
  if (trace == nullptr) return std::nullopt;
  for (const auto& op : trace->ops) {
    if (!is_of(op->place.layer, op->place.op)) continue;
    auto hit = kind_ == Kind::kValue    ? find_value(*op)
               : kind_ == Kind::kMargin ? find_margin(info, *trace, *op)
                                        : find_null_read(info, *op);
    if (hit) return hit;
  }
  return std::nullopt;
}

std::optional<StopHit> StopCondition::find_result(const StepSummary& step) const {
  for (const TapResult& r : step.results) {
    if (!is_of(r.layer, r.op) || (!tap_.empty() && tap_ != r.tap)) continue;
    StopHit hit{{r.step, r.layer, r.op}, r.tap, &r, -1, -1, {}};
    const std::string where = tap_words(hit.place, r.tap);
    if (kind_ == Kind::kVerdict) {
      if (r.verdict != verdict_) continue;
      hit.why = fmt::format("{} is {}", where, verdict_name(r.verdict));
    } else {
      const FigureWord& figure = kFigureWords[figure_];
      const double value = figure.of(r);
      if (!beyond(value)) continue;
      hit.why = fmt::format("{}: {} {}", where, figure.said, format_error(value));
    }
    return hit;
  }
  return std::nullopt;
}

std::optional<StopHit> StopCondition::find_event(const StepSummary& step) const {
  if (step.cache_events == nullptr) return std::nullopt;
  for (const CacheEvent& e : *step.cache_events) {
    if (e.kind != event_ || (block_ >= 0 && e.block != block_) ||
        (request_ >= 0 && e.request != request_)) {
      continue;
    }
    StopHit hit{{step.step, -1, AS_OP_SCHEDULE}, {}, nullptr, -1, -1, {}};
    hit.block = e.block;
    hit.request = static_cast<std::int32_t>(e.request);
    hit.why = text_.substr(0, text_.find(' '));
    if (e.block >= 0) hit.why += fmt::format(" of block {}", e.block);
    if (e.request >= 0) hit.why += fmt::format(", request {}", e.request);
    return hit;
  }
  return std::nullopt;
}

std::optional<StopHit> StopCondition::find_value(const OpTrace& op) const {
  for (const TapCopy& tap : op.taps) {
    if (tap_.empty() ? !tap.output : tap_ != tap.name) continue;
    const auto stats = written_stats(op, tap);
    if (!stats) continue;
    const double value = kValueWords[figure_].of(*stats);
    if (!beyond(value)) continue;
    return StopHit{op.place,
                   tap.name,
                   nullptr,
                   -1,
                   -1,
                   fmt::format("{}: {} {}", tap_words(op.place, tap.name),
                               kValueWords[figure_].word, format_number(value))};
  }
  return std::nullopt;
}

std::optional<StopHit> StopCondition::find_margin(const SessionInfo& info, const StepTrace& step,
                                                  const OpTrace& op) const {
  if (as_op_role(op.place.op) != AS_ROLE_SELECT) return std::nullopt;
  for (const std::int32_t row : step.kept) {
    const TopKView view = top_k_view({info, step, nullptr, op.place.layer, row, 0, {}});
    if (!view.why_empty.empty() || !view.choosing() || !beyond(view.margin)) continue;
    StopHit hit{op.place, "indices", nullptr, -1, view.request, {}};
    hit.why = fmt::format("{}: margin {} at position {} of {}", tap_words(op.place, {}),
                          format_number(view.margin), view.position,
                          info.request_names[static_cast<std::size_t>(view.request)]);
    return hit;
  }
  return std::nullopt;
}

std::optional<StopHit> StopCondition::find_null_read(const SessionInfo& info,
                                                     const OpTrace& op) const {
  if (op.attention == nullptr) return std::nullopt;
  const as_op_info* table = as_op_find(op.place.op);
  const auto& layers = info.config.layers;
  const auto at = std::ranges::find(layers, op.place.layer);
  if (at == layers.end()) return std::nullopt;
  const RowsRead* const read[] = {&op.attention->window_rows, &op.attention->extra_rows};
  std::size_t next = 0;
  for (std::uint32_t i = 0; i < table->num_taps && next < std::size(read); ++i) {
    const as_tap_info& tap = table->taps[i];
    if (tap.kind != AS_TAP_CACHE || tap.direction != AS_TAP_IN) continue;
    // Of keys and values in caches of their own those of values are kept.
    if (tap_cache(op.place.op, tap.offset).role == AS_CACHE_K) continue;
    const CacheSpec* spec =
        info.layout.of_tap(static_cast<int>(at - layers.begin()), op.place.op, tap.offset);
    const RowsRead& rows = *read[next++];
    if (spec == nullptr || rows.slots.empty() || rows.slots.front() >= spec->rows_per_block) {
      continue;
    }
    return StopHit{op.place,
                   {},
                   nullptr,
                   AS_NULL_BLOCK,
                   -1,
                   fmt::format("{} reads slot {}, a row of the null block",
                               tap_words(op.place, tap.name), rows.slots.front())};
  }
  return std::nullopt;
}

}  // namespace attnscope
