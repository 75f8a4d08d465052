// Compares every op with the references, forced and free-running, and keeps the shadow.
//
//   forced        each reference op is fed the engine's own inputs and the shadow's histories
//   free-running  ref.sim and ref.exact run on their own histories, fed the engine's tokens
//
// Around an op: before() checks that the rows a reader will gather through tables are the rows that
// were written (else the cache is to blame, not the reader); after() records what writers wrote,
// runs the references and appends one TapResult per output tap.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "engine/backend/call_op.h"
#include "engine/session/step/frame.h"
#include "engine/session/step/history.h"
#include "engine/session/step/layer_ops.h"
#include "engine/session/step/session_parts.h"
#include "engine/session/step/slab.h"
#include "engine/session/verify/input_checks.h"
#include "engine/session/verify/mass_moved.h"
#include "engine/session/verify/prefix_reuse.h"
#include "engine/session/verify/sum_watch.h"
#include "engine/session/verify/weight_watch.h"
#include "engine/trace/compare.h"

namespace attnscope {

class OpChange;

struct ForcedRun;   // forced_run.h
struct Judging;     // judging.h
struct WeightLook;  // judging.h
struct JudgingMemory;
struct RowCheck;  // row_checks.h

class Verifier {
 public:
  // lags: references may say what they have to say of an op while the next one runs.
  Verifier(const SessionParts& parts, References references, const AddressSpace& space,
           std::int64_t num_blocks, std::int64_t first_block = 1, bool lags = false);
  ~Verifier();

  // From now on, rows that the tokens of a step no longer see rest in a file
  // (History::rest_before).
  void rest_old_rows() { rests_ = true; }
  // Between two steps: those that did may have been touched since.
  void rest_again(const Serving& serving);
  // Whose rows the next step looks at besides those of its own requests.
  std::span<const std::int32_t> with_rows_to_rest() const { return rest_next_; }
  // At the start of a step; then once its tokens are planned (step must outlive the step).
  void begin_step(std::int64_t step_number);
  void begin_tokens(const StepMetadata& step, const Serving& serving);
  // Before a layer that drafts, once the step's tensor says what follows each token. sampled: [N].
  void begin_drafts(const Serving& serving, const as_tensor& sampled);
  // In between: blocks that this step takes for new content, and rows that newcomers found
  // computed.
  void begin_blocks(const Serving& serving, const Slab& slab);

  // layer: index among the running layers, -1 outside. lane: who runs the op. apart: on memory of
  // its own, so that of the host's only what the op is to write changes.
  Result<void> before(int layer, const OpParams& params, const std::string& lane,
                      bool apart = false);
  Result<void> after(int layer, const OpParams& params, const std::string& lane);
  // Between both: the op's inputs on the host may be others now, although it runs apart.
  void inputs_changed() { inputs_kept_ = false; }
  // Waits for what the references have to say of the op before, and takes it down. Results, forced
  // and free-running params are there when it returns; a step ends with it.
  Result<void> settle();
  // Between both: another lane than was announced ran the op. layer: published.
  void change_hands(as_op_id op, int layer, const std::string& from, const std::string& to);
  // wo_b of another rank has run in a layer; and the session added up what all of them gave.
  void rank_part(int layer, const as_linear_params& wo_b);
  // Around an op that another rank runs on its slice, beside this rank's; all its tensors and the
  // rows of its caches are on the host. What is wrong becomes a result, of a tap "o.rank1" or
  // "k_cache.rank1.read"; what is right is not counted, as the rank that is seen stands for all.
  void before_rank_op(int rank, int layer, const OpParams& params, const std::string& lane);
  Result<void> rank_op(int rank, int layer, const OpParams& params, const std::string& lane);
  // Between before() and after() of an op that runs in parts: one of them, whose tensors are on the
  // host. What is wrong becomes a result, of a tap "o.resident"; what is right is not counted.
  Result<void> part_of_op(int layer, const OpParams& part, const std::string& lane,
                          const std::string& name);
  void summed(int layer, const as_tensor& y);
  // Between before() and after(): tokens whose op cannot be judged, as what it read elsewhere is
  // wrong already.
  void leave_out(const std::vector<bool>& tokens);
  // Something is wrong that no op of the step says: a result of the step in progress, or, between
  // two steps, of the next one. Layers are published numbers.
  void found(TapResult result);
  // What was read otherwise than the checkpoint has it: results of step 0, whenever it runs.
  void set_loaded(std::vector<TapResult> results) { loaded_ = std::move(results); }
  // The session has other bytes and tokens than the step before left.
  void went_back();
  // Between attn_norm and what reads it: the references' layer input is the recorded one too. fed:
  // that of the engine, which is held against the file.
  void replay_input(int layer, const as_tensor& fed);
  // What the free-running references are to compute otherwise; nullptr = nothing.
  void set_change(OpChange* change) { change_ = change; }
  // Hears of each op that a reference ran free: layer (running index, -1 outside), params, whether
  // it is ref.exact. In their order, on a thread of its own where references lag.
  void watch_free(std::function<void(int layer, const OpParams& params, bool exact)> watch) {
    free_watch_ = std::move(watch);
  }
  // After both: the lane takes NaN codes for numbers, as the note says.
  void read_nan_codes(int layer, const OpParams& params, const std::string& lane, std::string note);
  // Instead of both where the op's tensors are not on the host: results without comparison.
  Result<void> unseen(int layer, const OpParams& params, const std::string& lane) {
    return unseen(layer, params, lane, results_);
  }
  // The same, into `results`; and results of a step of as many tokens once more.
  Result<void> unseen(int layer, const OpParams& params, const std::string& lane,
                      std::vector<TapResult>& results) const;
  void unseen_again(const std::vector<TapResult>& results, const StepMetadata& step);

