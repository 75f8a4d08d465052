// The engine as a machine that stops anywhere: it advances by op, layer, step or until a predicate
// holds, and goes back by rewind point and replay. Same seed, scenario, lanes and SIMD level give
// the same bytes for any number of threads.
//
//   auto session = Session::create(scenario, lanes, options);
//   while (!(*session)->finished()) if (auto ok = (*session)->step(); !ok) report(ok.error());
//
// No exception leaves a session; out of memory is an error like others. One thread at a time;
// worker.h puts a session on a thread of its own and hands out snapshots.
#pragma once

#include <atomic>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/backend/host_ops.h"
#include "engine/backend/registry.h"
#include "engine/config/scenario.h"
#include "engine/decisions/serving_judge.h"
#include "engine/session/device/device_run.h"
#include "engine/session/observer.h"
#include "engine/session/progress_watch.h"
#include "engine/session/step/adversarial_lists.h"
#include "engine/session/step/host_tier.h"
#include "engine/session/step/op_timing.h"
#include "engine/session/step/rank_transport.h"
#include "engine/session/step/row_overlap.h"
#include "engine/session/step/slab.h"
#include "engine/session/step/swap_space.h"
#include "engine/session/step/tensor_parallel_sum.h"
#include "engine/session/verify/invariant_guard.h"
#include "engine/session/verify/replay_watch.h"
#include "engine/session/verify/token_watch.h"
#include "engine/session/verify/verifier.h"
#include "engine/session/verify/witness.h"

namespace attnscope {

struct SessionOptions {
  References references = References::kBoth;
  bool witness = false;                      // the witness follows where no reference runs, too
  std::vector<std::string> lanes = {"cpu"};  // as LaneSelector::make
  int threads = 0;                           // 0 = all
  std::string tolerance_file;                // empty = assets/tolerances.json
  std::int64_t rewind_every = 8;             // steps; 0 = none
  std::int64_t rewind_bytes = std::int64_t{256} << 20;  // of all rewind points together
  Invariants invariants = default_invariants();
  // Decode steps that run as a whole on a GPU measure each op, which costs a third of their time
  // or more. Ops that somebody looks at are always measured.
  bool op_times = false;
  // On a GPU every op waits for the one before it, in place of branches on streams of their own.
  // The results are the same bytes.
  bool serial = false;
  // Nobody looks at results, or at what references gave, between two ops: those that compute
  // elsewhere than on the host may still be at an op while the next one runs.
  bool references_lag = false;
  // What references remember of rows that no token sees any more lies in a file (RestingMemory).
  // Not where references compute on a GPU, which may have the memory pinned.
  bool rest_old_rows = false;
  // What lane "cuda" computes on; null = the GPU, opened when a step first wants it.
  std::shared_ptr<ComputeDevice> device;
};

// Where the session stands: the op that runs next.
struct Cursor {
  std::int64_t step = 0;
  int layer = -1;             // index among the running layers; -1 before or after them
  int op = 0;                 // index into the ops of this place
  bool after_layers = false;  // also in a layer that drafts, which runs after the head
  friend bool operator==(const Cursor&, const Cursor&) = default;
};

struct StepRecord {
  std::int64_t step = 0;
  std::int64_t tokens = 0;     // computed in this step
  std::int64_t decisions = 0;  // of scheduler and block manager, that were judged
  bool decode_only = false;    // every live request had finished its prefill
  bool selective = false;      // some token saw more entries than the indexer may select
  double seconds = 0;          // ops alone, without references
  double wall_seconds = 0;     // with references and comparison
  std::vector<OpTiming> timings;
  std::vector<TapResult> results;
  std::vector<std::int32_t> live;  // request id of each row
  // By request row: the last token it got, -1 = none; drafts that were verified; how many of these
  // held and are tokens before the last one.
  std::vector<std::int32_t> sampled, drafted, accepted;
  // What the model's draft layer says comes behind it, -1 = nothing; empty without such a layer.
  std::vector<std::int32_t> proposed;
  std::vector<PoolCounts> pools;  // by layer that selects, where rows lie in host memory
  // What ranks that share requests have sent each other; none in steps of a session that was kept.
  ExchangeCounts exchanged{};
};

// What going back costs in memory and in steps.
struct RewindUse {
  std::int64_t count = 0;
  std::int64_t bytes = 0;
  std::int64_t budget = 0;          // bytes
  std::int64_t longest_replay = 0;  // steps before any step that ran, at most
};

struct RewindPoint;
class RewindPoints;
class ContextChecks;
class ContextParallel;
class OpChange;
class PartChecks;

class Session {
 public:
  // Registers the host ops, generates weights, sizes the caches. `registry` must hold "cpu" and,
  // for references, "ref.sim" and "ref.exact".
  static Result<std::unique_ptr<Session>> create(const Scenario& scenario,
                                                 const LaneRegistry& registry,
                                                 const SessionOptions& options);
  ~Session();

