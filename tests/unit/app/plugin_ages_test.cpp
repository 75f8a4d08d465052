// Libraries that were built with an older or a newer attnscope_plugin.h: they load, and their ops
// are given structs of the size that they know; or the sentence says what does not fit.
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "engine/opcase/case_file.h"
#include "engine/opcase/op_case.h"
#include "engine/plugin/load.h"
#include "kernels/params/helper_params.h"
#include "tests/unit/app/cli_fixture.h"
#include "tests/unit/app/small_merge.h"

namespace attnscope {
namespace plugin_ages_test {

class PluginAges : public CliTest {
 protected:
  static std::string library(const std::string& age) {
    return ATTNSCOPE_TEST_PLUGINS "/libplugin_age_" + age + ".so";
  }
  Outcome run_with(const std::string& age, const std::vector<std::string>& more = {}) const {
    std::vector<std::string> all = {"run",      "early",      "--steps", "1",
                                    "--plugin", library(age), "--lane",  "plugin:aged"};
    all.insert(all.end(), more.begin(), more.end());
    return run(all);
  }
};

TEST_F(PluginAges, OpsAreRightWhateverTheirHeader) {
  for (const char* age : {"SHORTER_TABLE", "LONGER_TABLE", "LONGER_STRUCTS", "OTHER_OPS"}) {
    SCOPED_TRACE(age);
    for (const std::vector<std::string>& more :
         {std::vector<std::string>{}, std::vector<std::string>{"--in-process"}}) {
      const Outcome out = run_with(age, more);
      EXPECT_EQ(out.code, 0) << out.out << out.err;
      EXPECT_NE(out.err.find("plugin:aged: residual, "), std::string::npos) << out.err;
    }
    auto loaded = load_plugin(library(age));
    ASSERT_TRUE(loaded) << loaded.error().text();
    EXPECT_EQ(loaded->num_ops(), 1);
  }
}

TEST_F(PluginAges, WhatDoesNotFitIsSaid) {
  for (const auto& [age, text] : std::vector<std::pair<std::string, std::string>>{
           {"NO_TABLE", "an as_lane of 8 bytes; the shortest that was released has 24"},
           {"SHORT_LANE", "an as_lane of 32 bytes; the shortest that was released has 40"},
           {"SHORT_OPS", "an as_lane_op of 16 bytes; the shortest that was released has 24"},
           {"SHORT_PARAMS", "its residual takes params of "},
           {"HUGE_PARAMS", "its residual takes params of 1048576 bytes; at most 4096"},
           {"OTHER_PARAMS", "built for version 9 of the params of residual; this program reads"},
           {"TWICE", "its lane has residual twice"},
           {"NO_FUNCTION", "its residual has no function"},
           {"ONLY_OTHER_OPS", "this program knows none of its ops: 77, 2000"}}) {
    const Outcome out = run_with(age);
    EXPECT_EQ(out.code, 3) << age << ": " << out.out;
    EXPECT_NE(out.err.find(text), std::string::npos) << age << ": " << out.err;
  }
}

TEST_F(PluginAges, HelperOpsAreOpsOfTheList) {
  const Outcome lanes = run({"lanes", "--json", "--plugin", library("HELPER_OP")});
  const auto listed = nlohmann::json::parse(lanes.out);
  nlohmann::json ops;
  for (const auto& lane : listed.at("lanes")) {
    if (lane.at("name") == "plugin:aged") ops = lane.at("ops");
  }
  EXPECT_EQ(ops, (nlohmann::json{"residual", "merge_states"}));
  SmallMerge merge(0.5f, -INFINITY, {1, 2, 3, 4}, 0.5f);
  const as_merge_states_params p = merge.params();
  const auto kept = keep_case(*find_case_op(AS_OP_MERGE_STATES), &p, {"by hand", "me"});
  ASSERT_TRUE(kept) << kept.error().text();
  ASSERT_TRUE(write_case(*kept, path("merge.json")));
  const Outcome ran = run({"case", "run", path("merge.json"), "--lane", "plugin:aged", "--lane",
                           "cpu", "--plugin", library("HELPER_OP")});
  EXPECT_EQ(ran.code, 0) << ran.out << ran.err;
  EXPECT_NE(ran.err.find("plugin:aged: merge_states, "), std::string::npos) << ran.err;
  // A step has no such op.
  const Outcome step = run({"run", "early", "--steps", "1", "--lane", "merge_states=cpu"});
  EXPECT_EQ(step.code, 2);
  EXPECT_NE(step.err.find("unknown op \"merge_states\""), std::string::npos) << step.err;
}

// What the op was given: its struct's size and the last four bytes of merge_states.
std::uint32_t given_size = 0;
std::int32_t given_base = -1, given_reserved = -1;
std::int32_t remember(const void* params, const as_call*, as_error*) {
  const auto* p = static_cast<const as_merge_states_params*>(params);
  given_size = p->head.struct_size;
  if (given_size >= sizeof(*p)) given_reserved = p->reserved;
  given_base = p->base_2;
  return AS_OK;
}

// A struct that has grown since the library was built: its rest must be zero, as it was before.
TEST(LoadedPlugin, GivesAnOpAsMuchAsItKnows) {
  constexpr std::uint32_t kSize = sizeof(as_merge_states_params);
  LoadedPlugin plugin;
  as_error error{};
  auto p = as_merge_states_params{};
  p.head = {kSize, AS_PARAMS_VERSION};
  p.base_2 = 1;
  const auto call = [&](std::uint32_t size) {
    plugin.ops[AS_OP_MERGE_STATES] = {remember, size, false};
    given_size = 0;
    return plugin.call(AS_OP_MERGE_STATES, &p, nullptr, &error);
  };
  EXPECT_EQ(call(kSize), AS_OK);
  EXPECT_EQ(given_size, kSize);
  EXPECT_EQ(call(kSize - 4), AS_OK);
  EXPECT_EQ(given_size, kSize - 4);
  EXPECT_EQ(given_base, 1);
  given_reserved = -1;
  EXPECT_EQ(call(kSize + 100), AS_OK);
  EXPECT_EQ(given_size, kSize + 100);
  EXPECT_EQ(given_reserved, 0);
  p.reserved = 0x0100;
  EXPECT_EQ(call(kSize - 4), AS_BAD_INPUT);
  EXPECT_EQ(given_size, 0u) << "it was called";
  EXPECT_NE(std::string(error.message)
                .find("built with params of " + std::to_string(kSize - 4) + " bytes, and byte " +
                      std::to_string(kSize - 3) + " of this call's is set"),
            std::string::npos)
      << error.message;
}

}  // namespace plugin_ages_test
}  // namespace attnscope