  // Results of this step so far, in causal order.
  const std::vector<TapResult>& results() const { return results_; }
  // None are left; the next step is taken to have as many.
  std::vector<TapResult> take_results() {
    usual_results_ = results_.size();
    return std::exchange(results_, {});
  }
  const Shadow& shadow() const { return shadow_; }
  Shadow& shadow() { return shadow_; }
  const AddressSpace& space() const { return space_; }
  // Rows of the free-running ref.sim or ref.exact; nullptr when it does not run.
  const History* free_history(bool exact) const;
  // What the free-running ref.sim or ref.exact gave the op that ran last; nullptr when it does not
  // run, or not this op (those before the layers, and sample).
  const OpParams* free_params(bool exact) const;
  // What it will be given for an op that has not run yet; outputs are undefined. Only with
  // references.
  OpParams free_inputs(int layer, as_op_id op) const;
  References references() const { return references_; }
  // Forced ref.sim outputs of the last op (same taps as the engine's params).
  const OpParams& forced() const;
  // nullptr without references.
  // Without references too: weights and tables stay what they are, and so do rows of caches that
  // nobody writes. Before the first step. Of lanes whose memory is the host's.
  void watch_memory();
  const WeightWatch* weights() const { return weights_ ? &*weights_ : nullptr; }
  // Takes weights and tables for right as they are now.
  void watch_weights_anew();

 private:
  struct FreeRun;  // one free-running reference

  std::vector<History*> free_histories() const;
  void rest_rows(const Serving& serving, std::span<const std::int32_t> requests);
  OpContext free_context() const;

