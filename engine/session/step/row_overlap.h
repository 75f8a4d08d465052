// Ops around attention whose rows come from host memory, so that something else runs while they
// come (engine/offload/overlap_choice.h). The ops of the layer stay what they are, as seen from
// outside: each puts out the same taps, and is held against the same references. What each does:
//
//   da    exchange_rows     new rows go back, warming rows come; missed rows come beside attention
//                           over the rows that lie in the pool
//         attention         attention over the missed rows; both parts are merged
//   dba   indexer_logits    of the first half of the batch, and what follows until it is known what
//                           that half misses; its rows come beside logits of the second half
//         .., indexer_topk, topk_to_slots   of the second half
//         exchange_rows     rows of the second half come beside attention of the first
//         attention         of the second half
//
// Sinks count once, with the rows in the pool: the part's own LSE is that without sinks, and the
// merge weighs it with them. Where a step misses nothing da is plain attention, dba where one
// request has all tokens.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "engine/backend/call_op.h"
#include "engine/session/step/between_parts.h"
#include "engine/session/step/frame.h"
#include "engine/session/step/host_tier.h"
#include "engine/session/step/op_params.h"
#include "engine/session/step/session_parts.h"
#include "engine/session/step/token_part.h"

namespace attnscope {

// Who looks at the parts of attention (verify/part_checks.h).
class PartWatch {
 public:
  virtual ~PartWatch() = default;
  // A part has run: "resident" or "missed".
  virtual Result<void> attended(int layer, const OpParams& part, const char* name) = 0;
  // Both, and what the merge made of them: whole has its outputs.
  virtual Result<void> merged(int layer, const OpParams& whole, const OpParams& resident,
                              const OpParams& missed) = 0;
};

class RowOverlap {
 public:
  explicit RowOverlap(const SessionParts& parts) : parts_(parts) {}

  struct Calls {
    // Runs an op in its lane, for some tokens.
    std::function<Result<void>(const OpParams&, TokenPart)> op;
    // exchange_rows beside something else, which a host runs first.
    std::function<Result<void>(const OpParams&, const std::function<Result<void>()>&)> travel;
    std::function<Result<void>(const as_merge_states_params&)> merge;
    std::function<void(const as_tensor&)> wrote;        // the host has written a tensor
    std::function<Result<void>(const OpParams&)> show;  // the host will look at a call's tensors
    // Whether outputs of an op lie where nobody fills them before it runs again.
    std::function<bool(as_op_id)> keeps_outputs;
    // An op of the layer, with its outputs; exchange_rows has been given what the tier says.
    std::function<Result<OpParams>(as_op_id)> params;
    std::function<Result<void>(TokenPart)> select;  // these tokens have selected: asks the tier
    const BetweenParts* between = nullptr;          // null: nothing
    PartWatch* watch = nullptr;                     // null: nobody looks
  };

  // Whether the layer takes the op apart in this step.
  bool takes(as_op_id op, int layer, const HostTier& tier, const StepMetadata& step) const;
  // In the place of the op.
  Result<void> run(const OpParams& whole, int layer, const HostTier& tier, const StepMetadata& step,
                   const Calls& calls);
  // Which tokens have not selected yet when exchange_rows comes.
  TokenPart left(int layer, const StepMetadata& step) const;

  // Of the op that ran last: when rows came, in seconds after it began, and for how long; 0 = none.
  struct Travel {
    double start = 0, seconds = 0;
  };
  const Travel& travelled() const { return travelled_; }

  // How two parts become one, by whoever runs merge_states; sinks: f32 [H], absent = none.
  struct Merging {
    std::function<Result<void>(as_merge_states_params&, bool of_parts)> merge = nullptr;
    std::function<void(const as_tensor&)> made = nullptr;  // here, of what merges read
  };
  static Result<void> merge_parts(const as_tensor& o_a, const as_tensor& lse_a,
                                  const as_tensor& o_b, const as_tensor& lse_b,
                                  const as_tensor& sinks, const as_tensor& o, const as_tensor& lse,
                                  Scratch (&memory)[5], const Merging& how);

 private:
  std::int64_t cut(int layer, const StepMetadata& step) const;  // second_half() where it is dba
  as_op_id attention_of(int layer) const;
  const Binding& list_of(int layer) const;
  Result<void> travel(const OpParams& exchange, const HostTier::Moves& moves, const Calls& calls,
                      const std::function<Result<void>()>& meanwhile);
  Result<void> go_back(const OpParams& exchange, int layer, const HostTier& tier,
                       const Calls& calls);
  Result<void> exchange_dual(const OpParams& whole, int layer, const HostTier& tier,
                             const Calls& calls);
  Result<void> attend_dual(const OpParams& whole, int layer, const Calls& calls);
  Result<void> score_halves(const OpParams& whole, int layer, std::int64_t cut,
                            const HostTier& tier, const Calls& calls);
  Result<void> exchange_halves(const OpParams& whole, int layer, std::int64_t cut,
                               const HostTier& tier, const Calls& calls);
  Result<void> rest(const OpParams& whole, std::int64_t cut, const Calls& calls);
  // Rows of the first half that an op has put out before its turn, which may be filled until then.
  void keep(const OpParams& whole, std::int64_t cut, const Calls& calls);
  void bring_back(const OpParams& whole, std::int64_t cut) const;
  as_tensor list(std::vector<std::int32_t>& slots, const OpParams& whole, const Binding& tap,
                 const Calls& calls) const;

  const SessionParts& parts_;
  Travel travelled_;
  std::chrono::steady_clock::time_point began_;
  std::vector<std::int64_t> nobody_;  // of tokens that have no new row here
  std::vector<std::int64_t> from_, to_;
  std::vector<std::int32_t> resident_, missed_, none_;
  std::vector<float> no_sinks_;
  OpParams resident_call_;
  Scratch o_[2], lse_[2], merge_[5];
  struct Kept {
    as_op_id op;
    std::vector<std::vector<std::byte>> rows;  // by output
  };
  std::vector<Kept> kept_;
};

}  // namespace attnscope
