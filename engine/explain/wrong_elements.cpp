#include "engine/explain/wrong_elements.h"

#include <algorithm>
#include <cmath>

#include "engine/model/numbers.h"

namespace attnscope {

std::int64_t WrongElements::stride(std::size_t axis) const {
  std::int64_t n = 1;
  for (std::size_t i = axis + 1; i < shape.size(); ++i) n *= shape[i];
  return n;
}

std::int64_t WrongElements::place(std::int64_t element, std::size_t axis) const {
  return element / stride(axis) % shape[axis];
}

WrongElements wrong_elements(const as_tensor& value, const as_tensor& reference,
                             const TapMask& mask, const Tolerance& tolerance) {
  WrongElements out;
  out.shape.assign(value.shape, value.shape + value.rank);
  if (out.shape.empty() || std::ranges::find(out.shape, 0) != out.shape.end()) return out;
  const std::int64_t per_first = out.stride(0);
  out.shape[0] = std::clamp<std::int64_t>(kMostPatternElements / per_first, 1, out.shape[0]);
  const std::int64_t columns = out.columns(), rows = out.shape[0] * per_first / columns;
  out.value.resize(to_size(rows * columns));
  out.reference.resize(out.value.size());
  out.wrong.assign(out.value.size(), 0);
  for (std::int64_t row = 0; row < rows; ++row) {
    // A tensor with one axis is one row.
    const std::int64_t first = value.rank > 1 ? row * columns / per_first : 0;
    for (std::int64_t c = 0; c < columns; ++c) {
      const auto i = to_size(row * columns + c);
      out.value[i] = element(value, row, c);
      out.reference[i] = element(reference, row, c);
    }
    if (mask.slots != nullptr && mask.slots[first] < 0) continue;
    if (mask.left_out != nullptr && (*mask.left_out)[to_size(first)]) continue;
    const std::int64_t valid =
        mask.lens != nullptr ? std::clamp<std::int64_t>(mask.lens[first], 0, columns) : columns;
    out.elements += valid;
    double largest = 0;
    for (std::int64_t c = 0; c < valid; ++c) {
      const double reference_at = out.reference[to_size(row * columns + c)];
      if (std::isfinite(reference_at)) largest = std::max(largest, std::fabs(reference_at));
    }
    for (std::int64_t c = 0; c < valid; ++c) {
      const auto i = to_size(row * columns + c);
      if (element_budget(out.value[i], out.reference[i], largest, tolerance) <= 1) continue;
      out.wrong[i] = 1;
      ++out.count;
    }
  }
  return out;
}

}  // namespace attnscope
