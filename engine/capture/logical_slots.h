// Slots of a step as what they stand for: row n of the request's own entries of that cache.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "engine/session/snapshot.h"
#include "engine/session/step/step_trace.h"

namespace attnscope {

// How the numbers of a tap are read.
enum class TapMeaning {
  kValues,     // the same for the same token
  kSlots,      // physical: compared as logical rows
  kPlacement,  // tables, free lists, rows of a batch: belong to one run alone
};
TapMeaning tap_meaning(as_op_id op, std::string_view tap);

// Which cache the slots of a tap belong to.
struct SlotSpace {
  int group = -1;
  int rows_per_block = 0;
};
// outer: index along the first axis, where the tap has one beside tokens (swa groups, all groups).
SlotSpace slot_space(const SessionInfo& info, const Place& place, std::string_view tap,
                     std::int64_t outer);

// -1 for no slot; -2 - slot for one that lies in no block of this request.
std::int64_t logical_row(const StepTrace& trace, std::int32_t request, const SlotSpace& space,
                         std::int64_t slot);

}  // namespace attnscope
