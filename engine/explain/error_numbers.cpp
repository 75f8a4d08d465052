#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "engine/explain/error_relation.h"
#include "engine/model/numbers.h"

namespace attnscope {
namespace {

constexpr double kMost = 0.9;        // of the wrong elements, for a statement about them
constexpr double kSame = 0.01;       // numbers that count as one, relative to it
constexpr std::int64_t kFewest = 3;  // wrong elements

std::string percent(double share) {
  if (share >= 1) return "all";
  return fmt::format("{:.0f} % of the", std::min(99.0, std::round(100 * share)));
}

// What a factor is known as; columns: of a row.
std::string known_factor(double factor, std::int64_t columns) {
  const auto is = [&](double v) { return std::fabs(factor / v - 1) < 0.004; };
  if (is(-1)) return ": the sign";
  if (is(std::log2(std::exp(1.0)))) return ": log2(e), base 2 where the natural one is due";
  if (is(std::log(2.0))) return ": ln(2), the natural base where base 2 is due";
  const double root = std::sqrt(static_cast<double>(columns));
  for (int k = -12; k <= 12; ++k) {
    if (k != 0 && is(std::exp2(k))) return fmt::format(": 2^{}", k);
  }
  if (columns > 2 && is(root)) return fmt::format(": the square root of {}", columns);
  if (columns > 2 && is(1 / root)) return fmt::format(": 1 / the square root of {}", columns);
  for (int k = 1; k <= 13; k += 2) {  // of dims that are not the row's own, such as 128 or 512
    const double of = std::exp2(k);
    if (is(std::sqrt(of))) return fmt::format(": the square root of {}", of);
    if (is(1 / std::sqrt(of))) return fmt::format(": 1 / the square root of {}", of);
  }
  return "";
}

struct Shared {
  double number = 0, share = 0;
};

// The median, and for how many it stands.
Shared shared_number(std::vector<double> numbers, std::int64_t of, double slack) {
  if (to_count(numbers.size()) < kFewest) return {};
  const auto middle = numbers.begin() + to_count(numbers.size() / 2);
  std::nth_element(numbers.begin(), middle, numbers.end());
  Shared out{*middle, 0};
  const double bound = kSame * std::fabs(out.number) + slack;
  const auto near =
      std::ranges::count_if(numbers, [&](double v) { return std::fabs(v - out.number) <= bound; });
  out.share = static_cast<double>(near) / static_cast<double>(of);
  return out;
}

bool whole(double v) { return v == std::floor(v); }

double largest_reference(const WrongElements& w) {
  double most = 0;
  for (const double r : w.reference) {
    if (std::isfinite(r)) most = std::max(most, std::fabs(r));
  }
  return most;
}

void not_finite(const WrongElements& w, std::vector<ErrorFinding>& out) {
  std::int64_t nans = 0, infinities = 0;
  for (std::size_t i = 0; i < w.wrong.size(); ++i) {
    if (w.wrong[i] == 0 || std::isfinite(w.value[i])) continue;
    ++(std::isnan(w.value[i]) ? nans : infinities);
  }
  if (nans + infinities == 0) return;
  const double share = static_cast<double>(nans + infinities) / static_cast<double>(w.count);
  out.push_back({"not_finite",
                 fmt::format("{} wrong values are {}", percent(share),
                             infinities == 0 ? "NaN"
                             : nans == 0     ? "infinite"
                                             : "NaN or infinite"),
                 share});
}

void constant(const WrongElements& w, std::vector<ErrorFinding>& out) {
  std::map<double, std::int64_t> counts;
  double low = kInfinity, high = -kInfinity;
  for (std::size_t i = 0; i < w.wrong.size(); ++i) {
    if (w.wrong[i] == 0 || !std::isfinite(w.value[i])) continue;
    if (counts.size() < 4096 || counts.contains(w.value[i])) ++counts[w.value[i]];
    low = std::min(low, w.reference[i]);
    high = std::max(high, w.reference[i]);
  }
  if (counts.empty() || low == high || w.count < kFewest) return;
  const auto most = std::ranges::max_element(counts, {}, [](const auto& c) { return c.second; });
  const double share = static_cast<double>(most->second) / static_cast<double>(w.count);
  if (share < kMost) return;
  out.push_back(
      {"constant", fmt::format("{} wrong values are {:.6g}", percent(share), most->first), share});
}

void ratio_and_difference(const WrongElements& w, std::vector<ErrorFinding>& out) {
  const double most = largest_reference(w);
  std::vector<double> ratios, differences;
  double low = kInfinity, high = -kInfinity;
  for (std::size_t i = 0; i < w.wrong.size(); ++i) {
    if (w.wrong[i] == 0 || !std::isfinite(w.value[i]) || !std::isfinite(w.reference[i])) continue;
    differences.push_back(w.value[i] - w.reference[i]);
    if (std::fabs(w.reference[i]) > 1e-3 * most) ratios.push_back(w.value[i] / w.reference[i]);
    low = std::min(low, w.reference[i]);
    high = std::max(high, w.reference[i]);
  }
  if (low == high) return;  // one number alone says nothing of how others follow
  // Small values are left out of ratios: rounding of the dtype is a larger part of them.
  const Shared ratio = shared_number(ratios, to_count(ratios.size()), 0);
  const bool many = 4 * to_count(ratios.size()) >= w.count;
  const Shared plus = shared_number(differences, w.count, 1e-5 * most);
  // Indices that are one off are near a factor of 1 too, which says nothing of them.
  const bool by_difference = plus.share >= ratio.share && std::ranges::all_of(w.value, whole);
  if (!by_difference && many && ratio.share >= kMost && ratio.number != 0 &&
      std::fabs(ratio.number - 1) > kSame) {
    out.push_back(
        {"ratio",
         fmt::format("{} wrong values are {:.5g} times the right ones{}", percent(ratio.share),
                     ratio.number, known_factor(ratio.number, w.columns())),
         ratio.share});
    return;
  }
  if (plus.share >= kMost && std::fabs(plus.number) > (by_difference ? 0 : 1e-4 * most)) {
    out.push_back({"difference",
                   fmt::format("{} wrong values are the right ones {} {:.6g}", percent(plus.share),
                               plus.number < 0 ? "less" : "plus", std::fabs(plus.number)),
                   plus.share});
  }
}

// Rows that are their reference times a number of the row: what a sum of weights or a scale does.
void row_ratio(const WrongElements& w, std::vector<ErrorFinding>& out) {
  if (w.columns() < 4) return;
  std::int64_t rows = 0, scaled = 0;
  double low = kInfinity, high = -kInfinity;
  for (std::int64_t row = 0; row < w.rows(); ++row) {
    double vr = 0, rr = 0, vv = 0;
    std::int64_t bad = 0;
    for (std::int64_t c = 0; c < w.columns(); ++c) {
      const auto i = to_size(row * w.columns() + c);
      bad += w.wrong[i];
      vr += w.value[i] * w.reference[i];
      rr += w.reference[i] * w.reference[i];
      vv += w.value[i] * w.value[i];
    }
    if (bad == 0) continue;
    ++rows;
    if (!(rr > 0) || !std::isfinite(vv) || vv == 0) continue;
    const double factor = vr / rr;
    const double rest = vv - factor * vr;  // squares that the factor leaves
    if (rest > 1e-4 * vv || std::fabs(factor - 1) < kSame) continue;
    ++scaled;
    low = std::min(low, factor);
    high = std::max(high, factor);
  }
  const double share = rows > 0 ? static_cast<double>(scaled) / static_cast<double>(rows) : 0;
  if (rows < kFewest || share < kMost || high - low < kSame * std::fabs(high)) return;
  out.push_back({"row_ratio",
                 fmt::format("{} wrong rows are the right ones times a number of the row, {:.4g} "
                             "to {:.4g}",
                             percent(share), low, high),
                 share});
}

}  // namespace

std::optional<ErrorFinding> other_blocks(const WrongElements& wrong,
                                         const PatternContext& context) {
  const auto rows = static_cast<double>(context.slots_of);
  if (rows < 2 || wrong.count < kFewest) return {};
  bool null = true;
  for (std::size_t i = 0; i < wrong.wrong.size(); ++i) {
    if (wrong.wrong[i] == 0) continue;
    const double is = wrong.value[i], due = wrong.reference[i];
    if (!(is >= 0 && due >= 0) || std::fmod(is, rows) != std::fmod(due, rows)) return {};
    null = null && is < rows;
  }
  return ErrorFinding{"other_block",
                      fmt::format("all wrong slots are at the right row of {}",
                                  null ? "the null block" : "another block"),
                      1};
}

std::vector<ErrorFinding> error_numbers(const WrongElements& wrong) {
  std::vector<ErrorFinding> out;
  not_finite(wrong, out);
  constant(wrong, out);
  if (!out.empty()) return out;
  ratio_and_difference(wrong, out);
  if (out.empty()) row_ratio(wrong, out);
  return out;
}

}  // namespace attnscope
