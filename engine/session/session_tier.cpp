// A session whose layers select rows of host memory, through pools of rows on the device.
#include <fmt/format.h>

#include <cstring>

#include "engine/family/family.h"
#include "engine/model/numbers.h"
#include "engine/session/session.h"
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
}

Result<void> Session::begin_tier() {
  auto ok = tier_->begin_step(metadata_);
  if (ok) return ok;
  return Error{ok.error().code, fmt::format("step {}: {}", cursor_.step, ok.error().message),
               "give \"ess\" a larger ratio"};
}

Result<void> Session::look_up_rows() {
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
  auto found = tier_->select(cursor_.layer, published, indices, selected);
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
                                      {e.missed_from, tier_->missed_from(layer)},
                                      {e.pool_to, tier_->pool_to(layer)}}) {
    const as_tensor given =
        frame_.make(value, tensor.dtype, std::span(tensor.shape, to_size(tensor.rank)));
    std::memcpy(given.data, tensor.data, tensor_bytes(tensor));
    if (device_) device_->residency().host_wrote(given);
  }
  return {};
}

}  // namespace attnscope
