// What ranks do that share one request (context_parallel.h), held against the definition: who keeps
// which token, by dealing tokens out one after the other; rows of ranks, against those of the whole
// cache and of the shadow; partial outputs, against ref.sim over the rank's rows of the shadow;
// messages, byte for byte; merges, against ref.sim.
//
// What is wrong becomes a result of the op that the ranks take apart: "slots.rank1",
// "k_cache.rank1", "k_cache.rank1.read", "o.rank1", "parts.rank1", "merge.rank1". What is right is
// not counted, as the op's own taps are: they are held against all rows of the request, as on one
// rank.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "engine/session/step/context_parallel.h"
#include "engine/session/verify/verifier.h"

namespace attnscope {

class ContextChecks : public ContextWatch {
 public:
  // ranks: what is looked at; all outlive this.
  ContextChecks(const SessionParts& parts, const ContextParallel& ranks, Verifier& verifier)
      : parts_(parts), ranks_(ranks), verifier_(verifier) {}

  // Before an op of the step, which its lane runs.
  void begin_op(const StepMetadata& step, const std::string& lane);

  void dealt(int layer, as_op_id op, const CacheSpec& spec, const RankSlots& slots) override;
  void inserted(int layer, as_op_id op, const as_tap_info& tap, int rank, const as_cache& whole,
                const std::vector<std::int64_t>& slots, const as_cache& of_rank,
                const std::vector<std::int64_t>& rank_slots) override;
  void attending(int layer, int rank, const OpParams& whole, const OpParams& call) override;
  Result<void> attended(int layer, int rank, const OpParams& whole, const OpParams& call) override;
  void merging(int layer, int rank, as_op_id op, const std::vector<int>& parts) override;
  void received(int layer, int rank, int from, const OpParams& call, RankHeads heads,
                const as_tensor& o, const as_tensor& lse) override;
  Result<void> merged(int layer, int rank, as_op_id op,
                      const as_merge_states_params& merge) override;

 private:
  // Deals out tokens up to a request of this length.
  void deal(std::int64_t tokens);
  // The same for ops that read lists of slots.
  void attending_lists(int layer, int rank, const OpParams& call);
  void list_rows(int layer, int rank, const OpParams& whole, OpParams& reference);
  // A rank's attention against a reference with these inputs.
  Result<void> hold_part(int layer, int rank, const OpParams& call, OpParams& reference);
  // Rows of a rank below a position.
  std::int64_t rows_before(int rank, std::int64_t position) const;
  void wrong(int layer, as_op_id op, std::string tap, std::int64_t beyond, std::string note);
  // A float tap against its reference; tokens that are left out are not compared.
  Result<void> hold(int layer, as_op_id op, const OpParams& params, const char* tap,
                    const as_tensor& value, const as_tensor& reference, std::string name,
                    const std::string& where);
  std::string token_words(std::size_t token) const;

  const SessionParts& parts_;
  const ContextParallel& ranks_;
  Verifier& verifier_;
  const StepMetadata* step_ = nullptr;
  std::string lane_;
  std::vector<int> owner_;                            // by position
  std::vector<std::vector<std::int64_t>> positions_;  // by rank and row
  std::set<std::string> said_;                        // taps of this op that are known to be wrong
  std::vector<bool> left_out_;  // tokens whose rows are not those that were written
  std::vector<std::vector<std::int32_t>> lists_;  // by access of the op
  std::vector<float> no_sinks_;
  Scratch rows_[2], o_, lse_;
};

}  // namespace attnscope
