// What the indexer chose for one token, ready to be shown: scores, ranks, the selected set, its
// threshold and margin, and how the set differs from the reference's and from that of one step ago.
//
//   TopKLayer layer = top_k_layer(info, cursor, position);
//   TopKView view = top_k_view({info, *step, step_before, layer.layer, row, head, tolerance});
//   sentence(top_k_sentence(view), view.verdict);
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "app/views/linkage.h"
#include "engine/session/snapshot.h"
#include "engine/trace/tolerances.h"

namespace attnscope {

// The C4A layer that is shown for a cursor.
struct TopKLayer {
  int layer = -1;    // published number; -1: the model has none
  int ratio = 0;     // tokens that an entry to select from stands for; 0: there is none
  std::string note;  // why it is not the cursor's own; empty when it is
};
// position: of the token looked at, to say how many entries a C128A layer reads; -1 = unknown.
TopKLayer top_k_layer(const SessionInfo& info, const Place& cursor, std::int64_t position);

// What is known of an entry, as bits.
enum : std::uint8_t { kInOurs = 1, kInReference = 2, kInBefore = 4 };

// An entry that is in one of the two sets alone.
struct TopKSwap {
  std::int32_t entry = -1;
  double score = 0;
  double margin = 0;  // how far its score is on the wrong side of the one it was swapped with
  bool near_tie = false;
};

struct TopKView {
  std::string why_empty;  // not empty: nothing to show, for this reason
  int layer = -1;
  std::int32_t request = -1;
  std::int64_t position = -1;
  int ratio = 0;             // tokens that an entry stands for
  std::int64_t visible = 0;  // entries the token may see
  std::int64_t k = 0;        // entries the indexer may select

  std::vector<float> scores;             // [visible]
  std::vector<double> reference_scores;  // [visible], or empty: not compared
  std::vector<std::int32_t> order;       // entries, best first; ties by entry, NaN last
  std::vector<std::int32_t> rank;        // [visible] place in `order`
  std::vector<std::uint8_t> flags;       // [visible]
  std::vector<float> weights;            // [visible] of the head; NaN = not read; or empty

  bool chosen = false;        // indexer_topk ran
  std::int64_t selected = 0;  // entries in the set
  double threshold = kNone;   // the lowest selected score
  std::int32_t at_threshold = -1;
  double best_unselected = kNone;
  std::int32_t runner_up = -1;  // entry of best_unselected
  double margin = kNone;        // threshold - best_unselected

  Verdict verdict = Verdict::kNotCompared;
  double score_tolerance = 0;  // swaps within it are near-ties
  double swap_margin = 0;      // of the whole set: best lost - worst taken, not below 0
  std::vector<TopKSwap> only_ours, only_reference;
  std::string complaint;  // the list itself is malformed, or of the wrong length

  bool has_before = false;  // the same request's last token of the step before was kept
  std::int64_t kept = 0, entered = 0;
  std::vector<std::int32_t> left;  // entries selected then and not now

  bool choosing() const { return visible > k; }
  std::int64_t swapped() const {
    return static_cast<std::int64_t>(std::max(only_ours.size(), only_reference.size()));
  }
  static constexpr double kNone = std::numeric_limits<double>::quiet_NaN();
};

struct TopKInput {
  const SessionInfo& info;
  const StepTrace& step;
  const StepTrace* before = nullptr;  // the step before, if its trace is kept
  int layer = -1;                     // C4A, published number
  std::int64_t row = -1;              // token row of the step
  int head = 0;                       // whose attention weights are shown
  Tolerance tolerance{};              // of indexer_topk's indices
};
TopKView top_k_view(const TopKInput& input);
// One entry of the same, without ordering all others; nullopt when the token does not see it or its
// scores are not kept.
struct TopKEntry {
  double score = 0;
  std::int64_t rank = 0, visible = 0, k = 0;  // rank: 0 = best
  bool chosen = false;                        // indexer_topk ran
  bool selected = false;
  double threshold = TopKView::kNone;
  double weight = TopKView::kNone;  // of the head; NaN = not read
  bool choosing() const { return visible > k; }
};
std::optional<TopKEntry> top_k_entry(const TopKInput& input, std::int64_t entry);
// The panel's first line.
std::string top_k_sentence(const TopKView& view);

// The last kept token row of a request in a step; -1 when there is none.
std::int64_t last_row_of(const StepTrace& step, std::int32_t request);

// One step of a request, for looking at selections from step to step.
struct TopKStep {
  std::int64_t step = -1;
  std::int64_t position = -1;
  std::int64_t visible = 0, selected = 0;
  double threshold = TopKView::kNone, margin = TopKView::kNone;
  double score_tolerance = 0;
  bool has_before = false;
  std::int64_t kept = 0, entered = 0, left = 0;
  Verdict verdict = Verdict::kNotCompared;
};
TopKStep summarise_top_k(const TopKView& view, std::int64_t step);
std::string top_k_steps_sentence(const std::vector<TopKStep>& steps);

// Scores reduced to what a picture of `columns` pixels can show of places [begin, end) of the entry
// order or, by_rank, of `order`.
struct ScoreColumn {
  float low[2], high[2];   // of unselected [0] and selected [1] entries; low > high = none
  std::uint8_t flags = 0;  // of all entries in it, or-ed
  bool nan = false;
  std::int32_t swap = -1;  // an entry of one set alone, the worst by margin if several
};
std::vector<ScoreColumn> reduce_scores(const TopKView& view, bool by_rank, double begin, double end,
                                       int columns);

}  // namespace attnscope
