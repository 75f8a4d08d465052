#include "engine/session/step/row_overlap.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <limits>
#include <utility>

#include "engine/io/elapsed.h"
#include "engine/model/numbers.h"
#include "kernels/params/attention_params.h"
#include "kernels/params/offload_params.h"
#include "kernels/params/tensor_view.h"

namespace attnscope {
namespace {

TokenPart whole_range(const OpParams& exchange) {
  return {0, exchange.get<as_exchange_rows_params>().places.shape[0]};
}

// What hands on scores to the selection, the selection, and what lists its slots.
std::vector<as_op_id> selecting_ops(const LayerGraph& layer, ValueId selected) {
  std::vector<as_op_id> ops;
  const auto& nodes = layer.nodes();
  const auto topk = std::ranges::find_if(
      nodes, [](const Node& n) { return as_op_role(n.op()) == AS_ROLE_SELECT; });
  const auto makes = [](const Node& node, ValueId value) {
    return std::ranges::any_of(node.bindings(), [&](const Binding& b) {
      return b.is_output() && b.to == BoundTo::kValue && b.value == value;
    });
  };
  const ValueId scores = topk->find("logits")->value;
  for (const Node& node : nodes) {
    if (&node == &*topk || makes(node, scores) || makes(node, selected)) ops.push_back(node.op());
  }
  return ops;
}

}  // namespace

std::int64_t RowOverlap::cut(int layer, const StepMetadata& step) const {
  const int published = parts_.config.layers[to_size(layer)];
  return parts_.attend.of(published) == Overlap::kDba ? second_half(step.query_start_loc) : 0;
}

const Binding& RowOverlap::list_of(int layer) const {
  const ValueId slots = parts_.graph->exchange.slots;
  for (const Node& node : parts_.graph->layer(layer).nodes()) {
    if (as_op_role(node.op()) != AS_ROLE_ATTENTION) continue;
    for (const Binding& b : node.bindings()) {
      if (b.to == BoundTo::kValue && b.value == slots) return b;
    }
  }
  std::abort();  // a layer that exchanges rows attends to them
}

as_op_id RowOverlap::attention_of(int layer) const {
  const auto& nodes = parts_.graph->layer(layer).nodes();
  return std::ranges::find_if(nodes,
                              [](const Node& n) { return as_op_role(n.op()) == AS_ROLE_ATTENTION; })
      ->op();
}

bool RowOverlap::takes(as_op_id op, int layer, const HostTier& tier,
                       const StepMetadata& step) const {
  if (layer < 0 || !tier.has(layer)) return false;
  const int published = parts_.config.layers[to_size(layer)];
  const bool late = op == AS_OP_EXCHANGE_ROWS || as_op_role(op) == AS_ROLE_ATTENTION;
  if (parts_.attend.of(published) == Overlap::kDa) return late && tier.misses(layer);
  if (cut(layer, step) == 0) return false;
  const auto ops = selecting_ops(parts_.graph->layer(layer), parts_.graph->exchange.selected);
  return late || std::ranges::find(ops, op) != ops.end();
}

TokenPart RowOverlap::left(int layer, const StepMetadata& step) const {
  return {cut(layer, step), step.num_tokens_in_step()};
}

Result<void> RowOverlap::run(const OpParams& whole, int layer, const HostTier& tier,
                             const StepMetadata& step, const Calls& calls) {
  const as_op_id op = whole.op();
  const std::int64_t at = cut(layer, step);
  began_ = std::chrono::steady_clock::now();
  travelled_ = {};
  if (at == 0) {
    return op == AS_OP_EXCHANGE_ROWS ? exchange_dual(whole, layer, tier, calls)
                                     : attend_dual(whole, layer, calls);
  }
  if (op == AS_OP_EXCHANGE_ROWS) return exchange_halves(whole, layer, at, tier, calls);
  const auto ops = selecting_ops(parts_.graph->layer(layer), parts_.graph->exchange.selected);
  return op == ops.front() ? score_halves(whole, layer, at, tier, calls) : rest(whole, at, calls);
}

// Rows alone that come; nothing goes back.
Result<void> RowOverlap::travel(const OpParams& exchange, const HostTier::Moves& moves,
                                const Calls& calls,
                                const std::function<Result<void>()>& meanwhile) {
  OpParams call = exchange;
  auto& p = call.get<as_exchange_rows_params>();
  nobody_.assign(to_size(p.fresh_from.shape[0]), -1);
  from_ = moves.from;
  to_ = moves.to;
  p.fresh_from = p.pages_to = make_tensor(nobody_.data(), {to_count(nobody_.size())});
  p.missed_from = make_tensor(from_.data(), {to_count(from_.size())});
  p.pool_to = make_tensor(to_.data(), {to_count(to_.size())});
  for (const as_tensor* t : {&p.fresh_from, &p.missed_from, &p.pool_to}) calls.wrote(*t);
  auto ok = calls.travel(call, [&] {
    auto ran = meanwhile();
    travelled_.start = seconds_since(began_);
    return ran;
  });
  travelled_.seconds = seconds_since(began_) - travelled_.start;
  return ok;
}

// New rows, and those that fill the pool before its first step: who hits these reads them at once.
Result<void> RowOverlap::go_back(const OpParams& exchange, int layer, const HostTier& tier,
                                 const Calls& calls) {
  OpParams call = exchange;
  auto& p = call.get<as_exchange_rows_params>();
  p.missed_from = tier.warming(layer).missed_from();
  p.pool_to = tier.warming(layer).pool_to();
  for (const as_tensor* t : {&p.missed_from, &p.pool_to}) calls.wrote(*t);
  return calls.op(call, whole_range(call));
}

as_tensor RowOverlap::list(std::vector<std::int32_t>& slots, const OpParams& whole,
                           const Binding& tap, const Calls& calls) const {
  const as_tensor& like = whole.tensor(tap.tap->offset);
  const as_tensor made = make_tensor(slots.data(), {like.shape[0], like.shape[1]});
  calls.wrote(made);
  return made;
}

Result<void> RowOverlap::exchange_dual(const OpParams& whole, int layer, const HostTier& tier,
                                       const Calls& calls) {
  if (auto ok = go_back(whole, layer, tier, calls); !ok) return ok;
  auto attention = calls.params(attention_of(layer));
  if (!attention) return attention.error();
  tier.split(layer, whole.get<as_exchange_rows_params>().selected, resident_, missed_);
  OpParams& part = resident_call_ = *attention;
  const Binding& tap = list_of(layer);
  part.tensor(tap.tap->offset) = list(resident_, part, tap, calls);
  for (const auto& [name, memory] : {std::pair{"o", &o_[0]}, {"lse", &lse_[0]}}) {
    as_tensor& out = part.tensor_named(name);
    out = memory->make_like(out.dtype, out);
  }
  return travel(whole, tier.missing(layer), calls,
                [&] { return calls.op(part, whole_range(whole)); });
}

Result<void> RowOverlap::merge_parts(const as_tensor& o_a, const as_tensor& lse_a,
                                     const as_tensor& o_b, const as_tensor& lse_b,
                                     const as_tensor& sinks, const as_tensor& o,
                                     const as_tensor& lse, Scratch (&memory)[5],
                                     const Merging& how) {
  const std::int64_t tokens = lse.shape[0], heads = lse.shape[1];
  // States without values, for their LSE alone.
  const as_tensor nothing = memory[0].make(AS_F32, {tokens, heads, 1});
  std::memset(nothing.data, 0, tensor_bytes(nothing));
  if (how.made) how.made(nothing);
  const auto call = [&](const as_tensor& a, const as_tensor& of_a, const as_tensor& b,
                        const as_tensor& of_b, const as_tensor& out, const as_tensor& sum,
                        bool of_parts) {
    OpParams params;
    auto& p = params.init<as_merge_states_params>(AS_OP_MERGE_STATES);
    p.a = a, p.lse_a = of_a, p.b = b, p.lse_b = of_b, p.out = out, p.lse = sum;
    return how.merge(p, of_parts);
  };
  as_tensor weight = lse_a;
  const as_tensor values = memory[1].make(AS_F32, {tokens, heads, 1});
  if (present(sinks)) {
    const as_tensor of_sinks = memory[2].make(AS_F32, {tokens, heads});
    for (std::int64_t t = 0; t < tokens; ++t) {
      for (std::int64_t h = 0; h < heads; ++h) {
        *at<float>(of_sinks, t, h) = *at<float>(sinks, h);
      }
    }
    if (how.made) how.made(of_sinks);
    weight = memory[3].make(AS_F32, {tokens, heads});
    auto ok = call(nothing, lse_a, nothing, of_sinks, values, weight, false);
    if (!ok) return ok;
  }
  const as_tensor with_sinks = memory[4].make(AS_F32, {tokens, heads});
  if (!present(sinks)) return call(o_a, lse_a, o_b, lse_b, o, lse, true);
  if (auto ok = call(o_a, weight, o_b, lse_b, o, with_sinks, true); !ok) return ok;
  return call(nothing, lse_a, nothing, lse_b, values, lse, false);
}

Result<void> RowOverlap::attend_dual(const OpParams& whole, int layer, const Calls& calls) {
  OpParams part = whole;
  const Binding& tap = list_of(layer);
  part.tensor(tap.tap->offset) = list(missed_, part, tap, calls);
  for (const auto& [name, memory] : {std::pair{"o", &o_[1]}, {"lse", &lse_[1]}}) {
    as_tensor& out = part.tensor_named(name);
    out = memory->make_like(out.dtype, out);
  }
  // Windows and sinks are the other part's.
  as_tensor sinks = no_tensor();
  if (part.op() == AS_OP_SPARSE_ATTENTION) {
    auto& p = part.get<as_sparse_attention_params>();
    sinks = p.sinks;
    none_.assign(to_size(p.topk_length.shape[0]), 0);
    p.topk_length = make_tensor(none_.data(), {to_count(none_.size())});
    calls.wrote(p.topk_length);
    no_sinks_.assign(to_size(p.sinks.shape[0]), -std::numeric_limits<float>::infinity());
    p.sinks = make_tensor(no_sinks_.data(), {to_count(no_sinks_.size())});
    calls.wrote(p.sinks);
    p.prefill = p.plan_rows = p.plan_splits = no_tensor();
  }
  const OpParams right = part;
  if (calls.between != nullptr && calls.between->missed != nullptr) {
    calls.between->missed(whole, part);
  }
  OpParams out = whole;
  const as_tensor o = out.tensor_named("o"), lse = out.tensor_named("lse");
  if (auto ok = calls.op(part, {0, lse.shape[0]}); !ok) return ok;
  Merging how{.made = calls.wrote};
  how.merge = [&](as_merge_states_params& merge, bool of_parts) {
    const BetweenParts* between = of_parts ? calls.between : nullptr;
    if (between != nullptr && between->merging != nullptr) between->merging(merge);
    return calls.merge(merge);
  };
  OpParams& resident = resident_call_;
  auto ok =
      merge_parts(resident.tensor_named("o"), resident.tensor_named("lse"), part.tensor_named("o"),
                  part.tensor_named("lse"), sinks, o, lse, merge_, how);
  if (!ok || calls.watch == nullptr) return ok;
  for (const OpParams* one : {&std::as_const(resident), &right, &whole}) {
    if (ok = calls.show(*one); !ok) return ok;
  }
  if (ok = calls.watch->attended(layer, resident, "resident"); !ok) return ok;
  if (ok = calls.watch->attended(layer, right, "missed"); !ok) return ok;
  return calls.watch->merged(layer, whole, resident, right);
}

void RowOverlap::keep(const OpParams& whole, std::int64_t cut, const Calls& calls) {
  std::erase_if(kept_, [&](const Kept& kept) { return kept.op == whole.op(); });
  if (calls.keeps_outputs(whole.op())) return;
  Kept& kept = kept_.emplace_back(Kept{whole.op(), {}});
  each_row_output(tokens_of(whole, {0, cut}), [&](const as_tensor& rows) {
    const auto* first = static_cast<const std::byte*>(rows.data);
    kept.rows.emplace_back(first, first + tensor_bytes(rows));
  });
}

void RowOverlap::bring_back(const OpParams& whole, std::int64_t cut) const {
  const auto kept = std::ranges::find(kept_, whole.op(), &Kept::op);
  if (kept == kept_.end()) return;
  auto from = kept->rows.begin();
  each_row_output(tokens_of(whole, {0, cut}), [&](const as_tensor& rows) {
    std::ranges::copy(*from++, static_cast<std::byte*>(rows.data));
  });
}

Result<void> RowOverlap::score_halves(const OpParams& whole, int layer, std::int64_t cut,
                                      const HostTier& tier, const Calls& calls) {
  const TokenPart first{0, cut};
  if (auto ok = calls.op(whole, first); !ok) return ok;
  const auto ops = selecting_ops(parts_.graph->layer(layer), parts_.graph->exchange.selected);
  for (const as_op_id op : ops) {
    if (op == whole.op()) continue;
    const auto params = calls.params(op);
    if (!params) return params.error();
    if (auto ok = calls.op(*params, first); !ok) return ok;
    keep(*params, cut, calls);
  }
  if (auto ok = calls.select(first); !ok) return ok;
  const auto exchange = calls.params(AS_OP_EXCHANGE_ROWS);
  if (!exchange) return exchange.error();
  if (auto ok = go_back(*exchange, layer, tier, calls); !ok) return ok;
  const TokenPart second{cut, whole_range(*exchange).end};
  return travel(*exchange, tier.missing(layer), calls, [&] { return calls.op(whole, second); });
}

Result<void> RowOverlap::rest(const OpParams& whole, std::int64_t cut, const Calls& calls) {
  bring_back(whole, cut);
  std::int64_t tokens = cut;
  each_row_output(whole, [&](const as_tensor& rows) { tokens = rows.shape[0]; });
  return calls.op(whole, {cut, tokens});
}

Result<void> RowOverlap::exchange_halves(const OpParams& whole, int layer, std::int64_t cut,
                                         const HostTier& tier, const Calls& calls) {
  auto attention = calls.params(attention_of(layer));
  if (!attention) return attention.error();
  tier.split(layer, whole.get<as_exchange_rows_params>().selected, resident_, missed_);
  for (std::size_t i = 0; i < missed_.size(); ++i) {
    resident_[i] = std::max(resident_[i], missed_[i]);
  }
  const Binding& tap = list_of(layer);
  OpParams part = *attention;
  part.tensor(tap.tap->offset) = list(resident_, part, tap, calls);
  auto ok = travel(whole, tier.missing(layer), calls, [&] { return calls.op(part, {0, cut}); });
  keep(*attention, cut, calls);
  return ok;
}

}  // namespace attnscope
