// Going to an op by name: where a session stands, and how it gets elsewhere.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/session/session.h"
#include "engine/session/step/step_trace.h"

namespace attnscope {

// The op that ran last; step -1 when none ran yet in the session's whole life.
Place last_place(const Session& session);

// Replays or runs until exactly the op at `place` has just run; AS_BAD_INPUT when there is no such
// op (unknown layer, an op the layer's type does not have, a step after the end). An op of -1 layer
// that comes before or after the layers is told apart by its id.
Result<void> go_to(Session& session, const Place& place);

// Runs to the end of step `step` (its last op has just run).
Result<void> go_to_step_end(Session& session, std::int64_t step);

// Whether a step with these ops has run that of `place`.
bool has_run(const std::vector<OpTiming>& ops, const Place& place);

// To the end of the step of `place`; AS_BAD_INPUT where that op did not run in it.
Result<void> go_to_step_of(Session& session, const Place& place);

// Bytes of one block as they are now.
struct BlockBytes {
  std::int32_t block = -1;
  std::int64_t step = 0;    // the session's position when it was read
  std::int64_t after = -1;  // step that ran last by then; -1 = none
  BlockOwner owner;
  std::vector<std::uint8_t> bytes;  // one block stride: the group's pages from offset 0
};
Result<BlockBytes> read_block(const Session& session, std::int32_t block);

}  // namespace attnscope
