// Selected entries are sets: order does not matter, ties may fall either way.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "engine/io/plural.h"
#include "engine/model/numbers.h"
#include "engine/trace/compare.h"
#include "kernels/params/tensor_view.h"

namespace attnscope {
namespace {

// Place of an entry in a token's list; 0 when it is not there.
std::int64_t place_of(const as_tensor& indices, std::int64_t token, std::int32_t entry) {
  for (std::int64_t k = 0; k < indices.shape[1]; ++k) {
    if (*at<std::int32_t>(indices, token, k) == entry) return k;
  }
  return 0;
}

// Entries of one row, sorted; the first complaint about its form, if any, and at which rank.
struct List {
  std::vector<std::int32_t> set;
  std::string complaint;
  std::int64_t rank = 0;

  List(const as_tensor& indices, std::int64_t token, std::int32_t len) {
    const std::int64_t width = indices.shape[1];
    const auto complain = [&](std::int64_t at_rank, std::string text) {
      if (!complaint.empty()) return;
      complaint = std::move(text);
      rank = at_rank;
    };
    for (std::int64_t k = 0; k < width; ++k) {
      const std::int32_t entry = *at<std::int32_t>(indices, token, k);
      if (entry >= len || entry < -1) {
        complain(k, fmt::format("token {}: entry {} at rank {} is outside 0..{}", token, entry, k,
                                len - 1));
      } else if (entry >= 0 && k != static_cast<std::int64_t>(set.size())) {
        complain(static_cast<std::int64_t>(set.size()),
                 fmt::format("token {}: entry {} at rank {} comes after a -1", token, entry, k));
      }
      if (entry >= 0) set.push_back(entry);
    }
    const auto chosen = static_cast<std::int64_t>(set.size());
    std::sort(set.begin(), set.end());
    const auto twice = std::adjacent_find(set.begin(), set.end());
    if (twice != set.end()) {
      complain(place_of(indices, token, *twice),
               fmt::format("token {}: entry {} is selected twice", token, *twice));
    }
    if (const auto wanted = std::min<std::int64_t>(width, len); chosen != wanted) {
      complain(std::min(chosen, width - 1),
               fmt::format("token {}: {} selected, {} visible and wanted", token,
                           counted(chosen, "entry", "entries"), wanted));
    }
  }
};

double score(const as_tensor& logits, std::int64_t token, std::int32_t entry) {
  return entry >= 0 && entry < logits.shape[1] ? element(logits, token, entry) : kInfinity;
}

// Members of one sorted set only.
struct Swap {
  std::vector<std::int32_t> ours, theirs;

  Swap(const std::vector<std::int32_t>& a, const std::vector<std::int32_t>& b) {
    std::set_difference(a.begin(), a.end(), b.begin(), b.end(), std::back_inserter(ours));
    std::set_difference(b.begin(), b.end(), a.begin(), a.end(), std::back_inserter(theirs));
  }
  std::size_t size() const { return std::max(ours.size(), theirs.size()); }

  // Share of the reference's `wanted` members that were chosen.
  double recall(std::size_t wanted) const {
    return wanted == 0 ? 1 : 1 - static_cast<double>(theirs.size()) / static_cast<double>(wanted);
  }

