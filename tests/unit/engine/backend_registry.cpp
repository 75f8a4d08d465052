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

TEST(LaneSelector, TwoLanesOfOneOpAreRefused) {
  Lane whole = *cpu::lane(), first = lane_named("mutant:first"), second = lane_named("plugin:two");
  whole.name = "whole";
  for (const as_op_id op : {AS_OP_SAMPLE, AS_OP_LM_HEAD}) second.ops[op] = whole.ops[op];
  first.ops[AS_OP_SAMPLE] = whole.ops[AS_OP_SAMPLE];
  LaneRegistry registry;
  registry.add(*cpu::lane());
  registry.add(whole);
  registry.add(first);
  registry.add(second);
  using Choices = std::vector<std::string>;
  struct Case {
    Choices choices;
    const char* said;
  };
  for (const Case& c :
       {Case{{"sample=cpu", "sample=whole"},
             "--lane sample=cpu and --lane sample=whole both choose the lane of sample"},
        Case{{"mutant:first", "plugin:two"},
             "--lane mutant:first and --lane plugin:two both choose the lane of sample"},
        Case{{"cpu", "whole"}, "--lane cpu and --lane whole both choose the lane of "},
        Case{{"sample=mutant:first", "plugin:two"}, "name plugin:two first, or leave it out"},
        Case{{"mutant:first", "cpu"}, "name cpu first, or leave it out"},
        Case{{"mutant:first", "sample=cpu", "sample=plugin:two"}, "--lane sample=plugin:two"}}) {
    const auto selector = LaneSelector::make(registry, c.choices);
    ASSERT_FALSE(selector) << c.said;
    EXPECT_EQ(selector.error().code, AS_USAGE);
    EXPECT_NE(selector.error().text().find(c.said), std::string::npos) << selector.error().text();
  }
  // What is of fewer ops wins over what is of more, and who says a thing twice says one thing.
  const auto lane_of_sample = [&](const Choices& choices) {
    const auto selector = LaneSelector::make(registry, choices);
    return selector ? selector->lane(AS_OP_SAMPLE) : selector.error().text();
  };
  EXPECT_EQ(lane_of_sample({"whole", "plugin:two"}), "plugin:two");
  EXPECT_EQ(lane_of_sample({"plugin:two", "sample=mutant:first"}), "mutant:first");
  EXPECT_EQ(lane_of_sample({"sample=cpu", "sample=cpu"}), "cpu");
  EXPECT_EQ(lane_of_sample({"sample=cpu", "cpu", "sample=cpu"}), "cpu");
}

}  // namespace backend_registry_test
}  // namespace attnscope
