// Runs a shipped or changed scenario beside references and checks what every run must show.
#pragma once

#include <gtest/gtest.h>

#include "app/reports/run.h"
#include "app/wiring/wiring.h"

namespace attnscope {

inline RunResult run_and_check(const Scenario& scenario,
                               References references = References::kBoth) {
  RunOptions options;
  options.session.references = references;
  options.session.invariants = Invariants::kCall;
  auto result = run_scenario(scenario, all_lanes(), options, {});
  if (!result) {
    ADD_FAILURE() << result.error().text();
    return {};
  }
  const Summary& s = result->summary;
  EXPECT_EQ(s.verdict(), "ok");
  EXPECT_EQ(s.count(Verdict::kWrong), 0);
  EXPECT_EQ(s.count(Verdict::kNotCompared), 0);
  if (s.first_wrong) {
    ADD_FAILURE() << "step " << s.first_wrong->step << ", layer " << s.first_wrong->layer << ", op "
                  << s.first_wrong->op << ", tap " << s.first_wrong->tap << ": "
                  << s.first_wrong->note;
  }
  EXPECT_EQ(s.drift.size(), scenario.model.layers.size());
  for (const LayerDrift& d : s.drift) EXPECT_LT(d.cosine, s.drift_limit) << "layer " << d.layer;
  return std::move(*result);
}

}  // namespace attnscope