  // The best entry left out against the worst one taken in its place, never below 0. NaN ranks
  // below every number; an infinite gap stays infinite.
  double margin(const as_tensor& logits, std::int64_t token) const {
    const auto ranked = [&](std::int32_t e) {
      const double v = score(logits, token, e);
      return std::isnan(v) ? -kInfinity : v;
    };
    double best_lost = -kInfinity, worst_taken = kInfinity;
    for (std::int32_t e : theirs) best_lost = std::max(best_lost, ranked(e));
    for (std::int32_t e : ours) worst_taken = std::min(worst_taken, ranked(e));
    return best_lost == worst_taken ? 0 : std::max(0.0, best_lost - worst_taken);
  }
};

}  // namespace

Comparison compare_top_k(const as_tensor& indices, const as_tensor& reference,
                         const as_tensor& logits, const std::int32_t* lens,
                         const Tolerance& tolerance) {
  Comparison out;
  double worst = 0;
  for (std::int64_t token = 0; token < indices.shape[0]; ++token) {
    const List list(indices, token, lens[token]);
    const std::vector<std::int32_t>& ours = list.set;
    const std::vector<std::int32_t> theirs = List(reference, token, lens[token]).set;
    std::string complaint = list.complaint;
    out.elements += indices.shape[1];
    const Swap swap(ours, theirs);
    const auto swapped = swap.size();
    out.figures.differing += static_cast<std::int64_t>(swapped);
    if (complaint.empty() && swapped == 0) continue;
    out.equal = false;
    double used = kInfinity;
    if (complaint.empty() && swap.ours.size() == swap.theirs.size()) {
      double scale = 0;
      for (std::int32_t c = 0; c < lens[token]; ++c) {
        const double s = std::fabs(score(logits, token, c));
        if (std::isfinite(s)) scale = std::max(scale, s);
      }
      // Either choice may be the worse one: a reference that was recorded need not be right.
      const double margin =
          std::max(swap.margin(logits, token), Swap(theirs, ours).margin(logits, token));
      out.figures.max_abs = std::max(out.figures.max_abs, margin);
      used = margin == 0 ? 0 : margin / (tolerance.score_rel * scale);
      complaint = fmt::format("token {}: {} of {} entries differ, margin {:.3g}", token, swapped,
                              theirs.size(), margin);
      if (used > 1) {
        complaint += fmt::format(", the score tolerance is {:.2g}", tolerance.score_rel * scale);
      }
    } else if (complaint.empty()) {
      complaint = fmt::format("token {}: {} selected where the other list has {}", token,
                              ours.size(), theirs.size());
    }
    out.figures.recall = std::min(out.figures.recall, swap.recall(theirs.size()));
    if (used > 1) {
      out.figures.beyond += static_cast<std::int64_t>(swapped);
      ++out.rows_beyond;
    }
    if (used >= worst) {
      worst = used;
      out.note = complaint;
      if (swap.size() == 0) {  // the same set, but no list of one
        out.worst = {{token, list.rank},
                     static_cast<double>(*at<std::int32_t>(indices, token, list.rank)),
                     static_cast<double>(*at<std::int32_t>(reference, token, list.rank))};
        continue;
      }
      // Where an entry stands that the other list lacks.
      const std::int64_t place = !swap.ours.empty()
                                     ? place_of(indices, token, swap.ours.front())
                                     : place_of(reference, token, swap.theirs.front());
      out.worst = {{token, place},
                   swap.ours.empty() ? -1.0 : swap.ours.front(),
                   swap.theirs.empty() ? -1.0 : swap.theirs.front()};
    }
  }
  out.budget_used = worst;
  out.within = worst <= 1;
  out.near_tie = !out.equal && out.within;
  return out;
}

SelectionDrift selection_drift(const as_tensor& indices, const as_tensor& logits,
                               const as_tensor& sim_indices, const as_tensor& sim_logits,
                               const std::int32_t* lens) {
  SelectionDrift drift;
  for (std::int64_t token = 0; token < indices.shape[0]; ++token) {
    const std::vector<std::int32_t> theirs = List(sim_indices, token, lens[token]).set;
    const Swap swap(List(indices, token, lens[token]).set, theirs);
    if (swap.size() == 0) continue;
    drift.recall = std::min(drift.recall, swap.recall(theirs.size()));
    ++drift.tokens;
    drift.entries += static_cast<std::int64_t>(swap.size());
    double difference = 0;
    for (std::int32_t c = 0; c < lens[token]; ++c) {
      difference =
          std::max(difference, std::fabs(score(logits, token, c) - score(sim_logits, token, c)));
    }
    const double margin = swap.margin(sim_logits, token);
    if (margin >= drift.margin) {
      drift.margin = margin;
      drift.score_difference = difference;
    }
  }
  return drift;
}

}  // namespace attnscope
