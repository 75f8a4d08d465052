// attnscope blocks ..: the block manager and the scheduler alone, without a model.
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "app/cli/commands.h"
#include "app/common/workload_report.h"
#include "engine/config/workload_file.h"

namespace attnscope {

Result<as_status> simulate_command(const SimulateCommand& command) {
  std::optional<CacheProfile> profile;
  if (!command.profile.empty()) {
    Result<CacheProfile> parsed = parse_cache_profile(command.profile);
    if (!parsed) return parsed.error();
    profile = *parsed;
  }
  Result<Workload> workload = load_workload(command.workload, profile);
  if (!workload) return workload.error();
  Result<WorkloadResult> result = run_workload(*workload);
  if (!result) return result.error();
  if (command.json) {
    fmt::print("{}\n", workload_json(*workload, *result).dump(1));
  } else {
    fmt::print("{}", workload_text(*workload, *result));
  }
  return AS_OK;
}

}  // namespace attnscope
