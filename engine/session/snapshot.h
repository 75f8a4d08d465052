// An immutable picture of a session, for readers on other threads: it shares nothing that changes.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "engine/session/session.h"

namespace attnscope {

// A copy of one tap of the op that ran last: engine's value and, where it was compared, ref.sim's.
struct TapCopy {
  std::string name;
  std::string axes;
  as_tensor value{};      // into bytes
  as_tensor reference{};  // absent when not compared
  std::vector<std::uint8_t> value_bytes, reference_bytes;
};

struct RequestView {
  Request request;
  std::vector<std::vector<std::int32_t>> tables;  // by group
};

struct Snapshot {
  Cursor cursor;
  as_op_id next_op = AS_OP_COUNT;
  bool finished = false;
  std::string lanes;
  std::vector<RequestView> requests;
  std::vector<BlockOwner> owners;  // by block id
  std::int64_t free_blocks = 0;
  StepMetadata metadata;  // of the step in progress or the last one
  as_op_id last_op = AS_OP_COUNT;
  std::vector<TapCopy> taps;                               // of last_op
  std::vector<TapResult> results;                          // of the step in progress
  std::shared_ptr<const std::vector<StepRecord>> history;  // complete steps
};

// copy_taps: whether to copy the last op's tensors (large in prefill).
std::shared_ptr<const Snapshot> take_snapshot(const Session& session, bool copy_taps);

}  // namespace attnscope
