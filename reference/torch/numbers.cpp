#include "reference/torch/numbers.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "reference/torch/tensors.h"

namespace attnscope::reference {

namespace {

constexpr std::int64_t kSign = std::numeric_limits<std::int64_t>::min();
constexpr std::int64_t kExponent = 0x7FF0000000000000;

Tensor bits_of(const Tensor& x) { return x.view(at::kLong); }

// 2^e of integers -1022 .. 1023.
Tensor power_of_two(const Tensor& e) {
  return e.to(at::kLong).add(1023).bitwise_left_shift(52).view(at::kDouble);
}

// out = the nearest numbers of x; both contiguous.
void round_to_nearest(Tensor out, const Tensor& x, int bits, int lowest) {
  // m is 1.5 * 2^(exponent + 52 - bits): where x + m lies, numbers are a step apart.
  const double least = std::ldexp(1.5, lowest + 52 - bits), most = std::ldexp(1.5, 900);
  const Tensor m = bits_of(x).bitwise_and(kExponent).view(at::kDouble);
  m.mul_(std::ldexp(1.5, 52 - bits)).clamp_(least, most);
  at::add_out(out, x, m).sub_(m);
  bits_of(out).bitwise_or_(bits_of(x).bitwise_and(kSign));  // of what became zero
}

// What f(out, x) makes of blocks of x that stay in a cache.
template <class F>
Tensor mapped(const Tensor& x, const F& f) {
  const Tensor dense = x.contiguous(), result = at::empty_like(dense);
  const Tensor from = dense.view(-1), to = result.view(-1);
  in_blocks(from.numel(), 4, [&](std::int64_t first, std::int64_t n) {
    f(to.narrow(0, first, n), from.narrow(0, first, n));
  });
  return result;
}

// Tables by code, made once and kept on the host and on the device.
template <class F>
Tensor by_code(const Tensor& codes, const F& value) {
  static const Tensor host = [&] {
    const Tensor values = at::empty({256}, at::kDouble);
    for (int code = 0; code < 256; ++code) values.data_ptr<double>()[code] = value(code);
    return values;
  }();
  if (codes.is_cpu() && codes.scalar_type() == at::kByte) {
    const Tensor dense = codes.contiguous(), values = at::empty(codes.sizes(), at::kDouble);
    const double* table = host.data_ptr<double>();
    const auto* from = dense.data_ptr<std::uint8_t>();
    auto* to = values.data_ptr<double>();
    for (std::int64_t i = 0; i < dense.numel(); ++i) to[i] = table[from[i]];
    return values;
  }
  const auto on_device = [&]() -> const Tensor& {
    static const Tensor table = host.to(codes.device());
    return table;
  };
  return (codes.is_cpu() ? host : on_device())
      .index_select(0, codes.reshape(-1).to(at::kLong))
      .view(codes.sizes());
}

#define ATTNSCOPE_INLINE [[gnu::always_inline]] inline

// The nearest number of bf16, infinite from 2^128 on.
ATTNSCOPE_INLINE double nearest_bf16(double x) {
  const auto bits = std::bit_cast<std::int64_t>(x);
  const double scale = std::bit_cast<double>(bits & kExponent) * 0x1.8p45;
  const double m = std::min(std::max(scale, 0x1.8p-81), 0x1.8p900);
  const double rounded = ((x + m) - m) * 0x1p896 * 0x1p-896;
  return std::bit_cast<double>(std::bit_cast<std::int64_t>(rounded) | (bits & kSign));
}

ATTNSCOPE_INLINE void to_nearest(const double* x, double* out, std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) out[i] = nearest_bf16(x[i]);
}

ATTNSCOPE_INLINE void to_nearest(const double* x, std::int16_t* out, std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) {
    const auto bits = std::bit_cast<std::uint32_t>(static_cast<float>(nearest_bf16(x[i])));
    out[i] = static_cast<std::int16_t>(bits >> 16);
  }
}

// bf16 numbers, by their bits.
ATTNSCOPE_INLINE void to_nearest(const std::int16_t* x, double* out, std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) {
    const auto bits = static_cast<std::uint32_t>(static_cast<std::uint16_t>(x[i])) << 16;
    out[i] = std::bit_cast<float>(bits);
  }
}

// The loops for registers of each width: the same bits from all.
template <class In, class Out>
void to_nearest_128(const In* x, Out* out, std::int64_t n) {
  to_nearest(x, out, n);
}
#ifdef __x86_64__
template <class In, class Out>
[[gnu::target("avx2")]] void to_nearest_256(const In* x, Out* out, std::int64_t n) {
  to_nearest(x, out, n);
}
template <class In, class Out>
[[gnu::target("avx512f,avx512dq,avx512bw,avx512vl")]] void to_nearest_512(const In* x, Out* out,
                                                                          std::int64_t n) {
  to_nearest(x, out, n);
}
#endif

