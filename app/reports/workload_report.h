// A workload's outcome as a report: one row and the checkpoints, to read or to parse.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "engine/sched/workload.h"

namespace attnscope {

nlohmann::ordered_json workload_json(const Workload& workload, const WorkloadResult& result);
std::string workload_text(const Workload& workload, const WorkloadResult& result);

}  // namespace attnscope
