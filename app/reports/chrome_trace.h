// Ops on an axis of time as Chrome's trace viewer and Perfetto read them: trace events in JSON, a
// track a stream and one of the steps.
// https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/family/op_graph.h"
#include "engine/session/step/op_timing.h"
#include "kernels/params/result.h"

namespace attnscope {

struct TimedStep {
  std::int64_t step = 0, tokens = 0;
  const std::vector<OpTiming>* timings = nullptr;
};

// Steps follow each other without the time between them. Ops that were not timed are left out.
// AS_BAD_INPUT where no op was.
Result<std::string> chrome_trace(const std::vector<TimedStep>& steps, const ModelGraph& graph,
                                 const std::string& title);
Result<void> write_timeline(const std::string& path, const std::vector<TimedStep>& steps,
                            const ModelGraph& graph, const std::string& title);

}  // namespace attnscope
