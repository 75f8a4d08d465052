// Every old name leads to a tap that is there, and is itself none.
#include "engine/io/old_names.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>

namespace attnscope {
namespace {

bool has_tap(as_op_id op, std::string_view name) {
  const as_op_info& info = *as_op_find(op);
  return std::any_of(info.taps, info.taps + info.num_taps,
                     [&](const as_tap_info& tap) { return name == tap.name; });
}

TEST(OldNames, LeadToTapsOfTheOpTable) {
  for (const OldTapName& old : old_tap_names()) {
    EXPECT_TRUE(has_tap(old.op, old.now)) << as_op_find(old.op)->name << " " << old.now;
    EXPECT_FALSE(has_tap(old.op, old.before)) << as_op_find(old.op)->name << " " << old.before;
    EXPECT_EQ(tap_name_now(old.op, old.before), old.now);
    EXPECT_EQ(tap_name_now(old.op, old.now), old.now);
    EXPECT_EQ(tap_name_at_first(old.op, old.now), old.before);
  }
  for (const OldStepName& old : old_step_names()) {
    EXPECT_EQ(step_name_before(old.now), old.before);
    EXPECT_EQ(step_name_before(old.before), "");
  }
}

TEST(OldNames, AreOldForTheirOpAlone) {
  EXPECT_EQ(tap_name_now(AS_OP_SPARSE_ATTENTION, "lens"), "topk_length");
  EXPECT_EQ(tap_name_now(AS_OP_INDEXER_TOPK, "lens"), "lens");
  EXPECT_EQ(tap_name_now(AS_OP_SPARSE_ATTENTION, "nothing"), "nothing");
  // Where no op is said, a name that some op has is meant as it stands.
  EXPECT_EQ(tap_name_now("lens"), "lens");
  EXPECT_EQ(tap_name_now("scheduled"), "num_scheduled_tokens");
}

TEST(OldNames, KeysAreRenamedWhereTheNewNameIsNotThere) {
  nlohmann::json one = {{"lens", 1}, {"q", 2}};
  rename_tap_keys(one, AS_OP_SPARSE_ATTENTION);
  EXPECT_EQ(one, (nlohmann::json{{"topk_length", 1}, {"q", 2}}));
  nlohmann::json both = {{"lens", 1}, {"topk_length", 2}};
  const nlohmann::json as_it_was = both;
  rename_tap_keys(both, AS_OP_SPARSE_ATTENTION);
  EXPECT_EQ(both, as_it_was);
  nlohmann::json list = {1, 2};
  rename_tap_keys(list, AS_OP_SPARSE_ATTENTION);
  rename_step_keys(list);
  EXPECT_EQ(list, (nlohmann::json{1, 2}));
  nlohmann::json map = {{"request_of", "x"}};
  rename_step_keys(map);
  EXPECT_EQ(map, (nlohmann::json{{"token_to_req", "x"}}));
}

}  // namespace
}  // namespace attnscope
