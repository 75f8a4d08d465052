#include "reference/torch/rotary.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "kernels/layout/records.h"
#include "reference/rope.h"

namespace attnscope::reference {

Rotation rotation_of(const as_tensor& table, const Tensor& positions) {
  check(table, "rope.table", Kind::kFloat, {kAny, kAny});
  const std::int64_t last = table.shape[0] - 1, pairs = table.shape[1] / 2;
  const Tensor outside = positions.masked_select(positions.lt(0).logical_or_(positions.gt(last)));
  if (outside.numel() > 0) {
    throw BadInput("position " + std::to_string(outside[0].item<std::int64_t>()) +
                   " is outside of rope.table, which has rows 0 to " + std::to_string(last));
  }
  const Tensor rows = in_place(table).index_select(0, positions);
  const Tensor values = rows.to(torch_device()).to(at::kDouble);
  return {values.narrow(1, 0, pairs), values.narrow(1, pairs, pairs)};
}

Rotation rotation_of(std::span<const double> frequencies, const Tensor& positions, bool exact) {
  const auto pairs = static_cast<std::int64_t>(frequencies.size());
  const Tensor cos = at::empty({positions.size(0), pairs}, at::kDouble), sin = at::empty_like(cos);
  for (std::int64_t t = 0; t < positions.size(0); ++t) {
    const RopeRow row = rope_row(frequencies, positions[t].item<std::int64_t>(), exact);
    std::ranges::copy(row.cos, cos.data_ptr<double>() + t * pairs);
    std::ranges::copy(row.sin, sin.data_ptr<double>() + t * pairs);
  }
  return {cos.to(torch_device()), sin.to(torch_device())};
}

Rotation rotation_of(const as_rope& rope, const Tensor& positions, bool exact) {
  if (present(rope.table)) {
    check(rope.table, "rope.table", Kind::kFloat, {kAny, AS_ROPE_DIM});
    return rotation_of(rope.table, positions);
  }
  return rotation_of(std::span<const double>(rope_frequencies(rope)), positions, exact);
}

void rotate(Tensor a, Tensor b, const Rotation& r) {
  std::vector<std::int64_t> shape(static_cast<std::size_t>(a.dim()), 1);
  shape.front() = a.size(0);
  shape.back() = a.size(-1);
  const Tensor cos = r.cos.reshape(shape), sin = r.sin.reshape(shape);
  const Tensor turned = a * cos - b * sin;
  b.copy_(a * sin + b * cos);
  a.copy_(turned);
}

Tensor rotate(Tensor x, const Rotation& r) {
  const std::int64_t dims = 2 * r.cos.size(1);
  const Tensor last = x.narrow(-1, x.size(-1) - dims, dims);
  rotate(last.slice(-1, 0, {}, 2), last.slice(-1, 1, {}, 2), r);
  return x;
}

Tensor normalised(const Tensor& x, double eps, const Numbers& numbers) {
  const double n = static_cast<double>(x.size(-1));
  return x * (numbers.sum(x * x, -1) / n + eps).rsqrt();
}

Tensor hadamard(const Tensor& x) {
  const std::int64_t n = x.size(-1);
  Tensor matrix = at::ones({1, 1}, x.options());
  while (matrix.size(0) < n) {
    matrix = at::cat({at::cat({matrix, matrix}, 1), at::cat({matrix, -matrix}, 1)}, 0);
  }
  return at::matmul(x, matrix) / std::sqrt(static_cast<double>(n));
}

}  // namespace attnscope::reference
