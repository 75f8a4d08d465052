// Selected entries are sets: order does not matter, ties may fall either way.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "engine/trace/compare.h"
#include "kernels/params/tensor_view.h"

namespace attnscope {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// Entries of one row, sorted; the first complaint about its form, if any.
std::vector<std::int32_t> members(const as_tensor& indices, std::int64_t token, std::int32_t len,
                                  std::string* complaint) {
  const std::int64_t width = indices.shape[1];
  const auto wanted = std::min<std::int64_t>(width, len);
  std::vector<std::int32_t> set;
  for (std::int64_t k = 0; k < width; ++k) {
    const std::int32_t entry = *at<std::int32_t>(indices, token, k);
    if (entry >= len || entry < -1) {
      *complaint =
          fmt::format("token {}: entry {} at rank {} is outside 0..{}", token, entry, k, len - 1);
    } else if (entry >= 0 && k != static_cast<std::int64_t>(set.size())) {
      *complaint = fmt::format("token {}: entry {} at rank {} comes after a -1", token, entry, k);
    }
    if (entry >= 0) set.push_back(entry);
  }
  std::sort(set.begin(), set.end());
  if (auto twice = std::adjacent_find(set.begin(), set.end()); twice != set.end()) {
    *complaint = fmt::format("token {}: entry {} is selected twice", token, *twice);
  } else if (complaint->empty() && static_cast<std::int64_t>(set.size()) != wanted) {
    *complaint = fmt::format("token {}: {} entries selected, {} visible and wanted", token,
                             set.size(), wanted);
  }
  return set;
}

double score(const as_tensor& logits, std::int64_t token, std::int32_t entry) {
  return entry >= 0 && entry < logits.shape[1] ? element(logits, token, entry) : kInfinity;
}

}  // namespace

Comparison compare_top_k(const as_tensor& indices, const as_tensor& reference,
                         const as_tensor& logits, const std::int32_t* lens,
                         const Tolerance& tolerance) {
  Comparison out;
  double worst = 0;
  for (std::int64_t token = 0; token < indices.shape[0]; ++token) {
    std::string complaint;
    std::string reference_complaint;
    std::vector<std::int32_t> ours = members(indices, token, lens[token], &complaint);
    std::vector<std::int32_t> theirs = members(reference, token, lens[token], &reference_complaint);
    out.elements += indices.shape[1];
    std::vector<std::int32_t> only_ours, only_theirs;
    std::set_difference(ours.begin(), ours.end(), theirs.begin(), theirs.end(),
                        std::back_inserter(only_ours));
    std::set_difference(theirs.begin(), theirs.end(), ours.begin(), ours.end(),
                        std::back_inserter(only_theirs));
    const auto swapped = std::max(only_ours.size(), only_theirs.size());
    out.figures.differing += static_cast<std::int64_t>(swapped);
    if (complaint.empty() && swapped == 0) continue;
    out.equal = false;
    double used = kInfinity;
    if (complaint.empty() && only_ours.size() == only_theirs.size()) {
      double scale = 0;
      for (std::int32_t c = 0; c < lens[token]; ++c) {
        const double s = std::fabs(score(logits, token, c));
        if (std::isfinite(s)) scale = std::max(scale, s);
      }
      // The best entry left out against the worst one taken in its place.
      double best_lost = -kInfinity, worst_taken = kInfinity;
      for (std::int32_t e : only_theirs) best_lost = std::max(best_lost, score(logits, token, e));
      for (std::int32_t e : only_ours) worst_taken = std::min(worst_taken, score(logits, token, e));
      const double margin = std::max(0.0, best_lost - worst_taken);
      out.figures.max_abs = std::max(out.figures.max_abs, margin);
      used = margin == 0 ? 0 : margin / (tolerance.score_rel * scale);
      complaint = fmt::format("token {}: {} of {} entries differ, margin {:.3g}", token, swapped,
                              theirs.size(), margin);
    }
    if (used >= worst) {
      worst = used;
      out.note = complaint;
      out.worst = {{token, 0},
                   only_ours.empty() ? -1.0 : only_ours.front(),
                   only_theirs.empty() ? -1.0 : only_theirs.front()};
    }
  }
  out.budget_used = worst;
  out.within = worst <= 1;
  out.near_tie = !out.equal && out.within;
  return out;
}

}  // namespace attnscope
