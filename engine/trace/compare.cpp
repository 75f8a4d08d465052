#include "engine/trace/compare.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>
#include <map>
#include <vector>

#include "kernels/params/tensor_view.h"

namespace attnscope {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

double from_bf16(std::uint16_t bits) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
}

// Offset in elements of a flat row (all axes but the last).
std::int64_t row_offset(const as_tensor& t, std::int64_t row) {
  std::int64_t offset = 0;
  for (std::int32_t axis = t.rank - 2; axis >= 0; --axis) {
    offset += row % t.shape[axis] * t.stride[axis];
    row /= t.shape[axis];
  }
  return offset;
}

std::int64_t columns_of(const as_tensor& t) { return t.shape[t.rank - 1]; }

void load_row(const as_tensor& t, std::int64_t row, std::int64_t count, double* out) {
  const std::int64_t offset = row_offset(t, row);
  const std::int64_t step = t.stride[t.rank - 1];
  auto load = [&](auto* base, auto convert) {
    for (std::int64_t c = 0; c < count; ++c) out[c] = convert(base[offset + c * step]);
  };
  auto plain = [](auto v) { return static_cast<double>(v); };
  switch (t.dtype) {
    case AS_F64:
      return load(static_cast<const double*>(t.data), plain);
    case AS_F32:
      return load(static_cast<const float*>(t.data), plain);
    case AS_BF16:
      return load(static_cast<const std::uint16_t*>(t.data), from_bf16);
    case AS_U8:
      return load(static_cast<const std::uint8_t*>(t.data), plain);
    case AS_I32:
      return load(static_cast<const std::int32_t*>(t.data), plain);
    case AS_I64:
      return load(static_cast<const std::int64_t*>(t.data), plain);
    default:
      return;
  }
}

// Round to nearest even to the tap's dtype, so that "equal" means equal bits.
double round_to(double v, std::int32_t dtype) {
  if (dtype == AS_F32) return static_cast<float>(v);
  if (dtype != AS_BF16 || !std::isfinite(v) || v == 0) return v;
  if (std::fabs(v) >= 0x1p-126) {  // bf16 keeps 7 of a double's 52 bits
    const auto bits = std::bit_cast<std::uint64_t>(v);
    const std::uint64_t up = (std::uint64_t{1} << 44) - 1 + (bits >> 45 & 1);
    return std::bit_cast<double>((bits + up) >> 45 << 45);
  }
  int exponent = 0;
  std::frexp(v, &exponent);
  // bf16 has 8 significant bits; below 2^-126 the step stays at 2^-133.
  const int step = std::max(exponent - 8, -133);
  return std::ldexp(std::nearbyint(std::ldexp(v, -step)), step);
}

// Distance of two bf16 neighbours at this magnitude.
double bf16_step(double magnitude) {
  if (magnitude == 0) return std::ldexp(1.0, -133);
  int exponent = 0;
  std::frexp(magnitude, &exponent);
  return std::ldexp(1.0, std::max(exponent - 8, -133));
}

// |a - b| in units of the loosest bound that applies; the element passes when this is <= 1.
double budget(double a, double b, double row_max, const Tolerance& tolerance) {
  if (a == b) return 0;
  if (tolerance.exact) return kInfinity;
  const double difference = std::fabs(a - b);
  double used = kInfinity;
  auto bound = [&](double limit) {
    if (limit > 0) used = std::min(used, difference / limit);
  };
  bound(tolerance.abs);
  bound(tolerance.rel * std::fabs(b));
  bound(tolerance.row_max * row_max);
  if (tolerance.bf16_ulp > 0) {
    bound(tolerance.bf16_ulp * bf16_step(std::max(std::fabs(a), std::fabs(b))));
  }
  return used;
}

// NaN or infinity: comparable only with the very same anomaly.
bool anomaly(double v) { return !std::isfinite(v); }
bool same_anomaly(double a, double b) { return (std::isnan(a) && std::isnan(b)) || a == b; }

std::vector<std::int64_t> index_of(const as_tensor& t, std::int64_t row, std::int64_t column) {
  std::vector<std::int64_t> index(static_cast<std::size_t>(t.rank), column);
  for (std::int32_t axis = t.rank - 2; axis >= 0; --axis) {
    index[static_cast<std::size_t>(axis)] = row % t.shape[axis];
    row /= t.shape[axis];
  }
  return index;
}