  // No step has begun that has not ended.
  bool at_boundary() const { return !in_step_; }
  // Nothing left to compute (at a step boundary).
  bool finished() const;
  // Runs one op, the rest of the layer, the rest of the step.
  Result<void> op();
  Result<void> layer();
  Result<void> step();
  // Runs ops until the predicate holds after one, or everything is finished. True when it held.
  Result<bool> run_until(const std::function<bool(const Session&)>& predicate);
  // Goes back (or forward) to a cursor: restores the nearest rewind point at or before it, replays.
  // Forward it restores one where that is nearer than the session itself: no more is computed than
  // rewind_use().longest_replay says, as long as the steps have run before.
  Result<void> seek(const Cursor& cursor);
  Result<void> step_back();  // to the start of the previous step, or of this one when inside it
  Result<void> op_back();
  // Goes to the start of `step` and computes from there with other lanes (as
  // SessionOptions::lanes).
  // Steps before it stay as they are, also when the session goes back to them.
  Result<void> change_lanes(const LaneRegistry& registry, const std::vector<std::string>& lanes,
                            std::int64_t step);
  // The same for single ops (op_change.h): from `step` on they are computed as `change` says, until
  // the next call; nullptr = as their lanes do. It must outlive the session or be replaced.
  Result<void> change_ops(OpChange* change, std::int64_t step);
  // Without going anywhere: what was computed stays as it is.
  void forget_change();
  // Makes running calls, and the next ones until resume(), return soon, between two ops and without
  // an error. From any thread.
  void cancel() { cancelled_ = true; }
  void resume() { cancelled_ = false; }
  bool cancelled() const { return cancelled_; }

  // What going back or running again did not bring as it was, in sentences; the results of the
  // steps say so too.
  const std::vector<std::string>& replay_faults() const { return replay_faults_; }

  RewindUse rewind_use() const;
  // Between two steps, of a session with that option: somebody has read or written old rows.
  void rest_old_rows();
  void set_rewind_budget(std::int64_t bytes);
  // As SessionOptions::op_times, from the next step on.
  void measure_ops(bool on) { op_times_ = on; }

  // From the next call to the block manager on.
  void set_invariants(Invariants level) { guard_.attach(*serving_, level); }
  // A violation is a wrong tap, and stops the session at the op that met it: op() says so until the
  // session goes back.
  const InvariantGuard& guard() const { return guard_; }
  // What scheduler and block manager decided, held against a model of their own. The first decision
  // that differs is a wrong tap; the session goes on.
  const ServingJudge& judge() const { return *judge_; }

  // Called between ops until it is replaced; nullptr = nobody. Must outlive the session or be
  // replaced, and must not throw.
  void set_observer(SessionObserver* observer) { observer_ = observer; }

