// A session whose layers select rows of host memory, through pools of rows on the device.
#include <fmt/format.h>

#include <cstring>

#include "engine/backend/call_op.h"
#include "engine/family/family.h"
#include "engine/model/numbers.h"
#include "engine/session/session.h"
#include "engine/session/step/between_ops.h"
#include "engine/session/step/op_change.h"
#include "engine/session/verify/part_checks.h"
#include "kernels/params/tensor_view.h"

namespace attnscope {

void Session::make_tier(const Scenario& scenario) {
  if (!parts_.config.host_rows) return;
  std::vector<int> layers;
  for (int i = 0; i < parts_.config.num_layers(); ++i) {
    if (parts_.graph->layer(i).find(AS_OP_EXCHANGE_ROWS) != nullptr) layers.push_back(i);
  }
  HostTierOptions options;
  options.policy = scenario.ess.policy;
  options.warm = scenario.ess.warm;
  options.first_block = serving_->end_block();
  std::int64_t rows = 0;
  for (const Request& request : serving_->requests()) {
    options.prompts.push_back(request.prompt_tokens);
    const CacheSpec& selected = *parts_.layout.find(layers.front(), CacheId{});
    rows += request.max_len() / selected.tokens_per_row;
  }
  options.rows = pool_rows(scenario.ess.ratio, rows);
  tier_.emplace(parts_.layout, std::move(layers), std::move(options));
  parts_.attend = scenario.ess.attend;
  overlap_.emplace(parts_);
}

Result<void> Session::begin_tier() {
  auto ok = tier_->begin_step(metadata_);
  if (ok) return ok;
  return Error{ok.error().code, fmt::format("step {}: {}", cursor_.step, ok.error().message),
               "give \"ess\" a larger ratio"};
}

Result<void> Session::look_up_rows() {
  const TokenPart all{0, metadata_.num_tokens_in_step()};
  return select_rows(changes_layer(cursor_.layer) ? all : overlap_->left(cursor_.layer, metadata_));
}

bool Session::changes_layer(int layer) const {
  return change_ != nullptr &&
         std::ranges::any_of(parts_.graph->layer(layer).ops(),
                             [&](as_op_id op) { return change_->changes(op, layer); });
}

bool Session::overlaps(as_op_id op, int layer) const {
  return overlap_ && layer >= 0 && !changes_layer(layer) &&
         overlap_->takes(op, layer, *tier_, metadata_);
}

Result<void> Session::run_overlapped(int layer, const OpParams& params, const as_call& call,
                                     bool seen) {
  // Ops run before their turn here: who still looks at what they write has to be done.
  if (auto ok = verifier_->settle(); !ok) return ok;
  verifier_->inputs_changed();  // some run on the host, perhaps
  const PagedSource source(parts_.layout, *slab_, metadata_, tier());
  RowOverlap::Calls calls;
  calls.op = [&](const OpParams& p, TokenPart tokens) {
    const std::string& lane = lanes_.lane(p.op());
    const as_op_fn function = lanes_.function(p.op());
    return device_ ? device_->run_part(lane, function, p, tokens, call)
                   : call_op(function, tokens_of(p, tokens).data(), call);
  };
  calls.travel = [&](const OpParams& p,
                     const std::function<Result<void>()>& meanwhile) -> Result<void> {
    const as_op_fn function = lanes_.function(p.op());
    if (device_) {
      return device_->travel(lanes_.lane(p.op()), function, layer, p, call, meanwhile);
    }
    if (auto ok = meanwhile(); !ok) return ok;
    return call_op(function, p.data(), call);
  };
  calls.merge = [&](const as_merge_states_params& merge) {
    if (!device_) return call_op(lanes_.merge(), &merge, call);
    return device_->run_beside(lanes_.merge_lane(), lanes_.merge(),
                               OpParams::of(AS_OP_MERGE_STATES, &merge), call);
  };
  calls.wrote = [&](const as_tensor& tensor) {
    if (device_) device_->residency().host_wrote(tensor);
  };
  calls.show = [&](const OpParams& p) {
    return device_ ? device_->residency().fetch(p) : Result<void>{};
  };
  calls.keeps_outputs = [&](as_op_id op) {
    return device_ != nullptr && lanes_.lane(op) == DeviceRun::kLane;
  };
  calls.params = [&](as_op_id op) -> Result<OpParams> {
    return layer_op_params(op, layer, op_context(), frame_, source);
  };
  calls.select = [&](TokenPart tokens) { return select_rows(tokens); };
  if (const BetweenOps* between = lanes_.between()) calls.between = between->parts;
  if (references() != References::kNone && (!device_ || seen)) {
    if (part_checks_ == nullptr) part_checks_ = std::make_unique<PartChecks>(parts_, *verifier_);
    calls.watch = part_checks_.get();
    part_checks_->begin_op(metadata_, lanes_.lane(params.op()));
  }
  auto ok = overlap_->run(params, layer, *tier_, metadata_, calls);
  return ok && device_ && seen ? device_->show(params) : ok;
}

void Session::time_travel(int published) {
  const RowOverlap::Travel& t = overlap_->travelled();
  if (t.seconds <= 0) return;
  current_.timings.push_back({AS_OP_EXCHANGE_ROWS, published, t.seconds * 1e6,
                              (current_.seconds + t.start) * 1e6, OpTiming::kExchange});
}

Result<void> Session::select_rows(TokenPart tokens) {
  const ModelGraph::Exchange& e = parts_.graph->exchange;
  const Node& topk = *std::ranges::find_if(
      parts_.graph->layer(cursor_.layer).nodes(),
      [](const Node& node) { return as_op_role(node.op()) == AS_ROLE_SELECT; });
  const as_tensor indices = frame_.get(topk.find("indices")->value);
  const as_tensor selected = frame_.get(e.selected);
  if (device_) {
    for (const as_tensor& t : {indices, selected}) {
      if (auto ok = device_->residency().fetch(t); !ok) return device_failure(ok.error());
    }
  }
  const int published = parts_.config.layers[to_size(cursor_.layer)];
  auto found = tier_->select(cursor_.layer, published, indices, selected, tokens);
  if (!found) {
    return Error{
        found.error().code,
        fmt::format("step {}, layer {}: {}", cursor_.step, published, found.error().message),
        "give \"ess\" a larger ratio"};
  }
  current_.pools = tier_->counts();
  const int layer = cursor_.layer;
  for (const auto& [value, tensor] : {std::pair{e.places, tier_->places(layer)},
                                      {e.fresh_from, tier_->fresh_from(layer)},
                                      {e.pages_to, tier_->pages_to(layer)},
                                      {e.missed_from, tier_->all(layer).missed_from()},
                                      {e.pool_to, tier_->all(layer).pool_to()}}) {
    const as_tensor given =
        frame_.make(value, tensor.dtype, std::span(tensor.shape, to_size(tensor.rank)));
    std::memcpy(given.data, tensor.data, tensor_bytes(tensor));
    if (device_) device_->residency().host_wrote(given);
  }
  return {};
}

}  // namespace attnscope