template <class In, class Out>
auto widest_to_nearest() {
#ifdef __x86_64__
  if (__builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512bw") &&
      __builtin_cpu_supports("avx512vl")) {
    return to_nearest_512<In, Out>;
  }
  if (__builtin_cpu_supports("avx2")) return to_nearest_256<In, Out>;
#endif
  return to_nearest_128<In, Out>;
}

// out[i] = x[i] or the nearest number to it, of n side by side on the host.
template <class In, class Out>
void each(const In* x, Out* out, std::int64_t n) {
  static const auto kLoop = widest_to_nearest<In, Out>();
  kLoop(x, out, n);
}

// The same of tensors of one shape on the host, whose first numbers these are. False where neither
// all numbers nor those of each of many rows lie side by side.
template <class In, class Out>
bool rows_to_nearest(const Tensor& x, const In* from, const Tensor& out, Out* to) {
  if (x.is_contiguous() && out.is_contiguous()) {
    each(from, to, x.numel());
    return true;
  }
  if (x.dim() != 2 || x.stride(1) != 1 || out.stride(1) != 1) return false;
  for (std::int64_t t = 0; t < x.size(0); ++t) {
    each(from + t * x.stride(0), to + t * out.stride(0), x.size(1));
  }
  return true;
}

double small_float(int code, int fraction_bits, int bias) {
  const int exponent = code >> fraction_bits, fraction = code & ((1 << fraction_bits) - 1);
  if (exponent == 0) return std::ldexp(fraction, 1 - bias - fraction_bits);
  return std::ldexp((1 << fraction_bits) + fraction, exponent - bias - fraction_bits);
}

// Codes of numbers of a format with this fraction and bias: times 2^(bias - 127) they lie in a
// binary32 as in their own format, but for the bits behind the fraction.
Tensor codes_of(const Tensor& x, int fraction_bits, int bias, int sign_bit) {
  const Tensor bits = x.mul(std::ldexp(1.0, bias - 127)).to(at::kFloat).view(at::kInt);
  const Tensor sign = bits.bitwise_right_shift(31 - sign_bit).bitwise_and_(1 << sign_bit);
  const Tensor magnitude = bits.bitwise_and(0x7FFFFFFF).bitwise_right_shift_(23 - fraction_bits);
  return magnitude.bitwise_or_(sign).to(at::kByte);
}

// Smallest e with max|x| <= fraction * 2^(limit + e), fraction in [1/2, 1).
Tensor exponents_of(const Tensor& x, double floor, double fraction, int limit) {
  const Tensor magnitude = x.abs();
  Tensor most = magnitude.amax(-1, true);
  if (most.isnan().any().item<bool>()) {
    most = magnitude.masked_fill(magnitude.isnan(), 0).amax(-1, true);
  }
  most.clamp_min_(floor);
  const auto [mantissa, exponent] = at::frexp(most);
  return (exponent - limit + mantissa.gt(fraction))
      .to(at::kLong)
      .masked_fill_(most.isinf(), kInfiniteExponent);
}

}  // namespace

Tensor nearest(const Tensor& x, int bits, int lowest) {
  return mapped(
      x, [&](const Tensor& out, const Tensor& part) { round_to_nearest(out, part, bits, lowest); });
}

Tensor round_to_bf16(const Tensor& x) {
  if (!x.is_cpu()) return nearest(x, 7, -126).mul_(0x1p896).mul_(0x1p-896);  // from 2^128 infinite
  // The same in one pass in the place of nine.
  const Tensor dense = x.contiguous(), result = at::empty_like(dense);
  each(dense.data_ptr<double>(), result.data_ptr<double>(), dense.numel());
  return result;
}

Tensor in_bf16(const Tensor& x) {
  // libtorch goes to bf16 by way of fp32, which is two roundings, and has one NaN.
  if (!x.is_cpu()) {
    const Tensor bits = round_to_bf16(x).to(at::kFloat).view(at::kInt);
    return bits.bitwise_right_shift(16).to(at::kShort).view(at::kBFloat16);
  }
  const Tensor result = at::empty(x.sizes(), at::kBFloat16);
  to_bf16(x, result);
  return result;
}

