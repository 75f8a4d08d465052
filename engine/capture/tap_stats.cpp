#include "engine/capture/tap_stats.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "engine/session/byte_stream.h"

namespace attnscope {
namespace {

float as_float(std::uint16_t bf16) {
  const std::uint32_t bits = std::uint32_t{bf16} << 16;
  float value = 0;
  std::memcpy(&value, &bits, sizeof(value));
  return value;
}
template <class T>
double as_number(T value) {
  if constexpr (std::is_same_v<T, std::uint16_t>) {
    return as_float(value);
  } else {
    return static_cast<double>(value);
  }
}

template <class T>
void measure_as(const as_tensor& tensor, TapStats& stats) {
  const T* from = static_cast<const T*>(tensor.data);
  double low = std::numeric_limits<double>::infinity(), high = -low, sum = 0, squares = 0;
  std::int64_t finite = 0;
  for (std::int64_t i = 0; i < stats.elements; ++i) {
    const double v = as_number(from[i]);
    if (std::isfinite(v)) {
      low = std::min(low, v);
      high = std::max(high, v);
      sum += v;
      squares += v * v;
      ++finite;
    } else {
      ++(std::isnan(v) ? stats.nans : stats.infinities);
    }
  }
  if (finite == 0) return;
  stats.min = low;
  stats.max = high;
  stats.mean = sum / static_cast<double>(finite);
  stats.l2 = std::sqrt(squares);
}

}  // namespace

TapStats tap_stats(const as_tensor& tensor) {
  TapStats stats;
  stats.elements = as_tensor_numel(&tensor);
  const auto bytes = static_cast<std::size_t>(stats.elements * as_dtype_size(tensor.dtype));
  stats.checksum = hex64(checksum(static_cast<const std::uint8_t*>(tensor.data), bytes));
  switch (tensor.dtype) {
    case AS_F64:
      measure_as<double>(tensor, stats);
      break;
    case AS_F32:
      measure_as<float>(tensor, stats);
      break;
    case AS_BF16:
      measure_as<std::uint16_t>(tensor, stats);
      break;
    case AS_U8:
      measure_as<std::uint8_t>(tensor, stats);
      break;
    case AS_I32:
      measure_as<std::int32_t>(tensor, stats);
      break;
    case AS_I64:
      measure_as<std::int64_t>(tensor, stats);
      break;
    default:
      break;
  }
  return stats;
}

std::string hex64(std::uint64_t n) { return fmt::format("{:016x}", n); }

std::string text_checksum(std::string_view text) {
  return hex64(checksum(reinterpret_cast<const std::uint8_t*>(text.data()), text.size()));
}

}  // namespace attnscope
