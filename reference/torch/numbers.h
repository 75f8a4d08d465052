// Number formats on float64 tensors: rounding, codes, scales. Only tensor operations, so that they
// run on any device; every rounding is done once, to nearest even, and exact in float64.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>

#include "kernels/params/numeric_rules.h"
#include "reference/precision.h"

namespace attnscope::reference {

using at::Tensor;

// Nearest number with a fraction of `bits` bits, in steps of 2^(lowest - bits) below 2^lowest.
// Largest exponents are left to the caller.
Tensor nearest(const Tensor& x, int bits, int lowest);

Tensor round_to_bf16(const Tensor& x);  // overflow gives infinity
Tensor in_bf16(const Tensor& x);        // the same numbers as bf16
// The same into a bf16 tensor of this shape on the host.
void to_bf16(const Tensor& x, const Tensor& out);
// x in float64.
Tensor doubles(const Tensor& x);
Tensor round_to_fp32(const Tensor& x);
Tensor round_to_f16(const Tensor& x);  // beyond 65504 infinite

// u8 codes of e4m3fn: saturates at +-448, NaN is 0x7F.
Tensor e4m3_codes(const Tensor& x);
Tensor e4m3_values(const Tensor& codes);
// u8 codes of e5m2: saturates at +-57344, infinities too; NaN is 0x7F.
Tensor e5m2_codes(const Tensor& x);
Tensor e5m2_values(const Tensor& codes);
// u8 codes 0..15 of e2m1: saturates at +-6, NaN is 7. AS_FP4_DOWN: ties towards zero, no -0.
Tensor e2m1_codes(const Tensor& x, std::int32_t fp4_rule);
Tensor e2m1_values(const Tensor& codes);
// UE8M0 bytes: byte b is 2^(b - 127), 255 is NaN.
Tensor ue8m0_values(const Tensor& bytes);

// Scales of blocks, which lie along the last dimension; NaN counts nothing. Exponents [..., 1]: the
// smallest e with max|x| <= 448 * 2^e (6 * 2^e), the maximum being raised to the format's floor;
// kInfiniteExponent of an infinite one.
inline constexpr std::int64_t kInfiniteExponent = 4096;
Tensor fp8_exponents(const Tensor& x, std::int32_t scale_floor = AS_SCALE_FLOOR_1E4);
Tensor fp4_exponents(const Tensor& x, std::int32_t fp4_rule);
Tensor scale_of(const Tensor& exponents);    // 2^e, infinite of kInfiniteExponent
Tensor inverse_of(const Tensor& exponents);  // 2^-e, 0 of kInfiniteExponent
Tensor ue8m0_bytes(const Tensor& exponents);

// What the lanes differ in: where values are rounded, and in what sums are done.
struct Numbers : Precision {
  explicit Numbers(const Precision& precision) : Precision(precision) {}

  Tensor bf16(const Tensor& x) const { return exact ? x : round_to_bf16(x); }
  Tensor fp32(const Tensor& x) const { return exact ? x : round_to_fp32(x); }
  at::ScalarType sums() const { return fp32_sums ? at::kFloat : at::kDouble; }
  // Sum over a dimension, which stays with size 1.
  Tensor sum(const Tensor& x, std::int64_t dim) const {
    return x.to(sums()).sum(dim, true).to(at::kDouble);
  }
  // a [m,k] b [k,n], or batches of them.
  Tensor product(const Tensor& a, const Tensor& b) const {
    return at::matmul(a.to(sums()), b.to(sums())).to(at::kDouble);
  }
};

}  // namespace attnscope::reference