  TapResult blank(int layer, const OpParams& params, const char* tap, const as_tensor& tensor,
                  const std::string& lane) const;
  // Of rows in a cache that were held against the shadow.
  TapResult rows_result(int layer, const OpParams& params, const std::string& tap,
                        const as_cache& cache, const RowCheck& check,
                        const std::string& lane) const;
  // Before an op: the rows that it will read, and those beside which it writes. peer: whose op it
  // is; -1 = the own rank's.
  void check_rows(int layer, const OpParams& params, const std::string& lane, int peer);
  // What the op is given beside the outputs of others (input_checks.h).
  void check_given(int layer, const OpParams& params);
  void given(int layer, TapResult result);
  void say_where(int layer, TapResult& result) const;
  // Weights and tables that an op is about to read; where references lag, on a thread of its own.
  void look_at_weights(int layer, const OpParams& params);
  void look_at_embedding();
  void begin_weights();
  void insert_given(WeightLook& look);
  // A lane that writes to its inputs would be judged on what it wrote there.
  void check_inputs(int layer, const OpParams& params, const std::string& lane,
                    const std::vector<RowHashes>& now);
  void check_rows_left_alone(int layer, const OpParams& params, const as_tap_info& tap,
                             const CacheSpec& spec, const std::string& lane);
  void record_rows(const OpParams& params, const as_tap_info& tap, const CacheSpec& spec);
  // Rows that others take over from what this op wrote.
  void share_rows(const OpParams& params, const as_tap_info& tap, const CacheSpec& spec,
                  const std::vector<History*>& histories);
  void check_between(int layer, const OpParams& params, const as_tap_info& tap,
                     const CacheSpec& spec, const std::string& lane);
  const CacheSpec& spec_of(int layer, const OpParams& params, const as_tap_info& tap,
                           int peer = -1) const {
    return *parts_.layout.of_tap(layer, params.op(), tap.offset, peer);
  }
  // How references of an op are called, with weights of the session.
  std::unique_ptr<Judging> judging_of(int layer, const OpParams& params, const std::string& lane,
                                      int peer = -1);
  // The op has run: what its references say is a result when settle() returns.
  Result<void> judge(int layer, const OpParams& params, const std::string& lane);
  // Before an op runs: what is judged on tensors of the engine that it may write to.
  Result<void> settle_in_place(const OpParams& op, bool apart);
  Result<void> settle_first();
  void drop_judging();
  // Forced references, then what they say of the taps.
  Result<void> judge_forced(Judging& j);
  // Free-running references compute the op, then what they put out is held against the engine's.
  void run_free(Judging& j);
  void measure_free(Judging& j, const as_threads* threads) const;
  // Whether it may be judged while the engine goes on.
  bool may_lag(const Judging& j) const;
  Result<void> run_forced(Judging& j);
  // The rows that the op wrote.
  void gather_written(Judging& j);
  Result<void> run_one_free(const Judging& j, FreeRun& run);
  // What requests of this step share of rows that a peer's op has just put into a reference's
  // history.
  void follow_shared(int layer, const OpParams& params, int peer, History& history) const;
  Result<void> compare_tap(Judging& j, std::uint32_t index);
  // Fills result.quantisation of a quantising op's tap; true when the engine's value lies beyond
  // the tolerance from ref.exact.
  bool quantisation_error(const Judging& j, const as_tap_info& tap, const as_tensor& value,
                          const TapMask& mask, const Tolerance& rule, TapResult& result);
  void weigh_swaps(const OpParams& params);
  void measure_tap(Judging& j, std::uint32_t index, const as_threads* threads) const;

  const SessionParts& parts_;
  References references_;
  AddressSpace space_;
  Shadow shadow_;
  PrefixReuse prefix_reuse_;
  std::int64_t step_number_ = 0;
  const StepMetadata* step_ = nullptr;
  LogicalMetadata logical_;
  std::unique_ptr<FreeRun> free_sim_, free_exact_;
  std::vector<std::unique_ptr<ForcedRun>> forced_;  // by thread
  ForcedRun* last_forced_;                          // of the op that is settled last
  bool bad_rows_ = false;  // the op gathers rows other than those that were written
  std::vector<RowHashes> input_hashes_;
  bool inputs_kept_ = false;  // they are those of the op's inputs once it has run, too
  Unchanged unchanged_;
  std::optional<WeightWatch> weights_;  // with references, or where memory is watched
  SumWatch sums_;
  std::map<const CacheSpec*, std::set<std::int64_t>> bad_slots_;  // known to hold other bytes
  std::vector<TapResult> loaded_, pending_;
  bool in_step_ = false;
  bool rests_ = false;
  std::vector<std::int32_t> rest_next_;   // live in the last step: some have ended with it
  std::set<const void*> tables_checked_;  // rotary tables, in this step
  std::vector<bool> huge_inputs_;         // by row of the op's first axis; empty = none
  std::vector<TapResult> results_;
  std::size_t usual_results_ = 0;
  SwappedPlaces swapped_;  // of the selection made last, until its attention has run
  std::size_t swapped_result_ = 0;
  OpChange* change_ = nullptr;
  struct Helpers;                                      // threads that judge
  std::deque<std::unique_ptr<Judging>> judging_;       // of ops that are not settled yet
  std::vector<std::unique_ptr<JudgingMemory>> spare_;  // of those that are
  std::shared_ptr<WeightLook> look_;                   // of the op that runs
  std::function<void(int, const OpParams&, bool)> free_watch_;
  std::unique_ptr<Helpers> helpers_;  // where references lag; first to go
};

// Copies the rows to sample from: graph.hidden -> graph.last, or those of the layer that drafts.
void gather_last(const ModelGraph& graph, Frame& frame, const StepMetadata& step, bool drafts);

}  // namespace attnscope
