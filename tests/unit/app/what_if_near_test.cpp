// A what-if that begins near its op says of every change what one from the first step says.
#include <gtest/gtest.h>

#include <algorithm>

#include "app/reports/what_if_run.h"
#include "tests/unit/app/trace_session.h"

namespace attnscope {
namespace what_if_near_test {

const auto kGoOn = [](double) { return true; };

// Changes that both carry out give the same figures; returns how many these are.
int expect_same_changes(const WhatIfOf& near, const WhatIfOf& whole) {
  EXPECT_EQ(near.lane, whole.lane);
  int same = 0;
  for (const WhatIf& change : near.changes) {
    SCOPED_TRACE(change.change);
    const auto other = std::ranges::find(whole.changes, change.change, &WhatIf::change);
    if (other == whole.changes.end()) {
      ADD_FAILURE() << "not among those from the start";
      continue;
    }
    EXPECT_EQ(change.introduced.has_value(), other->introduced.has_value());
    if (!change.introduced || !other->introduced) continue;
    EXPECT_EQ(change.introduced->budget_used, other->introduced->budget_used);
    EXPECT_EQ(change.introduced->beyond, other->introduced->beyond);
    EXPECT_EQ(change.from_history, other->from_history);
    EXPECT_FALSE(change.from_exact) << "its rows were not seen";
    ++same;
  }
  EXPECT_EQ(near.alone.differing, whole.alone.differing);
  return same;
}

struct Case {
  const char* name;
  as_op_id op;
  LanesFrom later;
};

TEST(WhatIfNear, SaysWhatOneFromTheStartSays) {
  const LaneRegistry registry = all_lanes();
  const Scenario scenario = small_scenario();
  const std::vector<std::string> bug = {"cpu", "sparse_attention=mutant:sink_scaled"};
  SessionOptions options;
  options.threads = 2;
  for (const Case& c : {Case{"healthy", AS_OP_SPARSE_ATTENTION, {}},
                        Case{"planted before the state", AS_OP_SPARSE_ATTENTION, {4, bug}},
                        Case{"planted behind the state", AS_OP_SPARSE_ATTENTION, {7, bug}},
                        Case{"planted from the start", AS_OP_SPARSE_ATTENTION, {0, bug}},
                        Case{"an op that reads no cache", AS_OP_WO_B, {}}}) {
    SCOPED_TRACE(c.name);
    auto shown = small_session(References::kSim, scenario);
    if (c.later.step == 0) {
      ASSERT_TRUE(shown->change_lanes(registry, bug, 0));
    }
    for (int i = 0; i < 9; ++i) {
      if (c.later.step > 0 && i == c.later.step) {
        ASSERT_TRUE(shown->change_lanes(registry, bug, i));
      }
      run_steps(*shown, 1);
    }
    const Place place{7, scenario.model.layers.back(), c.op};
    const auto state = session_state(*shown, place.step, References::kSim);
    ASSERT_TRUE(state) << state.error().text();
    EXPECT_EQ(state->step, 6);
    const auto near = what_if_of(scenario, registry, options, c.later, &*state, place, kGoOn);
    ASSERT_TRUE(near) << near.error().text();
    const auto whole = what_if_of(scenario, registry, options, c.later, nullptr, place, kGoOn);
    ASSERT_TRUE(whole) << whole.error().text();
    EXPECT_TRUE(whole->whole);
    EXPECT_EQ(near->whole, c.op == AS_OP_WO_B);
    EXPECT_EQ(near->changes.front().right(), c.later.step < 0);
    EXPECT_GE(expect_same_changes(*near, *whole), c.op == AS_OP_WO_B ? 1 : 3);
  }
}

}  // namespace what_if_near_test
}  // namespace attnscope
