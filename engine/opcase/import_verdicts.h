// Verdicts of imported ops: what running the reference on an op's own inputs said, as a session
// that compares writes it down.
#pragma once

#include "engine/opcase/case_run.h"
#include "engine/session/step/step_trace.h"

namespace attnscope {

// Results of the op's outputs, and the reference's values beside them.
void take_verdicts(const CaseRun& run, OpTrace& trace);
// The op's results in the summary of its step: cells, results, events.
void count_verdicts(const OpTrace& trace, StepSummary& summary);

}  // namespace attnscope
