#include "engine/sched/replay.h"

#include <fmt/format.h>

#include <deque>
#include <nlohmann/json.hpp>

#include "engine/sched/workload.h"

namespace attnscope {
namespace {

using Json = nlohmann::ordered_json;

class Player {
 public:
  Player(const Replay& replay, BlockScheduler scheduler, ReplayObserver* watch)
      : replay_(replay), s_(std::move(scheduler)), watch_(watch) {}

  Result<Json> apply(const ReplayCall& call) {
    Json out = {{"line", call.line}, {"call", replay_call_name(call.kind)}};
    Result<void> done = make(call, out);
    if (!done) {
      return bad_input(
          fmt::format("{}: line {}: {}", replay_.name, call.line, done.error().message),
          done.error().hint);
    }
    if (watch_ != nullptr) watch_->after(call, s_, plan_, done_);
    add_state(out);
    return out;
  }

 private:
  Result<void> make(const ReplayCall& call, Json& out) {
    switch (call.kind) {
      case ReplayCallKind::kAdd:
        return add(call.request);
      case ReplayCallKind::kSchedule:
        schedule(out);
        return {};
      case ReplayCallKind::kResults:
        return results(call, out);
      case ReplayCallKind::kAbort:
        out["ok"] = done_ = s_.abort(call.id);
        out["finished"] = s_.take_finished();
        return {};
      case ReplayCallKind::kReset:
        out["ok"] = done_ = s_.reset_prefix_cache(call.preempt_running);
        return {};
    }
    return {};
  }

  Result<void> add(const SchedRequest& request) {
    for (const StepPlan& plan : plans_) {
      for (const ScheduledTokens& t : plan.scheduled) {
        if (t.id != request.id || s_.alive(t.id)) continue;
        return bad_input(
            fmt::format("request {} is in step {}, whose results are not in", t.id, plan.step),
            "give the results first, or another id");
      }
    }
    return s_.add(request);
  }

  void schedule(Json& out) {
    const StepPlan& plan = plan_ = s_.schedule();
    plans_.push_back(plan);
    out["step"] = plan.step;
    Json scheduled = Json::array();
    for (const ScheduledTokens& t : plan.scheduled) {
      scheduled.push_back({{"id", t.id},
                           {"tokens", t.tokens},
                           {"admitted", t.admitted},
                           {"hit_tokens", s_.request(t.slot).hit_tokens}});
    }
    out["scheduled"] = scheduled;
    out["preempted"] = plan.preempted;
    out["common_prefix"] = plan.common_prefix;
    if (s_.options().chunks.on()) out["chunk"] = plan.chunk;
    if (s_.options().swap_blocks == 0) return;
    out["swapped_out"] = moves(plan.swapped_out);
    out["swapped_in"] = moves(plan.swapped_in);
  }

  static Json moves(const std::vector<SwapMove>& swapped) {
    Json out = Json::array();
    for (const SwapMove& m : swapped) {
      out.push_back({{"id", m.request},
                     {"group", m.group},
                     {"entry", m.index},
                     {"block", m.block},
                     {"host", m.host}});
    }
    return out;
  }

  Result<void> results(const ReplayCall& call, Json& out) {
    if (plans_.empty()) {
      return bad_input("there is no step without results", "schedule one before");
    }
    const StepPlan plan = plans_.front();
    std::vector<std::vector<std::int32_t>> sampled(plan.scheduled.size());
    for (const auto& [id, tokens] : call.tokens) {
      bool found = false;
      for (std::size_t i = 0; i < plan.scheduled.size(); ++i) {
        if (plan.scheduled[i].id != id) continue;
        sampled[i] = tokens;
        found = true;
      }
      if (!found) {
        return bad_input(fmt::format("request {} is not in step {}", id, plan.step),
                         "results name requests that the step scheduled");
      }
    }
    plans_.pop_front();
    s_.results(plan, sampled);
    out["step"] = plan.step;
    out["finished"] = s_.take_finished();
    return {};
  }

  Json ids(const std::vector<std::int32_t>& slots) const {
    Json out = Json::array();
    for (const std::int32_t slot : slots) out.push_back(s_.request(slot).id);
    return out;
  }

  void add_state(Json& out) const {
    const BlockPool& pool = s_.kv().pool();
    out["running"] = ids(s_.running());
    out["waiting"] = ids(s_.waiting());
    out["free"] = pool.num_free();
    out["free_with_key"] = pool.free_with_key();
    out["hash_entries"] = pool.num_keys();
    const std::vector<std::int32_t> queue = pool.queue().ids();
    Digest digest;
    for (const std::int32_t id : queue) digest.word(static_cast<std::uint32_t>(id));
    out["queue_digest"] = fmt::format("{:016x}", digest.value());
    if (replay_.show_tables) {
      Json tables = Json::object();
      for (const std::int32_t slot : s_.running()) {
        Json groups = Json::array();
        for (std::size_t g = 0; g < s_.kv().num_groups(); ++g) {
          groups.push_back(s_.kv().table(slot, g).blocks);
        }
        tables[std::to_string(s_.request(slot).id)] = groups;
      }
      out["tables"] = tables;
    }
    if (replay_.show_queue) out["queue"] = queue;
  }

  const Replay& replay_;
  BlockScheduler s_;
  ReplayObserver* watch_;
  StepPlan plan_;      // of the last schedule
  bool done_ = false;  // what the last abort or reset returned
  std::deque<StepPlan> plans_;
};

void compare_call(const ReplayCall& call, const Json& found, std::vector<ReplayMismatch>& out) {
  if (call.expect == nullptr) return;
  const nlohmann::json plain = found;
  for (const auto& [key, value] : call.expect->items()) {
    const auto it = plain.find(key);
    if (it == plain.end()) {
      out.push_back(
          {call.line, fmt::format("{}: expected {}, there is no such key", key, value.dump())});
    } else if (*it != value) {
      out.push_back(
          {call.line, fmt::format("{}: expected {}, found {}", key, value.dump(), it->dump())});
    }
  }
}

}  // namespace

Result<ReplayOutcome> run_replay(const Replay& replay, ReplayObserver* watch) {
  Result<BlockScheduler> made = BlockScheduler::make(replay.options);
  if (!made) return made.error();
  Player player(replay, std::move(*made), watch);
  ReplayOutcome outcome;
  for (const ReplayCall& call : replay.calls) {
    Result<Json> state = player.apply(call);
    if (!state) return state.error();
    compare_call(call, *state, outcome.mismatches);
    outcome.lines += state->dump();
    outcome.lines += '\n';
  }
  return outcome;
}

}  // namespace attnscope