  const Cursor& cursor() const { return cursor_; }
  // The op that runs next; AS_OP_COUNT when finished.
  as_op_id next_op() const;
  // Steps that are complete, oldest first.
  const std::vector<StepRecord>& history() const { return history_; }
  // Where references lag: waits for the results of the last op.
  Result<void> settle() { return verifier_->settle(); }
  // The step in progress (empty at a boundary); its results are current_results().
  const StepRecord& current() const { return current_; }
  // Results of the step in progress so far.
  const std::vector<TapResult>& current_results() const { return verifier_->results(); }
  // The params of the op that ran last; meaningful once ran_any().
  bool ran_any() const { return ran_any_; }
  const OpParams& last_params() const { return last_params_; }
  // The same as its lane got them: with other lists where these are adversarial.
  const OpParams& last_called() const { return last_called_; }
  const OpParams& last_forced() const { return verifier_->forced(); }
  // Its kernels, where a device ran it in one piece and an observer is there.
  const OpLaunches& last_launches() const { return launches_; }

  const SessionParts& parts() const { return parts_; }
  // Requests, tables and blocks.
  const Serving& serving() const { return *serving_; }
  const StepMetadata& metadata() const { return metadata_; }
  const Slab& slab() const { return *slab_; }
  // Where rows lie in host memory; nullptr = all lie on the device.
  const HostTier* tier() const { return tier_ ? &*tier_ : nullptr; }
  // Blocks of preempted requests that wait in host memory.
  const SwapSpace& swapped() const { return swapped_; }
  // Ranks that share the rows of each request; nullptr = there is one.
  const ContextParallel* context() const { return context_.get(); }
  const Verifier& verifier() const { return *verifier_; }
  const LaneSelector& lanes() const { return lanes_; }
  bool has_device() const { return device_ != nullptr; }
  // Why the session left the device, once it has: since then the CPU lane stands in for it.
  const std::optional<Error>& device_error() const { return device_error_; }
  // What the witness says of itself, or why there is none.
  Witnessed witnessed() const { return witness_ ? witness_->witnessed() : unwitnessed_; }
  References references() const { return verifier_->references(); }
  // True once every request has finished its prefill (or is over).
  bool decoding() const;
  // FNV-1a over the blocks in use, the tokens and the tables: equal sessions have equal digests.
  std::uint64_t digest() const;

 private:
  friend class SessionFile;  // session_file.cpp
  struct Threads;
  Session();

