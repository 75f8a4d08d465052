#include "engine/trace/tap_stats.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstring>
#include <limits>
#include <type_traits>

#include "engine/io/byte_stream.h"
#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace attnscope {
namespace {

// Sums have eight lanes with AVX2 and without, added in the same order: the same bits everywhere.
constexpr std::int64_t kLanes = 8;
constexpr std::int64_t kStatsBlock = 512;

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

// Of the finite elements so far.
struct Figures {
  double low = std::numeric_limits<double>::infinity();
  double high = -std::numeric_limits<double>::infinity();
  double sum = 0, squares = 0;

  void add(double v) {
    low = std::min(low, v);
    high = std::max(high, v);
    sum += v;
    squares += v * v;
  }
};

// Of one block. nothing: NaN where an element was not finite, else 0.
struct Lanes {
  double low[kLanes], high[kLanes], sum[kLanes], squares[kLanes], nothing[kLanes];

  // False = an element is not finite, and nothing was added.
  bool add_to(Figures& figures) const {
    if (std::any_of(nothing, nothing + kLanes, [](double v) { return v != 0; })) return false;
    for (std::int64_t i = 0; i < kLanes; ++i) {
      figures.low = std::min(figures.low, low[i]);
      figures.high = std::max(figures.high, high[i]);
      figures.sum += sum[i];
      figures.squares += squares[i];
    }
    return true;
  }
};

// Two lanes: what every machine has a register for. Four of them by name, since compilers leave
// arrays of lanes in memory.
using TwoDoubles = double __attribute__((vector_size(16)));
struct Two {
  TwoDoubles low, high, sum{}, squares{}, nothing{};

  template <class T>
  explicit Two(const T* first) : low(at(first)), high(low) {}
  template <class T>
  static TwoDoubles at(const T* from) {
    return TwoDoubles{as_number(from[0]), as_number(from[1])};
  }
  template <class T>
  void add(const T* from) {
    const TwoDoubles v = at(from);
    low = v < low ? v : low;
    high = v > high ? v : high;
    sum += v;
    squares += v * v;
    nothing += v * 0.0;
  }
  void put(Lanes& lanes, int first) const {
    for (int i = 0; i < 2; ++i) {
      lanes.low[first + i] = low[i];
      lanes.high[first + i] = high[i];
      lanes.sum[first + i] = sum[i];
      lanes.squares[first + i] = squares[i];
      lanes.nothing[first + i] = nothing[i];
    }
  }
};

// n: a multiple of kLanes.
template <class T>
void add_block(const T* from, std::int64_t n, Lanes& lanes) {
  Two a(from), b(from + 2), c(from + 4), d(from + 6);
  for (std::int64_t i = 0; i < n; i += kLanes) {
    a.add(from + i);
    b.add(from + i + 2);
    c.add(from + i + 4);
    d.add(from + i + 6);
  }
  a.put(lanes, 0);
  b.put(lanes, 2);
  c.put(lanes, 4);
  d.put(lanes, 6);
}

#if defined(__x86_64__)
#define AS_AVX2 [[gnu::target("avx2")]]

bool has_avx2() {
  static const bool here = __builtin_cpu_supports("avx2");
  return here;
}

AS_AVX2 inline __m256 load8(const float* from) { return _mm256_loadu_ps(from); }
AS_AVX2 inline __m256 load8(const std::uint16_t* from) {
  const __m128i halves = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from));
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(halves), 16));
}
AS_AVX2 inline __m256d load4(const double* from) { return _mm256_loadu_pd(from); }
AS_AVX2 inline __m256d load4(const std::int32_t* from) {
  return _mm256_cvtepi32_pd(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from)));
}
AS_AVX2 inline void store8(double* to, const __m256d& a, const __m256d& b) {
  _mm256_storeu_pd(to, a);
  _mm256_storeu_pd(to + 4, b);
}
AS_AVX2 inline void store8(double* to, const __m256& v) {
  store8(to, _mm256_cvtps_pd(_mm256_castps256_ps128(v)),
         _mm256_cvtps_pd(_mm256_extractf128_ps(v, 1)));
}

