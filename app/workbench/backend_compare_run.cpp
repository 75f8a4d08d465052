#include "app/workbench/backend_compare_run.h"

#include <utility>

#include "app/wiring/wiring.h"

namespace attnscope {

Result<void> BackendCompareRun::begin(const Workbench& bench, std::string gpu) {
  if (auto ok = is_free("comparison", "backends.compare_stop"); !ok) return ok;
  if (bench.snapshot() == nullptr) {
    return usage_error("nothing is open", "open a scenario of dense attention, such as tiny-mha");
  }
  if (bench.capture() != nullptr) {
    return usage_error("a capture has no weights to run a model with",
                       "open a scenario of dense attention, such as tiny-mha");
  }
  const Scenario& scenario = bench.setup().scenario;
  if (auto ok = fits_backend_runs(scenario.model); !ok) return ok;
  ReportRun::begin([scenario, gpu = std::move(gpu)](StudyProgress& progress) {
    return run_backends(scenario, all_lanes(), {.gpu = gpu}, &progress);
  });
  return {};
}

}  // namespace attnscope
