#include "app/views/worst_element.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "kernels/params/tensor_view.h"

namespace attnscope {
namespace {

// Axis of a tap's copy that holds kept rows; -1 = none.
int token_axis_of(const StepTrace& step, const OpTrace& op, const TapCopy& tap) {
  const std::vector<TapAxis> axes = axes_of(step, op, tap);
  const auto found = std::ranges::find(axes, AxisLink::kToken, &TapAxis::link);
  return found == axes.end() ? -1 : static_cast<int>(found - axes.begin());
}

// Index of a result's element along the axes of the copy; rank 0: its row is not kept.
TapIndex index_in_copy(const StepTrace& step, const OpTrace& op, const TapCopy& tap,
                       const WorstElement& worst) {
  TapIndex index(worst.index);
  if (index.rank != tap.value.rank) return {};
  // A result counts rows as the op did: after the layers those that are sampled, which are kept.
  const bool sampled = as_op_find(op.place.op)->phase == AS_PHASE_AFTER;
  const int axis = token_axis_of(step, op, tap);
  if (axis >= 0 && !sampled) index[axis] = step.kept_index(index[axis]);
  for (int i = 0; i < index.rank; ++i) {
    if (index[i] < 0 || index[i] >= tap.value.shape[i]) return {};
  }
  return index;
}

std::optional<WorstElement> worst_of_copy(const StepTrace& step, const OpTrace& op,
                                          const TapCopy& tap, const TapResult& result) {
  const auto kept = kept_rule(op, tap, result.dtype);
  if (!kept) return std::nullopt;
  Comparison found;
  if (kept->rule.top_k) {
    const TapCopy *logits = op.tap("logits"), *lens = op.tap("lens");
    if (logits == nullptr || lens == nullptr || logits->value.data == nullptr ||
        lens->value.data == nullptr) {
      return std::nullopt;
    }
    found = compare_top_k(tap.value, tap.reference, logits->value,
                          static_cast<const std::int32_t*>(lens->value.data), kept->rule);
  } else {
    found = compare(tap.value, tap.reference, kept->mask, kept->rule);
  }
  if (found.worst.index.empty() || !(found.budget_used > 0)) return std::nullopt;
  const int axis = token_axis_of(step, op, tap);
  if (axis >= 0) {
    std::int64_t& row = found.worst.index[static_cast<std::size_t>(axis)];
    row = token_row_at(step, op, row);
  }
  return found.worst;
}

// The first element of a kept row that is not the reference's: bytes are equal or they are not.
std::optional<WorstElement> worst_of_rows(const RowsCopy& rows) {
  if (rows.reference.size() != rows.bytes.size()) return std::nullopt;
  const auto differs = std::ranges::mismatch(rows.bytes, rows.reference).in1;
  if (differs == rows.bytes.end()) return std::nullopt;
  const auto at = static_cast<std::int64_t>(differs - rows.bytes.begin());
  const std::int64_t row = at / rows.row_bytes, byte = at % rows.row_bytes;
  const std::int64_t token = rows.tokens[static_cast<std::size_t>(row)];
  if (as_row_is_values(rows.record) == 0) {
    const auto i = static_cast<std::size_t>(at);
    return WorstElement{
        {token, byte}, static_cast<double>(rows.bytes[i]), static_cast<double>(rows.reference[i])};
  }
  const std::int64_t first = at - byte % 4;
  const auto number = [first](const std::vector<std::uint8_t>& bytes) {
    float value = 0;
    std::memcpy(&value, bytes.data() + first, sizeof(value));
    return static_cast<double>(value);
  };
  return WorstElement{{token, byte / 4}, number(rows.bytes), number(rows.reference)};
}

}  // namespace

std::optional<KeptRule> kept_rule(const OpTrace& op, const TapCopy& tap, const std::string& dtype) {
  if (!present(tap.reference) || tap.value.data == nullptr) return std::nullopt;
  static const Result<Tolerances> tolerances = Tolerances::load();
  if (!tolerances) return std::nullopt;
  const auto rule = tolerances->find(op.place.op, tap.name, op.lane, tap.rule, dtype);
  if (!rule) return std::nullopt;
  KeptRule out{*rule, {}};
  const TapGaps gaps = gaps_of(op, tap);
  if (gaps.slots != nullptr) {
    out.mask.slots = static_cast<const std::int64_t*>(gaps.slots->value.data);
  }
  if (gaps.lens != nullptr) out.mask.lens = static_cast<const std::int32_t*>(gaps.lens->value.data);
  return out;
}

ShownResult shown_result(const StepTrace& step, const OpTrace& op, const TapResult& result) {
  ShownResult shown{result, std::nullopt};
  if (!result.worst) return shown;
  if (const RowsCopy* rows = op.cache_rows(result.tap)) {
    if (std::ranges::count(rows->tokens, result.worst->index[0]) > 0) return shown;
    shown.elsewhere = result.worst;
    shown.result.worst = worst_of_rows(*rows);
    return shown;
  }
  const TapCopy* tap = op.tap(result.tap);
  if (tap == nullptr || index_in_copy(step, op, *tap, *result.worst).rank > 0) return shown;
  shown.elsewhere = result.worst;
  shown.result.worst = worst_of_copy(step, op, *tap, result);
  return shown;
}

TapIndex worst_index(const StepTrace& step, const OpTrace& op, const TapCopy& tap,
                     const ShownResult& shown) {
  return shown.result.worst ? index_in_copy(step, op, tap, *shown.result.worst) : TapIndex();
}

}  // namespace attnscope
