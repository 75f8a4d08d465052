// A sweep over pools of rows (engine/offload/row_sweep.h) on a thread of its own: of the capture
// that is shown, of the session, whose steps run again beside it for what they selected, or of
// generated selections.
//
//   run.begin(bench);  run.begin(options);     // own selections; generated ones
//   run.poll();                                // once a frame
#pragma once

#include "app/workbench/report_run.h"
#include "app/workbench/workbench.h"
#include "engine/offload/row_sweep.h"

namespace attnscope {

class RowSweepRun : public ReportRun<RowSweep, SweepProgress> {
 public:
  Result<void> begin(const Workbench& bench);
  Result<void> begin(const GeneratorOptions& options);

 private:
  Result<void> is_free();
};

}  // namespace attnscope
