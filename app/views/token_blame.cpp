#include "app/views/token_blame.h"

#include <fmt/format.h>

#include <algorithm>

#include "app/views/error_view.h"
#include "app/views/tensor_view.h"
#include "app/views/worst_element.h"
#include "engine/model/numbers.h"
#include "engine/trace/axis_words.h"
#include "kernels/params/tensor_view.h"

namespace attnscope {
namespace {

// One row of a tap held against its reference once more.
std::optional<Comparison> compare_row(const OpTrace& op, const TapCopy& tap, const KeptRule& kept,
                                      std::int64_t index) {
  const as_tensor value = one_row(tap.value, index), reference = one_row(tap.reference, index);
  if (!kept.rule.top_k) {
    TapMask mask;
    if (kept.mask.slots != nullptr) mask.slots = kept.mask.slots + index;
    if (kept.mask.lens != nullptr) mask.lens = kept.mask.lens + index;
    return compare(value, reference, mask, kept.rule);
  }
  const TapCopy *logits = op.tap("logits"), *lens = op.tap("lens");
  if (logits == nullptr || lens == nullptr || logits->value.data == nullptr ||
      lens->value.data == nullptr) {
    return std::nullopt;
  }
  return compare_top_k(value, reference, one_row(logits->value, index),
                       static_cast<const std::int32_t*>(lens->value.data) + index, kept.rule);
}

// The same of a tap whose second axis is that of tokens.
Comparison compare_inner_row(const TapCopy& tap, const KeptRule& kept, std::int64_t outer,
                             std::int64_t index) {
  const auto inner = [&](as_tensor t) {
    t = one_row(t, outer);
    for (int i = 1; i < t.rank; ++i) {
      t.shape[i - 1] = t.shape[i];
      t.stride[i - 1] = t.stride[i];
    }
    --t.rank;
    return one_row(t, index);
  };
  return compare(inner(tap.value), inner(tap.reference), {}, kept.rule);
}

// Wrong results of a step, as far as they are of some of its rows.
class ResultsOfRows {
 public:
  ResultsOfRows(const StepTrace& step, std::vector<std::int64_t> rows)
      : step_(step), rows_(std::move(rows)) {}

  // As it is of the rows alone; nullopt: they are right.
  std::optional<TapResult> narrowed(const TapResult& result) const {
    const OpTrace* op = step_.find(result.layer, result.op);
    if (op != nullptr && kept(*op)) {
      if (const RowsCopy* rows = op->cache_rows(result.tap); rows != nullptr && has(*rows)) {
        return of_cache(result, *rows);
      }
      const TapCopy* tap = op->tap(result.tap);
      const auto kept = tap == nullptr ? std::nullopt : kept_rule(*op, *tap, result.dtype);
      const int axis = kept ? token_axis(*op, *tap) : -1;
      const bool masked = kept && (kept->mask.slots != nullptr || kept->mask.lens != nullptr);
      if (axis == 0 || (axis == 1 && !masked && !kept->rule.top_k)) {
        return of_tensor(result, *op, *tap, *kept, axis);
      }
    }
    return whole(result);
  }

 private:
  // Values of the rows are not known: it is said of the step.
  static TapResult whole(const TapResult& result) {
    TapResult out = result;
    out.worst.reset();
    return out;
  }

  // Whether any of the rows is among those of an op.
  bool kept(const OpTrace& op) const {
    const bool sampled = as_op_find(op.place.op)->phase == AS_PHASE_AFTER;
    return sampled ||
           std::ranges::any_of(rows_, [&](std::int64_t row) { return step_.kept_index(row) >= 0; });
  }

  static bool has(const RowsCopy& rows) { return rows.reference.size() == rows.bytes.size(); }

  int token_axis(const OpTrace& op, const TapCopy& tap) const {
    const std::vector<TapAxis> axes = axes_of(step_, op, tap);
    const auto found = std::ranges::find(axes, AxisLink::kToken, &TapAxis::link);
    return found == axes.end() ? -1 : static_cast<int>(found - axes.begin());
  }

