// When the verifier's references judge an op: at once, or while the engine goes on.
#include <algorithm>
#include <array>
#include <condition_variable>
#include <exception>
#include <iterator>
#include <mutex>
#include <utility>

#include "engine/session/step/listed_attention.h"
#include "engine/session/verify/beside.h"
#include "engine/session/verify/forced_run.h"
#include "engine/session/verify/free_run.h"
#include "engine/session/verify/judging.h"
#include "engine/session/verify/verifier.h"
#include "kernels/cpu/thread_pool.h"
#include "kernels/params/op_table.h"
#include "kernels/params/tensor_view.h"

namespace attnscope {
namespace {

// Ops that wait to be judged. What they read of the shadow stays as it is: in a step an op writes
// to a cache before others read it, once, and a step ends when all are judged.
constexpr std::size_t kMostBehind = 12;
// Ops that references have computed freely and that are not measured: fewer than it takes until
// they write to the same tensors again.
constexpr std::size_t kMostUnmeasured = 2;

}  // namespace

// Each with loops of its own beside those of the engine's thread.
struct Verifier::Helpers {
  explicit Helpers(int num_threads)
      : forced_pools{cpu::ThreadPool(num_threads), cpu::ThreadPool(num_threads)},
        free_pool(num_threads),
        weights_pool((num_threads + 1) / 2) {}

  // Ops depend on one another by the engine's numbers alone: who has less to do takes the next one.
  std::size_t next_forced() const { return forced[1].left() < forced[0].left() ? 1 : 0; }

