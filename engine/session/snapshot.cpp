#include "engine/session/snapshot.h"

#include <algorithm>

#include "engine/family/models.h"
#include "engine/session/place.h"

namespace attnscope {
namespace {

// Element of a list ascending by step.
template <class T>
const T* at_step(const std::vector<std::shared_ptr<const T>>& list, std::int64_t step) {
  const auto it =
      std::ranges::lower_bound(list, step, {}, [](const auto& item) { return item->step; });
  return it != list.end() && (*it)->step == step ? it->get() : nullptr;
}

}  // namespace

const StepTrace* Snapshot::trace(std::int64_t step) const { return at_step(traces, step); }
const StepSummary* Snapshot::summary(std::int64_t step) const { return at_step(steps, step); }
const OpCost* Snapshot::cost(const Place& place) const {
  const auto at = std::ranges::find(costs, place, &OpCost::place);
  return at == costs.end() ? nullptr : &*at;
}

std::vector<RequestView> request_views(const Session& session) {
  const auto groups = static_cast<int>(session.parts().layout.groups.size());
  std::vector<RequestView> views;
  for (const Request& request : session.serving().requests()) {
    RequestView& view = views.emplace_back(RequestView{request, {}});
    for (int g = 0; g < groups; ++g) {
      const auto table = session.serving().table(request.id, g);
      view.tables.emplace_back(table.begin(), table.end());
    }
  }
  return views;
}

std::shared_ptr<const SessionInfo> session_info(const Session& session) {
  auto info = std::make_shared<SessionInfo>();
  const SessionParts& parts = session.parts();
  info->config = parts.config;
  info->layout = build_cache_layout(parts.config);  // without those of peers
  info->num_blocks = session.serving().end_block();
  info->first_block = session.serving().first_block();
  info->block_stride = session.slab().own_bytes();
  info->limits = session.serving().limits();
  info->draft_tokens = session.serving().options().drafts.tokens;
  info->lanes = session.lanes().description();
  for (int op = 0; op < AS_OP_COUNT; ++op) {
    info->lane_of.push_back(session.lanes().lane(static_cast<as_op_id>(op)));
  }
  info->references = session.references();
  for (const Request& request : session.serving().requests()) {
    info->request_names.push_back(request.name);
    info->prompt_tokens.push_back(request.prompt_tokens);
  }
  for (const LayerGraph& layer : parts.graph->layers) info->ops.push_back(layer.ops());
  info->ops_before = parts.graph->before.ops();
  info->ops_after = parts.graph->after.ops();
  info->drift_limit = parts.tolerances.drift_limit();
  info->weights_read = parts.weights_read;
  return info;
}

std::shared_ptr<const Snapshot> take_snapshot(const Session& session, const TraceRecorder& recorder,
                                              std::shared_ptr<const SessionInfo> info,
                                              std::uint64_t version) {
  auto snapshot = std::make_shared<Snapshot>();
  snapshot->version = version;
  snapshot->info = std::move(info);
  snapshot->cursor = session.cursor();
  snapshot->next_op = session.next_op();
  const int layer = session.cursor().layer;
  const std::vector<int>& layers = session.parts().config.layers;
  snapshot->next_layer = layer >= 0 ? layers[static_cast<std::size_t>(layer)] : -1;
  snapshot->last = last_place(session);
  snapshot->finished = session.finished();
  snapshot->decoding = session.decoding();
  snapshot->requests = request_views(session);
  snapshot->owners = session.serving().owners();
  snapshot->free_blocks = session.serving().num_free();
  snapshot->invariants = session.guard().level();
  snapshot->invariant_steps = session.guard().steps();
  snapshot->invariant_seconds = session.guard().seconds();
  snapshot->violation = session.guard().violation();
  snapshot->decisions = session.judge().counts();
  snapshot->wrong_decision = session.judge().wrong();
  if (session.references() != References::kNone) {
    snapshot->unwitnessed = unwitnessed_text(session.witnessed());
  }
  snapshot->steps = recorder.summaries();
  snapshot->traces = recorder.traces();
  snapshot->trace_bytes = recorder.bytes();
  snapshot->rewind = session.rewind_use();
  return snapshot;
}

}  // namespace attnscope
