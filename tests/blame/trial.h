// Planted bugs and what the tool says about the steps under test with some of them in.
#pragma once

#include <fmt/format.h>

#include <set>

#include "engine/mutants/given_mutants.h"
#include "engine/mutants/host_mutants.h"
#include "engine/trace/tap_result.h"
#include "kernels/mutants/mutants.h"
#include "tests/blame/tiny_session.h"
#include "tests/unit/family_ops.h"

namespace attnscope {
struct Planted {
  std::string name;
  as_op_id op;     // whose lane it is
  as_op_id shows;  // the op that is to be blamed; another one where `op` is given what is wrong
};

// Bugs that only projections in FP8 can have.
inline bool in_fp8_alone(const Lane& lane) {
  return std::string_view(lane.name).starts_with("mutant:fp8_");
}

// Bugs that only prompts over gathered rows can have.
inline bool in_gathered_prefill_alone(const Lane& lane) {
  return std::string_view(lane.name).starts_with("mutant:gathered_");
}

// All others.
inline const std::vector<Planted>& planted() {
  static const std::vector<Planted> kPlanted = [] {
    std::vector<Planted> all;
    for (const auto& lanes : {mutants::lanes(), host_mutants()}) {
      for (const Lane& lane : lanes) {
        if (in_fp8_alone(lane) || in_gathered_prefill_alone(lane)) continue;
        for (int op = 0; op < AS_OP_COUNT; ++op) {
          const auto id = static_cast<as_op_id>(op);
          if (lane.ops[op] != nullptr && is_of_deepseek_v4(op)) all.push_back({lane.name, id, id});
        }
      }
    }
    for (const GivenMutant& bug : given_mutants()) {
      all.push_back({bug.name, AS_OP_SCHEDULE, bug.shows});
    }
    return all;
  }();
  return kPlanted;
}

inline const char* op_name(as_op_id op) { return as_op_find(op)->name; }

// What the tool says about the two steps under test, with these bugs in.
class Trial {
 public:
  explicit Trial(std::unique_ptr<Session> session = tiny_session()) : session_(std::move(session)) {
    EXPECT_TRUE(session_->step());
  }

  std::vector<Blame> run(const std::vector<Planted>& bugs) {
    std::vector<std::string> lanes = {"cpu"};
    for (const Planted& bug : bugs)
      lanes.push_back(fmt::format("{}={}", op_name(bug.op), bug.name));
    const auto changed = session_->change_lanes(registry_, lanes, kStepUnderTest);
    EXPECT_TRUE(changed) << changed.error().text();
    std::vector<TapResult> results;
    for (int i = 0; i < 2; ++i) {
      const auto ok = session_->step();
      const auto& of_step = ok ? session_->history().back().results : session_->current_results();
      results.insert(results.end(), of_step.begin(), of_step.end());
      if (!ok) break;  // an op refused what another one spoiled
    }
    return blame(results);
  }

 private:
  LaneRegistry registry_ = all_lanes();
  std::unique_ptr<Session> session_;
};

inline std::string sentences(const std::vector<Blame>& blamed) {
  std::string text;
  for (const Blame& b : blamed) text += "\n    " + b.sentence();
  return text;
}

// Both bugs at once: one of them is blamed, nobody else is.
inline void check_pair(Trial& trial, const Planted& a, const Planted& b, int* both) {
  SCOPED_TRACE(a.name + " and " + b.name);
  const std::vector<Blame> blamed = trial.run({a, b});
  ASSERT_FALSE(blamed.empty());
  for (const Blame& one : blamed) {
    EXPECT_TRUE(one.op == a.shows || one.op == b.shows) << sentences(blamed);
    EXPECT_FALSE(one.cache) << sentences(blamed);
  }
  *both += blamed.size() == 2 ? 1 : 0;
}

}  // namespace attnscope
