// Blocks of preempted requests on their way to host memory and back: ops of the steps that move
// some, between what is decided and the tables.
#include <algorithm>

#include "engine/model/numbers.h"
#include "engine/session/session.h"
#include "engine/session/step/context_parallel.h"
#include "engine/trace/judged_taps.h"
#include "kernels/params/offload_params.h"
#include "kernels/params/tensor_view.h"

namespace attnscope {

bool Session::has_op(as_op_id op) const {
  if (op == AS_OP_SWAP_OUT) return !serving_->plan().swapped_out.empty();
  if (op == AS_OP_SWAP_IN) return !serving_->plan().swapped_in.empty();
  return true;
}

void Session::begin_fresh() {
  if (!fresh_waits_) return;
  fresh_waits_ = false;
  for (const std::int32_t block : serving_->step().fresh) {
    if (context_) context_->poison(block);
    slab_->poison(block);
  }
}

void Session::check_swapped_in() {
  for (const SwapMove& move : serving_->plan().swapped_in) {
    std::string misfit;
    if (swapped_.held(move, &misfit) != nullptr) continue;
    verifier_->found(judged_wrong(AS_OP_SCHEDULE, "swapped_in", 1, 1, std::move(misfit)));
    return;
  }
}

OpParams Session::swap_params(as_op_id op) {
  const bool out = op == AS_OP_SWAP_OUT;
  const StepPlan& plan = serving_->plan();
  const std::vector<SwapMove>& moves = out ? plan.swapped_out : plan.swapped_in;
  const std::int64_t stride = slab_->block_stride(), count = to_count(moves.size());
  swap_blocks_.assign(moves.size(), -1);
  swap_staged_.assign(to_size(count * stride), 0);
  for (std::size_t m = 0; m < moves.size(); ++m) {
    slab_->block(moves[m].block);  // its newest bytes are the host's
    const KeptBlock* kept = out ? nullptr : swapped_.held(moves[m]);
    if (out || kept != nullptr) swap_blocks_[m] = moves[m].block;
    if (kept == nullptr) continue;
    std::ranges::copy(kept->content,
                      swap_staged_.begin() + static_cast<std::ptrdiff_t>(m) * stride);
  }
  as_cache blocks{};
  blocks.data = make_tensor(slab_->base(), {slab_->num_blocks(), stride});
  blocks.record = AS_BLOCK_RECORD;
  blocks.addressing = AS_PAGED;
  blocks.rows_per_block = 1;
  blocks.width = static_cast<std::int32_t>(stride);
  const as_tensor ids = make_tensor(swap_blocks_.data(), {count});
  const as_tensor staged = make_tensor(swap_staged_.data(), {count, stride});
  OpParams params(op);
  if (out) {
    auto& p = params.get<as_swap_out_params>();
    p.blocks = blocks;
    p.from = ids;
    p.staged = staged;
  } else {
    auto& p = params.get<as_swap_in_params>();
    p.staged = staged;
    p.to = ids;
    p.blocks = blocks;
  }
  return params;
}

Result<void> Session::run_swap(as_op_id op) {
  OpParams params = swap_params(op);
  if (auto ok = run_op(op, -1, params); !ok) return ok;
  const StepPlan& plan = serving_->plan();
  if (op == AS_OP_SWAP_OUT) {
    swapped_.take_out(plan.swapped_out, params.get<as_swap_out_params>().staged);
    return {};  // until the next op what it read is there to be looked at
  }
  for (const std::int64_t block : swap_blocks_) {
    if (block >= 0) slab_->wrote(block);
  }
  swapped_.bring_back(plan.swapped_in, parts_.layout, *space_, verifier_->shadow());
  swapped_.forget_free(serving_->scheduler().host_blocks());
  refill_ranks();
  return {};
}

}  // namespace attnscope
