// Recorded sequences of calls to a scheduler: one JSON object a line, blank lines and comments
// allowed. Format attnscope-blocks-replay, version 1.
//
//   {"format": "attnscope-blocks-replay", "version": 1, "show": ["tables", "queue"],
//    "groups": [{"kind": "full", "block_size": 16}], "blocks": 81, "token_budget": 256,
//    "max_seqs": 16}                               // the engine: keys as in workload files
//   {"call": "add", "id": 0, "tokens": [5, 6, 7], "max_tokens": 16}
//   {"call": "schedule"}
//   {"call": "results", "tokens": {"0": [9]}}      // of the oldest step without results
//   {"call": "abort", "id": 0}
//   {"call": "reset", "preempt_running": false}
//
// add, optional: "prompt_range" [first, last] in place of "tokens" (consecutive token ids),
// priority (0), arrival (the number of adds before), min_tokens, end_token, ignore_end,
// stop_tokens, skip_lookup, adapter, salt, media [{"identifier", "offset", "length"}]. results:
// requests of the step that are not named sampled nothing.
//
// Any line but the first may hold "expect": an object whose keys are compared with what comes out
// after the call (engine/sched/replay.h).
#pragma once

#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "engine/sched/block_scheduler.h"

namespace attnscope {

enum class ReplayCallKind { kAdd, kSchedule, kResults, kAbort, kReset };
const char* replay_call_name(ReplayCallKind kind);

struct ReplayCall {
  int line = 0;  // from 1
  ReplayCallKind kind = ReplayCallKind::kSchedule;
  SchedRequest request;                                                    // add
  std::vector<std::pair<std::int64_t, std::vector<std::int32_t>>> tokens;  // results, by id
  std::int64_t id = 0;                                                     // abort
  bool preempt_running = false;                                            // reset
  std::shared_ptr<const nlohmann::json> expect;                            // nullptr: nothing
};

struct Replay {
  std::string name;  // the file, for messages
  SchedulerOptions options;
  bool show_tables = true;
  bool show_queue = false;
  std::vector<ReplayCall> calls;
};

// The whole file is read before anything is done with it; messages name file and line.
Result<Replay> parse_replay(const std::string& text, const std::string& name);

}  // namespace attnscope
