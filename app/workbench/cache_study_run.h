// A study of cache formats (app/reports/cache_study.h) on a thread of its own, of the scenario that
// is open.
//
//   run.begin(bench, {128, 2048}, 32);
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
  // again_tokens: as CacheStudyOptions::again_tokens.
  Result<void> begin(const Workbench& bench, std::vector<std::int64_t> lengths,
                     std::int64_t again_tokens = 0);
};

}  // namespace attnscope
