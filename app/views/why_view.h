// Why an element of an attention output has its value: what every row, entry and the sink put in,
// and what was left out and why; who wrote the selected slot.
//
//   WhyView view = why_view({info, *step, layer, row, head, dim});
#pragma once

#include <cstdint>
#include <limits>
#include <map>
#include <string>
#include <utility>
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
  double score = kNone;       // its own
  std::int32_t last_in = -1;  // entry that has the last place of those selected
  bool was_in = false;        // selected for the request's token of the step before
  // Then: entries that were not selected then and are now, above it; best first.
  std::vector<std::int32_t> pushed_by;
};

struct WhyView {
  std::string why_empty;  // not empty: nothing to show, for this reason
  std::string sentence;
  int layer = -1;
  // What the layer has: else it attends all rows, has no entries that stand for tokens, does not
  // choose among them, has no sinks.
  bool windowed = false, has_entries = false, selects = false, has_sinks = false;
  std::int32_t request = -1;
  std::int64_t position = -1;
  double output = WhyRow::kNone, reference = WhyRow::kNone;
  double window = 0, entries = 0;           // sums of the partial values that are known
  double sink = 0;                          // share of the weight
  std::vector<WhyRow> rows;                 // read ones by weight, largest first; then its sink
  std::vector<WhyRow> left_out;             // not selected, best first
  std::int64_t unknown = 0;                 // rows whose values are not known
  Verdict verdict = Verdict::kNotCompared;  // of the op
};

// Rows of one request that the steps of a capture wrote into the caches of one layer, the latest of
// each: a session's op keeps what it read, a capture's does not.
class WrittenRows {
 public:
  struct Row {
    std::int64_t step = -1;
    std::int32_t record = 0, width = 0;
    std::vector<std::uint8_t> bytes;
  };
  WrittenRows() = default;
  // layer: published number; ratio: tokens an entry of it.
  WrittenRows(int layer, int ratio, std::int32_t request)
      : layer_(layer), ratio_(ratio), request_(request) {}
  // A later step than those that are there.
  void add(const StepTrace& step);
  // at: position of a window's row, or entry. nullptr when no step wrote it.
  const Row* find(bool entry, std::int64_t slot, std::int64_t at) const;

 private:
  // By slot, and position or entry: a slot may have held something else before.
  using Rows = std::map<std::pair<std::int64_t, std::int64_t>, Row>;
  int layer_ = -1, ratio_ = 1;
  std::int32_t request_ = -1;
  Rows window_, entries_;
};

struct WhyInput {
  const SessionInfo& info;
  const StepTrace& step;
  int layer = -1;         // published number
  std::int64_t row = -1;  // token row of the step
  int head = 0;
  std::int64_t dim = 0;
  const WrittenRows* written = nullptr;  // of the row's request up to the step, in a capture
  const StepTrace* before = nullptr;     // the step before, where it is kept
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
// Of one row of a layer's caches in a group, in all steps that ran, oldest first; where it is not
// known what all wrote, as in a capture, in those whose traces are at hand.
std::vector<SlotWrite> writes_of_slot(const Snapshot& snapshot, int layer, int group,
                                      std::int64_t slot);
// The same of one step whose rows were kept.
void add_recorded_writes(const StepTrace& trace, int layer, int group, std::int64_t slot,
                         std::vector<SlotWrite>& to);

}  // namespace attnscope
