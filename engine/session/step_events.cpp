#include "engine/session/step_events.h"

#include <fmt/format.h>

namespace attnscope {
namespace {

const Request& request_of(const Session& session, std::int32_t id) {
  return session.scheduler().requests()[static_cast<std::size_t>(id)];
}

Event block_event(const Session& session, EventKind kind, std::int32_t block,
                  const BlockOwner& owner, const char* why) {
  const CacheGroup& group = session.parts().layout.groups[static_cast<std::size_t>(owner.group)];
  const std::int64_t first = std::int64_t{owner.index} * group.block_tokens;
  Event event;
  event.kind = kind;
  event.place = {session.cursor().step, -1, AS_OP_BLOCK_TABLES};
  event.request = owner.request;
  event.group = owner.group;
  event.block = block;
  event.text =
      fmt::format("Block {} of {}, positions {}-{} of {}, {}.", block, group.name, first,
                  first + group.block_tokens - 1, request_of(session, owner.request).name, why);
  return event;
}

// "'e' (101)", "'\n' (10)", "(200)".
std::string token_text(std::int32_t token) {
  if (token >= 32 && token < 127) return fmt::format("'{}' ({})", static_cast<char>(token), token);
  if (token == '\n') return "'\\n' (10)";
  if (token == '\t') return "'\\t' (9)";
  return fmt::format("({})", token);
}

}  // namespace

void add_admissions(const Session& session, std::vector<Event>& events) {
  const StepMetadata& step = session.metadata();
  for (std::size_t r = 0; r < step.live.size(); ++r) {
    const Request& request = request_of(session, step.live[r]);
    if (step.running[r] != 0 || request.state != RequestState::kRunning) continue;
    Event event;
    event.kind = EventKind::kAdmit;
    event.place = {session.cursor().step, -1, AS_OP_SCHEDULE};
    event.request = request.id;
    event.text = fmt::format("{} admitted: {} of its {} prompt tokens run in this step.",
                             request.name, step.scheduled[r], request.prompt_tokens);
    events.push_back(std::move(event));
  }
}

void add_block_changes(const Session& session, const std::vector<BlockOwner>& before,
                       StepTrace& trace, std::vector<Event>& events) {
  std::vector<Event> taken;
  for (std::size_t id = 0; id < before.size() && id < trace.owners.size(); ++id) {
    const BlockOwner &was = before[id], &is = trace.owners[id];
    if (was.request == is.request && was.group == is.group && was.index == is.index) continue;
    const auto block = static_cast<std::int32_t>(id);
    if (was.request >= 0) {
      trace.freed.push_back(block);
      events.push_back(block_event(session, EventKind::kFree, block, was, "freed: out of window"));
    }
    if (is.request >= 0) {
      trace.fresh.push_back(block);
      taken.push_back(block_event(session, EventKind::kAllocate, block, is, "allocated"));
    }
  }
  events.insert(events.end(), std::make_move_iterator(taken.begin()),
                std::make_move_iterator(taken.end()));
}

void add_samples(const Session& session, const StepRecord& step, std::vector<Event>& events) {
  for (std::size_t r = 0; r < step.sampled.size() && r < step.live.size(); ++r) {
    if (step.sampled[r] < 0) continue;
    Event event;
    event.kind = EventKind::kSample;
    event.place = {step.step, -1, AS_OP_SAMPLE};
    event.request = step.live[r];
    event.text = fmt::format("{} sampled {}.", request_of(session, step.live[r]).name,
                             token_text(step.sampled[r]));
    events.push_back(std::move(event));
  }
}

void add_finishes(const Session& session, StepTrace& trace, std::vector<Event>& events) {
  for (const std::int32_t id : trace.metadata.live) {
    const Request& request = request_of(session, id);
    if (request.state != RequestState::kFinished) continue;
    Event event;
    event.kind = EventKind::kFinish;
    event.place = {trace.step, -1, AS_OP_SAMPLE};
    event.request = id;
    std::vector<Event> freed;
    for (std::size_t block = 0; block < trace.owners.size(); ++block) {
      const BlockOwner& owner = trace.owners[block];
      if (owner.request != id) continue;
      trace.freed.push_back(static_cast<std::int32_t>(block));
      freed.push_back(block_event(session, EventKind::kFree, static_cast<std::int32_t>(block),
                                  owner, "freed: its request finished"));
      freed.back().place = event.place;
    }
    event.text = fmt::format("{} finished with {} tokens and gave back {} blocks.", request.name,
                             request.num_tokens(), freed.size());
    events.push_back(std::move(event));
    events.insert(events.end(), std::make_move_iterator(freed.begin()),
                  std::make_move_iterator(freed.end()));
  }
}

void add_verdict(const TapResult& result, std::vector<Event>& events) {
  if (result.verdict != Verdict::kWrong && result.verdict != Verdict::kNearTie) return;
  Event event;
  event.kind = result.verdict == Verdict::kWrong ? EventKind::kWrong : EventKind::kNearTie;
  event.place = {result.step, result.layer, result.op};
  const std::string where =
      result.layer < 0 ? std::string() : fmt::format("Layer {}, ", result.layer);
  event.text = fmt::format("{}{}.{} is {}", where, as_op_find(result.op)->name, result.tap,
                           result.verdict == Verdict::kWrong ? "wrong" : "a near tie");
  if (!result.note.empty()) {
    event.text += ": " + result.note;
  } else if (result.worst) {
    event.text += fmt::format(": {:.4g} where the reference has {:.4g}, {:.3g} of the tolerance",
                              result.worst->value, result.worst->reference, result.budget_used);
  }
  event.text += ".";
  events.push_back(std::move(event));
}

Event back_event(const Session& session) {
  Event event;
  event.kind = EventKind::kBack;
  event.place = {session.cursor().step, -1, AS_OP_SCHEDULE};
  event.text =
      fmt::format("Back at the start of step {}; what follows is replayed.", session.cursor().step);
  return event;
}

Event error_event(const Place& place, const Error& error) {
  Event event;
  event.kind = EventKind::kError;
  event.place = place;
  event.text = error.text();
  return event;
}

}  // namespace attnscope
