#include "engine/trace/recheck.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "engine/trace/plain_number.h"
#include "kernels/params/tensor_view.h"

namespace attnscope {
namespace {

using Index = std::vector<std::int64_t>;

// A row (last axis) of a tensor.
class Row {
 public:
  // The last index counts nothing.
  Row(const as_tensor& t, const Index& index)
      : step_(t.stride[t.rank - 1] * as_dtype_size(t.dtype)), dtype_(t.dtype) {
    std::int64_t at = 0;
    for (std::size_t axis = 0; axis + 1 < index.size(); ++axis) at += index[axis] * t.stride[axis];
    begin_ = static_cast<const char*>(t.data) + at * as_dtype_size(t.dtype);
  }
  // Whether so many elements, side by side in memory, are the same bytes: whatever they are, they
  // pass.
  bool same_bytes(const Row& other, std::int64_t columns) const {
    const std::int64_t size = as_dtype_size(dtype_);
    return dtype_ == other.dtype_ && step_ == size && other.step_ == size &&
           std::memcmp(begin_, other.begin_, static_cast<std::size_t>(columns * size)) == 0;
  }
  double operator[](std::int64_t c) const { return plain_number(begin_ + c * step_, dtype_); }

 private:
  const char* begin_;
  std::int64_t step_;
  std::int32_t dtype_;
};

// Distance of neighbours in bf16.
double step_at(double magnitude) {
  return std::ldexp(1, std::max(magnitude > 0 ? std::ilogb(magnitude) : -126, -126) - 7);
}

bool is_rounded(double a, double b, std::int32_t dtype) {
  if (dtype == AS_F32) return a == static_cast<double>(static_cast<float>(b));
  if (dtype != AS_BF16) return a == b;
  // Nearest, of two the even one: whoever is nearer than half a step is.
  const double step = step_at(std::fabs(b));
  return a == std::nearbyint(b / step) * step;
}

bool passes(double a, double b, double row_max, std::int32_t dtype, const Tolerance& t) {
  if (std::isnan(a) || std::isnan(b)) return std::isnan(a) && std::isnan(b);
  if (a == b || std::isinf(a) || std::isinf(b)) return a == b;
  if (is_rounded(a, b, dtype)) return true;
  if (t.exact) return false;
  double bound = std::max({t.abs, t.rel * std::fabs(b), t.row_max * row_max});
  if (dtype == AS_BF16) {
    bound = std::max(bound, t.bf16_ulp * step_at(std::max(std::fabs(a), std::fabs(b))));
  }
  return std::fabs(a - b) <= bound * (1 + 1e-9);
}

// Visits the rows (last axis) of a place of the first axis.
template <class Visit>
void rows_of(const as_tensor& t, std::int64_t place, const Visit& visit) {
  Index index(static_cast<std::size_t>(t.rank), 0);
  if (t.rank > 1) index[0] = place;
  for (bool more = true; more;) {
    visit(index);
    more = false;
    for (std::int32_t axis = t.rank - 2; axis >= 1 && !more; --axis) {
      auto& at = index[static_cast<std::size_t>(axis)];
      more = ++at < t.shape[axis];
      if (!more) at = 0;
    }
  }
}

}  // namespace

std::string passed_over(const as_tensor& value, const as_tensor& reference, const TapMask& mask,
                        const Tolerance& tolerance) {
  if (value.rank == 0 || as_tensor_numel(&value) == 0) return {};
  std::vector<std::int64_t> places;
  for (std::int64_t i = 0; i < (value.rank > 1 ? value.shape[0] : 1); ++i) {
    if (mask.slots != nullptr && mask.slots[i] < 0) continue;
    if (mask.left_out != nullptr && (*mask.left_out)[static_cast<std::size_t>(i)]) continue;
    if (mask.lens == nullptr || mask.lens[i] > 0) places.push_back(i);
  }
  if (places.empty()) return {};
  std::string found;
  std::vector<std::int64_t> some = {places.front(), places[places.size() / 2], places.back()};
  some.erase(std::unique(some.begin(), some.end()), some.end());
  for (const std::int64_t place : some) {
    std::int64_t columns = value.shape[value.rank - 1];
    if (mask.lens != nullptr) columns = std::min<std::int64_t>(columns, mask.lens[place]);
    rows_of(value, place, [&](Index index) {
      const Row is(value, index), must(reference, index);
      if (is.same_bytes(must, columns)) return;
      double row_max = 0;
      for (std::int64_t c = 0; tolerance.row_max > 0 && c < columns; ++c) {
        const double b = std::fabs(must[c]);
        if (std::isfinite(b)) row_max = std::max(row_max, b);
      }
      for (std::int64_t c = 0; c < columns && found.empty(); ++c) {
        const double a = is[c], b = must[c];
        if (passes(a, b, row_max, value.dtype, tolerance)) continue;
        index.back() = c;
        found =
            fmt::format("the comparison passed element [{}], which is {:.6g} and should be {:.6g}",
                        fmt::join(index, ","), a, b);
      }
    });
  }
  return found;
}

}  // namespace attnscope
