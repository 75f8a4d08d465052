// A study of cache formats (app/reports/cache_study.h) on a thread of its own, of the scenario that
// is open.
//
//   run.begin(bench, {128, 2048});
//   run.poll();                      // once a frame
#pragma once

#include <cstdint>
#include <vector>

#include "app/reports/cache_study.h"
#include "app/workbench/report_run.h"
#include "app/workbench/workbench.h"

namespace attnscope {

class CacheStudyRun : public ReportRun<CacheStudy> {
 public:
  Result<void> begin(const Workbench& bench, std::vector<std::int64_t> lengths);
};

}  // namespace attnscope
