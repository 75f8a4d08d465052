// What a capture says of its values beside them: checksums and statistics of taps and rows. They
// were taken when the values were written and are held against what is read, and against what two
// captures are said to differ in.
#pragma once

#include <string>

#include "engine/capture/row_match.h"
#include "engine/capture/trace_entry.h"
#include "engine/session/step/step_trace.h"

namespace attnscope {

// The first tap whose values are not those that it was recorded with; empty where all are.
std::string check_recorded(const TraceEntry& entry, const StepTrace& trace);

// Whether two ops' taps or rows have the same bytes by their checksums alone; nothing where other
// rows were kept of the two steps, or in another order, or a checksum is not known.
class RecordedSums {
 public:
  RecordedSums(const RowMatch& match, const TraceEntry& a, const TraceEntry& b);
  std::optional<bool> same(const Place& first, const Place& second, const std::string& tap) const;

 private:
  const TraceEntry &a_, &b_;
  bool same_rows_ = false;
};

}  // namespace attnscope
