#include "engine/decisions/plain_scheduler.h"

#include <algorithm>
#include <utility>

namespace attnscope::plain {

void Scheduler::add(Request request) {
  if (rules_.caching) cache_.name_prefixes(request);
  waiting_.push_back(request.id);
  requests_.insert_or_assign(request.id, std::move(request));
}

void Scheduler::abort(std::int64_t id) { finish(id, State::kAborted); }

bool Scheduler::sooner(std::int64_t a, std::int64_t b) const {
  const Request &x = request(a), &y = request(b);
  if (x.priority != y.priority) return x.priority < y.priority;
  if (x.arrival != y.arrival) return x.arrival < y.arrival;
  return a < b;
}

std::vector<std::int64_t> Scheduler::waiting() const {
  std::vector<std::int64_t> ids = waiting_;
  if (rules_.by_priority) {
    std::sort(ids.begin(), ids.end(), [&](std::int64_t a, std::int64_t b) { return sooner(a, b); });
  }
  return ids;
}

const Plan& Scheduler::step() {
  plan_ = {};
  plan_.running = running_;
  cache_.begin_step();
  chunk_ = longest_chunk();
  std::int64_t budget = rules_.budget;
  step_running(budget);
  if (plan_.preempted.empty()) step_waiting(budget);
  if (rules_.forget_uncomputed) {
    for (const Preempted& p : plan_.preempted) cache_.forget_new_keys(p.request);
  }
  for (const Planned& p : plan_.scheduled) {
    Request& r = at(p.request);
    r.computed += p.tokens;
    r.in_flight += p.tokens;
    // It samples a token that the next step computes without knowing it.
    if (rules_.steps_in_flight > 1 && r.computed >= r.known() + r.coming) ++r.coming;
  }
  in_flight_.push_back(plan_);
  return plan_;
}

std::int64_t Scheduler::longest_chunk() const {
  if (rules_.chunk_of_empty == 0) return rules_.longest_chunk;
  const std::int64_t all = rules_.blocks - rules_.first_block;
  const auto free = static_cast<std::int64_t>(cache_.free_blocks().size());
  const std::int64_t rise = rules_.chunk_of_empty - rules_.chunk_of_full;
  return all == 0 ? rules_.chunk_of_full : rules_.chunk_of_full + rise * free / all;
}

// First come, first served: the last one of those that run. By priority: the least urgent, and of
// equals the one that came last.
std::size_t Scheduler::victim() const {
  if (!rules_.by_priority) return running_.size() - 1;
  std::size_t chosen = 0;
  for (std::size_t i = 1; i < running_.size(); ++i) {
    const Request &r = request(running_[i]), &worst = request(running_[chosen]);
    if (r.priority > worst.priority ||
        (r.priority == worst.priority && r.arrival > worst.arrival)) {
      chosen = i;
    }
  }
  return chosen;
}

void Scheduler::step_running(std::int64_t& budget) {
  for (std::size_t i = 0; i < running_.size() && budget > 0;) {
    Request& r = at(running_[i]);
    std::int64_t tokens = r.known() + r.drafts + r.coming - r.computed;
    if (chunk_ > 0) tokens = std::min(tokens, chunk_);
    tokens = std::min({tokens, budget, rules_.max_len - 1 - r.computed});
    if (tokens <= 0) {
      ++i;
      continue;
    }
    bool itself = false;
    while (!itself && !cache_.allocate(r, tokens, nullptr, 0)) {
      const std::size_t place = victim();
      const Request& lost = request(running_[place]);
      const auto planned = std::find_if(plan_.scheduled.begin(), plan_.scheduled.end(),
                                        [&](const Planned& p) { return p.request == lost.id; });
      const bool was_planned = planned != plan_.scheduled.end();
      if (was_planned) {
        budget += planned->tokens;
        plan_.scheduled.erase(planned);
      }
      if (rules_.cursor_by_place ? place < i : was_planned) --i;
      preempt(place, true);
      plan_.preempted.push_back({lost.id, r.id});
      itself = lost.id == r.id;
    }
    if (itself) return;
    // Drafts for which there was no room are not computed.
    r.drafts = std::clamp<std::int64_t>(r.computed + tokens - r.known() - r.coming, 0, r.drafts);
    plan_.scheduled.push_back({r.id, tokens, false, 0});
    budget -= tokens;
    ++i;
  }
}

void Scheduler::preempt(std::size_t place, bool keep) {
  Request& lost = at(running_[place]);
  if (keep && send_away(lost)) lost.away = lost.computed;
  running_.erase(running_.begin() + static_cast<std::ptrdiff_t>(place));
  cache_.free(lost.id);
  lost.state = State::kWaiting;
  lost.computed = 0;
  lost.drafts = 0;
  lost.coming = 0;
  waiting_.insert(waiting_.begin(), lost.id);
}

bool Scheduler::send_away(Request& lost) {
  if (lost.computed == 0) return false;
  std::vector<Moved> moves;
  for (std::size_t g = 0; g < rules_.groups.size(); ++g) {
    const Group& group = rules_.groups[g];
    const Blocks& table = cache_.table(lost.id, g);
    for (std::int64_t entry = cache_.skipped(group, lost.computed) / group.block;
         entry < Cache::entries(group, lost.computed); ++entry) {
      moves.push_back({lost.id, g, entry, table[static_cast<std::size_t>(entry)], -1});
    }
  }
  std::size_t next = 0;
  for (Moved& move : moves) {
    while (next < host_.size() && host_[next].request >= 0) ++next;
    if (next == host_.size()) return false;
    move.host = static_cast<std::int32_t>(next++);
  }
  for (const Moved& move : moves) host_[static_cast<std::size_t>(move.host)] = move;
  plan_.out.insert(plan_.out.end(), moves.begin(), moves.end());
  return true;
}

void Scheduler::bring_back(Request& r) {
  for (std::size_t g = 0; g < rules_.groups.size(); ++g) {
    std::vector<Moved> moves;
    for (std::size_t h = 0; h < host_.size(); ++h) {
      if (host_[h].request != r.id || host_[h].group != g) continue;
      moves.push_back(std::exchange(host_[h], {}));
      moves.back().host = static_cast<std::int32_t>(h);
    }
    std::sort(moves.begin(), moves.end(),
              [](const Moved& a, const Moved& b) { return a.entry < b.entry; });
    for (Moved& move : moves) {
      move.block = cache_.table(r.id, g)[static_cast<std::size_t>(move.entry)];
      plan_.in.push_back(move);
    }
  }
  r.away = 0;
}

bool Scheduler::reset(bool of_all) {
  while (of_all && !running_.empty()) preempt(running_.size() - 1, false);
  return cache_.forget_all();
}

void Scheduler::step_waiting(std::int64_t& budget) {
  while (!waiting_.empty() && budget > 0 &&
         static_cast<std::int64_t>(running_.size()) < rules_.max_running) {
    Request& r = at(waiting().front());
    const Hit hit = cache_.lookup(r);
    r.longest = hit.longest;
    std::int64_t tokens = r.known() - r.away - hit.tokens;
    if (chunk_ > 0) tokens = std::min(tokens, chunk_);
    if (!rules_.chunked_prefill && tokens > budget) return;
    tokens = std::min(tokens, budget);
    r.computed = r.away;
    // The head that does not fit stops all behind it.
    if (!cache_.allocate(r, tokens, &hit, running_.empty() ? 0 : rules_.watermark)) {
      r.computed = 0;
      return;
    }
    std::erase(waiting_, r.id);
    running_.push_back(r.id);
    r.state = State::kRunning;
    r.computed += hit.tokens;
    if (r.away > 0) bring_back(r);
    plan_.scheduled.push_back({r.id, tokens, true, hit.tokens});
    budget -= tokens;
  }
}

void Scheduler::results(const std::map<std::int64_t, std::vector<std::int32_t>>& tokens,
                        bool abort_empty) {
  over_ = std::move(in_flight_.front());
  in_flight_.pop_front();
  std::vector<std::int64_t> empty;
  for (const Planned& p : over_.scheduled) {
    Request& r = at(p.request);
    if (r.is_over()) continue;
    r.in_flight = std::max<std::int64_t>(r.in_flight - p.tokens, 0);
    const auto got = tokens.find(p.request);
    if (got == tokens.end() || got->second.empty()) {
      if (r.computed >= r.known()) empty.push_back(r.id);
      continue;
    }
    // The last token comes without a draft; drafts that did not hold were computed for nothing.
    const auto accepted = static_cast<std::int64_t>(got->second.size()) - 1;
    if (r.drafts > 0) r.computed -= std::max<std::int64_t>(r.drafts - accepted, 0);
    r.drafts = 0;
    for (const std::int32_t token : got->second) {
      r.tokens.push_back(token);
      if (r.coming > 0) --r.coming;
      stop(r);
      if (r.is_over()) break;
    }
    if (rules_.caching && !r.is_over()) cache_.name_prefixes(r);
  }
  for (const std::int64_t id : empty) {
    if (abort_empty) finish(id, State::kAborted);
  }
}

// After its newest token.
void Scheduler::stop(Request& r) {
  const std::int32_t token = r.tokens.back();
  const std::vector<std::int32_t>& stops = r.stop.stop_tokens;
  if (r.sampled() < r.stop.min_tokens) return;
  if (token == r.stop.end_token && token >= 0 && !r.stop.ignore_end) {
    finish(r.id, State::kStopped);
  } else if (std::find(stops.begin(), stops.end(), token) != stops.end()) {
    finish(r.id, State::kStopped);
  } else if (r.known() >= rules_.max_len || r.sampled() >= r.stop.max_tokens) {
    finish(r.id, State::kLength);
  }
}

void Scheduler::finish(std::int64_t id, State state) {
  at(id).state = state;
  cache_.free(id);
  for (Moved& held : host_) {
    if (held.request == id) held = {};
  }
  std::erase(running_, id);
  std::erase(waiting_, id);
}

}  // namespace attnscope::plain
