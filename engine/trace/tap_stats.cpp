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

constexpr std::int64_t kStatsBlock = 512;

using TwoDoubles = double __attribute__((vector_size(16)));

// Neighbours in memory.
template <class T>
TwoDoubles two_at(const T* from) {
  return TwoDoubles{as_number(from[0]), as_number(from[1])};
}

// Of the finite elements so far, each lane of one half of them. Vectors by name, since compilers
// leave arrays of lanes in memory.
struct Figures {
  TwoDoubles low, high, sum{}, squares{};

  Figures() {
    constexpr double kInfinite = std::numeric_limits<double>::infinity();
    low = TwoDoubles{kInfinite, kInfinite};
    high = -low;
  }
  void add(TwoDoubles v) {
    low = v < low ? v : low;
    high = v > high ? v : high;
    sum += v;
    squares += v * v;
  }
  void add(const Figures& other) {
    low = other.low < low ? other.low : low;
    high = other.high > high ? other.high : high;
    sum += other.sum;
    squares += other.squares;
  }
  void add_one(double v) {
    low[0] = std::min(low[0], v);
    high[0] = std::max(high[0], v);
    sum[0] += v;
    squares[0] += v * v;
  }
};

// A whole block; false = an element of it is not finite, and nothing was added.
template <class T>
bool add_finite(const T* from, Figures& figures) {
  Figures even, odd;
  TwoDoubles zeros{}, more{};  // NaN after an infinity or a NaN
  for (std::int64_t i = 0; i < kStatsBlock; i += 4) {
    const TwoDoubles first = two_at(from + i), second = two_at(from + i + 2);
    even.add(first);
    odd.add(second);
    zeros += first * 0.0;
    more += second * 0.0;
  }
  zeros += more;
  if (std::isnan(zeros[0]) || std::isnan(zeros[1])) return false;
  figures.add(even);
  figures.add(odd);
  return true;
}

// Whole numbers have sums that need no lanes.
template <>
bool add_finite(const std::uint8_t* from, Figures& figures) {
  std::uint8_t low = 255, high = 0;
  std::uint32_t sum = 0, squares = 0;
  for (std::int64_t i = 0; i < kStatsBlock; ++i) {
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
    const std::int64_t n = std::min(kStatsBlock, stats.elements - i);
    if (n == kStatsBlock && add_finite(from + i, figures)) {
      i += n;
      continue;
    }
    for (const std::int64_t end = i + n; i < end; ++i) {
      const double v = as_number(from[i]);
      if (std::isfinite(v)) {
        figures.add_one(v);
      } else {
        ++(std::isnan(v) ? stats.nans : stats.infinities);
      }
    }
  }
  const std::int64_t finite = stats.elements - stats.nans - stats.infinities;
  if (finite == 0) return;
  stats.min = std::min(figures.low[0], figures.low[1]);
  stats.max = std::max(figures.high[0], figures.high[1]);
  stats.mean = (figures.sum[0] + figures.sum[1]) / static_cast<double>(finite);
  stats.l2 = std::sqrt(figures.squares[0] + figures.squares[1]);
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
