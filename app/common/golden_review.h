// A pending golden as people look at it: what was accepted beside what was received, tap by tap,
// the figures that moved, and one sentence. Shared by the terminal and the app.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "engine/golden/golden_compare.h"
#include "engine/golden/golden_folder.h"

namespace attnscope {

struct GoldenReviewTap {
  GoldenFinding finding;
  const GoldenTap* accepted = nullptr;  // of GoldenReview's own values
  const GoldenTap* received = nullptr;
  std::vector<GoldenDelta> deltas;  // float taps, worst first
};

struct GoldenReview {
  std::string name, about, sentence;
  std::string accepted_by, received_by;  // reason, commit, machine
  GoldenValues accepted, received;
  std::vector<GoldenReviewTap> taps;  // failures alone, in causal order; of a new golden all taps
  bool is_new = false;
};

// Of the pending golden `name`. Nothing is computed.
Result<GoldenReview> review_golden(const GoldenFolder& folder, const std::string& name);
void link_taps(GoldenReview& review);

// Both sides of a tap in one short text each: numbers, sets, a statistic.
std::string golden_side(const GoldenTap* tap);

// Smallest and largest finite sample of both sides; nothing where there is none.
std::optional<std::pair<double, double>> sample_range(const GoldenTap& a, const GoldenTap& b);

// For a terminal; `most`: taps that are shown in full.
std::string format_review(const GoldenReview& review, std::size_t most);

// Who runs here: program, machine, driver; the commit of the folder.
GoldenOrigin golden_origin(const std::string& folder);
std::string origin_text(const GoldenOrigin& origin);

// --goldens, else tests/goldens here, else the one beside the assets.
std::string golden_folder(const std::string& named);

}  // namespace attnscope
