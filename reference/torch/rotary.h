// Rotary embedding, RMS norm and the Hadamard transform of float64 tensors.
#pragma once

#include <cstdint>
#include <span>

#include "kernels/params/tensor.h"
#include "reference/torch/numbers.h"
#include "reference/torch/tensors.h"

namespace attnscope::reference {

// cos and sin [T,pairs] at the positions of T tokens.
struct Rotation {
  Tensor cos, sin;

  // Of tokens first .. first + n - 1.
  Rotation narrow(std::int64_t first, std::int64_t n) const {
    return {cos.narrow(0, first, n), sin.narrow(0, first, n)};
  }
  Rotation inverse() const { return {cos, sin.neg()}; }
};
// Rows of a table, cos then sin.
Rotation rotation_of(const as_tensor& table, const Tensor& positions);
// From frequencies (rope_row).
Rotation rotation_of(std::span<const double> frequencies, const Tensor& positions, bool exact);
// Of a layer's embedding, of 64 dims. A table is data, not the arithmetic under test: where one is
// given its rows are taken as they are, for ref.exact too.
Rotation rotation_of(const as_rope& rope, const Tensor& positions, bool exact);

// The pairs (a, b), each [T,..,pairs], times cos + i sin, in place.
void rotate(Tensor a, Tensor b, const Rotation& r);
// The last dims of x [T,..,D] as neighbouring pairs; in place, or in a copy.
Tensor rotate(Tensor x, const Rotation& r);
inline Tensor rotated(const Tensor& x, const Rotation& r) { return rotate(x.clone(), r); }

// x * rsqrt(mean(x^2) + eps) along the last dimension.
Tensor normalised(const Tensor& x, double eps, const Numbers& numbers);

// H x / sqrt(n) along the last dimension, H the Sylvester Hadamard matrix of size n, a power of
// two.
Tensor hadamard(const Tensor& x);

}  // namespace attnscope::reference
