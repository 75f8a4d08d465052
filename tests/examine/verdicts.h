// What the examiner finds of a function that is called in this process.
#pragma once

#include <gtest/gtest.h>

#include <map>
#include <string>

#include "app/wiring/case_lane.h"
#include "app/wiring/wiring.h"
#include "engine/examine/examine.h"
#include "kernels/cpu/thread_pool.h"

namespace attnscope {
namespace examine_test {

// Verdicts of a function by clause; null: of the CPU lane.
inline std::map<std::string, ClauseVerdict> verdicts_of(as_op_id id, as_op_fn function) {
  const auto tolerances = Tolerances::load();
  EXPECT_TRUE(tolerances);
  const LaneRegistry registry = all_lanes();
  const cpu::ThreadPool pool(2);
  const CaseOp op = *find_case_op(id);
  ExamineOptions options;
  options.lane = {"tested", function != nullptr ? function : registry.find("cpu")->ops[id]};
  options.run = case_options(registry, op, *tolerances, pool.handle());
  options.reference = *find_case_lane(registry, "ref.sim", op);
  const auto findings = examine(id, options);
  EXPECT_TRUE(findings);
  std::map<std::string, ClauseVerdict> out;
  for (const ClauseFinding& f : *findings) out[f.clause->id] = f.verdict;
  return out;
}

}  // namespace examine_test
}  // namespace attnscope
