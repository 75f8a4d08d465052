#include "engine/trace/compare.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <map>
#include <optional>
#include <vector>

#include "engine/model/numbers.h"
#include "engine/trace/row_sums.h"
#include "kernels/cpu/parallel.h"
#include "kernels/params/tensor_view.h"

namespace attnscope {
namespace {

// Stands for no rule at all, see measure.
const Tolerance kFiguresAlone;

// Elements that a thread compares at least. What is smaller is summed in one go.
constexpr std::int64_t kPartElements = std::int64_t{1} << 17;

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

void load_row(const as_tensor& t, std::int64_t row, std::int64_t count, double* out) {
  const std::int64_t offset = row_offset(t, row);
  const std::int64_t step = t.stride[t.rank - 1];
  if (step == 1 && (t.dtype == AS_F64 || t.dtype == AS_F32 || t.dtype == AS_BF16)) {
    const auto* base = static_cast<const char*>(t.data) + offset * as_dtype_size(t.dtype);
    load_doubles(t.dtype, base, count, out);
    return;
  }
  auto load = [&](auto* base, auto convert) {
    base += offset;
    for (std::int64_t c = 0; c < count; ++c) out[c] = convert(base[c * step]);
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

// The same, where doubles side by side are not copied.
const double* row_in(const as_tensor& t, std::int64_t row, std::int64_t count,
                     std::vector<double>& memory) {
  if (t.dtype == AS_F64 && t.stride[t.rank - 1] == 1) {
    return static_cast<const double*>(t.data) + row_offset(t, row);
  }
  load_row(t, row, count, memory.data());
  return memory.data();
}

// Round to nearest even to bf16, for numbers not below its smallest normal one, 2^-126.
double to_bf16_normal(double v) {  // bf16 keeps 7 of a double's 52 bits
  const auto bits = std::bit_cast<std::uint64_t>(v);
  const std::uint64_t up = (std::uint64_t{1} << 44) - 1 + (bits >> 45 & 1);
  return std::bit_cast<double>((bits + up) >> 45 << 45);
}

// Round to nearest even to the tap's dtype, so that "equal" means equal bits.
double round_to(double v, std::int32_t dtype) {
  if (dtype == AS_F32) return static_cast<float>(v);
  if (dtype != AS_BF16 || !std::isfinite(v) || v == 0) return v;
  if (std::fabs(v) >= 0x1p-126) return to_bf16_normal(v);
  int exponent = 0;
  std::frexp(v, &exponent);
  // bf16 has 8 significant bits; below 2^-126 the step stays at 2^-133.
  const int step = std::max(exponent - 8, -133);
  return std::ldexp(std::nearbyint(std::ldexp(v, -step)), step);
}

// Distance of two bf16 neighbours at this magnitude.
double bf16_step(double magnitude) {
  if (magnitude < 0x1p-126) return 0x1p-133;
  const std::uint64_t exponent = std::bit_cast<std::uint64_t>(magnitude) >> 52;
  return std::bit_cast<double>((exponent - 7) << 52);
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

// Rows (all axes but the last) of one place on the first axis.
std::int64_t rows_per_first(const as_tensor& t) {
  return t.rank > 1 ? as_tensor_numel(&t) / columns_of(t) / t.shape[0] : 1;
}

// Walks the valid rows of places begin..end-1 on the first axis (an axis of its own where there is
// just one): visit(row, count).
template <class Visit>
void for_rows(const as_tensor& t, const TapMask& mask, std::int64_t begin, std::int64_t end,
              const Visit& visit) {
  const std::int64_t columns = columns_of(t);
  const std::int64_t per_first = rows_per_first(t);
  for (std::int64_t row = begin * per_first; row < end * per_first; ++row) {
    const std::int64_t first = row / per_first;
    if (mask.slots != nullptr && mask.slots[first] < 0) continue;
    if (mask.left_out != nullptr && (*mask.left_out)[static_cast<std::size_t>(first)]) continue;
    std::int64_t count = columns;
    if (mask.lens != nullptr) count = std::min<std::int64_t>(count, mask.lens[first]);
    if (count > 0) visit(row, count);
  }
}

std::int64_t places(const as_tensor& t) { return t.rank > 1 ? t.shape[0] : 1; }

// Place of a value in the order of all values of its dtype, so that neighbours are 1 apart.
std::int64_t ordinal(double v, std::int32_t dtype) {
  const auto bits = std::bit_cast<std::uint32_t>(static_cast<float>(v));
  const std::int64_t magnitude = (bits & 0x7fffffffu) >> (dtype == AS_BF16 ? 16 : 0);
  return bits >> 31 != 0 ? -magnitude : magnitude;
}

// Differences of each size, so that percentiles need no sort.
class DifferenceCounts {
 public:
  // zeros: how many of those in the first bin are zero.
  void add(const DifferenceBins& bins, std::int64_t zeros) {
    counts_.resize(DifferenceBins::kBins);
    for (int bin = 0; bin < DifferenceBins::kBins; ++bin) {
      counts_[static_cast<std::size_t>(bin)] += bins.of(bin);
    }
    counts_[0] -= zeros;
  }
  void add_totals(std::int64_t zeros, std::int64_t others) {
    zeros_ += zeros;
    others_ += others;
  }
  void add(const DifferenceCounts& other) {
    counts_.resize(std::max(counts_.size(), other.counts_.size()));
    for (std::size_t i = 0; i < other.counts_.size(); ++i) counts_[i] += other.counts_[i];
    zeros_ += other.zeros_;
    others_ += other.others_;
  }
  // Upper edge of the bin in which the share of all differences is reached.
  double quantile(double share) const {
    const double wanted = share * static_cast<double>(zeros_ + others_);
    auto seen = static_cast<double>(zeros_);
    if (others_ == 0 || wanted <= seen) return 0;
    for (std::size_t bin = 0; bin < counts_.size(); ++bin) {
      seen += static_cast<double>(counts_[bin]);
      if (seen < wanted) continue;
      const std::uint64_t edge = bin + 1 + DifferenceBins::kFirst;
      return std::bit_cast<double>(edge << 49);
    }
    return kInfinity;
  }

 private:
  std::vector<std::int64_t> counts_;  // by bin; empty while there are none
  std::int64_t zeros_ = 0, others_ = 0;
};

struct CosineSums {
  double ab = 0, aa_bb = 0;
  void add(const CosineSums& other) {
    ab += other.ab;
    aa_bb += other.aa_bb;
  }
  double difference() const { return aa_bb == 0 ? 0 : 1 - 2 * ab / aa_bb; }
};

// What was found so far, in rows that follow one another.
struct Findings {
  Comparison out;
  CosineSums sums;
  DifferenceCounts differences;
  double worst = -1;

  // Those of rows that come after these.
  void add(const Findings& next) {
    const ErrorFigures& f = next.out.figures;
    out.equal = out.equal && next.out.equal;
    out.anomalies += next.out.anomalies;
    out.elements += next.out.elements;
    out.rows_beyond += next.out.rows_beyond;
    out.figures.differing += f.differing;
    out.figures.beyond += f.beyond;
    out.figures.max_abs = std::max(out.figures.max_abs, f.max_abs);
    out.figures.max_rel = std::max(out.figures.max_rel, f.max_rel);
    out.figures.max_ulp = std::max(out.figures.max_ulp, f.max_ulp);
    sums.add(next.sums);
    differences.add(next.differences);
    if (next.worst > worst) {
      worst = next.worst;
      out.worst = next.out.worst;
    }
  }
};

// What a row adds.
struct RowFindings {
  CosineSums sums;  // of all rows so far
  double max_abs = 0, max_rel = 0;
  std::int64_t max_ulp = 0, zeros = 0, nonzeros = 0, differing = 0, beyond = 0, anomalies = 0;
  double worst = -1;  // in all rows so far
  std::int64_t worst_column = -1;
};

// Whether two rows, side by side in memory, have the same bits.
bool same_bits(const as_tensor& a, const as_tensor& b, std::int64_t row, std::int64_t count) {
  if (a.dtype != b.dtype || a.stride[a.rank - 1] != 1 || b.stride[b.rank - 1] != 1) return false;
  const std::int64_t bytes = as_dtype_size(a.dtype);
  const auto* at_a = static_cast<const char*>(a.data) + row_offset(a, row) * bytes;
  const auto* at_b = static_cast<const char*>(b.data) + row_offset(b, row) * bytes;
  return std::memcmp(at_a, at_b, static_cast<std::size_t>(count * bytes)) == 0;
}

// Compares the elements of rows. Most pass with sums alone: these take a loop without branches, and
// only what is left is looked at closely.
class RowComparison {
 public:
  // Without a rule there is nothing to be within: figures alone are wanted.
  RowComparison(std::int32_t dtype, const Tolerance* rule, std::int64_t columns)
      : dtype_(dtype),
        rule_(rule),
        left_(static_cast<std::size_t>(columns)),
        differences_(left_.size()),
        rounded_(left_.size()) {}

  RowFindings operator()(const double* a, const double* b, std::int64_t count, Findings& found) {
    RowFindings row;
    row.worst = found.worst;
    const std::int64_t left = sum_up(a, b, count, row, found);
    const bool of_row = rule_ != nullptr && rule_->row_max > 0 && left > 0;
    const double row_max = of_row ? largest_number(b, count) : 0;
    for (std::int64_t i = 0; i < left; ++i) {
      const std::int64_t c = left_[static_cast<std::size_t>(i)];
      const double used = close_look(a[c], b[c], row_max, row);
      if (used > 1) ++row.beyond;
      if (used > row.worst) {
        row.worst = used;
        row.worst_column = c;
      }
    }
    return row;
  }

  // Of all rows.
  void add_differences(DifferenceCounts& to) const {
    if (bins_) to.add(*bins_, binned_zeros_);
  }

 private:
  RowSums sums(const double* a, const double* b, std::int64_t count) {
    return row_sums(dtype_, a, b, count, max_rel_, {differences_.data(), rounded_.data()});
  }

  // Columns of the others lie in left_ then; how many they are.
  std::int64_t sum_up(const double* a, const double* b, std::int64_t count, RowFindings& row,
                      Findings& found) {
    RowSums all = sums(a, b, count);
    std::int64_t anomalies = 0;
    if (!std::isfinite(all.squares)) all = sums_without_anomalies(a, b, count, anomalies);
    row.sums = found.sums;
    row.sums.add({all.ab, all.squares});
    row.max_abs = all.max_abs;
    row.max_rel = max_rel_ = std::max(max_rel_, all.max_rel);
    row.zeros = all.equal - anomalies;
    row.nonzeros = count - all.equal;
    if (row.nonzeros > 0) {
      if (!bins_) bins_.emplace();
      bins_->count(differences_.data(), count);
      binned_zeros_ += all.equal;
      if (row.worst < 0) {  // a place to name even where all round to the same
        row.worst = 0;
        row.worst_column = std::ranges::find_if(differences_, [](double d) { return d > 0; }) -
                           differences_.begin();
      }
    }
    if (all.unlike + anomalies == 0) return 0;
    const bool figures_hold =
        anomalies == 0 && !all.tiny && (dtype_ == AS_BF16 || dtype_ == AS_F32);
    if (rule_ == nullptr && figures_hold) {
      row.differing = all.unlike;
      row.max_ulp = all.max_ulp;
      return 0;
    }
    return list_left(a, b, count, row);
  }

  // Again with zeros in the place of what is not finite, which is like nothing.
  RowSums sums_without_anomalies(const double* a, const double* b, std::int64_t count,
                                 std::int64_t& anomalies) {
    std::vector<double> finite_a(a, a + count), finite_b(b, b + count);
    std::vector<std::size_t> columns;
    for (std::size_t c = 0; c < finite_a.size(); ++c) {
      if (!anomaly(finite_a[c]) && !anomaly(finite_b[c])) continue;
      finite_a[c] = finite_b[c] = 0;
      columns.push_back(c);
    }
    anomalies = static_cast<std::int64_t>(columns.size());
    const RowSums all = sums(finite_a.data(), finite_b.data(), count);
    for (const std::size_t c : columns) rounded_[c] = std::numeric_limits<double>::quiet_NaN();
    return all;
  }

  std::int64_t list_left(const double* a, const double* b, std::int64_t count, RowFindings& row) {
    const double* const rounded = rounded_.data();
    std::int64_t* const listed = left_.data();
    std::int64_t left = 0;
    for (std::int64_t c = 0; c < count; ++c) {
      listed[left] = c;
      left += a[c] != rounded[c] ? 1 : 0;
    }
    if (rule_ != nullptr || (dtype_ != AS_BF16 && dtype_ != AS_F32)) return left;
    // Figures alone are wanted: these are all there is to say of numbers that are not subnormal.
    std::int64_t kept = 0;
    for (std::int64_t i = 0; i < left; ++i) {
      const std::int64_t c = listed[i];
      if (!std::isnan(rounded[c]) && std::fabs(b[c]) >= 0x1p-126) {
        ++row.differing;
        row.max_ulp =
            std::max(row.max_ulp, std::abs(ordinal(a[c], dtype_) - ordinal(rounded[c], dtype_)));
        continue;
      }
      listed[kept++] = c;
    }
    return kept;
  }

  // Share of the budget that the element uses.
  double close_look(double x, double y, double row_max, RowFindings& row) const {
    if (anomaly(x) || anomaly(y)) {
      if (same_anomaly(x, y)) return 0;
      ++row.anomalies;
      ++row.differing;
      return kInfinity;
    }
    const double rounded = round_to(y, dtype_);
    if (x == rounded) return 0;
    ++row.differing;
    if (dtype_ == AS_BF16 || dtype_ == AS_F32) {
      row.max_ulp = std::max(row.max_ulp, std::abs(ordinal(x, dtype_) - ordinal(rounded, dtype_)));
    }
    return rule_ != nullptr ? budget(x, y, row_max, *rule_) : 0;
  }

  static double largest_number(const double* values, std::int64_t count) {
    double largest = 0;
    for (std::int64_t c = 0; c < count; ++c) {
      const double v = std::fabs(values[c]);
      if (std::isfinite(v)) largest = std::max(largest, v);
    }
    return largest;
  }

  std::int32_t dtype_;
  const Tolerance* rule_;
  std::vector<std::int64_t> left_;
  std::vector<double> differences_, rounded_;  // of the newest row
  double max_rel_ = 0;                         // of all rows
  std::optional<DifferenceBins> bins_;         // of rows that differ, where there are any
  std::int64_t binned_zeros_ = 0;
};

// Compares places begin..end-1 of the first axis.
void find(const as_tensor& value, const as_tensor& reference, const TapMask& mask,
          const Tolerance* rule, std::int64_t begin, std::int64_t end, Findings& found) {
  std::vector<double> of_value(static_cast<std::size_t>(columns_of(value)));
  std::vector<double> of_reference(of_value.size());
  RowComparison compare_row(value.dtype, rule, columns_of(value));
  const std::int64_t per_first = rows_per_first(value);
  std::int64_t last_beyond = -1;
  Comparison& out = found.out;
  for_rows(value, mask, begin, end, [&](std::int64_t row, std::int64_t count) {
    const double* a = row_in(value, row, count, of_value);
    if (same_bits(value, reference, row, count)) {
      const double squares = sum_of_squares(a, count);
      if (std::isfinite(squares)) {
        found.sums.add({squares, 2 * squares});
        found.differences.add_totals(count, 0);
        out.elements += count;
        return;
      }
    }
    const double* b = row_in(reference, row, count, of_reference);
    const RowFindings more = compare_row(a, b, count, found);
    found.sums = more.sums;
    found.differences.add_totals(more.zeros, more.nonzeros);
    ErrorFigures& figures = out.figures;
    figures.max_abs = std::max(figures.max_abs, more.max_abs);
    figures.max_rel = std::max(figures.max_rel, more.max_rel);
    figures.max_ulp = std::max(figures.max_ulp, static_cast<double>(more.max_ulp));
    figures.differing += more.differing;
    figures.beyond += more.beyond;
    out.equal = out.equal && more.differing == 0;
    out.anomalies += more.anomalies;
    out.elements += count;
    if (value.rank == 1) {  // an element is a place of its own
      out.rows_beyond += more.beyond;
    } else if (more.beyond > 0) {
      out.rows_beyond += row / per_first != last_beyond ? 1 : 0;
      last_beyond = row / per_first;
    }
    if (more.worst_column >= 0) {
      const auto c = static_cast<std::size_t>(more.worst_column);
      found.worst = more.worst;
      out.worst = {index_of(value, row, more.worst_column), a[c], b[c]};
    }
  });
  compare_row.add_differences(found.differences);
}

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
                   const Tolerance& tolerance, const as_threads* threads) {
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
  const Tolerance* by = &tolerance != &kFiguresAlone ? &rule : nullptr;
  // Parts depend on the shape alone.
  const std::int64_t count = places(value);
  const std::int64_t per_part = std::max<std::int64_t>(
      1, kPartElements / std::max<std::int64_t>(1, as_tensor_numel(&value) / count));
  std::vector<Findings> parts(static_cast<std::size_t>((count + per_part - 1) / per_part));
  const auto num_parts = static_cast<std::int64_t>(parts.size());
  cpu::parallel_for(threads, num_parts, 1, [&](std::int64_t first, std::int64_t last) {
    for (std::int64_t i = first; i < last; ++i) {
      find(value, reference, mask, by, i * per_part, std::min(count, (i + 1) * per_part),
           parts[static_cast<std::size_t>(i)]);
    }
  });
  Findings found = std::move(parts[0]);
  for (std::size_t i = 1; i < parts.size(); ++i) found.add(parts[i]);
  out = std::move(found.out);
  out.figures.cosine =
      out.anomalies > 0 ? std::numeric_limits<double>::quiet_NaN() : found.sums.difference();
  // A percentile is no larger than the largest.
  out.figures.median = std::min(found.differences.quantile(0.5), out.figures.max_abs);
  out.figures.p90 = std::min(found.differences.quantile(0.9), out.figures.max_abs);
  out.figures.p99 = std::min(found.differences.quantile(0.99), out.figures.max_abs);
  out.budget_used = std::max(found.worst, 0.0);
  if (tolerance.cosine) {
    out.budget_used = std::max(out.budget_used, out.figures.cosine / *tolerance.cosine);
  }
  out.within = out.budget_used <= 1;
  if (out.anomalies > 0) {
    out.note = fmt::format("{} elements are NaN or infinite on one side only", out.anomalies);
  } else if (!out.within && tolerance.exact) {
    out.note = fmt::format("{} of {} elements differ", out.figures.differing, out.elements);
  } else if (!out.within && out.figures.beyond == 0 && tolerance.cosine) {
    out.note = fmt::format(
        "no element is beyond its bound, all of them together are: 1 - cosine is {:.3g}, at most "
        "{:.3g} is allowed",
        out.figures.cosine, *tolerance.cosine);
  }
  return out;
}

std::vector<MagnitudeBin> error_by_magnitude(const as_tensor& value, const as_tensor& reference,
                                             const TapMask& mask) {
  constexpr int kZero = -1075;  // below every binade
  std::map<int, MagnitudeBin> bins;
  if (as_tensor_numel(&value) == 0) return {};
  for_rows(value, mask, 0, places(value), [&](std::int64_t row, std::int64_t count) {
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

ErrorFigures measure(const as_tensor& a, const as_tensor& b, const TapMask& mask,
                     const as_threads* threads) {
  return compare(a, b, mask, kFiguresAlone, threads).figures;
}

double element_budget(double value, double reference, double row_max, const Tolerance& tolerance) {
  if (anomaly(value) || anomaly(reference)) return same_anomaly(value, reference) ? 0 : kInfinity;
  return budget(value, reference, row_max, tolerance);
}

}  // namespace attnscope