// Extremes of floats are floats; sums are not.
template <class T>
AS_AVX2 void add_floats_avx2(const T* from, std::int64_t n, Lanes& lanes) {
  __m256 low = load8(from), high = low, nothing{};
  __m256d sum_a{}, sum_b{}, squares_a{}, squares_b{};
  for (std::int64_t i = 0; i < n; i += kLanes) {
    const __m256 v = load8(from + i);
    low = _mm256_min_ps(v, low);
    high = _mm256_max_ps(v, high);
    nothing += v * 0.0f;
    const __m256d a = _mm256_cvtps_pd(_mm256_castps256_ps128(v));
    const __m256d b = _mm256_cvtps_pd(_mm256_extractf128_ps(v, 1));
    sum_a += a;
    sum_b += b;
    squares_a += a * a;
    squares_b += b * b;
  }
  store8(lanes.low, low);
  store8(lanes.high, high);
  store8(lanes.nothing, nothing);
  store8(lanes.sum, sum_a, sum_b);
  store8(lanes.squares, squares_a, squares_b);
}

template <class T>
AS_AVX2 void add_doubles_avx2(const T* from, std::int64_t n, Lanes& lanes) {
  __m256d low_a = load4(from), low_b = load4(from + 4), high_a = low_a, high_b = low_b;
  __m256d sum_a{}, sum_b{}, squares_a{}, squares_b{}, nothing{};
  for (std::int64_t i = 0; i < n; i += kLanes) {
    const __m256d a = load4(from + i), b = load4(from + i + 4);
    low_a = _mm256_min_pd(a, low_a);
    low_b = _mm256_min_pd(b, low_b);
    high_a = _mm256_max_pd(a, high_a);
    high_b = _mm256_max_pd(b, high_b);
    sum_a += a;
    sum_b += b;
    squares_a += a * a;
    squares_b += b * b;
    nothing += a * 0.0 + b * 0.0;
  }
  store8(lanes.low, low_a, low_b);
  store8(lanes.high, high_a, high_b);
  store8(lanes.sum, sum_a, sum_b);
  store8(lanes.squares, squares_a, squares_b);
  store8(lanes.nothing, nothing, nothing);
}
#endif

template <class T>
bool add_finite(const T* from, std::int64_t n, Figures& figures) {
  Lanes lanes;
#if defined(__x86_64__)
  constexpr bool kFloat = std::is_same_v<T, float> || std::is_same_v<T, std::uint16_t>;
  constexpr bool kDouble = std::is_same_v<T, double> || std::is_same_v<T, std::int32_t>;
  if constexpr (kFloat || kDouble) {
    if (has_avx2()) {
      if constexpr (kFloat) add_floats_avx2(from, n, lanes);
      if constexpr (kDouble) add_doubles_avx2(from, n, lanes);
      return lanes.add_to(figures);
    }
  }
#endif
  add_block(from, n, lanes);
  return lanes.add_to(figures);
}

// Of whole numbers, whose sums need no lanes.
struct ByteFigures {
  std::uint8_t low = 255, high = 0;
  std::uint64_t sum = 0, squares = 0;
};

void add_bytes(const std::uint8_t* from, std::int64_t n, ByteFigures& figures) {
  for (std::int64_t i = 0; i < n; ++i) {
    const std::uint32_t v = from[i];
    figures.low = std::min(figures.low, from[i]);
    figures.high = std::max(figures.high, from[i]);
    figures.sum += v;
    figures.squares += v * v;
  }
}

#if defined(__x86_64__)
// n: a multiple of 32, at most kStatsBlock, so that no lane of 32 bits overflows.
AS_AVX2 void add_bytes_avx2(const std::uint8_t* from, std::int64_t n, ByteFigures& figures) {
  __m256i low = _mm256_set1_epi8(-1), high{}, sum{}, squares{};
  const __m256i zero{};
  for (std::int64_t i = 0; i < n; i += 32) {
    const __m256i v = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from + i));
    low = _mm256_min_epu8(low, v);
    high = _mm256_max_epu8(high, v);
    sum = _mm256_add_epi64(sum, _mm256_sad_epu8(v, zero));
    const __m256i even = _mm256_unpacklo_epi8(v, zero), odd = _mm256_unpackhi_epi8(v, zero);
    squares = _mm256_add_epi32(squares, _mm256_madd_epi16(even, even));
    squares = _mm256_add_epi32(squares, _mm256_madd_epi16(odd, odd));
  }
  std::uint8_t lows[32], highs[32];
  std::uint64_t sums[4];
  std::uint32_t squares_of[8];
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(lows), low);
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(highs), high);
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(sums), sum);
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(squares_of), squares);
  figures.low = std::min(figures.low, *std::min_element(lows, lows + 32));
  figures.high = std::max(figures.high, *std::max_element(highs, highs + 32));
  for (const std::uint64_t part : sums) figures.sum += part;
  for (const std::uint32_t part : squares_of) figures.squares += part;
}
#endif