void to_bf16(const Tensor& x, const Tensor& out) {
  const Tensor dense = x.contiguous();
  auto* to = reinterpret_cast<std::int16_t*>(out.data_ptr<at::BFloat16>());
  if (!rows_to_nearest(dense, dense.data_ptr<double>(), out, to)) out.copy_(in_bf16(dense));
}

Tensor doubles(const Tensor& x) {
  if (!x.is_cpu() || x.scalar_type() != at::kBFloat16) return x.to(at::kDouble);
  const Tensor result = at::empty(x.sizes(), at::kDouble);
  const auto* from = reinterpret_cast<const std::int16_t*>(x.data_ptr<at::BFloat16>());
  const bool there = rows_to_nearest(x, from, result, result.data_ptr<double>());
  return there ? result : x.to(at::kDouble);
}

Tensor round_to_fp32(const Tensor& x) { return x.to(at::kFloat).to(at::kDouble); }

Tensor round_to_f16(const Tensor& x) {
  return nearest(x, 10, -14).mul_(0x1p1008).mul_(0x1p-1008);  // from 2^16 on infinite
}

Tensor e4m3_codes(const Tensor& x) {
  // 480 would have code 0x7F.
  return codes_of(nearest(x.clamp(-448, 448).nan_to_num_(480), 3, -6), 3, 7, 7);
}

Tensor e4m3_values(const Tensor& codes) {
  return by_code(codes, [](int code) {
    const double value = (code & 0x7F) == 0x7F ? std::nan("") : small_float(code & 0x7F, 3, 7);
    return code & 0x80 ? -value : value;
  });
}

Tensor e5m2_codes(const Tensor& x) {
  // 1.75 * 2^16 would have code 0x7F.
  return codes_of(nearest(x.clamp(-57344, 57344).nan_to_num_(114688), 2, -14), 2, 15, 7);
}

Tensor e5m2_values(const Tensor& codes) {
  return by_code(codes, [](int code) {
    const int magnitude = code & 0x7F;
    const double value = magnitude > 0x7C    ? std::nan("")
                         : magnitude == 0x7C ? std::numeric_limits<double>::infinity()
                                             : small_float(magnitude, 2, 15);
    return code & 0x80 ? -value : value;
  });
}

Tensor e2m1_codes(const Tensor& x, std::int32_t fp4_rule) {
  if (fp4_rule == AS_FP4_EVEN) {
    return codes_of(nearest(x.clamp(-6, 6).nan_to_num_(6), 1, 0), 1, 1, 3);
  }
  // As many codes as there are middles below |x|.
  const Tensor magnitude = x.abs();
  Tensor code = at::zeros_like(x, at::kByte);
  for (const double middle : {0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5.0}) {
    code += magnitude.gt(middle).to(at::kByte);
  }
  code += x.lt(0).logical_and_(code.gt(0)).to(at::kByte).mul_(8);
  return code.masked_fill_(x.isnan(), 7);
}

Tensor e2m1_values(const Tensor& codes) {
  return by_code(codes, [](int code) {
    const double value = small_float(code & 7, 1, 1);
    return code & 8 ? -value : value;
  });
}

Tensor ue8m0_values(const Tensor& bytes) {
  return by_code(bytes,
                 [](int byte) { return byte == 255 ? std::nan("") : std::ldexp(1.0, byte - 127); });
}

Tensor fp8_exponents(const Tensor& x, std::int32_t scale_floor) {
  const double floor = scale_floor == AS_SCALE_FLOOR_1E8    ? 1e-8
                       : scale_floor == AS_SCALE_FLOOR_1E10 ? 1e-10
                                                            : 1e-4;
  return exponents_of(x, floor, 0.875, 9);  // 448 = 0.875 * 2^9
}

Tensor fp4_exponents(const Tensor& x, std::int32_t fp4_rule) {
  const double floor = fp4_rule == AS_FP4_DOWN ? 6 * 1e-4 : 0x1.8p-124;  // or 6 * 2^-126
  return exponents_of(x, floor, 0.75, 3);                                // 6 = 0.75 * 2^3
}

Tensor scale_of(const Tensor& exponents) {
  const double infinity = std::numeric_limits<double>::infinity();
  return power_of_two(exponents.clamp_max(1023))
      .masked_fill_(exponents.eq(kInfiniteExponent), infinity);
}

Tensor inverse_of(const Tensor& exponents) {
  return power_of_two(exponents.clamp_max(1022).neg())
      .masked_fill_(exponents.eq(kInfiniteExponent), 0);
}

Tensor ue8m0_bytes(const Tensor& exponents) {
  return exponents.add(127).clamp_(0, 255).to(at::kByte);
}

}  // namespace attnscope::reference
