#include "app/workbench/cache_study_run.h"

#include <utility>

#include "kernels/cpu/thread_pool.h"

namespace attnscope {

Result<void> CacheStudyRun::begin(const Workbench& bench, std::vector<std::int64_t> lengths,
                                  std::int64_t again_tokens) {
  if (auto ok = is_free("study", "cache_study.stop"); !ok) return ok;
  if (bench.snapshot() == nullptr) {
    return usage_error("nothing is open", "open a scenario of dense attention");
  }
  if (bench.capture() != nullptr) {
    return usage_error("a capture has no weights to run a text with",
                       "open a scenario of dense attention");
  }
  CacheStudyOptions options;
  options.lengths = std::move(lengths);
  options.again_tokens = again_tokens;
  if (auto ok = fits_cache_study(bench.setup().scenario.model, options); !ok) return ok;
  ReportRun::begin([scenario = bench.setup().scenario, options](StudyProgress& progress) {
    cpu::ThreadPool pool(0);
    return study_cache_formats(scenario, options, pool.handle(), &progress);
  });
  return {};
}

}  // namespace attnscope