template <>
bool add_finite(const std::uint8_t* from, std::int64_t n, Figures& figures) {
  ByteFigures bytes;
  std::int64_t done = 0;
#if defined(__x86_64__)
  if (has_avx2() && n >= 32) add_bytes_avx2(from, done = n / 32 * 32, bytes);
#endif
  add_bytes(from + done, n - done, bytes);
  figures.low = std::min<double>(figures.low, bytes.low);
  figures.high = std::max<double>(figures.high, bytes.high);
  figures.sum += static_cast<double>(bytes.sum);
  figures.squares += static_cast<double>(bytes.squares);
  return true;
}

template <class T>
void measure_as(const as_tensor& tensor, TapStats& stats) {
  const T* from = static_cast<const T*>(tensor.data);
  Figures figures;
  for (std::int64_t i = 0; i < stats.elements;) {
    const std::int64_t n = std::min(kStatsBlock, stats.elements - i);
    const std::int64_t whole = n / kLanes * kLanes;
    const bool added = whole > 0 && add_finite(from + i, whole, figures);
    for (std::int64_t k = added ? whole : 0; k < n; ++k) {
      const double v = as_number(from[i + k]);
      if (std::isfinite(v)) {
        figures.add(v);
      } else {
        ++(std::isnan(v) ? stats.nans : stats.infinities);
      }
    }
    i += n;
  }
  const std::int64_t finite = stats.elements - stats.nans - stats.infinities;
  if (finite == 0) return;
  stats.min = figures.low;
  stats.max = figures.high;
  stats.mean = figures.sum / static_cast<double>(finite);
  stats.l2 = std::sqrt(figures.squares);
}

void measure(const as_tensor& tensor, TapStats& stats) {
  switch (tensor.dtype) {
    case AS_F64:
      return measure_as<double>(tensor, stats);
    case AS_F32:
      return measure_as<float>(tensor, stats);
    case AS_BF16:
      return measure_as<std::uint16_t>(tensor, stats);
    case AS_U8:
      return measure_as<std::uint8_t>(tensor, stats);
    case AS_I32:
      return measure_as<std::int32_t>(tensor, stats);
    case AS_I64:
      return measure_as<std::int64_t>(tensor, stats);
    default:
      return;
  }
}

}  // namespace

TapStats tap_stats(const as_tensor& tensor, const TapStats* likely) {
  TapStats stats;
  stats.elements = as_tensor_numel(&tensor);
  const auto bytes = static_cast<std::size_t>(stats.elements * as_dtype_size(tensor.dtype));
  stats.checksum = hex64(checksum(static_cast<const std::uint8_t*>(tensor.data), bytes));
  const bool known =
      likely != nullptr && likely->elements == stats.elements && likely->checksum == stats.checksum;
  if (known) return *likely;
  measure(tensor, stats);
  return stats;
}

std::optional<std::uint64_t> checksum_of(const TapStats& stats) {
  const char* const end = stats.checksum.data() + stats.checksum.size();
  std::uint64_t sum = 0;
  const auto read = std::from_chars(stats.checksum.data(), end, sum, 16);
  if (read.ec != std::errc() || read.ptr != end) return std::nullopt;
  return sum;
}

std::string hex64(std::uint64_t n) { return fmt::format("{:016x}", n); }

std::string text_checksum(std::string_view text) {
  return hex64(checksum(reinterpret_cast<const std::uint8_t*>(text.data()), text.size()));
}

}  // namespace attnscope
