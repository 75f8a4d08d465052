// Why an element of an attention output has its value: what every row, entry and the sink put in,
// and what was left out and why; who wrote the selected slot.
//
//   WhyView view = why_view({info, snapshot.traces, *step, layer, row, head, dim});
#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "engine/session/snapshot.h"

namespace attnscope {

struct WhyRow {
  static constexpr double kNone = std::numeric_limits<double>::quiet_NaN();
  enum class Kind { kWindow, kEntry, kSink, kNotSelected } kind = Kind::kWindow;
  std::int64_t at = -1;  // position or entry
  std::int32_t block = -1, row = -1;
  std::int64_t slot = -1;
  std::string bytes;     // of the dim, decoded in words; empty = not known
  double value = kNone;  // of the dim; NaN: not known, in a capture
  double logit = kNone, weight = 0, partial = kNone;
  std::int64_t written = -1;  // step; -1 = not known
  std::int64_t rank = -1;     // of entries that were not selected: among all visible, 0 = best
  double margin = kNone;      // and how far below the lowest selected score
};

struct WhyView {
  std::string why_empty;  // not empty: nothing to show, for this reason
  std::string sentence;
  int layer = -1;
  std::int32_t request = -1;
  std::int64_t position = -1;
  double output = WhyRow::kNone, reference = WhyRow::kNone;
  double window = 0, entries = 0;           // sums of the partial values that are known
  double sink = 0;                          // share of the weight
  std::vector<WhyRow> rows;                 // read ones by weight, largest first; then the sink
  std::vector<WhyRow> left_out;             // not selected, best first
  std::int64_t unknown = 0;                 // rows of a capture that no recorded token wrote
  Verdict verdict = Verdict::kNotCompared;  // of the op
};

struct WhyInput {
  const SessionInfo& info;
  std::span<const std::shared_ptr<const StepTrace>> traces;  // ascending
  const StepTrace& step;
  int layer = -1;         // published number
  std::int64_t row = -1;  // token row of the step
  int head = 0;
  std::int64_t dim = 0;
};
WhyView why_view(const WhyInput& input);

// One write to a slot.
struct SlotWrite {
  std::int64_t step = -1;
  as_op_id op = AS_OP_SCHEDULE;
  std::int32_t request = -1;
  std::int64_t position = -1;
  friend bool operator==(const SlotWrite&, const SlotWrite&) = default;
};
// Of one row of a layer's caches in a group, in all steps that ran, oldest first; in a capture in
// those whose rows were recorded.
std::vector<SlotWrite> writes_of_slot(const Snapshot& snapshot, int layer, int group,
                                      std::int64_t slot);

}  // namespace attnscope
