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

// The same of one that may be damaged: what is wrong with it is its sentence then, and it has no
// taps; it can be rejected or left.
GoldenReview review_pending(const GoldenFolder& folder, const std::string& name);

// Rows, numbers or checksums of a tap without deltas that differ, the first `most` of them; one
// line where a side has no such tap.
struct GoldenSides {
  std::string what, accepted, received;
};
std::vector<GoldenSides> golden_sides(const GoldenReviewTap& tap, std::size_t most);

// Smallest and largest finite sample of both sides; nothing where there is none.
std::optional<std::pair<double, double>> sample_range(const GoldenTap& a, const GoldenTap& b);

// For a terminal; `most`: taps that are shown in full.
std::string format_review(const GoldenReview& review, std::size_t most);

// Who runs here: program, machine, driver; the commit of the folder.
GoldenOrigin golden_origin(const std::string& folder);
std::string origin_text(const GoldenOrigin& origin);

// --goldens, else tests/goldens here, else the one beside the assets.
std::string golden_folder(const std::string& named);
// That folder, with the place for large ones: `large`, else goldens in the state folder.
Result<GoldenFolder> open_goldens(const std::string& named, const std::string& large = {});

}  // namespace attnscope
