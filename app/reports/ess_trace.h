// Which rows the layers of a recorded run selected, as a trace for a pool of rows
// (engine/offload/selection_trace.h): tap `indices` of indexer_topk, token by token.
//
//   auto trace = selections_of(**Capture::open("run.acap"));
//
// A token behind the prompt of its request decodes; tokens of one request in one step (drafts)
// select together. Rows that requests share through blocks count for each of them. The last
// kWarmWindows tokens of each prompt are the prefill, that of all requests before the first step.
#pragma once

#include "engine/capture/capture.h"
#include "engine/offload/selection_trace.h"

namespace attnscope {

// AS_BAD_INPUT where the capture holds no selections, not all of them, or none of a token that
// decodes; the error says what to record.
Result<SelectionTrace> selections_of(const Capture& capture);

}  // namespace attnscope
