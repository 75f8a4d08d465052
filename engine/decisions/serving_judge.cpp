#include "engine/decisions/serving_judge.h"

#include <algorithm>
#include <map>

namespace attnscope {

ServingJudge::ServingJudge(const Serving& serving) : judge_(serving.options(), true) {
  for (const Request& from : serving.requests()) {
    Coming coming;
    coming.request.id = from.id;
    coming.request.tokens = from.tokens;
    coming.request.prompt = from.prompt_tokens;
    coming.request.priority = from.priority;
    coming.request.arrival = static_cast<double>(from.arrival_step);
    coming.request.stop.max_tokens = from.max_new_tokens;
    coming.arrival_step = from.arrival_step;
    coming.abort_step = from.abort_step;
    coming_.push_back(std::move(coming));
    taken_.push_back(from.abort_step);
  }
}

void ServingJudge::begin_step(std::int64_t step, const Serving& serving) {
  if (wrong()) return;
  plain::Scheduler& model = judge_.model();
  std::int64_t come = step;
  if (model.idle() && !coming_.empty()) {  // nobody else is left: those who come next come now
    const auto next = std::ranges::min_element(coming_, {}, &Coming::arrival_step);
    come = std::max(come, next->arrival_step);
  }
  for (const Coming& c : coming_) {
    if (c.arrival_step <= come) model.add(c.request);
  }
  std::erase_if(coming_, [&](const Coming& c) { return c.arrival_step <= come; });
  for (std::size_t row = 0; row < serving.live().size(); ++row) {
    const std::size_t drafts = serving.drafts()[row].size();
    if (drafts > 0) model.set_drafts(serving.live()[row], static_cast<std::int64_t>(drafts));
  }
}

void ServingJudge::ended(const Serving& serving, std::span<const std::int32_t> sampled,
                         std::span<const std::int32_t> accepted) {
  if (wrong()) return;
  plain::Scheduler& model = judge_.model();
  std::map<std::int64_t, std::vector<std::int32_t>> tokens;
  for (std::size_t row = 0; row < serving.live().size(); ++row) {
    std::vector<std::int32_t>& got = tokens[serving.live()[row]];
    const std::vector<std::int32_t>& drafts = serving.drafts()[row];
    if (!accepted.empty()) got.assign(drafts.begin(), drafts.begin() + accepted[row]);
    if (sampled[row] >= 0) got.push_back(sampled[row]);
  }
  model.results(tokens, true);
  const std::int64_t next = serving.plan().step + 1;
  for (std::size_t id = 0; id < taken_.size(); ++id) {
    if (taken_[id] < 0 || taken_[id] > next) continue;
    const auto of = static_cast<std::int64_t>(id);
    if (!model.knows(of)) {
      std::erase_if(coming_, [&](const Coming& c) { return c.request.id == of; });
    } else if (const plain::State state = model.request(of).state;
               state == plain::State::kWaiting || state == plain::State::kRunning) {
      model.abort(of);
    }
  }
  judge_.ended(serving.scheduler());
}

}  // namespace attnscope
