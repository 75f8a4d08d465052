#include "engine/session/step_events.h"

#include <fmt/format.h>

#include <map>

#include "engine/io/plural.h"

namespace attnscope {
namespace {

const Request& request_of(const Session& session, std::int32_t id) {
  return session.serving().requests()[static_cast<std::size_t>(id)];
}

// Where a block's rows belong: " of SWA-a, positions 64-127 of manual".
std::string content_text(const Session& session, std::int32_t request, std::int32_t group,
                         std::int32_t index) {
  if (group < 0) return {};
  const CacheGroup& g = session.parts().layout.groups[static_cast<std::size_t>(group)];
  if (index < 0) return " of " + g.name;
  const std::int64_t first = std::int64_t{index} * g.block_tokens;
  std::string text =
      fmt::format(" of {}, positions {}-{}", g.name, first, first + g.block_tokens - 1);
  if (request >= 0) text += " of " + request_of(session, request).name;
  return text;
}

const char* why_freed(CacheReason reason) {
  switch (reason) {
    case CacheReason::kWindow:
      return "out of window";
    case CacheReason::kFinish:
      return "its request finished";
    case CacheReason::kPreempt:
      return "its request was preempted";
    case CacheReason::kSwap:
      return "its rows wait in host memory";
    case CacheReason::kAbort:
      return "its request was aborted";
    default:
      return cache_reason_name(reason);
  }
}

// " (stage 3 new blocks)" of what an allocation does.
std::string stage_text(const CacheEvent& event) {
  const AllocationStage stage = allocation_stage(event);
  if (stage == AllocationStage::kNone) return {};
  return fmt::format(" (stage {})", allocation_stage_name(stage));
}

// "'e' (101)", "'\n' (10)", "(200)".
std::string token_text(std::int32_t token) {
  if (token >= 32 && token < 127) return fmt::format("'{}' ({})", static_cast<char>(token), token);
  if (token == '\n') return "'\\n' (10)";
  if (token == '\t') return "'\\t' (9)";
  return fmt::format("({})", token);
}

}  // namespace

namespace {

// Blocks that the request gave back with the events after this one.
std::int64_t given_back(const std::vector<CacheEvent>& all, std::size_t event) {
  std::int64_t n = 0;
  for (std::size_t i = event + 1; i < all.size() && all[i].kind == CacheEventKind::kFree &&
                                  all[i].request == all[event].request;
       ++i) {
    ++n;
  }
  return n;
}

// Blocks of the event's request whose rows went to host memory, or came from there, in its step.
std::int64_t moved(const std::vector<CacheEvent>& all, std::size_t event, CacheEventKind kind) {
  return std::ranges::count_if(
      all, [&](const CacheEvent& e) { return e.kind == kind && e.request == all[event].request; });
}

std::string blocks_text(std::int64_t n) { return counted(n, "block", "blocks"); }

// Sentences about a request; empty for events that are about a block.
std::string request_text(const Session& session, const std::vector<CacheEvent>& all,
                         std::size_t at) {
  const CacheEvent& e = all[at];
  if (e.kind == CacheEventKind::kChunk) {
    const std::string text = chunk_text(session.serving().scheduler(), session.serving().plan());
    return fmt::format("Chunks: {}.", text);
  }
  if (e.request < 0) return {};
  const Request& r = request_of(session, static_cast<std::int32_t>(e.request));
  switch (e.kind) {
    case CacheEventKind::kAdmit:
      if (r.preemptions > 0) {
        const std::int64_t back = moved(all, at, CacheEventKind::kSwapIn);
        const std::string how = back > 0 ? fmt::format(", {} back from host memory",
                                                       counted(back, "block comes", "blocks come"))
                                         : "";
        return fmt::format("{} admitted again{}: {} of its {} in this step.", r.name, how, e.value,
                           counted(r.num_tokens(), "token runs", "tokens run"));
      }
      return fmt::format("{} admitted: {} of its {} in this step.", r.name, e.value,
                         counted(r.prompt_tokens, "prompt token runs", "prompt tokens run"));
    case CacheEventKind::kHit:
      return fmt::format("{} found {} of its {} computed.", r.name, e.value,
                         counted(r.num_tokens(), "token", "tokens"));
    case CacheEventKind::kPreempt:
      if (e.reason == CacheReason::kSwap) {
        return fmt::format("{} preempted: it gave back {}, the rows of {} wait in host memory.",
                           r.name, blocks_text(given_back(all, at)),
                           moved(all, at, CacheEventKind::kSwapOut));
      }
      return fmt::format("{} preempted: it gave back {}, {} to be computed again.", r.name,
                         blocks_text(given_back(all, at)),
                         counted(e.value, "token is", "tokens are"));
    case CacheEventKind::kFinish:
      return fmt::format("{} finished with {} and gave back {}.", r.name,
                         counted(e.value, "token", "tokens"), blocks_text(given_back(all, at)));
    case CacheEventKind::kAbort:
      return fmt::format("{} aborted with {}{}; it gave back {}.", r.name,
                         counted(e.value, "token", "tokens"),
                         r.ended_tokenless() ? ", since its logits are NaN" : "",
                         blocks_text(given_back(all, at)));
    default:
      return {};
  }
}

EventKind kind_of(CacheEventKind kind) {
  switch (kind) {
    case CacheEventKind::kAdmit:
      return EventKind::kAdmit;
    case CacheEventKind::kHit:
      return EventKind::kHit;
    case CacheEventKind::kPreempt:
      return EventKind::kPreempt;
    case CacheEventKind::kFinish:
      return EventKind::kFinish;
    case CacheEventKind::kAbort:
      return EventKind::kAbort;
    case CacheEventKind::kAllocate:
      return EventKind::kAllocate;
    case CacheEventKind::kTouch:
      return EventKind::kShare;
    case CacheEventKind::kUnhash:
      return EventKind::kEvict;
    case CacheEventKind::kChunk:
      return EventKind::kChunk;
    default:
      return EventKind::kFree;
  }
}

// What happens to one block; nothing for the kinds that a life line alone shows.
std::string block_text(const Session& session, const CacheEvent& e, const BlockOwner& owner) {
  const std::string block = fmt::format(
      "Block {}{}", e.block,
      content_text(session, owner.writer, e.group >= 0 ? e.group : owner.group, owner.index));
  const std::string stage = stage_text(e);
  switch (e.kind) {
    case CacheEventKind::kAllocate:
      return fmt::format("{}, allocated{}.", block, stage);
    case CacheEventKind::kTouch:
      return fmt::format("{}, shared with {}: {} hold it{}.", block,
                         request_of(session, static_cast<std::int32_t>(e.request)).name, e.refs,
                         stage);
    case CacheEventKind::kFree:
      return e.refs > 0
                 ? fmt::format("{}, let go by {}: {}; {} still hold it{}.", block,
                               request_of(session, static_cast<std::int32_t>(e.request)).name,
                               why_freed(e.reason), e.refs, stage)
                 : fmt::format("{}, freed: {}{}.", block, why_freed(e.reason), stage);
    case CacheEventKind::kUnhash:
      return e.reason == CacheReason::kReuse
                 ? fmt::format("{}, evicted: the block is taken for new content{}.", block, stage)
                 : block + ", evicted: it lost its key.";
    default:
      return {};
  }
}

}  // namespace

void add_cache_events(const Session& session, std::size_t first, bool at_end, StepTrace& trace,
                      std::vector<Event>& events) {
  const Serving& serving = session.serving();
  const std::vector<CacheEvent>& all = serving.events();
  // Which content an event of a block is about: the old one until the block is taken.
  std::map<std::int32_t, BlockOwner> replaced;
  if (!at_end) {
    for (std::size_t i = 0; i < serving.step().fresh.size(); ++i) {
      replaced[serving.step().fresh[i]] = serving.step().replaced[i];
    }
  }
  for (std::size_t i = first; i < all.size(); ++i) {
    const CacheEvent& e = all[i];
    Event event;
    event.kind = kind_of(e.kind);
    event.place = {session.serving().plan().step, -1, at_end ? AS_OP_SAMPLE : AS_OP_SCHEDULE};
    event.request = static_cast<std::int32_t>(e.request);
    event.group = e.group;
    event.block = e.block;
    if (e.block < 0) {
      event.text = request_text(session, all, i);
    } else {
      if (e.kind == CacheEventKind::kAllocate) {
        replaced.erase(e.block);
        trace.fresh.push_back(e.block);
      }
      if (e.kind == CacheEventKind::kFree && e.refs == 0) trace.freed.push_back(e.block);
      const auto old = replaced.find(e.block);
      event.text =
          block_text(session, e, old != replaced.end() ? old->second : serving.content(e.block));
    }
    if (!event.text.empty()) events.push_back(std::move(event));
  }
}

void add_samples(const Session& session, const StepRecord& step, std::vector<Event>& events) {
  for (std::size_t r = 0; r < step.sampled.size() && r < step.live.size(); ++r) {
    if (step.sampled[r] < 0) continue;
    Event event;
    event.kind = EventKind::kSample;
    event.place = {step.step, -1, AS_OP_SAMPLE};
    event.request = step.live[r];
    event.text = fmt::format("{} sampled {}", request_of(session, step.live[r]).name,
                             token_text(step.sampled[r]));
    if (r < step.drafted.size() && step.drafted[r] > 0) {
      event.text +=
          fmt::format(" behind {} of {} drafts that held", step.accepted[r], step.drafted[r]);
    }
    event.text += ".";
    events.push_back(std::move(event));
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