// Walks all valid rows: visit(row, count).
void for_rows(const as_tensor& t, const TapMask& mask,
              const std::function<void(std::int64_t, std::int64_t)>& visit) {
  const std::int64_t numel = as_tensor_numel(&t);
  if (numel == 0) return;
  const std::int64_t columns = columns_of(t);
  const std::int64_t rows = numel / columns;
  const std::int64_t rows_per_first = t.rank > 1 ? rows / t.shape[0] : 1;
  for (std::int64_t row = 0; row < rows; ++row) {
    const std::int64_t first = row / rows_per_first;
    if (mask.slots != nullptr && mask.slots[first] < 0) continue;
    if (mask.left_out != nullptr && (*mask.left_out)[static_cast<std::size_t>(first)]) continue;
    std::int64_t count = columns;
    if (mask.lens != nullptr) count = std::min<std::int64_t>(count, mask.lens[first]);
    if (count > 0) visit(row, count);
  }
}

// Place of a value in the order of all values of its dtype, so that neighbours are 1 apart.
std::int64_t ordinal(double v, std::int32_t dtype) {
  const auto bits = std::bit_cast<std::uint32_t>(static_cast<float>(v));
  const std::int64_t magnitude = (bits & 0x7fffffffu) >> (dtype == AS_BF16 ? 16 : 0);
  return bits >> 31 != 0 ? -magnitude : magnitude;
}

// How often differences of each size occurred: 8 bins an octave, so that percentiles need no sort.
class DifferenceCounts {
 public:
  void add(double difference) {
    if (difference == 0) {
      ++zeros_;
      return;
    }
    // Exponent and the first three bits after the leading one.
    const auto bin = static_cast<std::int64_t>(std::bit_cast<std::uint64_t>(difference) >> 49);
    ++counts_[static_cast<std::size_t>(std::clamp<std::int64_t>(bin - kFirst, 0, kBins - 1))];
    ++others_;
  }
  // Upper edge of the bin in which the share of all differences is reached.
  double quantile(double share) const {
    const double wanted = share * static_cast<double>(zeros_ + others_);
    auto seen = static_cast<double>(zeros_);
    if (others_ == 0 || wanted <= seen) return 0;
    for (int bin = 0; bin < kBins; ++bin) {
      seen += static_cast<double>(counts_[static_cast<std::size_t>(bin)]);
      if (seen < wanted) continue;
      return std::bit_cast<double>(static_cast<std::uint64_t>(bin + 1 + kFirst) << 49);
    }
    return kInfinity;
  }

 private:
  // From 2^-160 to 2^160.
  static constexpr int kPerOctave = 8, kFirst = (1023 - 160) * kPerOctave, kBins = 320 * kPerOctave;
  std::array<std::int64_t, kBins> counts_{};
  std::int64_t zeros_ = 0, others_ = 0;
};

struct CosineSums {
  double ab = 0, aa_bb = 0;
  void add(double a, double b) {
    ab += a * b;
    aa_bb += a * a + b * b;
  }
  double difference() const { return aa_bb == 0 ? 0 : 1 - 2 * ab / aa_bb; }
};

}  // namespace

double element(const as_tensor& t, std::int64_t row, std::int64_t column) {
  as_tensor shifted = t;
  shifted.data =
      static_cast<char*>(t.data) + column * t.stride[t.rank - 1] * as_dtype_size(t.dtype);
  double value = 0;
  load_row(shifted, row, 1, &value);
  return value;
}