  std::optional<TapResult> of_tensor(const TapResult& result, const OpTrace& op, const TapCopy& tap,
                                     const KeptRule& kept, int axis) const {
    TapResult out = start(result);
    const bool sampled = as_op_find(op.place.op)->phase == AS_PHASE_AFTER;
    for (const std::int64_t row : rows_) {
      const std::int64_t index = index_of_token_row(step_, op, row);
      if (index < 0 || index >= tap.value.shape[axis]) continue;
      for (std::int64_t outer = 0; outer < (axis == 0 ? 1 : tap.value.shape[0]); ++outer) {
        const auto found = axis == 0 ? compare_row(op, tap, kept, index)
                                     : compare_inner_row(tap, kept, outer, index);
        if (!found) continue;
        out.elements += found->elements;
        if (found->within || found->near_tie) continue;
        out.introduced->beyond += std::max<std::int64_t>(found->figures.beyond, found->anomalies);
        if (out.worst && found->budget_used <= out.budget_used) continue;
        out.budget_used = found->budget_used;
        out.worst = found->worst;
        std::vector<std::int64_t>& at = out.worst->index;
        at.resize(std::max(at.size(), std::size_t{1}));
        at[0] = sampled ? index : row;
        if (axis == 1) at.insert(at.begin(), outer);
      }
    }
    if (!out.worst) return std::nullopt;
    return out;
  }

  std::optional<TapResult> of_cache(const TapResult& result, const RowsCopy& rows) const {
    TapResult out = start(result);
    for (std::size_t i = 0; i < rows.tokens.size(); ++i) {
      if (!std::ranges::binary_search(rows_, std::int64_t{rows.tokens[i]})) continue;
      const std::size_t first = i * to_size(rows.row_bytes);
      for (std::size_t byte = 0; byte < to_size(rows.row_bytes); ++byte) {
        ++out.elements;
        const int value = rows.bytes[first + byte], reference = rows.reference[first + byte];
        if (value == reference) continue;
        ++out.introduced->beyond;
        if (out.worst) continue;
        out.worst = WorstElement{{rows.tokens[i], static_cast<std::int64_t>(byte)},
                                 static_cast<double>(value),
                                 static_cast<double>(reference)};
      }
    }
    if (!out.worst) return std::nullopt;
    return out;
  }

  static TapResult start(const TapResult& result) {
    TapResult out = result;
    out.worst.reset();
    out.elements = 0;
    out.budget_used = 0;
    out.introduced = ErrorFigures();
    return out;
  }

