// Every planted bug of the block manager or the scheduler is caught: by the invariants named for
// it, by the digest of a workload, or by both; and the plain model names the decision it changes.
#include <gtest/gtest.h>

#include <memory>
#include <ostream>
#include <set>
#include <string>
#include <vector>

#include "engine/decisions/decision_watch.h"
#include "engine/sched/sched_invariants.h"
#include "engine/sched/workload_file.h"
#include "tests/bugs/bug_list.h"
#include "tests/bugs/chosen.h"

namespace attnscope {

std::ostream& operator<<(std::ostream& out, const Bug& bug) { return out << bug.name; }

namespace {

const Result<std::vector<Bug>>& bugs() {
  static const Result<std::vector<Bug>> kBugs =
      read_bugs(ATTNSCOPE_SOURCE_DIR "/tests/bugs", BugsOf::kManager);
  return kBugs;
}

TEST(PlantedBugList, IsSound) { ASSERT_TRUE(bugs()) << bugs().error().text(); }

// table.sh runs them; here only what they say of themselves.
TEST(PlantedBugList, OfTheProgramIsSound) {
  const auto all = read_bugs(ATTNSCOPE_SOURCE_DIR "/tests/bugs/program", BugsOf::kProgram);
  ASSERT_TRUE(all) << all.error().text();
  EXPECT_FALSE(all->empty());
}

class PlantedBugs : public testing::TestWithParam<Bug> {
 protected:
  void TearDown() override { chosen_bug.clear(); }
};

TEST_P(PlantedBugs, IsCaught) {
  const Bug& bug = GetParam();
  std::set<std::string> tripped, decisions;
  bool differs = false;
  for (const std::string& name : bug.workloads) {
    for (const CacheProfile profile : {CacheProfile::kM, CacheProfile::kA}) {
      chosen_bug.clear();
      Result<Workload> w = load_workload(name, profile);
      ASSERT_TRUE(w) << w.error().text();
      Result<WorkloadResult> good = run_workload(*w);
      ASSERT_TRUE(good) << good.error().text();
      std::shared_ptr<SchedAuditor> auditor;
      WorkloadRun watched;
      watched.watch = [&](BlockScheduler& s) -> std::shared_ptr<SchedWatch> {
        return auditor = std::make_shared<SchedAuditor>(s, true);
      };
      chosen_bug = bug.name;
      // A bug may also end a run with an error: that is a difference too.
      Result<WorkloadResult> bad = run_workload(*w);
      differs = differs || !bad || bad->final_digest != good->final_digest;
      Result<WorkloadResult> stopped = run_workload(*w, watched);
      for (const Violation& v : auditor->findings()) {
        tripped.insert(v.invariant.substr(0, v.invariant.find(' ')));
        EXPECT_NE(v.met, "") << v.text();
      }
      std::shared_ptr<DecisionWatch> judge;
      WorkloadRun judged;
      judged.watch = [&](BlockScheduler& s) -> std::shared_ptr<SchedWatch> {
        return judge = std::make_shared<DecisionWatch>(s, output_token);
      };
      stopped = run_workload(*w, judged);
      if (judge->wrong()) decisions.insert(decision_name(judge->wrong()->decision));
    }
  }
  EXPECT_TRUE(differs) << "no digest does";
  EXPECT_EQ(decisions, std::set<std::string>(bug.decisions.begin(), bug.decisions.end()));
  for (const std::string& invariant : bug.invariants) {
    EXPECT_TRUE(tripped.contains(invariant)) << invariant << " did not trip";
  }
  if (bug.invariants.empty()) {
    EXPECT_TRUE(tripped.empty()) << *tripped.begin();
  }
}

std::string bug_name(const testing::TestParamInfo<Bug>& bug) { return bug.param.name; }

INSTANTIATE_TEST_SUITE_P(All, PlantedBugs, testing::ValuesIn(bugs() ? *bugs() : std::vector<Bug>{}),
                         bug_name);

}  // namespace
}  // namespace attnscope
