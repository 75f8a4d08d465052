#include "app/views/events_view.h"

#include <fmt/format.h>

#include <algorithm>

#include "app/text/format.h"
#include "app/views/op_order.h"

namespace attnscope {

EventsView events_view(const Snapshot& snapshot, std::uint32_t kinds, std::size_t most) {
  EventsView view;
  view.steps = static_cast<std::int64_t>(snapshot.steps.size());
  for (const auto& step : snapshot.steps) {
    for (const Event& event : step->events) ++view.counts[static_cast<std::size_t>(event.kind)];
  }
  for (std::size_t kind = 0; kind < view.counts.size(); ++kind) {
    if ((kinds >> kind & 1u) != 0) view.all += view.counts[kind];
  }
  // From the newest backwards, so that a long session costs no more than what is shown.
  for (auto step = snapshot.steps.rbegin(); step != snapshot.steps.rend(); ++step) {
    const auto& events = (*step)->events;
    for (auto event = events.rbegin(); event != events.rend() && view.rows.size() < most; ++event) {
      if ((kinds >> static_cast<unsigned>(event->kind) & 1u) != 0) view.rows.push_back(&*event);
    }
    if (view.rows.size() >= most) break;
  }
  std::reverse(view.rows.begin(), view.rows.end());
  return view;
}

std::string events_sentence(const EventsView& view) {
  const auto count = [&](EventKind kind) { return view.counts[static_cast<std::size_t>(kind)]; };
  std::int64_t total = 0;
  for (std::int64_t n : view.counts) total += n;
  std::string text = fmt::format("{} in {}: ", plural(total, "event", "events"),
                                 plural(view.steps, "step", "steps"));
  const auto add = [&](EventKind kind, const char* one, const char* many) {
    if (count(kind) > 0) text += plural(count(kind), one, many) + ", ";
  };
  add(EventKind::kAdmit, "request admitted", "requests admitted");
  add(EventKind::kFinish, "request finished", "requests finished");
  add(EventKind::kAllocate, "block taken", "blocks taken");
  add(EventKind::kFree, "block given back", "blocks given back");
  add(EventKind::kSample, "token sampled", "tokens sampled");
  const std::int64_t wrong = count(EventKind::kWrong), ties = count(EventKind::kNearTie);
  const std::int64_t errors = count(EventKind::kError);
  text += wrong > 0 ? plural(wrong, "wrong tap", "wrong taps") : "no wrong tap";
  if (ties > 0) text += ", " + plural(ties, "near-tie", "near-ties");
  if (errors > 0) text += ", " + plural(errors, "error", "errors");
  text += ".";
  if (view.cut()) {
    text += fmt::format(" Shown: the newest {} of {}.",
                        format_count(static_cast<std::int64_t>(view.rows.size())),
                        format_count(view.all));
  }
  return text;
}

Verdict events_verdict(const EventsView& view) {
  const auto any = [&](EventKind kind) { return view.counts[static_cast<std::size_t>(kind)] > 0; };
  if (any(EventKind::kWrong) || any(EventKind::kError)) return Verdict::kWrong;
  return any(EventKind::kNearTie) ? Verdict::kNearTie : Verdict::kNotCompared;
}

int event_kind_by_name(std::string_view name) {
  for (int kind = 0; kind < kEventKinds; ++kind) {
    if (name == event_kind_name(static_cast<EventKind>(kind))) return kind;
  }
  return -1;
}

std::string event_kind_names() {
  std::string text;
  for (int kind = 0; kind < kEventKinds; ++kind) {
    text +=
        fmt::format("{}{}", kind > 0 ? ", " : "", event_kind_name(static_cast<EventKind>(kind)));
  }
  return text;
}

bool event_has_place(const SessionInfo& info, const Event& event) {
  return has_place(info, event.place);
}

Selection event_selection(Selection selection, const Event& event) {
  if (event.request >= 0 && event.request != selection.request) {
    selection.request = event.request;
    selection.position = -1;
  }
  if (event.block >= 0) {
    selection.block = event.block;
    selection.row = -1;
    selection.group = event.group;
  }
  return selection;
}

const char* message_kind_name(Message::Kind kind) {
  switch (kind) {
    case Message::Kind::kError:
      return "error";
    case Message::Kind::kWarning:
      return "warning";
    default:
      return "info";
  }
}

std::string log_sentence(const std::deque<Message>& messages) {
  std::int64_t errors = 0, warnings = 0;
  for (const Message& message : messages) {
    errors += message.kind == Message::Kind::kError ? 1 : 0;
    warnings += message.kind == Message::Kind::kWarning ? 1 : 0;
  }
  const auto total = static_cast<std::int64_t>(messages.size());
  if (total == 0) return "No message so far: nothing failed and nothing was refused.";
  std::string text = plural(total, "message", "messages") + ", ";
  text += errors > 0 ? plural(errors, "error", "errors") : "no error";
  if (warnings > 0) text += ", " + plural(warnings, "warning", "warnings");
  return text + "; the newest is the last.";
}

std::string log_text(const std::deque<Message>& messages) {
  std::string text;
  for (const Message& message : messages) {
    text += fmt::format("{:.3f} s\t{}\t{}\n", message.seconds, message_kind_name(message.kind),
                        message.text);
  }
  return text;
}

}  // namespace attnscope
