// The verifier's references that run free.
#include "engine/session/step/op_change.h"
#include "engine/session/verify/forced_copy.h"
#include "engine/session/verify/free_run.h"
#include "engine/session/verify/judging.h"
#include "engine/session/verify/reference_call.h"
#include "engine/session/verify/row_checks.h"
#include "kernels/params/op_table.h"
#include "kernels/params/tensor_view.h"

namespace attnscope {

std::vector<History*> Verifier::free_histories() const {
  return {free_sim_ ? &free_sim_->history : nullptr, free_exact_ ? &free_exact_->history : nullptr};
}

const History* Verifier::free_history(bool exact) const {
  const auto& run = exact ? free_exact_ : free_sim_;
  return run ? &run->history : nullptr;
}

const OpParams* Verifier::free_params(bool exact) const {
  const auto& run = exact ? free_exact_ : free_sim_;
  return run && run->ran ? &run->last : nullptr;
}

OpContext Verifier::free_context() const {
  OpContext context;
  context.graph = parts_.graph.get();
  context.config = &parts_.config;
  context.weights = parts_.weights.get();
  context.ropes = &parts_.ropes;
  context.positions = make_tensor(step_->positions.data(), {step_->num_tokens_in_step()});
  context.token_to_req = make_tensor(step_->token_to_req.data(), {step_->num_tokens_in_step()});
  context.seq_lens = make_tensor(step_->seq_lens.data(), {step_->num_live()});
  context.query_start_loc = make_tensor(step_->query_start_loc.data(), {step_->num_live() + 1});
  context.source_lens = make_tensor(step_->source_lens.data(), {step_->num_live()});
  context.logits_width = step_->logits_width();
  return context;
}

OpParams Verifier::free_inputs(int layer, as_op_id op) const {
  const LogicalSource source(parts_.layout, free_sim_->history, logical_, step_->list_columns);
  return layer_op_params(op, layer, free_context(), free_sim_->frame, source);
}

Result<void> Verifier::run_one_free(const Judging& j, FreeRun& run) {
  const as_op_id op = j.params.op();
  const int layer = j.layer;
  run.ran = as_op_find(op)->phase != AS_PHASE_BEFORE && op != AS_OP_SAMPLE;
  if (!run.ran) return {};
  const ModelGraph& graph = *parts_.graph;
  if (op == AS_OP_EXCHANGE_ROWS) {  // it has no pages, and so nothing to move between
    run.frame.share(graph.exchange.slots, graph.exchange.selected);
    run.ran = false;
    return {};
  }
  const LogicalSource source(parts_.layout, run.history, logical_, step_->list_columns);
  const OpContext context = free_context();
  const bool drafts = layer >= 0 && layer == graph.draft_layer;
  if (op == graph.after.ops().front()) gather_last(graph, run.frame, *step_, drafts);
  if (op == graph.sum.read_by) {
    TensorParallelSum::Runner runner;
    runner.op = [&](int, int rank, const OpParams& params) {
      auto ok = call_reference(run.lane, params, j.call);
      if (ok) follow_shared(layer, params, rank, run.history);
      return ok;
    };
    runner.fetch = [](const as_tensor&) { return Result<void>(); };
    runner.wrote = [](const as_tensor&) {};
    if (auto ok = run.tensor_parallel.sum(layer, context, run.frame, source, runner); !ok)
      return ok;
  }
  run.last = layer_op_params(op, layer, context, run.frame, source);
  if (lists_selected(op)) {
    logical_top_k_slots(run.last.get<as_topk_to_slots_params>(), logical_);
    return {};
  }
  if (change_ != nullptr && change_->changes(op, layer)) {
    OpParams changed = run.last;
    change_->change_reference(layer, run.frame.kind() == Frame::Kind::kExact, changed);
    as_call how = j.call;
    how.weights = 0;
    if (auto ok = call_reference(run.lane, changed, how); !ok) return ok;
  } else if (auto ok = call_reference(run.lane, run.last, j.call); !ok) {
    return ok;
  }
  if (free_watch_) free_watch_(layer, run.last, run.frame.kind() == Frame::Kind::kExact);
  if (layer >= 0 && !drafts && op == graph.layer(layer).ops().back()) {
    run.frame.swap(graph.hidden, graph.hidden_out);
  }
  return {};
}

void Verifier::follow_shared(int layer, const OpParams& params, int peer, History& history) const {
  const as_op_info& info = params.info();
  for (std::uint32_t i = 0; i < info.num_taps && !prefix_reuse_.empty(); ++i) {
    const as_tap_info& tap = info.taps[i];
    if (tap.direction != AS_TAP_OUT || !params.has_cache(tap)) continue;
    const CacheSpec& spec = spec_of(layer, params, tap, peer);
    if (spec.peer == peer) prefix_reuse_.follow(spec, shadow_, history);
  }
}

void Verifier::measure_tap(Judging& j, std::uint32_t index, const as_threads* threads) const {
  const OpParams& params = j.params;
  const as_tap_info& tap = params.info().taps[index];
  FreeFigures& result = j.figures[index];
  if (free_sim_ == nullptr || tap.kind == AS_TAP_CACHE) return;
  const as_op_id op = params.op();
  if (params.info().phase == AS_PHASE_BEFORE || op == AS_OP_SAMPLE) return;
  if (op == AS_OP_EXCHANGE_ROWS) return;
  const as_tensor& value = params.tensor(tap.offset);
  const as_tensor& sim = j.free_sim.tensor(tap.offset);
  if (as_op_role(op) == AS_ROLE_SELECT) {
    const auto& p = params.get<as_indexer_topk_params>();
    const auto& q = j.free_sim.get<as_indexer_topk_params>();
    result.selection =
        selection_drift(p.indices, p.logits, q.indices, q.logits, at<std::int32_t>(p.lens));
    return;
  }
  if (!is_float(value.dtype) || !is_float(sim.dtype)) return;
  const TapMask mask = mask_of(params.data(), tap);
  result.inherited = measure(value, sim, mask, threads);
  if (free_exact_ == nullptr) return;
  const as_tensor& exact = j.free_exact.tensor(tap.offset);
  // Those of ref.exact carry no scale.
  if (is_float(exact.dtype) && !carries_scale(tap, value)) {
    result.quantisation = measure(sim, exact, mask, threads);
  }
}

}  // namespace attnscope
