#include "engine/tensorfile/float_value.h"

#include <cmath>
#include <cstring>

#include "kernels/cpu/codec.h"

namespace attnscope {
namespace {

// IEEE binary16: bias 15, 10 bits of mantissa.
double f16_value(std::uint16_t bits) {
  const int exponent = bits >> 10 & 31, mantissa = bits & 1023;
  const double size = exponent == 31  ? mantissa == 0 ? INFINITY : NAN
                      : exponent == 0 ? std::ldexp(mantissa, -24)
                                      : std::ldexp(1024 + mantissa, exponent - 25);
  return (bits & 0x8000) != 0 ? -size : size;
}

}  // namespace

bool is_float(ElementType type) {
  return type == ElementType::kF64 || type == ElementType::kF32 || type == ElementType::kF16 ||
         type == ElementType::kBf16;
}

double float_value(ElementType type, const std::uint8_t* at) {
  const auto read = [at]<class T>(T value) {
    std::memcpy(&value, at, sizeof(value));
    return value;
  };
  switch (type) {
    case ElementType::kBf16:
      return static_cast<double>(cpu::bf16_to_float(read(std::uint16_t{})));
    case ElementType::kF16:
      return f16_value(read(std::uint16_t{}));
    case ElementType::kF32:
      return static_cast<double>(read(float{}));
    default:
      return read(double{});
  }
}

double float_value(const TensorEntry& entry, std::int64_t i) {
  return float_value(entry.type, entry.data + i * (element_bits(entry.type) / 8));
}

}  // namespace attnscope
