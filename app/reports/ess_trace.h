// Which rows the layers of a recorded run selected, as a trace for a pool of rows
// (engine/offload/selection_trace.h): tap `indices` of indexer_topk, token by token.
//
//   auto trace = selections_of(**Capture::open("run.acap"));
//
// Who decodes and whose rows are whose says HostRows, as it does for a session with a pool: drafts
// of a request select together with its token, what a preempted request computes again is prefill,
// a row in a block that requests share counts once, and rows leave with the content of their block.
#pragma once

#include "engine/capture/capture.h"
#include "engine/offload/selection_trace.h"

namespace attnscope {

// AS_BAD_INPUT where the capture holds no selections, not all of them, or none of a token that
// decodes; the error says what to record.
Result<SelectionTrace> selections_of(const Capture& capture);

}  // namespace attnscope
