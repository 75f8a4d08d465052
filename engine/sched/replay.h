// Applies a recorded sequence of calls and tells the state after each, one JSON object a line:
//
//   {"line": 3, "call": "schedule", "step": 0,
//    "scheduled": [{"id": 0, "tokens": 3, "admitted": true, "hit_tokens": 0}], "preempted": [],
//    "common_prefix": [1],
//    "running": [0], "waiting": [], "finished": [], "free": 79, "free_with_key": 0,
//    "hash_entries": 0, "queue_digest": "..", "tables": {"0": [[1]]}, "queue": [2, 3]}
//
// chunk (tokens of a prompt that the step takes at most) where chunks are adaptive; swapped_out and
// swapped_in ([{"id": 0, "group": 0, "entry": 3, "block": 7, "host": 2}]) where blocks are swapped.
// scheduled, preempted and common_prefix (blocks, by group) after schedule only, finished after
// results and abort, ok (whether the call did anything) after abort and reset; tables (by request
// and group, null = 0) and queue where the file asks for them.
#pragma once

#include <string>
#include <vector>

#include "engine/sched/replay_file.h"

namespace attnscope {

struct ReplayMismatch {
  int line = 0;
  std::string what;  // "free: expected 7, found 9"
};

struct ReplayOutcome {
  std::string lines;  // JSONL
  std::vector<ReplayMismatch> mismatches;
};

// Somebody who is told each call after it was made.
class ReplayObserver {
 public:
  virtual ~ReplayObserver() = default;
  // plan: of a schedule; done: what an abort or a reset returned.
  virtual void after(const ReplayCall& call, const BlockScheduler& scheduler, const StepPlan& plan,
                     bool done) = 0;
};

// A call that cannot be made (an unknown id, results without a step) ends it with an error that
// names the line; then there is no outcome at all.
Result<ReplayOutcome> run_replay(const Replay& replay, ReplayObserver* watch = nullptr);

}  // namespace attnscope