  // A loop that finds its pool at another one runs alone.
  std::array<cpu::ThreadPool, 2> forced_pools;
  cpu::ThreadPool free_pool, weights_pool;
  std::mutex mutex;
  std::condition_variable done;  // with some of what is judged
  // Threads end before what they use, and before those that they set to work.
  std::array<Beside, 2> forced;
  Beside measured;
  Beside free;
  Beside weights;
};

Verifier::Verifier(const SessionParts& parts, References references, const AddressSpace& space,
                   std::int64_t num_blocks, std::int64_t first_block, bool lags)
    : parts_(parts),
      references_(references),
      space_(space),
      shadow_(parts.layout, space, num_blocks, first_block),
      prefix_reuse_(space_),
      unchanged_(parts.threads),
      sums_(parts) {
  if (references_ != References::kNone) {
    free_sim_ = std::make_unique<FreeRun>(parts.sim, parts, space, false);
  }
  if (references_ == References::kBoth) {
    free_exact_ = std::make_unique<FreeRun>(parts.exact, parts, space, true);
  }
  // Peers, recorded inputs, drafts and lists that try a lane change what is seen between two ops.
  const bool alone = parts.ranks.size() == 1 && !parts.context.splits() &&
                     parts.inputs == nullptr && parts.graph->draft_layer < 0 &&
                     !parts.adversarial_lists;
  if (lags && alone && free_sim_ != nullptr) {
    helpers_ = std::make_unique<Helpers>(std::max(1, parts.threads->num_threads));
  }
  const std::size_t threads = helpers_ != nullptr ? helpers_->forced.size() : 1;
  for (std::size_t i = 0; i < threads; ++i) {
    forced_.push_back(std::make_unique<ForcedRun>(parts.layout, shadow_));
  }
  last_forced_ = forced_.front().get();
  if (references_ != References::kNone) begin_weights();
}

Verifier::~Verifier() { drop_judging(); }

void Verifier::begin_weights() {
  if (helpers_ != nullptr) helpers_->weights.wait();
  weights_.emplace(parts_, helpers_ != nullptr ? helpers_->weights_pool.handle() : parts_.threads);
}

void Verifier::look_at_embedding() {
  if (helpers_ != nullptr) helpers_->weights.wait();
  if (auto r = weights_->before_embedding(step_->tokens)) given(-1, std::move(*r));
}

void Verifier::look_at_weights(int layer, const OpParams& params) {
  if (helpers_ == nullptr) {
    for (TapResult& r : weights_->before(layer, params)) given(layer, std::move(r));
    return;
  }
  look_ = std::make_shared<WeightLook>();
  look_->layer = layer;
  look_->place = results_.size();
  helpers_->weights.start([this, look = look_, params] {
    try {
      look->found = weights_->before(look->layer, params);
    } catch (...) {
      look->thrown = std::current_exception();
    }
  });
}

std::unique_ptr<Judging> Verifier::judging_of(int layer, const OpParams& params,
                                              const std::string& lane, int peer) {
  auto j = std::make_unique<Judging>();
  if (spare_.empty()) spare_.push_back(std::make_unique<JudgingMemory>());
  j->memory = std::move(spare_.back());
  spare_.pop_back();
  j->layer = layer;
  j->peer = peer;
  j->params = params;
  j->lane = lane;
  j->call = host_call(parts_.threads);
  j->call.weights = weights_ ? weights_->number() : 0;
  j->bad_rows = bad_rows_;
  j->huge = huge_inputs_;
  j->figures.resize(params.info().num_taps);
  j->run = forced_.front().get();
  return j;
}

Result<void> Verifier::judge_forced(Judging& j) {
  if (references_ != References::kNone) {
    j.forced = run_forced(j);
    if (!j.forced) return {};
  }
  const as_op_info& info = j.params.info();
  for (std::uint32_t i = 0; i < info.num_taps; ++i) {
    const as_tap_info& tap = info.taps[i];
    if (tap.direction != AS_TAP_OUT) continue;
    if (tap.kind == AS_TAP_TENSOR && !present(j.params.tensor(tap.offset))) continue;
    if (tap.kind == AS_TAP_CACHE && !j.params.has_cache(tap)) continue;
    const bool of_another = tap.kind == AS_TAP_CACHE && j.peer >= 0 &&
                            spec_of(j.layer, j.params, tap, j.peer).peer != j.peer;
    if (of_another) continue;
    if (auto ok = compare_tap(j, i); !ok) return ok;
  }
  return {};
}

void Verifier::run_free(Judging& j) {
  for (FreeRun* run : {free_sim_.get(), free_exact_.get()}) {
    if (run == nullptr) continue;
    j.free = run_one_free(j, *run);
    if (!j.free) return;
    (run == free_sim_.get() ? j.free_sim : j.free_exact) = run->last;
  }
}

void Verifier::measure_free(Judging& j, const as_threads* threads) const {
  const as_op_info& info = j.params.info();
  for (std::uint32_t i = 0; i < info.num_taps; ++i) {
    const as_tap_info& tap = info.taps[i];
    if (tap.direction != AS_TAP_OUT || tap.kind == AS_TAP_CACHE) continue;
    if (present(j.params.tensor(tap.offset))) measure_tap(j, i, threads);
  }
}

bool Verifier::may_lag(const Judging& j) const {
  return helpers_ != nullptr && references_ != References::kNone && change_ == nullptr &&
         j.params.info().phase != AS_PHASE_BEFORE && !j.bad_rows && prefix_reuse_.empty();
}

Result<void> Verifier::judge(int layer, const OpParams& params, const std::string& lane) {
  auto judging = judging_of(layer, params, lane);
  const bool lags = may_lag(*judging);
  if (auto ok = lags ? Result<void>() : settle(); !ok) return ok;
  judging_.push_back(std::move(judging));
  Judging& j = *judging_.back();
  j.place = results_.size();
  j.look = std::move(look_);
  gather_written(j);
  if (!lags) {
    if (helpers_ != nullptr) helpers_->weights.wait();
    if (weights_) j.call.weights = weights_->number();
    j.compared = judge_forced(j);
    if (j.forced && references_ != References::kNone) {
      run_free(j);
      if (j.free) measure_free(j, parts_.threads);
    }
    return settle();
  }
  j.copied = j.memory->copies.take(
      j.params, [this](const as_tensor& t) { return weights_->watches(t.data); });
  j.at_work = 2;
  const auto start = [this, &j](Beside& thread, auto work) {
    thread.start([this, &j, work] {
      std::exception_ptr thrown;
      try {
        work();
      } catch (...) {
        thrown = std::current_exception();
      }
      const std::lock_guard lock(helpers_->mutex);
      if (thrown != nullptr) j.thrown = thrown;
      --j.at_work;
      helpers_->done.notify_all();
    });
  };
  // References read the weights as they are: as soon as it is known whether they are others.
  helpers_->weights.start([this, &j, start] {
    j.call.weights = weights_->number();
    const std::size_t thread = helpers_->next_forced();
    j.call.threads = helpers_->forced_pools[thread].handle();
    j.run = forced_[thread].get();
    start(helpers_->forced[thread], [this, &j] { j.compared = judge_forced(j); });
    start(helpers_->free, [this, &j, start] {
      helpers_->measured.wait(kMostUnmeasured);
      run_free(j);
      if (!j.free) return;
      {
        const std::lock_guard lock(helpers_->mutex);
        ++j.at_work;
      }
      start(helpers_->measured, [this, &j] { measure_free(j, helpers_->free_pool.handle()); });
    });
  });
  while (judging_.size() > kMostBehind) {
    if (auto ok = settle_first(); !ok) return ok;
  }
  return {};
}

Result<void> Verifier::settle_in_place(const OpParams& op, bool apart) {
  std::size_t waits = 0;
  for (std::size_t i = 0; i < judging_.size(); ++i) {
    const Judging& j = *judging_[i];
    if (!j.copied && (!apart || writes_to(op, j.params))) waits = i + 1;
  }
  for (; waits > 0; --waits) {
    if (auto ok = settle_first(); !ok) return ok;
  }
  return {};
}

Result<void> Verifier::settle() {
  while (!judging_.empty()) {
    if (auto ok = settle_first(); !ok) return ok;
  }
  return {};
}

void Verifier::drop_judging() {
  if (helpers_ != nullptr) {
    helpers_->weights.wait();
    for (Beside& thread : helpers_->forced) thread.wait();
    helpers_->free.wait();
    helpers_->measured.wait();
  }
  judging_.clear();
  look_ = nullptr;
}

void Verifier::insert_given(WeightLook& look) {
  for (TapResult& result : look.found) say_where(look.layer, result);
  results_.insert(results_.begin() + static_cast<std::ptrdiff_t>(look.place),
                  std::make_move_iterator(look.found.begin()),
                  std::make_move_iterator(look.found.end()));
}

Result<void> Verifier::settle_first() {
  if (helpers_ != nullptr) {
    std::unique_lock lock(helpers_->mutex);
    helpers_->done.wait(lock, [this] { return judging_.front()->at_work == 0; });
  }
  const std::unique_ptr<Judging> judged = std::move(judging_.front());
  judging_.pop_front();
  Judging& j = *judged;
  last_forced_ = j.run;
  if (j.look != nullptr && j.look->thrown != nullptr) j.thrown = j.look->thrown;
  if (j.thrown != nullptr || !j.forced || !j.free) {
    drop_judging();
    if (j.thrown != nullptr) std::rethrow_exception(j.thrown);
    return j.forced ? j.free : j.forced;
  }
  const as_op_info& info = j.params.info();
  for (std::uint32_t i = 0; i < info.num_taps; ++i) {
    const as_tap_info& tap = info.taps[i];
    if (tap.direction != AS_TAP_OUT || !j.params.has_rows(tap)) continue;
    share_rows(j.params, tap, spec_of(j.layer, j.params, tap), free_histories());
  }
  for (std::size_t i = 0; i < j.results.size(); ++i) {
    FreeFigures& free = j.figures[j.taps[i]];
    TapResult& result = j.results[i];
    result.inherited = free.inherited;
    result.selection = free.selection;
    if (!result.quantisation) result.quantisation = free.quantisation;
  }
  results_.insert(results_.begin() + static_cast<std::ptrdiff_t>(j.place),
                  std::make_move_iterator(j.results.begin()),
                  std::make_move_iterator(j.results.end()));
  std::size_t added = j.results.size();
  if (j.look != nullptr) {
    added += j.look->found.size();
    j.place += j.look->found.size();
    insert_given(*j.look);
  }
  for (const auto& later : judging_) {
    later->place += added;
    if (later->look != nullptr) later->look->place += added;
  }
  if (look_ != nullptr) look_->place += added;
  if (j.swapped) {
    swapped_ = std::move(*j.swapped);
    swapped_result_ = j.place + j.swapped_result;
  }
  if (!j.compared) {
    drop_judging();
    return j.compared;
  }
  if (ListedAttention::of(j.params.op())) weigh_swaps(j.params);
  spare_.push_back(std::move(j.memory));
  return {};
}

}  // namespace attnscope
