// Lanes that cannot run here, and lanes without the engine's own ops.
#include <gtest/gtest.h>

#include <algorithm>

#include "engine/backend/registry.h"
#include "engine/session/step/between_ops.h"
#include "kernels/cpu/cpu_lane.h"

namespace attnscope {
namespace backend_registry_test {

Lane lane_named(const char* name) {
  Lane lane{};
  lane.name = name;
  lane.description = "the reason";
  return lane;
}

TEST(LaneSelector, LaneWithoutOpsIsAMissingEnvironment) {
  LaneRegistry registry;
  registry.add(*cpu::lane());
  registry.add(lane_named("absent"));
  for (const char* choice : {"absent", "indexer_topk=absent"}) {
    const auto selector = LaneSelector::make(registry, std::vector<std::string>{choice});
    ASSERT_FALSE(selector);
    EXPECT_EQ(selector.error().code, AS_NO_ENVIRONMENT);
    EXPECT_NE(selector.error().message.find("the reason"), std::string::npos);
  }
  const std::vector<std::string> names = registry.names();
  EXPECT_EQ(std::count(names.begin(), names.end(), "absent"), 0);
}

// It would change nothing of a step, and a step would look as if it had run there.
TEST(LaneSelector, ALaneOfHelperOpsAloneIsRefused) {
  LaneRegistry registry;
  registry.add(*cpu::lane());
  Lane helpers = lane_named("plugin:helpers");
  helpers.ops[AS_OP_MERGE_STATES] = cpu::lane()->ops[AS_OP_MERGE_STATES];
  helpers.ops[AS_OP_COPY_BLOCKS] = cpu::lane()->ops[AS_OP_COPY_BLOCKS];
  registry.add(helpers);
  for (const char* choice : {"plugin:helpers", "residual=plugin:helpers"}) {
    const auto selector = LaneSelector::make(registry, std::vector<std::string>{choice});
    ASSERT_FALSE(selector) << choice;
    EXPECT_EQ(selector.error().code, AS_USAGE);
    EXPECT_NE(selector.error().message.find("has helper ops alone, which have no place in a step: "
                                            "merge_states, copy_blocks"),
              std::string::npos)
        << selector.error().text();
    EXPECT_NE(selector.error().hint.find("case run"), std::string::npos);
  }
  helpers.name = "plugin:both";
  helpers.ops[AS_OP_RESIDUAL] = cpu::lane()->ops[AS_OP_RESIDUAL];
  registry.add(helpers);
  const auto both = LaneSelector::make(registry, std::vector<std::string>{"plugin:both"});
  ASSERT_TRUE(both) << both.error().text();
  EXPECT_EQ(both->lane(AS_OP_RESIDUAL), "plugin:both");
}

TEST(LaneSelector, HostOpsStayWithTheEngine) {
  Lane whole = *cpu::lane();
  whole.name = "whole";
  LaneRegistry registry;
  registry.add(*cpu::lane());
  registry.add(whole);
  const auto selector = LaneSelector::make(registry, std::vector<std::string>{"whole"});
  ASSERT_TRUE(selector) << selector.error().text();
  EXPECT_EQ(selector->lane(AS_OP_SCHEDULE), "cpu");
  EXPECT_EQ(selector->lane(AS_OP_BLOCK_TABLES), "cpu");
  EXPECT_EQ(selector->lane(AS_OP_SPARSE_ATTENTION), "whole");
  EXPECT_NE(selector->function(AS_OP_SCHEDULE), nullptr);
  // Asked for one by one, they are refused.
  const auto single = LaneSelector::make(registry, std::vector<std::string>{"schedule=whole"});
  ASSERT_FALSE(single);
  EXPECT_EQ(single.error().code, AS_USAGE);
}

TEST(LaneSelector, WhatALaneDoesBetweenOpsComesWithItsSchedule) {
  const BetweenOps between;
  Lane serving = lane_named("mutant:between");
  serving.ops[AS_OP_SCHEDULE] = cpu::lane()->ops[AS_OP_SLOT_MAPPING];
  serving.ops[AS_OP_SLOT_MAPPING] = serving.ops[AS_OP_SCHEDULE];
  LaneRegistry registry;
  registry.add(*cpu::lane());
  registry.add(serving, &between);
  const auto choose = [&](std::vector<std::string> choices) {
    auto selector = LaneSelector::make(registry, choices);
    EXPECT_TRUE(selector) << selector.error().text();
    return *selector;
  };
  const LaneSelector plain = choose({"cpu"}), whole = choose({"mutant:between"});
  EXPECT_EQ(plain.between(), nullptr);
  EXPECT_EQ(whole.between(), &between);
  EXPECT_EQ(choose({"schedule=mutant:between"}).between(), &between);
  EXPECT_EQ(choose({"slot_mapping=mutant:between"}).between(), nullptr);
  EXPECT_EQ(choose({"mutant:between", "schedule=cpu"}).between(), nullptr);
  // With another lane in its place it goes.
  EXPECT_EQ(whole.without("mutant:between", plain).between(), nullptr);
  EXPECT_EQ(whole.with(AS_OP_SCHEDULE, *cpu::lane()).between(), nullptr);
  EXPECT_EQ(whole.with(AS_OP_SLOT_MAPPING, *cpu::lane()).between(), &between);
}

}  // namespace backend_registry_test
}  // namespace attnscope
