#include "engine/decisions/decision_watch.h"

#include <map>
#include <vector>

namespace attnscope {

plain::Request plain_request(const SchedRequest& from) {
  plain::Request r;
  r.id = from.id;
  r.tokens = from.tokens;
  r.prompt = from.prompt_tokens;
  r.priority = from.priority;
  r.arrival = from.arrival;
  r.stop = {from.stop.max_tokens, from.stop.min_tokens, from.stop.end_token, from.stop.ignore_end,
            from.stop.stop_tokens};
  r.apart = {from.extras.adapter, from.extras.salt, {}};
  for (const MediaItem& m : from.extras.media) {
    r.apart.media.push_back({m.identifier, m.offset, m.length});
  }
  r.computes_all = from.skip_lookup;
  return r;
}

void DecisionWatch::after_change() {
  if (judge_.wrong()) return;
  plain::Scheduler& model = judge_.model();
  for (const std::int32_t slot : scheduler_.waiting()) {
    const SchedRequest& r = scheduler_.request(slot);
    if (!model.knows(r.id)) judge_.add(plain_request(r));
  }
  for (const auto& [id, r] : model.requests()) {
    if (!r.is_over() && !scheduler_.alive(id)) model.abort(id);
  }
}

void DecisionWatch::after_results(const StepPlan& /*plan*/) {
  if (judge_.wrong()) return;
  std::map<std::int64_t, std::vector<std::int32_t>> tokens;
  for (const plain::Planned& planned : judge_.model().plan().scheduled) {
    const plain::Request& r = judge_.model().request(planned.request);
    if (r.computed >= r.known()) tokens[r.id] = {sampled_(r.id, r.sampled())};
  }
  judge_.model().results(tokens, false);
  judge_.ended(scheduler_);
}

}  // namespace attnscope
