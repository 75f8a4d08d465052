// Every planted bug of the block manager is caught: by the invariants named for it, by the digest
// of a workload, or by both. The engine's cache/ and sched/ are compiled into this program a second
// time, with the bugs in.
#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <ostream>
#include <set>
#include <string>
#include <vector>

#include "engine/cache/planted_bug.h"
#include "engine/config/workload_file.h"
#include "engine/sched/sched_invariants.h"

namespace attnscope {

PlantedBug planted_bug = PlantedBug::kNone;

namespace {

struct Case {
  const char* name;
  PlantedBug bug;
  std::vector<const char*> invariants;  // each trips in some run; none: only digests tell
  std::vector<const char*> workloads;   // small ones that the bug changes
  bool digest = true;                   // the digest of some run differs
};

std::ostream& operator<<(std::ostream& out, const Case& c) { return out << c.name; }

const std::vector<Case> kCases = {
    {"ReleaseSkipsOneDecrement", PlantedBug::kReleaseSkipsOne, {"I2"}, {"g1", "g18"}},
    {"TouchWithoutUnlink", PlantedBug::kTouchWithoutUnlink, {"I11", "I1"}, {"g1"}},
    {"KeyKeptAfterPop", PlantedBug::kKeyKeptAfterPop, {"I5"}, {"g1", "g2"}},
    {"GroupIdMissingInKey", PlantedBug::kGroupMissingInKey, {"I5"}, {"g2", "g3"}},
    {"WindowNeedsOneBlockLess", PlantedBug::kWindowNeedsOneLess, {"I10"}, {"g2", "g12"}},
    {"HitMayCoverAllTokens", PlantedBug::kHitAllTokens, {"I10"}, {"g13", "g15"}},
    {"DraftDropOmitted", PlantedBug::kDraftDropOmitted, {"I10"}, {"g15", "g17"}},
    {"LookaheadIgnored", PlantedBug::kLookaheadIgnored, {"I6"}, {"g15", "g17"}},
    {"FixedPointStopsAfterOnePass", PlantedBug::kOnePass, {"I10"}, {"g14"}},
    {"AlignmentIgnoredInWindows", PlantedBug::kAlignmentIgnored, {"I10"}, {"g3", "g17"}},
    {"CapAppliedToStep", PlantedBug::kCapOnStep, {"I12"}, {"g8"}},
    {"EvictableHitsNotCounted", PlantedBug::kEvictableNotCounted, {"I12"}, {"g6", "g7"}},
    {"NoFullSequenceGate", PlantedBug::kNoFullSequenceGate, {}, {"g6", "g18"}},
    {"FreeNotReversed", PlantedBug::kFreeNotReversed, {"I14"}, {"g1", "g18"}},
    {"WindowDropAscending", PlantedBug::kDropAscending, {"I14"}, {"g2", "g12"}},
    {"WindowDropsOneTokenTooMany", PlantedBug::kDropOneTooMany, {"I7"}, {"g2", "g12"}},
    {"CommitNotClamped", PlantedBug::kCommitNotClamped, {"I9"}, {"g3", "g17"}},
    {"NoRetentionMask", PlantedBug::kNoRetentionMask, {}, {"g4", "g14"}},
    {"NewestDuplicateWins", PlantedBug::kNewestDuplicateWins, {}, {"g1", "g2"}},
    {"BlockListedTwice", PlantedBug::kDoubleListing, {"I2"}, {"g2", "g12"}},
    {"HitsAdoptedAfterGrowing", PlantedBug::kAdoptAfterGrow, {"I14"}, {"g1", "g2"}},
    {"NullBlockFreeable", PlantedBug::kNullFreeable, {"I1"}, {"g2", "g12"}},
};

class PlantedBugs : public testing::TestWithParam<Case> {
 protected:
  void TearDown() override { planted_bug = PlantedBug::kNone; }
};

TEST_P(PlantedBugs, IsCaught) {
  const Case& c = GetParam();
  std::set<std::string> tripped;
  bool differs = false;
  for (const char* name : c.workloads) {
    for (const CacheProfile profile : {CacheProfile::kM, CacheProfile::kA}) {
      planted_bug = PlantedBug::kNone;
      Result<Workload> w = load_workload(name, profile);
      ASSERT_TRUE(w) << w.error().text();
      Result<WorkloadResult> good = run_workload(*w);
      ASSERT_TRUE(good) << good.error().text();
      std::shared_ptr<SchedAuditor> auditor;
      WorkloadRun watched;
      watched.watch = [&](BlockScheduler& s) -> std::shared_ptr<SchedWatch> {
        return auditor = std::make_shared<SchedAuditor>(s, true);
      };
      planted_bug = c.bug;
      // A bug may also end a run with an error: that is a difference too.
      Result<WorkloadResult> bad = run_workload(*w);
      differs = differs || !bad || bad->final_digest != good->final_digest;
      Result<WorkloadResult> stopped = run_workload(*w, watched);
      for (const Violation& v : auditor->findings()) {
        tripped.insert(v.invariant.substr(0, v.invariant.find(' ')));
      }
    }
  }
  EXPECT_EQ(differs, c.digest) << "digests";
  for (const char* invariant : c.invariants) {
    EXPECT_TRUE(tripped.contains(invariant)) << invariant << " did not trip";
  }
  if (c.invariants.empty()) {
    EXPECT_TRUE(tripped.empty()) << *tripped.begin();
  }
}

std::string case_name(const testing::TestParamInfo<Case>& c) { return c.param.name; }

INSTANTIATE_TEST_SUITE_P(All, PlantedBugs, testing::ValuesIn(kCases), case_name);

}  // namespace
}  // namespace attnscope
