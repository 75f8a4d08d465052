// Planted bugs of dense attention, each in sessions of all its presets: where one shows, its op is
// blamed and no other, and each shows somewhere. A sound run blames nobody.
#include "tests/blame/dense_session.h"
#include "tests/blame/trial.h"

namespace attnscope {
namespace dense_bugs_test {

std::vector<Planted> dense_planted() {
  std::vector<Planted> all;
  for (const Lane& lane : mutants::lanes()) {
    for (int op = 0; op < AS_OP_COUNT; ++op) {
      const auto id = static_cast<as_op_id>(op);
      // Of models without caches encoder_sessions_test.cpp has them.
      const bool dense = is_of_dense(op) && op != AS_OP_VARLEN_ATTENTION;
      if (lane.ops[op] != nullptr && dense) all.push_back({lane.name, id, id});
    }
  }
  return all;
}

TEST(DenseBugs, EveryOpOfDenseLayersHasOne) {
  std::set<as_op_id> ops;
  for (const Planted& bug : dense_planted()) ops.insert(bug.op);
  EXPECT_EQ(ops, (std::set<as_op_id>{AS_OP_ROPE_KV_INSERT, AS_OP_PAGED_ATTENTION, AS_OP_Q_PROJ,
                                     AS_OP_K_PROJ, AS_OP_V_PROJ, AS_OP_O_PROJ, AS_OP_LOCAL_BATCH,
                                     AS_OP_CROSS_BATCH, AS_OP_MEMORY_NORM}));
  EXPECT_GE(dense_planted().size(), 15u);
}

TEST(DenseBugs, EachIsNamedWhereItShows) {
  std::map<std::string, int> shown;
  std::vector<ModelConfig> models = {*preset("tiny-t5"), masked_model(),
                                     masked_model("tiny-llama4"), masked_model("tiny-t5")};
  for (const std::string& name : dense_names()) models.push_back(*preset(name));
  for (const ModelConfig& model : models) {
    const std::string& name = model.name;
    Trial trial(session_of(dense_scenario(model)));
    for (const Planted& bug : dense_planted()) {
      SCOPED_TRACE(name + ", " + bug.name);
      const std::vector<Blame> blamed = trial.run({bug});
      if (blamed.empty()) continue;
      ++shown[bug.name];
      ASSERT_EQ(blamed.size(), 1u) << sentences(blamed);
      EXPECT_EQ(blamed[0].op, bug.op) << sentences(blamed);
      EXPECT_FALSE(blamed[0].cache) << sentences(blamed);
      EXPECT_EQ(blamed[0].first.step, kStepUnderTest);
      // Of rows beside those that were to be written the slot is named.
      const std::string& tap = blamed[0].first.tap;
      const char* place = tap.ends_with(".kept")  ? "slot "
                          : tap == "local_tables" ? "sequence "
                                                  : "token ";
      EXPECT_NE(blamed[0].first.note.find(place), std::string::npos) << blamed[0].first.note;
    }
  }
  for (const Planted& bug : dense_planted()) {
    EXPECT_GT(shown[bug.name], 0) << bug.name << " shows in no preset";
  }
}

// The ops that families share, in a session of another one.
TEST(DenseBugs, BugsOfSharedOpsAreNamedToo) {
  Trial trial(session_of(dense_scenario(*preset("tiny-gemma"))));
  int runs = 0;
  for (const Planted& bug : planted()) {
    if ((as_op_find(bug.op)->layers & AS_LAYER_DENSE) == 0 || bug.op == AS_OP_SCHEDULE) continue;
    if (bug.op == AS_OP_BLOCK_TABLES) continue;
    SCOPED_TRACE(bug.name);
    const std::vector<Blame> blamed = trial.run({bug});
    if (blamed.empty()) continue;  // of entries that this model has not
    ++runs;
    ASSERT_EQ(blamed.size(), 1u) << sentences(blamed);
    EXPECT_EQ(blamed[0].op, bug.shows);
  }
  EXPECT_GE(runs, 5);
}

TEST(DenseBugs, ASoundRunBlamesNobody) {
  for (const std::string& name : dense_names()) {
    for (std::uint64_t seed = 1; seed <= 4; ++seed) {
      SCOPED_TRACE(name + ", seed " + std::to_string(seed));
      auto session = session_of(dense_scenario(*preset(name), seed));
      for (int i = 0; i < 3; ++i) {
        ASSERT_TRUE(session->step());
        const auto blamed = blame(session->history().back().results);
        EXPECT_TRUE(blamed.empty()) << sentences(blamed);
      }
    }
  }
}

}  // namespace dense_bugs_test
}  // namespace attnscope