  const StepTrace& step_;
  std::vector<std::int64_t> rows_;  // ascending
};

std::string place_words(const TapResult& r, bool cache) {
  const std::string what = fmt::format("{}{}{}", cache ? "the cache that " : "",
                                       as_op_find(r.op)->name, cache ? " reads" : "");
  const std::string lane = r.lane.empty() ? "" : fmt::format(" (lane {})", r.lane);
  return r.layer < 0 ? fmt::format("step {}, {}{}", r.step, what, lane)
                     : fmt::format("step {}, layer {}, {}{}", r.step, r.layer, what, lane);
}

// Row of the step that a worst element lies in.
std::int64_t token_of(const StepTrace& step, const TapResult& r) {
  const as_op_info& info = *as_op_find(r.op);
  std::size_t axis = 0;
  for (std::uint32_t i = 0; i < info.num_taps; ++i) {
    if (r.tap != info.taps[i].name) continue;
    const std::vector<std::string> letters = split_axes(info.taps[i].axes);
    if (letters.size() > 1 && letters[1] == "T") axis = 1;
  }
  const std::int64_t row = r.worst->index[axis];
  return info.phase == AS_PHASE_AFTER ? step.metadata.sample_rows[to_size(row)] : row;
}

TokenGuilt guilt_of(const StepTrace& step, const Blame& blamed) {
  const TapResult& r = blamed.first;
  TokenGuilt out;
  out.place = {r.step, r.layer, r.op};
  out.tap = r.tap;
  out.lane = r.lane;
  out.cache = blamed.cache;
  out.sentence = fmt::format("{}, tap {}: ", place_words(r, blamed.cache), r.tap);
  if (!r.worst) {
    out.elements = r.elements;
    out.beyond = r.introduced ? r.introduced->beyond : 0;
    out.sentence += r.note.empty() ? "wrong" : r.note;
    return out;
  }
  out.token = token_of(step, r);
  out.position = step.metadata.positions[to_size(out.token)];
  out.elements = r.elements;
  out.beyond = r.introduced->beyond;
  const std::string where = worst_text(step, r);
  out.sentence += fmt::format("{} of {} elements are wrong, the worst at {}: {}", out.beyond,
                              out.elements, where, worst_words(r));
  return out;
}

std::optional<TokenGuilt> first_of(const StepTrace& trace, const StepSummary& summary,
                                   std::vector<std::int64_t> rows, bool before) {
  if (rows.empty()) return std::nullopt;
  const ResultsOfRows of_rows(trace, std::move(rows));
  std::vector<TapResult> wrong;
  for (const TapResult& result : summary.results) {
    if (result.verdict != Verdict::kWrong) continue;
    // No later token reads what comes after the layers.
    if (before && as_op_find(result.op)->phase == AS_PHASE_AFTER) continue;
    auto narrowed = of_rows.narrowed(result);
    // A step as a whole is asked for the token itself alone.
    if (narrowed && (narrowed->worst || !before)) wrong.push_back(std::move(*narrowed));
  }
  const std::vector<Blame> blamed = blame(wrong);
  if (blamed.empty()) return std::nullopt;
  // What is known of the rows goes before what is said of the step.
  const auto known =
      std::ranges::find_if(blamed, [](const Blame& b) { return b.first.worst.has_value(); });
  return guilt_of(trace, known == blamed.end() ? blamed.front() : *known);
}

// What is wrong in the step and may be of rows of tokens before one that a later step computes.
std::optional<TokenGuilt> unclear_of(const StepTrace& trace, const StepSummary& summary,
                                     std::vector<std::int64_t> rows) {
  const bool any = !rows.empty();
  const ResultsOfRows of_rows(trace, std::move(rows));
  for (const TapResult& result : summary.results) {
    if (result.verdict != Verdict::kWrong) continue;
    const as_op_info& op = *as_op_find(result.op);
    if (op.phase == AS_PHASE_AFTER || (!any && op.role != AS_ROLE_COPY)) continue;
    const auto narrowed = of_rows.narrowed(result);
    if (!narrowed || narrowed->worst) continue;
    if (const auto blamed = blame({*narrowed}); !blamed.empty()) {
      return guilt_of(trace, blamed.front());
    }
  }
  return std::nullopt;
}

}  // namespace

bool TokenBlame::add(const StepTrace& trace, const StepSummary& summary) {
  const StepMetadata& step = trace.metadata;
  std::vector<std::int64_t> earlier;
  std::int64_t own = -1;
  for (std::int64_t row = 0; row < step.num_tokens_in_step(); ++row) {
    if (trace.request_of(row) != request_) continue;
    const std::int64_t position = step.positions[to_size(row)];
    first_ = first_ < 0 ? position : std::min(first_, position);
    last_ = std::max(last_, position);
    if (position < position_) earlier.push_back(row);
    if (position == position_) own = row;
  }
  if (!before_) before_ = first_of(trace, summary, earlier, true);
  // What is wrong in the token's own step is said of that.
  if (own < 0 && !unclear_) unclear_ = unclear_of(trace, summary, std::move(earlier));
  if (own < 0) return false;
  step_ = trace.step;
  token_ = own;
  kept_ = trace.kept_index(own) >= 0;
  own_ = first_of(trace, summary, {own}, false);
  return true;
}

}  // namespace attnscope
