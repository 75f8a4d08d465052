// An immutable picture of a session, for readers on other threads: it shares nothing that changes.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/session/session.h"
#include "engine/session/step/step_trace.h"
#include "engine/session/trace_recorder.h"

namespace attnscope {

// What does not change while a session lives.
struct SessionInfo {
  ModelConfig config;
  CacheLayout layout;
  std::int64_t num_blocks = 0;   // ids are below: null block included, and ids below the first
  std::int64_t first_block = 1;  // the lowest id but the null block's
  std::int64_t usable_blocks() const { return num_blocks - first_block; }
  std::int64_t block_stride = 0;
  SchedulerLimits limits;
  std::int64_t draft_tokens = 0;     // that a decode step verifies at most
  std::string lanes;                 // description
  std::vector<std::string> lane_of;  // by op id
  References references = References::kNone;
  std::vector<std::string> request_names;       // by id
  std::vector<std::int64_t> prompt_tokens;      // by id
  std::vector<std::vector<as_op_id>> ops;       // by running layer, causal order
  std::vector<as_op_id> ops_before, ops_after;  // once per step
  double drift_limit = 0;
  std::shared_ptr<const std::vector<TensorUse>> weights_read;  // null: synthetic weights
};

// What is known of the ops of a step whose trace is not there.
struct OpCost {
  Place place;
  double microseconds = -1;  // < 0: not known
  OpLaunches launches;
};

struct Snapshot {
  std::uint64_t version = 0;  // grows with every picture of a worker
  std::shared_ptr<const SessionInfo> info;
  Cursor cursor;  // the op that runs next
  as_op_id next_op = AS_OP_COUNT;
  int next_layer = -1;  // published
  Place last;           // the op that ran last; step -1 = none yet
  bool finished = false;
  bool decoding = false;
  std::vector<RequestView> requests;  // now
  std::vector<BlockOwner> owners;     // by block id, now
  std::int64_t free_blocks = 0;
  Invariants invariants = Invariants::kOff;
  std::int64_t invariant_steps = 0;    // checked so far
  double invariant_seconds = 0;        // what that cost
  std::optional<Violation> violation;  // the one that stopped the session
  DecisionCounts decisions{};          // of scheduler and block manager that were judged, so far
  std::optional<WrongDecision> wrong_decision;
  std::string unwitnessed;  // where references run without ref.model: why, and what to do
  std::vector<std::shared_ptr<const StepSummary>> steps;
  std::vector<std::shared_ptr<const StepTrace>> traces;
  std::int64_t trace_bytes = 0;
  std::vector<OpCost> costs;  // of one step of a capture
  RewindUse rewind;

  // nullptr when the step ran too long ago, or never.
  const StepTrace* trace(std::int64_t step) const;
  const StepSummary* summary(std::int64_t step) const;
  const OpCost* cost(const Place& place) const;
};

// All requests by id with their tables, as they are now.
std::vector<RequestView> request_views(const Session& session);

std::shared_ptr<const SessionInfo> session_info(const Session& session);
std::shared_ptr<const Snapshot> take_snapshot(const Session& session, const TraceRecorder& recorder,
                                              std::shared_ptr<const SessionInfo> info,
                                              std::uint64_t version);

}  // namespace attnscope
