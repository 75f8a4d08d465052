// A session's drafts: where they come from, and what their verification leaves.
#include "engine/session/rewind_point.h"
#include "engine/session/step/between_ops.h"
#include "kernels/params/tensor_view.h"

namespace attnscope {

Result<void> Session::make_drafter(const Scenario& scenario, const LaneRegistry& registry,
                                   const SessionOptions& options) {
  Scenario plain = scenario;
  plain.serving.drafts = {};
  // Steps are others there: who is taken away early may get further here.
  for (ScenarioRequest& request : plain.requests) request.abort_step = -1;
  SessionOptions quick = options;
  quick.references = References::kNone;
  quick.rewind_every = 0;
  quick.invariants = Invariants::kOff;
  auto session = build(plain, registry, quick, parts_.ranks);
  if (!session) return session.error();
  while (!(*session)->finished()) {
    if (auto ok = (*session)->step(); !ok) return ok;
  }
  Drafter drafter;
  drafter.options = scenario.serving.drafts;
  drafter.vocabulary = parts_.config.vocabulary;
  for (const Request& request : (*session)->serving().requests()) {
    drafter.known.push_back(request.tokens);
  }
  token_watch_->set_plain(drafter.known);
  serving_->set_drafter(std::make_shared<const Drafter>(std::move(drafter)));
  return {};
}

void Session::begin_drafts() {
  const as_tensor sampled = frame_.get(parts_.graph->sampled);
  plan_next_tokens(metadata_, *serving_, at<std::int32_t>(sampled));
  const BetweenOps* between = lanes_.between();
  if (between != nullptr && between->followed != nullptr) between->followed(metadata_);
  verifier_->begin_drafts(*serving_, sampled);
}

void Session::verify_drafts() {
  const auto rows = static_cast<std::size_t>(metadata_.num_live());
  current_.live = metadata_.live;
  current_.sampled.assign(rows, -1);
  current_.drafted.assign(rows, 0);
  current_.accepted.assign(rows, 0);
  const bool drafts_next = parts_.graph->draft_layer >= 0;
  if (drafts_next) current_.proposed.assign(rows, -1);
  const std::size_t count = metadata_.sample_rows.size();
  if (count == 0) return;
  const std::int32_t* tokens = at<std::int32_t>(frame_.get(parts_.graph->sampled));
  for (std::size_t i = 0; i < count;) {
    const auto row = static_cast<std::size_t>(metadata_.sample_request[i]);
    const std::vector<std::int32_t>& drafts = serving_->drafts()[row];
    const std::span sampled(tokens + i, drafts.size() + 1);
    const std::size_t held = right_drafts(drafts, sampled);
    current_.drafted[row] = static_cast<std::int32_t>(drafts.size());
    current_.accepted[row] = static_cast<std::int32_t>(held);
    current_.sampled[row] = sampled[held];
    if (drafts_next) {
      const auto* drafted = at<std::int32_t>(frame_.get(parts_.graph->drafted));
      current_.proposed[row] = drafted[i + held];
    }
    i += sampled.size();
  }
}

}  // namespace attnscope
