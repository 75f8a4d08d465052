// Blocks of preempted requests on their way to host memory and back: ops of the steps that move
// some, between what is decided and the tables.
#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "engine/model/numbers.h"
#include "engine/session/session.h"
#include "engine/session/step/context_parallel.h"
#include "engine/session/verify/row_checks.h"
#include "engine/trace/judged_taps.h"
#include "kernels/params/offload_params.h"
#include "kernels/params/tensor_view.h"

namespace attnscope {
namespace {

struct LeftRows {
  std::int64_t rows = 0, changed = 0;
  std::string note;  // of the first that changed
};

// Rows of a block that has left against what was written there. Of a row that was written again
// elsewhere the record is another one.
void hold_rows(const SwapMove& move, const KeptBlock& kept, const Session& session,
               LeftRows& left) {
  const CacheLayout& layout = session.parts().layout;
  const Shadow& shadow = session.verifier().shadow();
  std::size_t at = 0;
  for (const int s : layout.groups[to_size(move.group)].specs) {
    const CacheSpec& spec = layout.specs[to_size(s)];
    const as_cache page =
        spec.cache(make_tensor(kept.content.data() + spec.offset, {1, spec.page_bytes}));
    for (std::int64_t r = 0; r < spec.rows_per_block; ++r, ++at) {
      const std::int64_t row = kept.marks.rows[at], step = kept.marks.steps[at];
      if (row < 0 || shadow.origin(spec, row) != row || shadow.written(spec, row) != step) continue;
      ++left.rows;
      if (shadow.matches(spec, page, r, row) || left.changed++ > 0) continue;
      left.note =
          fmt::format("{} no longer holds what was written for {} in step {}",
                      slot_of_cache(spec, std::int64_t{move.block} * spec.rows_per_block + r),
                      content_of(spec, session.verifier().space(), row), step);
    }
  }
}

// What swap_out has put out is what it read: whether that is what was written.
std::optional<TapResult> changed_before(const Session& session) {
  if (session.references() == References::kNone) return std::nullopt;
  for (const TapResult& r : session.current_results()) {
    if (r.op == AS_OP_SWAP_OUT && r.verdict == Verdict::kWrong) return std::nullopt;
  }
  LeftRows left;
  for (const SwapMove& move : session.serving().plan().swapped_out) {
    const KeptBlock* kept = session.swapped().held(move);
    if (kept != nullptr) hold_rows(move, *kept, session, left);
  }
  if (left.changed == 0) return std::nullopt;
  return judged_wrong(AS_OP_SWAP_OUT, "blocks.read", left.rows, left.changed, std::move(left.note));
}

}  // namespace

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
    if (auto changed = changed_before(*this)) verifier_->found(std::move(*changed));
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