  // ranks: weights of another session of the same model; empty = they are read or made.
  static Result<std::unique_ptr<Session>> build(const Scenario& scenario,
                                                const LaneRegistry& registry,
                                                const SessionOptions& options,
                                                std::vector<std::shared_ptr<const Weights>> ranks);
  // Runs the scenario without drafts first, for the tokens to draft.
  Result<void> make_drafter(const Scenario& scenario, const LaneRegistry& registry,
                            const SessionOptions& options);
  Result<void> begin();
  // The witness is made when a step wants it first; what it says goes into the step's results.
  void choose_witness(const Scenario& scenario, const LaneRegistry& registry,
                      const SessionOptions& options);
  Result<void> make_witness();
  Result<void> ask_witness();
  // Those of the layers, or what the step's lanes make of them.
  void set_rope_tables();
  void make_rope_tables(std::int64_t rows);
  // The model's switches as profiles of this version had them. Before the first step.
  void take_profiles(int version);
  Result<void> run_next();
  // The ops of the part of a step that a cursor stands in.
  const std::vector<as_op_id>& ops_at(const Cursor& cursor) const;
  Result<void> run_before_op(as_op_id op);
  Result<void> run_op(as_op_id op, int layer, OpParams& params);
  // What a lane is called with: the params, or the same with adversarial lists.
  Result<const OpParams*> as_called(int layer, const OpParams& params, bool by_device);
  // Whether the lane knows NaN codes, where lists are adversarial.
  Result<void> probe_nan_codes(int layer, const OpParams& params, const as_call& call);
  Result<void> run_changed(int layer, const OpParams& params, const as_call& call);
  // The op's lane failed and another carried it out: it is that one's from this step on.
  void change_hands(as_op_id op, int layer, const Lane& to);
  // Who arrives, who computes what, on which blocks. A block starts as NaN for its new owner: a
  // read of a row nobody wrote shows, and a replay meets the same bytes as the first run.
  Result<void> decide();
  // Blocks of the step that wait for it start as NaN for their new owners.
  void begin_fresh();
  // Whether the step has an op of those before the layers: blocks of preempted requests move in
  // some steps alone (session_swap.cpp).
  bool has_op(as_op_id op) const;
  void check_swapped_in();
  Result<void> run_swap(as_op_id op);
  OpParams swap_params(as_op_id op);
  Result<void> check_invariants() const;
  // What a step cannot compute whoever decided it: tokens that a request does not have.
  Result<void> check_plan(const ServingStep& step) const;
  // Tells the guard or the judge of something; what it then finds is a wrong tap of the step.
  template <class F>
  void guarded(const F& tell);
  template <class F>
  void judged(const F& tell);
  // Once the schedule op ran: its tokens.
  Result<void> plan_step();
  // Whether somebody looks at the tensors of ops: else those of a device stay there.
  bool seen() const;
  // Lane cuda computes on a device of its own memory; it is opened when a step wants it.
  Result<void> open_device();
  // All layers and the head at once, where the step has a plan; with `lists` also the ops that make
  // slots and lists.
  Result<void> run_planned(bool lists);
  // Goes on by plan, if there is one and nobody looks. True when that ended the step.
  Result<bool> try_plan(as_op_id next);
  // What was decided for the step, if it has not been judged yet: a step that may run on a device
  // as a whole is judged beside it.
  void judge_plan();
  // What a planned step leaves of its ops, whatever it computed.
  struct PlannedRecord {
    std::vector<OpTiming> timings;
    std::vector<TapResult> results;
  };
  Result<void> record_planned(bool lists, PlannedRecord& record);
  // Whether some token of the step sees more entries than may be selected.
  void note_selective();
  Result<void> take_device_times();
  // After a failure of the device: back to the last rewind point, and forward to where it failed,
  // on the CPU lane from there on.
  Result<void> leave_device(const Error& why);
  // The layer's output over all ranks.
  Result<void> sum_over_ranks(const CacheSource& source);
  // Scenario::context.
  Result<void> make_ranks(const Scenario& scenario);
  // Whether ranks take the op apart; then on each of them, and together.
  bool on_ranks(as_op_id op, int layer) const;
  Result<void> run_on_ranks(as_op_id op, int layer, const OpParams& params, const as_call& call);
  // The slab's rows are others: those of ranks too.
  void refill_ranks();
  Error device_failure(const Error& why);  // with the place; op() leaves the device over it
  OpContext op_context();
  // Scenario::ess.
  void make_tier(const Scenario& scenario);
  // Once the step's slots are known.
  Result<void> begin_tier();
  // Before exchange_rows: what its layer misses and where it lies.
  Result<void> look_up_rows();
  Result<void> select_rows(TokenPart tokens);
  // Whether an op is taken apart so that something runs while rows come; then in parts.
  bool overlaps(as_op_id op, int layer) const;
  bool changes_layer(int layer) const;  // change_ has an op of it
  Result<void> run_overlapped(int layer, const OpParams& params, const as_call& call, bool seen);
  void time_travel(int published);
  void finish_step();
  // Before the first op of a layer that drafts.
  void begin_drafts();
  bool in_draft_layer() const {
    return cursor_.layer >= 0 && cursor_.layer == parts_.graph->draft_layer;
  }
  void verify_drafts();
  // Once the step has ended: what its requests got, and whether it left what it left before.
  void check_step();
  // Going back has brought the bytes of a step.
  void check_restored();
  ReplayWatch::State replay_state() const;
  bool keeps_digests() const {
    return rewind_every_ > 0 && verifier_->references() != References::kNone;
  }
  void embed();
  // The recorded rows take the place of what attn_norm gave.
  void replay_input();
  Result<void> advance_cursor();
  Result<void> end_step();  // once its references have said all
  // Of the op that ran last. Not at the start of step 0.
  Cursor cursor_before() const;
  void save_rewind_point();
  std::unique_ptr<RewindPoint> make_rewind_point() const;
  void restore(const RewindPoint& rewind_point);
  // Content of the blocks and shadow that belong to a state of serving_.
  void restore_rows(const RewindPoint& rewind_point);
  // The records end before `step`; those of later steps wait in ahead_, or come from there.
  void cut_history(std::int64_t step);

