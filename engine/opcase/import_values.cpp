#include "engine/opcase/import_values.h"

#include <cmath>
#include <cstring>

#include "kernels/cpu/codec.h"
#include "kernels/params/tensor.h"

namespace attnscope {

double value_of(ElementType type, const std::uint8_t* at) {
  const auto read = [at]<class T>(T value) {
    std::memcpy(&value, at, sizeof(value));
    return value;
  };
  switch (type) {
    case ElementType::kF64:
    case ElementType::kF32:
    case ElementType::kBf16:
    case ElementType::kF16:
      return float_value(type, at);
    case ElementType::kI64:
      return static_cast<double>(read(std::int64_t{}));
    case ElementType::kI32:
      return read(std::int32_t{});
    case ElementType::kI16:
      return read(std::int16_t{});
    case ElementType::kI8:
      return read(std::int8_t{});
    case ElementType::kU32:
      return read(std::uint32_t{});
    case ElementType::kU16:
      return read(std::uint16_t{});
    default:
      return *at;
  }
}

bool has_value(ElementType type) { return type != ElementType::kU64 && type != ElementType::kF4; }

bool is_fp8(ElementType type) {
  return type == ElementType::kF8E4m3 || type == ElementType::kF8E5m2 ||
         type == ElementType::kF8E4m3Fnuz || type == ElementType::kF8E5m2Fnuz ||
         type == ElementType::kF8E8m0;
}

bool is_plain_byte(ElementType type) {
  return type == ElementType::kU8 || type == ElementType::kF8E4m3 || type == ElementType::kF8E8m0;
}

bool put_value(double value, std::int32_t dtype, bool round, std::uint8_t* to) {
  const auto put = [&](auto converted) {
    std::memcpy(to, &converted, sizeof(converted));
    return round || static_cast<double>(converted) == value || std::isnan(value);
  };
  switch (dtype) {
    case AS_F64:
      return put(value);
    case AS_F32:
      return put(static_cast<float>(value));
    case AS_BF16: {
      const std::uint16_t bits = cpu::float_to_bf16(cpu::round_bf16(value));
      std::memcpy(to, &bits, sizeof(bits));
      return round || static_cast<double>(cpu::bf16_to_float(bits)) == value || std::isnan(value);
    }
    case AS_I32:
      return std::fabs(value) < 0x1p31 && put(static_cast<std::int32_t>(value));
    case AS_I64:
      return std::fabs(value) < 0x1p53 && put(static_cast<std::int64_t>(value));
    default:
      return value >= 0 && value < 256 && put(static_cast<std::uint8_t>(value));
  }
}

}  // namespace attnscope
