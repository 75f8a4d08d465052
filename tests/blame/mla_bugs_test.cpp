// Planted bugs of absorbed MLA, each in sessions of both presets: where one shows, its op is blamed
// and no other, and each shows somewhere. A sound run blames nobody.
#include "tests/blame/dense_session.h"
#include "tests/blame/trial.h"

namespace attnscope {
namespace mla_bugs_test {

const std::vector<std::string>& mla_names() {
  static const std::vector<std::string> kNames = {"tiny-v3", "tiny-v3.2"};
  return kNames;
}

// More tokens than are selected, in step 1 and behind it.
Scenario mla_scenario(const std::string& name, std::uint64_t seed = 7) {
  Scenario s = dense_scenario(*preset(name), seed, 131);
  s.name = "mla";
  return s;
}

constexpr int kOwnLayers = AS_LAYER_MLA | AS_LAYER_DSA;

std::vector<Planted> planted_in_mla() {
  std::vector<Planted> all;
  for (const Lane& lane : mutants::lanes()) {
    for (int op = 0; op < AS_OP_COUNT; ++op) {
      const auto id = static_cast<as_op_id>(op);
      const bool own = (as_op_find(op)->layers & ~kOwnLayers) == 0;
      if (lane.ops[op] != nullptr && own) all.push_back({lane.name, id, id});
    }
  }
  return all;
}

TEST(MlaBugs, EveryOpOfItsLayersHasOne) {
  std::set<as_op_id> ops;
  for (const Planted& bug : planted_in_mla()) ops.insert(bug.op);
  EXPECT_EQ(ops,
            (std::set<as_op_id>{AS_OP_INDEX_K_PROJ, AS_OP_INDEX_WEIGHTS_PROJ, AS_OP_MLA_Q_ABSORB,
                                AS_OP_MLA_KV_INSERT, AS_OP_INDEX_QUERY, AS_OP_INDEX_KEY_INSERT,
                                AS_OP_MLA_ATTENTION, AS_OP_SPARSE_MLA_ATTENTION, AS_OP_MLA_V_UP}));
  EXPECT_GE(planted_in_mla().size(), 18u);
}

TEST(MlaBugs, EachIsNamedWhereItShows) {
  std::map<std::string, int> shown;
  for (const std::string& name : mla_names()) {
    Trial trial(session_of(mla_scenario(name)));
    for (const Planted& bug : planted_in_mla()) {
      SCOPED_TRACE(name + ", " + bug.name);
      const std::vector<Blame> blamed = trial.run({bug});
      if (blamed.empty()) continue;
      ++shown[bug.name];
      ASSERT_EQ(blamed.size(), 1u) << sentences(blamed);
      EXPECT_EQ(blamed[0].op, bug.op) << sentences(blamed);
      EXPECT_FALSE(blamed[0].cache) << sentences(blamed);
      EXPECT_EQ(blamed[0].first.step, kStepUnderTest);
      EXPECT_NE(blamed[0].first.note.find("token "), std::string::npos) << blamed[0].first.note;
    }
  }
  for (const Planted& bug : planted_in_mla()) {
    EXPECT_GT(shown[bug.name], 0) << bug.name << " shows in no preset";
  }
}

// The ops that families share.
TEST(MlaBugs, BugsOfSharedOpsAreNamedToo) {
  Trial trial(session_of(mla_scenario("tiny-v3.2")));
  int runs = 0;
  for (const Planted& bug : planted()) {
    const int layers = as_op_find(bug.op)->layers;
    if ((layers & kOwnLayers) == 0 || (layers & ~kOwnLayers) == 0) continue;
    if (bug.op == AS_OP_SCHEDULE || bug.op == AS_OP_BLOCK_TABLES) continue;
    SCOPED_TRACE(bug.name);
    const std::vector<Blame> blamed = trial.run({bug});
    if (blamed.empty()) continue;  // of formats and lists that this model has not
    ++runs;
    ASSERT_EQ(blamed.size(), 1u) << sentences(blamed);
    EXPECT_EQ(blamed[0].op, bug.shows);
  }
  EXPECT_GE(runs, 10);
}

TEST(MlaBugs, ASoundRunBlamesNobody) {
  for (const std::string& name : mla_names()) {
    for (std::uint64_t seed = 1; seed <= 3; ++seed) {
      SCOPED_TRACE(name + ", seed " + std::to_string(seed));
      auto session = session_of(mla_scenario(name, seed));
      for (int i = 0; i < 3; ++i) {
        ASSERT_TRUE(session->step());
        const auto blamed = blame(session->history().back().results);
        EXPECT_TRUE(blamed.empty()) << sentences(blamed);
      }
    }
  }
}

}  // namespace mla_bugs_test
}  // namespace attnscope
