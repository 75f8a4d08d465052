// The scenario that is open, run by every attention backend that takes its model
// (app/reports/backend_runs.h), on a thread of its own.
#pragma once

#include <string>

#include "app/reports/backend_runs.h"
#include "app/workbench/report_run.h"
#include "app/workbench/workbench.h"

namespace attnscope {

class BackendCompareRun : public ReportRun<BackendRuns> {
 public:
  // gpu: as BackendsAsk::gpu.
  Result<void> begin(const Workbench& bench, std::string gpu);
};

}  // namespace attnscope