Comparison compare(const as_tensor& value, const as_tensor& reference, const TapMask& mask,
                   const Tolerance& tolerance) {
  Comparison out;
  if (value.rank != reference.rank ||
      !std::equal(value.shape, value.shape + value.rank, reference.shape)) {
    out.within = out.equal = false;
    out.budget_used = kInfinity;
    out.note = "the reference has another shape";
    return out;
  }
  if (value.rank == 0 || as_tensor_numel(&value) == 0) return out;
  // A step of bf16 is no measure for fp32 logits, gates or state rows.
  Tolerance rule = tolerance;
  if (value.dtype != AS_BF16) rule.bf16_ulp = 0;
  std::vector<double> a(static_cast<std::size_t>(columns_of(value)));
  std::vector<double> b(a.size());
  CosineSums sums;
  DifferenceCounts differences;
  const bool stepped = value.dtype == AS_BF16 || value.dtype == AS_F32;
  const std::int64_t rows_per_first =
      value.rank > 1 ? as_tensor_numel(&value) / columns_of(value) / value.shape[0] : 1;
  std::int64_t last_beyond = -1;
  double worst = -1;
  for_rows(value, mask, [&](std::int64_t row, std::int64_t count) {
    load_row(value, row, count, a.data());
    load_row(reference, row, count, b.data());
    double row_max = 0;
    if (tolerance.row_max > 0) {
      for (std::int64_t c = 0; c < count; ++c) {
        const double v = std::fabs(b[static_cast<std::size_t>(c)]);
        if (std::isfinite(v)) row_max = std::max(row_max, v);
      }
    }
    for (std::int64_t c = 0; c < count; ++c) {
      const double x = a[static_cast<std::size_t>(c)], y = b[static_cast<std::size_t>(c)];
      double used = 0;
      if (anomaly(x) || anomaly(y)) {
        if (same_anomaly(x, y)) continue;
        used = kInfinity;
        ++out.anomalies;
        out.equal = false;
        ++out.figures.differing;
      } else {
        sums.add(x, y);
        differences.add(std::fabs(x - y));
        if (x == y) continue;
        const double difference = std::fabs(x - y);
        out.figures.max_abs = std::max(out.figures.max_abs, difference);
        out.figures.max_rel = std::max(out.figures.max_rel, difference / (std::fabs(y) + 1e-6));
        if (x != round_to(y, value.dtype)) {
          out.equal = false;
          ++out.figures.differing;
          used = budget(x, y, row_max, rule);
          if (stepped) {
            const std::int64_t steps =
                std::abs(ordinal(x, value.dtype) - ordinal(round_to(y, value.dtype), value.dtype));
            out.figures.max_ulp = std::max(out.figures.max_ulp, static_cast<double>(steps));
          }
        }
      }
      if (used > 1) {
        ++out.figures.beyond;
        const std::int64_t first = value.rank > 1 ? row / rows_per_first : c;
        out.rows_beyond += first != last_beyond ? 1 : 0;
        last_beyond = first;
      }
      if (used > worst) {
        worst = used;
        out.worst = {index_of(value, row, c), x, y};
      }
    }
    out.elements += count;
  });
  out.figures.cosine =
      out.anomalies > 0 ? std::numeric_limits<double>::quiet_NaN() : sums.difference();
  // A percentile is no larger than the largest.
  out.figures.median = std::min(differences.quantile(0.5), out.figures.max_abs);
  out.figures.p90 = std::min(differences.quantile(0.9), out.figures.max_abs);
  out.figures.p99 = std::min(differences.quantile(0.99), out.figures.max_abs);
  out.budget_used = std::max(worst, 0.0);
  if (tolerance.cosine) {
    out.budget_used = std::max(out.budget_used, out.figures.cosine / *tolerance.cosine);
  }
  out.within = out.budget_used <= 1;
  if (out.anomalies > 0) {
    out.note = fmt::format("{} elements are NaN or infinite on one side only", out.anomalies);
  } else if (!out.within && tolerance.exact) {
    out.note = fmt::format("{} of {} elements differ", out.figures.differing, out.elements);
  }
  return out;
}

std::vector<MagnitudeBin> error_by_magnitude(const as_tensor& value, const as_tensor& reference,
                                             const TapMask& mask) {
  constexpr int kZero = -1075;  // below every binade
  std::map<int, MagnitudeBin> bins;
  for_rows(value, mask, [&](std::int64_t row, std::int64_t count) {
    std::vector<double> a(static_cast<std::size_t>(count)), b(a.size());
    load_row(value, row, count, a.data());
    load_row(reference, row, count, b.data());
    for (std::size_t c = 0; c < a.size(); ++c) {
      if (anomaly(a[c]) || anomaly(b[c])) continue;
      int exponent = kZero + 1;
      if (b[c] != 0) std::frexp(b[c], &exponent);
      MagnitudeBin& bin = bins[exponent - 1];
      const double difference = std::fabs(a[c] - b[c]);
      ++bin.elements;
      bin.max_abs = std::max(bin.max_abs, difference);
      bin.mean_abs += difference;
    }
  });
  std::vector<MagnitudeBin> out;
  for (auto& [exponent, bin] : bins) {
    bin.exponent = exponent;
    bin.mean_abs /= static_cast<double>(bin.elements);
    out.push_back(bin);
  }
  return out;
}

ErrorFigures measure(const as_tensor& a, const as_tensor& b, const TapMask& mask) {
  static const Tolerance kNoRule;
  return compare(a, b, mask, kNoRule).figures;
}

}  // namespace attnscope
