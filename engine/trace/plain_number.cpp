#include "engine/trace/plain_number.h"

#include <bit>
#include <cstring>

#include "kernels/params/dtype.h"

namespace attnscope {

double plain_number(const void* at, std::int32_t dtype) {
  const auto read = [at]<class T>(T value) {
    std::memcpy(&value, at, sizeof(value));
    return value;
  };
  switch (dtype) {
    case AS_F64:
      return read(double{});
    case AS_F32:
      return static_cast<double>(read(float{}));
    case AS_BF16:
      return static_cast<double>(std::bit_cast<float>(std::uint32_t{read(std::uint16_t{})} << 16));
    case AS_I32:
      return read(std::int32_t{});
    case AS_I64:
      return static_cast<double>(read(std::int64_t{}));
    default:
      return read(std::uint8_t{});
  }
}

}  // namespace attnscope
