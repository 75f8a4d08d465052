#include "engine/trace/row_sums.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#if defined(__x86_64__)
#define ATTNSCOPE_ROWS_X86 1
#endif

namespace attnscope {
namespace {

// Eight numbers side by side, in as many registers as it takes; every sum is eight sums.
constexpr std::int64_t kLanes = 8;
using Doubles = double __attribute__((vector_size(64)));
using Bits = std::uint64_t __attribute__((vector_size(64)));
using Counts = std::int64_t __attribute__((vector_size(64)));
using Floats = float __attribute__((vector_size(32)));
using Ints = std::int32_t __attribute__((vector_size(32)));
using Words = std::uint32_t __attribute__((vector_size(32)));
using Halves = std::uint16_t __attribute__((vector_size(16)));

#define ATTNSCOPE_INLINE [[gnu::always_inline]] inline

template <class To, class From>
ATTNSCOPE_INLINE void as(const From& from, To& to) {
  static_assert(sizeof(To) == sizeof(From));
  std::memcpy(&to, &from, sizeof(to));
}

ATTNSCOPE_INLINE void magnitude(const Doubles& v, Doubles& out) {
  Bits bits;
  as(v, bits);
  bits &= ~std::uint64_t{0} >> 1;
  as(bits, out);
}

template <std::int32_t kDtype>
ATTNSCOPE_INLINE void round_normal(const Doubles& v, Doubles& out) {
  if constexpr (kDtype == AS_F32) {
    out = __builtin_convertvector(__builtin_convertvector(v, Floats), Doubles);
  } else if constexpr (kDtype == AS_BF16) {  // which keeps 7 of a double's 52 bits
    Bits bits;
    as(v, bits);
    bits = (bits + (((std::uint64_t{1} << 44) - 1) + (bits >> 45 & 1))) >> 45 << 45;
    as(bits, out);
  } else {
    out = v;
  }
}

// Place among all values of the dtype, so that neighbours are 1 apart.
template <std::int32_t kDtype>
ATTNSCOPE_INLINE void ordinals(const Doubles& v, Counts& out) {
  const Floats f = __builtin_convertvector(v, Floats);
  Ints bits;
  as(f, bits);
  const Ints sign = bits >> 31;
  const Ints size = (bits & 0x7fffffff) >> (kDtype == AS_BF16 ? 16 : 0);
  out = __builtin_convertvector((size ^ sign) - sign, Counts);
}

template <class Vector>
ATTNSCOPE_INLINE void keep_larger(Vector& largest, const Vector& v) {
  largest = v > largest ? v : largest;
}

ATTNSCOPE_INLINE double sum_of(const Doubles& v) {
  return ((v[0] + v[1]) + (v[2] + v[3])) + ((v[4] + v[5]) + (v[6] + v[7]));
}

template <class Vector>
ATTNSCOPE_INLINE auto largest_of(const Vector& v) {
  auto largest = v[0];
  for (int i = 1; i < kLanes; ++i) largest = v[i] > largest ? v[i] : largest;
  return largest;
}

ATTNSCOPE_INLINE std::int64_t total_of(const Counts& v) {
  std::int64_t sum = 0;
  for (int i = 0; i < kLanes; ++i) sum += v[i];
  return sum;
}

struct Lanes {
  Doubles ab{}, squares{}, max_abs{};
  Counts equal{}, unlike{}, max_ulp{}, tiny{}, above{};
};

template <std::int32_t kDtype>
ATTNSCOPE_INLINE void add_lanes(const double* a, const double* b, double known, Lanes& lanes,
                                double* differences, double* all_rounded) {
  Doubles x, y, rounded, difference, size;
  std::memcpy(&x, a, sizeof(x));
  std::memcpy(&y, b, sizeof(y));
  round_normal<kDtype>(y, rounded);
  magnitude(x - y, difference);
  magnitude(y, size);
  lanes.ab += x * y;
  lanes.squares += x * x + y * y;
  keep_larger(lanes.max_abs, difference);
  lanes.above |= difference > known * (size + 1e-6);
  lanes.equal -= x == y;
  const Counts unlike = x != rounded;
  lanes.unlike -= unlike;
  if constexpr (kDtype == AS_BF16 || kDtype == AS_F32) {
    lanes.tiny |= unlike & (size < 0x1p-126);
    Counts first, second;
    ordinals<kDtype>(x, first);
    ordinals<kDtype>(rounded, second);
    const Counts apart = first - second;
    keep_larger(lanes.max_ulp, apart);
    keep_larger(lanes.max_ulp, -apart);
  }
  std::memcpy(differences, &difference, sizeof(difference));
  std::memcpy(all_rounded, &rounded, sizeof(rounded));
}

template <std::int32_t kDtype>
ATTNSCOPE_INLINE RowSums sums(const double* a, const double* b, std::int64_t count, double known,
                              const RowNumbers& out) {
  Lanes lanes;
  std::int64_t c = 0;
  for (; c + kLanes <= count; c += kLanes) {
    add_lanes<kDtype>(a + c, b + c, known, lanes, out.differences + c, out.rounded + c);
  }
  RowSums row;
  if (c < count) {  // beside them zeros, which are equal
    const auto left = static_cast<std::size_t>(count - c);
    double x[kLanes] = {}, y[kLanes] = {}, differences[kLanes], rounded[kLanes];
    std::memcpy(x, a + c, left * sizeof(double));
    std::memcpy(y, b + c, left * sizeof(double));
    add_lanes<kDtype>(x, y, known, lanes, differences, rounded);
    std::memcpy(out.differences + c, differences, left * sizeof(double));
    std::memcpy(out.rounded + c, rounded, left * sizeof(double));
    row.equal = count - c - kLanes;
  }
  row.ab = sum_of(lanes.ab);
  row.squares = sum_of(lanes.squares);
  row.max_abs = largest_of(lanes.max_abs);
  row.equal += total_of(lanes.equal);
  row.unlike = total_of(lanes.unlike);
  row.max_ulp = largest_of(lanes.max_ulp);
  row.tiny = total_of(lanes.tiny) != 0;
  if (total_of(lanes.above) == 0) return row;
  for (c = 0; c < count; ++c) {
    row.max_rel = std::max(row.max_rel, out.differences[c] / (std::fabs(b[c]) + 1e-6));
  }
  return row;
}

ATTNSCOPE_INLINE RowSums sums_by_dtype(std::int32_t dtype, const double* a, const double* b,
                                       std::int64_t count, double known, const RowNumbers& out) {
  if (dtype == AS_BF16) return sums<AS_BF16>(a, b, count, known, out);
  if (dtype == AS_F32) return sums<AS_F32>(a, b, count, known, out);
  return sums<AS_F64>(a, b, count, known, out);
}

ATTNSCOPE_INLINE double squares(const double* values, std::int64_t count) {
  Doubles sum{}, v;
  std::int64_t c = 0;
  for (; c + kLanes <= count; c += kLanes) {
    std::memcpy(&v, values + c, sizeof(v));
    sum += v * v;
  }
  double rest = 0;
  for (; c < count; ++c) rest += values[c] * values[c];
  return sum_of(sum) + rest;
}

// bf16 numbers of so many bytes.
ATTNSCOPE_INLINE void widen(const std::uint16_t* from, std::size_t bytes, Doubles& out) {
  Halves halves{};
  std::memcpy(&halves, from, bytes);
  const Words words = __builtin_convertvector(halves, Words) << 16;
  Floats f;
  as(words, f);
  out = __builtin_convertvector(f, Doubles);
}

ATTNSCOPE_INLINE void load(std::int32_t dtype, const void* from, std::int64_t count, double* out) {
  std::int64_t c = 0;
  Doubles v;
  if (dtype == AS_F64) {
    std::memcpy(out, from, static_cast<std::size_t>(count) * sizeof(double));
    return;
  }
  if (dtype == AS_F32) {
    const auto* base = static_cast<const float*>(from);
    Floats f;
    for (; c + kLanes <= count; c += kLanes) {
      std::memcpy(&f, base + c, sizeof(f));
      v = __builtin_convertvector(f, Doubles);
      std::memcpy(out + c, &v, sizeof(v));
    }
    for (; c < count; ++c) out[c] = base[c];
    return;
  }
  const auto* base = static_cast<const std::uint16_t*>(from);
  for (; c + kLanes <= count; c += kLanes) {
    widen(base + c, sizeof(Halves), v);
    std::memcpy(out + c, &v, sizeof(v));
  }
  if (c == count) return;
  const auto left = static_cast<std::size_t>(count - c);
  widen(base + c, left * sizeof(std::uint16_t), v);
  std::memcpy(out + c, &v, left * sizeof(double));
}

// Bins of differences, into places.
ATTNSCOPE_INLINE void bins(const double* differences, std::int32_t* places) {
  Counts bits;
  std::memcpy(&bits, differences, sizeof(bits));
  // Exponent and the first three bits after the leading one.
  const Ints bin = __builtin_convertvector(bits >> 49, Ints) - DifferenceBins::kFirst;
  const Ints first{}, last = first + (DifferenceBins::kBins - 1);
  const Ints low = bin > first ? bin : first;
  const Ints clamped = low < last ? low : last;
  std::memcpy(places, &clamped, sizeof(clamped));
}

template <class Tables>
ATTNSCOPE_INLINE void add_bins(const double* differences, std::int64_t count, Tables& tables) {
  std::int32_t places[kLanes];
  std::int64_t c = 0;
  for (; c + kLanes <= count; c += kLanes) {
    bins(differences + c, places);
    for (std::size_t i = 0; i < kLanes; ++i) ++tables[i % 4][static_cast<std::size_t>(places[i])];
  }
  if (c == count) return;
  double rest[kLanes] = {};
  const auto left = static_cast<std::size_t>(count - c);
  std::memcpy(rest, differences + c, left * sizeof(double));
  bins(rest, places);
  for (std::size_t i = 0; i < left; ++i) ++tables[i % 4][static_cast<std::size_t>(places[i])];
}

// The loops once for each set of instructions.
struct Generic {
  static RowSums row(std::int32_t dtype, const double* a, const double* b, std::int64_t count,
                     double known, const RowNumbers& out) {
    return sums_by_dtype(dtype, a, b, count, known, out);
  }
  static double square(const double* values, std::int64_t count) { return squares(values, count); }
  static void read(std::int32_t dtype, const void* from, std::int64_t count, double* out) {
    load(dtype, from, count, out);
  }
  template <class Tables>
  static void bin(const double* differences, std::int64_t count, Tables& tables) {
    add_bins(differences, count, tables);
  }
};

#ifdef ATTNSCOPE_ROWS_X86
#define ATTNSCOPE_WIDE(Name, TARGET)                                                              \
  struct Name {                                                                                   \
    [[gnu::target(TARGET)]] static RowSums row(std::int32_t dtype, const double* a,               \
                                               const double* b, std::int64_t count, double known, \
                                               const RowNumbers& out) {                           \
      return sums_by_dtype(dtype, a, b, count, known, out);                                       \
    }                                                                                             \
    [[gnu::target(TARGET)]] static double square(const double* values, std::int64_t count) {      \
      return squares(values, count);                                                              \
    }                                                                                             \
    [[gnu::target(TARGET)]] static void read(std::int32_t dtype, const void* from,                \
                                             std::int64_t count, double* out) {                   \
      load(dtype, from, count, out);                                                              \
    }                                                                                             \
    template <class Tables>                                                                       \
    [[gnu::target(TARGET)]] static void bin(const double* differences, std::int64_t count,        \
                                            Tables& tables) {                                     \
      add_bins(differences, count, tables);                                                       \
    }                                                                                             \
  };
ATTNSCOPE_WIDE(Avx2, "avx2")
ATTNSCOPE_WIDE(Avx512, "avx512f,avx512dq,avx512bw,avx512vl")
#undef ATTNSCOPE_WIDE
#endif

// visit: called with the set of instructions to use.
template <class Visit>
auto with(RowWidth width, const Visit& visit) {
#ifdef ATTNSCOPE_ROWS_X86
  if (width == RowWidth::k512) return visit(Avx512{});
  if (width == RowWidth::k256) return visit(Avx2{});
#endif
  (void)width;
  return visit(Generic{});
}

}  // namespace

const std::vector<RowWidth>& row_widths() {
  static const std::vector<RowWidth> found = [] {
    std::vector<RowWidth> widths = {RowWidth::k128};
#ifdef ATTNSCOPE_ROWS_X86
    if (!__builtin_cpu_supports("avx2")) return widths;
    widths.push_back(RowWidth::k256);
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
        __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl")) {
      widths.push_back(RowWidth::k512);
    }
#endif
    return widths;
  }();
  return found;
}

RowSums row_sums(std::int32_t dtype, const double* a, const double* b, std::int64_t count,
                 double known, const RowNumbers& out, RowWidth width) {
  return with(width, [&](auto set) { return set.row(dtype, a, b, count, known, out); });
}

double sum_of_squares(const double* values, std::int64_t count, RowWidth width) {
  return with(width, [&](auto set) { return set.square(values, count); });
}

void load_doubles(std::int32_t dtype, const void* from, std::int64_t count, double* out,
                  RowWidth width) {
  with(width, [&](auto set) { set.read(dtype, from, count, out); });
}

void DifferenceBins::count(const double* differences, std::int64_t count, RowWidth width) {
  with(width, [&](auto set) { set.bin(differences, count, tables_); });
}

}  // namespace attnscope
