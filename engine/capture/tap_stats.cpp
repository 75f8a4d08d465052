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

constexpr std::int64_t kLanes = 4;
constexpr std::int64_t kBlock = 512;

// Of the finite elements so far; each lane sees every fourth of them, so that compilers keep the
// lanes in vectors.
struct Figures {
  double low[kLanes], high[kLanes], sum[kLanes] = {}, squares[kLanes] = {};

  Figures() {
    std::fill_n(low, kLanes, std::numeric_limits<double>::infinity());
    std::fill_n(high, kLanes, -std::numeric_limits<double>::infinity());
  }
  void add(std::int64_t lane, double v) {
    low[lane] = v < low[lane] ? v : low[lane];
    high[lane] = v > high[lane] ? v : high[lane];
    sum[lane] += v;
    squares[lane] += v * v;
  }
};

// A whole block; false = an element of it is not finite, and the figures are of no use.
template <class T>
bool add_finite(const T* from, Figures& figures) {
  Figures f = figures;
  double zeros[kLanes] = {};  // NaN after an infinity or a NaN
  for (std::int64_t i = 0; i < kBlock; i += kLanes) {
    for (std::int64_t lane = 0; lane < kLanes; ++lane) {
      const double v = as_number(from[i + lane]);
      f.add(lane, v);
      zeros[lane] += v * 0.0;
    }
  }
  figures = f;
  return std::none_of(zeros, zeros + kLanes, [](double zero) { return std::isnan(zero); });
}

// Whole numbers have sums that need no lanes.
template <>
bool add_finite(const std::uint8_t* from, Figures& figures) {
  std::uint8_t low = 255, high = 0;
  std::uint32_t sum = 0, squares = 0;
  for (std::int64_t i = 0; i < kBlock; ++i) {
    const std::uint32_t v = from[i];
    low = std::min(low, from[i]);
    high = std::max(high, from[i]);
    sum += v;
    squares += v * v;
  }
  figures.low[0] = std::min<double>(figures.low[0], low);
  figures.high[0] = std::max<double>(figures.high[0], high);
  figures.sum[0] += sum;
  figures.squares[0] += squares;
  return true;
}

template <class T>
void measure_as(const as_tensor& tensor, TapStats& stats) {
  const T* from = static_cast<const T*>(tensor.data);
  Figures figures;
  for (std::int64_t i = 0; i < stats.elements;) {
    const std::int64_t n = std::min(kBlock, stats.elements - i);
    if (Figures with = figures; n == kBlock && add_finite(from + i, with)) {
      figures = with;
      i += n;
      continue;
    }
    for (const std::int64_t end = i + n; i < end; ++i) {
      const double v = as_number(from[i]);
      if (std::isfinite(v)) {
        figures.add(i % kLanes, v);
      } else {
        ++(std::isnan(v) ? stats.nans : stats.infinities);
      }
    }
  }
  const std::int64_t finite = stats.elements - stats.nans - stats.infinities;
  if (finite == 0) return;
  double sum = 0, squares = 0;
  for (std::int64_t lane = 0; lane < kLanes; ++lane) {
    sum += figures.sum[lane];
    squares += figures.squares[lane];
  }
  stats.min = *std::min_element(figures.low, figures.low + kLanes);
  stats.max = *std::max_element(figures.high, figures.high + kLanes);
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