  SessionParts parts_;
  Lane sim_lane_{}, exact_lane_{};
  std::vector<std::vector<float>> rope_tables_;
  std::unique_ptr<Threads> threads_;
  LaneSelector lanes_;                               // of the step in progress
  std::map<std::int64_t, LaneSelector> lanes_from_;  // by the step they begin with
  std::unique_ptr<Serving> serving_;
  InvariantGuard guard_;
  ProgressWatch progress_;
  std::optional<ServingJudge> judge_;
  WorkerTables tables_;
  std::unique_ptr<Slab> slab_;
  std::optional<HostTier> tier_;
  std::optional<RowOverlap> overlap_;
  std::unique_ptr<PartChecks> part_checks_;
  SwapSpace swapped_;
  std::vector<std::int64_t> swap_blocks_;  // of the op that moves some, by move
  std::vector<std::uint8_t> swap_staged_;
  std::unique_ptr<ContextParallel> context_;
  std::unique_ptr<ContextChecks> context_checks_;
  std::unique_ptr<AddressSpace> space_;
  std::unique_ptr<Verifier> verifier_;
  std::optional<TokenWatch> token_watch_;
  ReplayWatch replay_watch_;
  std::vector<std::string> replay_faults_;
  std::shared_ptr<ComputeDevice> compute_device_;
  std::unique_ptr<DeviceRun> device_;
  std::optional<LaneSelector> cpu_lanes_;
  std::optional<Error> device_error_;
  bool device_failed_ = false;  // the error of the op that just ran is the device's
  bool whole_step_ = false;     // nobody stops inside the step
  bool op_times_ = false;       // SessionOptions
  bool serial_ = false;         // SessionOptions
  bool judge_waits_ = false;    // what was decided is not judged yet
  // By tokens, with and without lists.
  std::map<std::pair<std::int64_t, bool>, PlannedRecord> planned_records_;
  Frame frame_{Frame::Kind::kEngine};
  AdversarialLists adversarial_;
  TensorParallelSum tensor_parallel_{parts_, Frame::Kind::kEngine};
  StepMetadata metadata_;
  StepHost host_;
  bool decided_ = false;             // schedule() of this step has run
  bool fresh_waits_ = false;         // its fresh blocks hold what they held before
  std::optional<Error> plan_error_;  // what it decided cannot be computed
  double deciding_seconds_ = 0;
  double launched_at_ = 0;  // seconds of the step's ops before its plan was started
  bool in_step_ = false;    // begin() ran and finish_step() did not
  Cursor cursor_;
  StepRecord current_;
  std::vector<StepRecord> history_;
  std::deque<StepRecord> ahead_;  // of steps after history_ that ran before the session went back
  std::unique_ptr<RewindPoints> rewind_points_;
  std::int64_t rewind_every_ = 0;
  OpParams last_params_, last_called_;
  OpLaunches launches_;
  bool ran_any_ = false;
  std::atomic<bool> cancelled_{false};
  SessionObserver* observer_ = nullptr;
  std::function<Result<std::unique_ptr<SessionWitness>>()> witness_to_make_;
  std::unique_ptr<SessionWitness> witness_;
  Witnessed unwitnessed_;
  OpChange* change_ = nullptr;
  std::int64_t changed_from_ = 0;  // step that change_ began with
};

}  // namespace attnscope
