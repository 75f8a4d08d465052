#include "app/views/error_view.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "app/text/format.h"
#include "app/views/bytes_view.h"
#include "app/views/tensor_view.h"
#include "app/views/worst_element.h"
#include "engine/io/plural.h"
#include "engine/trace/axis_words.h"
#include "engine/trace/wiring_tap.h"
#include "kernels/params/op_table.h"
#include "kernels/params/row_format.h"

namespace attnscope {
namespace {

void take(OpError& row, const TapResult& result) {
  const bool worse = row.taps == 0 || is_worse(result.verdict, row.worst) ||
                     (result.verdict == row.worst && result.budget_used > row.budget.used);
  if (worse) {
    row.place = {result.step, result.layer, result.op};
    row.tap = result.tap;
  }
  if (row.taps == 0 || is_worse(result.verdict, row.worst)) row.worst = result.verdict;
  if (row.taps == 0 || result.budget_used > row.budget.used) row.budget = budget_of(result);
  ++row.taps;
  const std::optional<ErrorFigures>* kinds[] = {&result.introduced, &result.inherited,
                                                &result.quantisation};
  for (int kind = 0; kind < kErrorKinds; ++kind) {
    if (!kinds[kind]->has_value()) continue;
    for (int which = 0; which < kErrorFigures; ++which) {
      const double value = std::max(figure(**kinds[kind], static_cast<ErrorFigure>(which)), 0.0);
      auto& slot = row.errors[static_cast<std::size_t>(kind)][static_cast<std::size_t>(which)];
      if (!slot || value > *slot || std::isnan(value)) slot = value;
    }
  }
}

OpError& row_of(std::vector<OpError>& rows, const TapResult& result, bool by_layer) {
  const auto found = std::find_if(rows.begin(), rows.end(), [&](const OpError& row) {
    return row.place.op == result.op && (!by_layer || row.place.layer == result.layer);
  });
  if (found != rows.end()) return *found;
  // Ops of a run stand in causal order whichever layer came first.
  const auto before = by_layer ? rows.end() : std::find_if(rows.begin(), rows.end(), [&](auto& r) {
    return r.place.op > result.op;
  });
  OpError row;
  row.place = {result.step, result.layer, result.op};
  return *rows.insert(before, row);
}

const char* op_name(as_op_id op) { return as_op_find(op)->name; }

std::string layer_words(int layer) { return layer < 0 ? "" : fmt::format(" in layer {}", layer); }

// "30 equal, 9 by rounding"
std::string counts_words(const std::vector<TapResult>& results) {
  std::array<std::int64_t, kVerdicts> counts{};
  for (const TapResult& result : results) ++counts[static_cast<std::size_t>(result.verdict)];
  static constexpr const char* kWords[kVerdicts] = {"equal",     "by rounding", "by their format",
                                                    "near-tied", "wrong",       "not compared"};
  std::string text;
  for (int v = 0; v < kVerdicts; ++v) {
    const std::int64_t n = counts[static_cast<std::size_t>(v)];
    if (n == 0) continue;
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", format_count(n), kWords[v]);
  }
  return text;
}

// In as many digits as it takes to tell them apart.
std::pair<std::string, std::string> both_values(double a, double b) {
  std::pair<std::string, std::string> text{format_number(a), format_number(b)};
  if (text.first == text.second && a != b) text = {format_exact(a), format_exact(b)};
  return text;
}

}  // namespace

const char* const kBudgetHelp =
    "Budget used: the worst element's difference to ref.sim in units of what its tolerance class "
    "allows. Above 100 % the tap is wrong.";

double figure(const ErrorFigures& figures, ErrorFigure which) {
  switch (which) {
    case ErrorFigure::kMaxAbs:
      return figures.max_abs;
    case ErrorFigure::kMaxRel:
      return figures.max_rel;
    case ErrorFigure::kCosine:
      return figures.cosine;
  }
  return 0;
}

const char* error_kind_name(ErrorKind kind) {
  switch (kind) {
    case ErrorKind::kIntroduced:
      return "introduced";
    case ErrorKind::kInherited:
      return "inherited";
    case ErrorKind::kQuantisation:
      return "quantisation";
  }
  return "?";
}

const char* error_kind_help(ErrorKind kind) {
  switch (kind) {
    case ErrorKind::kIntroduced:
      return "Introduced: what this op did wrong by itself. ref.sim computes the op from the very "
             "inputs the engine had; the difference of the two outputs. The verdict rests on it.";
    case ErrorKind::kInherited:
      return "Inherited: how far the engine has drifted up to here. ref.sim runs the whole model "
             "on "
             "its own history; the difference of the two outputs, earlier ops included.";
    case ErrorKind::kQuantisation:
      return "Quantisation: what the number formats cost. ref.sim, which rounds as the engine "
             "does, against ref.exact, which computes in float64 and rounds nothing.";
  }
  return "";
}

std::vector<OpError> op_errors(const std::vector<TapResult>& results, int layer) {
  std::vector<OpError> rows;
  for (const TapResult& result : results) {
    if (layer == kAllLayers || result.layer == layer) take(row_of(rows, result, true), result);
  }
  return rows;
}

const TapResult* first_wrong(std::span<const TapResult> results) {
  const auto at = std::ranges::find(results, Verdict::kWrong, &TapResult::verdict);
  return at == results.end() ? nullptr : &*at;
}

const TapResult* first_wrong(const Snapshot& snapshot) {
  for (const auto& step : snapshot.steps) {
    if (const TapResult* wrong = first_wrong(step->results)) return wrong;
  }
  return nullptr;
}

void RunErrors::update(const Snapshot& snapshot) {
  std::size_t same = 0;
  while (same < seen_.size() && same < snapshot.steps.size() &&
         seen_[same] == snapshot.steps[same]) {
    ++same;
  }
  if (same < seen_.size()) {
    seen_.clear();
    complete_.clear();
  }
  const auto add = [](std::vector<OpError>& rows, const StepSummary& step) {
    for (const TapResult& result : step.results) take(row_of(rows, result, false), result);
  };
  std::size_t next = seen_.size();
  for (; next < snapshot.steps.size() && snapshot.steps[next]->complete; ++next) {
    add(complete_, *snapshot.steps[next]);
    seen_.push_back(snapshot.steps[next]);
  }
  rows_ = complete_;
  for (; next < snapshot.steps.size(); ++next) add(rows_, *snapshot.steps[next]);
}

std::string worst_text(const StepTrace& step, const TapResult& result) {
  if (!result.worst) return {};
  std::vector<std::string> letters;
  const as_op_info& info = *as_op_find(result.op);
  for (std::uint32_t i = 0; i < info.num_taps; ++i) {
    if (result.tap == info.taps[i].name) letters = split_axes(info.taps[i].axes);
  }
  const OpTrace* op = step.find(result.layer, result.op);
  const RowsCopy* rows = op == nullptr ? nullptr : op->cache_rows(result.tap);
  std::string text;
  for (std::size_t i = 0; i < result.worst->index.size(); ++i) {
    const std::int64_t at = result.worst->index[i];
    const std::string letter = i < letters.size() ? letters[i] : "";
    if (i > 0) text += ", ";
    if (letter == "T" || (info.phase == AS_PHASE_AFTER && i == 0)) {
      const auto& sampled = step.metadata.sample_rows;
      const bool is_sampled = info.phase == AS_PHASE_AFTER;
      const auto n = static_cast<std::size_t>(at);
      text += "token " + token_label(step, !is_sampled ? at : n < sampled.size() ? sampled[n] : -1);
    } else if (letter == "bytes" && rows != nullptr) {
      const ByteField field = field_of_byte(rows->record, rows->width, at, rows->heads);
      text += fmt::format("byte {} ({}{})", at, field_name(field),
                          field.dim < 0 ? std::string()
                          : field.dims > 2
                              ? fmt::format(" of dims {}-{}", field.dim, field.dim + field.dims - 1)
                              : fmt::format(" of dim {}", field.dim));
    } else {
      text += fmt::format("{} {}", letter.empty() ? "index" : axis_name(letter), at);
    }
  }
  return text;
}

std::string worst_words(const TapResult& result) {
  const double value = result.worst->value, reference = result.worst->reference;
  if (as_op_role(result.op) == AS_ROLE_SELECT) {
    const auto entry = [](double v) { return fmt::format("entry {:.0f}", v); };
    if (value < 0) return entry(reference) + " is missing";
    if (reference < 0) return entry(value) + " is too many";
    return entry(value) + " where ref.sim has " + entry(reference);
  }
  const auto [a, b] = both_values(value, reference);
  return fmt::format("{} where ref.sim has {}", a, b);
}

std::string result_sentence(const StepTrace* step, const TapResult& compared) {
  const OpTrace* op = step != nullptr ? step->find(compared.layer, compared.op) : nullptr;
  const ShownResult shown =
      op != nullptr ? shown_result(*step, *op, compared) : ShownResult{compared, std::nullopt};
  const TapResult& result = shown.result;
  const std::string name = fmt::format("{}.{}", op_name(result.op), result.tap);
  std::string text;
  switch (result.verdict) {
    case Verdict::kWrong:
      text = name + " is wrong";
      break;
    case Verdict::kNearTie:
      text = name + " differs in near-ties alone";
      break;
    case Verdict::kQuantisation:
      text = name + " agrees with ref.sim; its format moves it away from ref.exact";
      break;
    case Verdict::kRounding:
      text = name + " agrees with ref.sim but for rounding";
      break;
    case Verdict::kEqual:
      return name + " equals ref.sim bit for bit.";
    case Verdict::kNotCompared:
      return name + " was not compared.";
  }
  const bool wrong = result.verdict == Verdict::kWrong;
  const auto place_of = [&](const TapResult& r) {
    return step != nullptr ? worst_text(*step, r) : std::string();
  };
  if (result.worst && !shown.elsewhere) {
    const std::string where = place_of(result);
    text += fmt::format("{}{}: {}; {}", wrong ? " at " : "; worst at ",
                        where.empty() ? "one element" : where, worst_words(result),
                        budget_words(budget_of(result)));
  } else if (shown.elsewhere) {
    text += result.worst ? fmt::format("; of the kept rows worst at {}: {}", place_of(result),
                                       worst_words(result))
                         : std::string("; the kept rows agree");
    text += fmt::format("; the worst of all, at {}, is in a row that is not kept; {}",
                        place_of(compared), budget_words(budget_of(result)));
  }
  if (wrong && !result.note.empty()) text += "; " + result.note;
  return text + ".";
}

Verdict error_verdict(const StepSummary& summary, const OpTrace* op) {
  if (op != nullptr && op->worst == Verdict::kWrong) return Verdict::kWrong;
  Verdict worst = Verdict::kNotCompared;
  for (const TapResult& result : summary.results) {
    if (is_worse(result.verdict, worst)) worst = result.verdict;
  }
  return worst;
}

std::string error_sentence(const StepTrace* step, const StepSummary& summary, const OpTrace* op,
                           const Place& cursor) {
  const auto wrong = [](const TapResult& r) { return r.verdict == Verdict::kWrong; };
  const std::vector<TapResult>& all = summary.results;
  const auto count = std::count_if(all.begin(), all.end(), wrong);
  if (op != nullptr) {
    const auto first = std::find_if(op->results.begin(), op->results.end(), wrong);
    if (first != op->results.end()) {
      std::string text = result_sentence(step, *first);
      if (count > 1) {
        const auto top = std::find_if(all.begin(), all.end(), wrong);
        const bool is_first = top->layer == first->layer && top->op == first->op;
        text += is_first ? fmt::format(" It is the first of {} wrong taps of this step.",
                                       format_count(count))
                         : fmt::format(" The first wrong tap of this step is {}.{}{}.",
                                       op_name(top->op), top->tap, layer_words(top->layer));
      }
      return text;
    }
  }
  if (count > 0) {
    const auto top = std::find_if(all.begin(), all.end(), wrong);
    const bool wired = top->tap.ends_with(kWiringTap);  // what it is given is not looked at there
    return fmt::format("{} agrees; the {} of step {} is {}.{}{}{}.", op_name(cursor.op),
                       count == 1 ? std::string("only wrong tap")
                                  : fmt::format("first of {} wrong taps", format_count(count)),
                       summary.step, op_name(top->op), top->tap, layer_words(top->layer),
                       wired ? ": " + top->note : "");
  }
  const auto compared = std::count_if(all.begin(), all.end(), [](const TapResult& r) {
    return r.verdict != Verdict::kNotCompared;
  });
  if (compared == 0) {
    return all.empty() ? fmt::format("Nothing of step {} was compared yet.", summary.step)
                       : "No reference ran: nothing is compared.";
  }
  std::string text =
      fmt::format("{} of step {} {} with ref.sim: {}",
                  compared == 1 ? std::string("The only tap")
                                : fmt::format("All {} taps", format_count(compared)),
                  summary.step, agree(compared, "agrees", "agree"), counts_words(all));
  const auto tight = std::max_element(
      all.begin(), all.end(), [](auto& a, auto& b) { return a.budget_used < b.budget_used; });
  if (tight->budget_used > 0) {
    text += fmt::format("; closest to its limit is {}.{}{}, {}", op_name(tight->op), tight->tap,
                        layer_words(tight->layer), budget_words(budget_of(*tight)));
  }
  return text + ".";
}

std::optional<CachedElement> cached_element(const OpTrace& op, const TapResult& result) {
  if (!result.worst || result.worst->index.size() != 2) return std::nullopt;
  const RowsCopy* rows = op.cache_rows(result.tap);
  const bool is_cache = rows != nullptr;
  if (!is_cache) {
    // The row before quantisation goes into the one cache that its op writes.
    if ((result.tap != "kv_row" && result.tap != "row") || op.rows.size() != 1) return std::nullopt;
    rows = &op.rows.front();
  }
  CachedElement out;
  out.rows = rows;
  out.token_row = result.worst->index[0];
  const auto found = std::find(rows->tokens.begin(), rows->tokens.end(), out.token_row);
  if (found == rows->tokens.end()) return std::nullopt;
  out.row = found - rows->tokens.begin();
  out.slot = rows->slots[static_cast<std::size_t>(out.row)];
  const std::int64_t at = result.worst->index[1];
  const bool values = !is_cache || as_row_is_values(rows->record) != 0;
  out.dim = values ? at : field_of_byte(rows->record, rows->width, at, rows->heads).dim;
  return out;
}

Selection worst_selection(const StepTrace& step, const OpTrace& op, const TapResult& compared,
                          Selection selection) {
  const TapResult result = shown_result(step, op, compared).result;
  const auto follow = [&](std::int64_t row) {
    if (row < 0 || static_cast<std::size_t>(row) >= step.metadata.positions.size()) return;
    selection.request = step.request_of(row);
    selection.position = step.metadata.positions[static_cast<std::size_t>(row)];
  };
  selection.tap = result.tap;
  selection.element.clear();
  if (!result.worst) return selection;
  if (const TapCopy* tap = op.tap(result.tap)) {
    const auto axes = axes_of(step, op, *tap);
    selection.element = result.worst->index;
    for (std::size_t i = 0; i < std::min(axes.size(), selection.element.size()); ++i) {
      const std::int64_t place = selection.element[i];
      if (axes[i].link == AxisLink::kHead) selection.head = static_cast<int>(place);
      if (axes[i].link == AxisLink::kDim) selection.dim = place;
      if (axes[i].link != AxisLink::kToken) continue;
      if (axes[i].name == "sampled row") selection.element[i] = token_row_at(step, op, place);
      follow(selection.element[i]);
    }
  }
  if (const auto cached = cached_element(op, result)) {
    follow(cached->token_row);
    if (cached->dim >= 0) selection.dim = cached->dim;
  }
  return selection;
}

}  // namespace attnscope
