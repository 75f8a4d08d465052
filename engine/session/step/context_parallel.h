// Context parallelism of a session: the rows of each request are dealt out over ranks
// (context_split.h), which are simulated one after the other.
//
// What a layer does, on every rank:
//   insert    the op that writes rows runs with the rank's own slots, into the rank's own pages
//   gather    each rank has the queries of its heads, and sends them to all others
//   attend    the layer's attention runs over the rank's rows, for all heads, without the sinks;
//             what a token does not see on the whole request it does not see here
//   exchange  each rank sends each other one the partial outputs and LSEs of that one's heads
//   merge     each rank merges the parts of its heads (op merge_states), a rank without rows being
//             empty, and then, once, the sinks: a part without values whose LSE is the sink
//
// A token sees rows up to its position, and with a window or chunk from a first one on. On a rank
// these are its rows below ContextSplit::length() of both, which lie one behind the other: without
// a first one the op is causal at the last of them; else each token is a request of its own. Of a
// list of slots each rank reads those that are its own: of both that DeepSeek-V4 has, rows of the
// window and entries. What selects entries is on every rank, and so are the keys for it and the
// states that entries are made of.
//
// The session's slab keeps the whole cache beside the ranks' pages: it is what panels show and the
// verifier's shadow is held against, and no rank's attention reads it. It brings rows back when the
// session goes to another step (take_over).
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "engine/cache/context_split.h"
#include "engine/metadata/step_metadata.h"
#include "engine/session/step/between_ranks.h"
#include "engine/session/step/frame.h"
#include "engine/session/step/op_params.h"
#include "engine/session/step/rank_transport.h"
#include "engine/session/step/session_parts.h"
#include "engine/session/step/slab.h"

namespace attnscope {

// Who looks at what ranks do (verify/context_checks.h).
class ContextWatch {
 public:
  virtual ~ContextWatch() = default;
  // Which rank keeps which token. spec: of the whole cache.
  virtual void dealt(int layer, as_op_id op, const CacheSpec& spec, const RankSlots& slots) = 0;
  // A rank's rows of a cache, once its op and the whole one have written them: slots in each.
  virtual void inserted(int layer, as_op_id op, const as_tap_info& tap, int rank,
                        const as_cache& whole, const std::vector<std::int64_t>& slots,
                        const as_cache& of_rank, const std::vector<std::int64_t>& rank_slots) = 0;
  // Before and after a rank's attention over its part.
  virtual void attending(int layer, int rank, const OpParams& whole, const OpParams& call) = 0;
  virtual Result<void> attended(int layer, int rank, const OpParams& whole,
                                const OpParams& call) = 0;
  // What a rank merges: whose parts, in order; then each part as it came, of these heads.
  virtual void merging(int layer, int rank, as_op_id op, const std::vector<int>& parts) = 0;
  virtual void received(int layer, int rank, int from, const OpParams& call, RankHeads heads,
                        const as_tensor& o, const as_tensor& lse) = 0;
  // A merge has run; its outputs are not its inputs.
  virtual Result<void> merged(int layer, int rank, as_op_id op,
                              const as_merge_states_params& merge) = 0;
};

class ContextParallel {
 public:
  // num_blocks: of the session's slab.
  ContextParallel(const SessionParts& parts, const ContextSplit& split, std::int64_t num_blocks);

  struct Calls {
    std::function<Result<void>(const OpParams&)> op;  // runs one op of a rank in its lane
    as_call merge{};                                  // how merges are called
    const BetweenRanks* between = nullptr;            // null: nothing
    ContextWatch* watch = nullptr;                    // null: nobody looks
  };

  // Ops of layers that ranks take apart.
  static bool inserts(as_op_id op);
  static bool attends(as_op_id op);
  // Of those, what reads the slots that lists name.
  static bool reads_lists(as_op_id op);
  // Absent where the op has none.
  static as_tensor sinks_of(const OpParams& params);

  // Around the whole op, which writes the slab: each rank's own, then what there is to see.
  Result<void> insert(int layer, const OpParams& whole, const StepMetadata& step,
                      const Calls& calls);
  void inserted(int layer, const OpParams& whole, const Calls& calls);
  // In the place of the whole op: its outputs.
  Result<void> attend(int layer, const OpParams& whole, const StepMetadata& step,
                      const Calls& calls);

  // A block has got a new owner: its rows are NaN on every rank.
  void poison(std::int64_t block);
  // All blocks with content once more, from the slab. groups: by block, -1 = it has none.
  void take_over(const Slab& slab, const std::vector<std::int32_t>& groups);

  const ContextSplit& split() const { return split_; }
  const CacheLayout& layout() const { return layout_; }  // of a rank
  const Slab& pages(int rank) const { return *pages_[static_cast<std::size_t>(rank)]; }
  // Since begin_step(): what ranks sent.
  void begin_step();
  const ExchangeCounts& counts() const { return transport_->counts(); }
  // Of the last op, in seconds: messages and merges; and what its watch took, which is no part of
  // either.
  double exchange_seconds() const { return exchange_seconds_; }
  double watch_seconds() const { return watch_seconds_; }

 private:
  struct Rank {
    Scratch query, o, lse;
    std::vector<std::int64_t> positions;
    std::vector<std::int32_t> token_to_req, seq_lens, first_rows, table;
    std::vector<std::vector<std::int32_t>> lists;  // by access of the op
    std::vector<float> no_sinks;
    OpParams call;
  };
  // Rows of its request that a token sees: [first, end).
  struct Seen {
    std::int64_t first = 0, end = 0;
  };
  std::vector<Seen> seen_rows(const OpParams& whole, const CacheSpec& spec,
                              const StepMetadata& step) const;
  const CacheSpec& spec_of(int layer, const OpParams& params, const as_tap_info& tap) const;
  as_cache cache_of(int rank, const CacheSpec& whole) const;
  void set_rows(int rank, const std::vector<Seen>& seen, const CacheSpec& spec,
                const StepMetadata& step);
  // Calls look(watch) where there is one, and counts its time.
  template <class F>
  void watched(const Calls& calls, const F& look);
  void set_lists(int layer, int rank, const OpParams& whole);
  Result<void> gather_queries(const as_tensor& q);
  Result<void> send_parts();
  Result<void> merge_parts(int layer, int rank, const OpParams& whole, const Calls& calls);
  Result<void> merge(int layer, int rank, as_op_id op, as_merge_states_params& merge,
                     const Calls& calls);

  const SessionParts& parts_;
  ContextSplit split_;
  CacheLayout layout_;
  std::vector<std::unique_ptr<Slab>> pages_;  // by rank
  std::vector<Rank> ranks_;
  std::unique_ptr<RankTransport> transport_;
  RankSlots slots_;  // of the op that inserted last
  std::vector<std::byte> message_;
  Scratch received_o_, received_lse_, part_, states_[2], lses_[2], sink_o_, sink_lse_;
  double exchange_seconds_ = 0, watch_seconds_ = 0;
};

}  // namespace attnscope
