// Bugs around ops, planted where a session hands things on (engine/session/step/between_ops.h), and
// what a run with one says.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "app/reports/report.h"
#include "app/reports/run.h"
#include "engine/backend/host_ops.h"
#include "engine/session/step/between_ops.h"
#include "tests/blame/tiny_session.h"

namespace attnscope {

inline constexpr const char* kPlantedLane = "schedule=mutant:planted_around";

// between must outlive the registry and its sessions.
inline LaneRegistry lanes_with(const BetweenOps& between) {
  LaneRegistry registry = all_lanes();
  Lane lane{};
  lane.name = "mutant:planted_around";
  lane.description = "What a test plants between two ops.";
  lane.ops[AS_OP_SCHEDULE] = host_schedule;
  registry.add(lane, &between);
  return registry;
}

inline std::unique_ptr<Session> session_with(const Scenario& scenario, const BetweenOps& between,
                                             References references = References::kSim) {
  SessionOptions options;
  options.references = references;
  options.lanes = {"cpu", kPlantedLane};
  options.threads = 2;
  options.rewind_every = 2;
  auto session = Session::create(scenario, lanes_with(between), options);
  EXPECT_TRUE(session) << session.error().text();
  return session ? std::move(*session) : nullptr;
}

struct PlantedRun {
  Summary summary;
  as_status exit = AS_INTERNAL;  // of `attnscope run`
  std::vector<StepRecord> steps;
};

inline PlantedRun run_with(const Scenario& scenario, const BetweenOps& between) {
  RunOptions options;
  options.session.lanes = {"cpu", kPlantedLane};
  options.session.threads = 2;
  auto result = run_scenario(scenario, lanes_with(between), options, {});
  EXPECT_TRUE(result) << result.error().text();
  if (!result) return {};
  EXPECT_FALSE(result->error) << result->error->text();
  return {result->summary, report_status(make_report(scenario, options, *result, "")),
          result->steps};
}

// One blamed, for the first wrong tap; its note holds these words.
inline void expect_blamed(const PlantedRun& run, std::int64_t step, int layer, as_op_id op,
                          const std::string& tap, const std::vector<std::string>& words) {
  EXPECT_EQ(run.summary.verdict(), "wrong");
  EXPECT_EQ(run.exit, AS_MISMATCH);
  std::string all;
  for (const Blame& b : run.summary.blamed) all += "\n    " + b.sentence();
  ASSERT_EQ(run.summary.blamed.size(), 1u) << all;
  const TapResult& first = run.summary.blamed[0].first;
  EXPECT_EQ(first.step, step) << all;
  EXPECT_EQ(first.layer, layer) << all;
  EXPECT_EQ(first.op, op) << all;
  EXPECT_EQ(first.tap, tap) << all;
  for (const std::string& word : words) {
    EXPECT_NE(run.summary.blamed[0].sentence().find(word), std::string::npos) << word << all;
  }
}

}  // namespace attnscope
