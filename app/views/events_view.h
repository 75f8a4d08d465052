// What happened, as rows: the newest events of all steps, by kind.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <string>
#include <string_view>
#include <vector>

#include "app/views/message.h"
#include "app/views/selection.h"
#include "engine/session/snapshot.h"

namespace attnscope {

using EventCounts = std::array<std::int64_t, kEventKinds>;

struct EventsView {
  EventCounts counts{};            // of all events, by kind
  std::int64_t all = 0;            // of the kinds that are shown
  std::int64_t steps = 0;          // that are known
  std::vector<const Event*> rows;  // oldest first; live as long as the snapshot
  bool cut() const { return all > static_cast<std::int64_t>(rows.size()); }
};

// Bit i of `kinds`: events of kind i are shown. The newest `most` of them become rows.
inline constexpr std::uint32_t kAllEventKinds = (1u << kEventKinds) - 1;
EventsView events_view(const Snapshot& snapshot, std::uint32_t kinds, std::size_t most);
// The panel's first line and its mark.
std::string events_sentence(const EventsView& view);
Verdict events_verdict(const EventsView& view);

// The kind of an event by its name, for commands; -1 when there is none.
int event_kind_by_name(std::string_view name);
// "allocate, free, ..": all names.
std::string event_kind_names();

// Whether a click on the event can go to its place.
bool event_has_place(const SessionInfo& info, const Event& event);
// The selection after a click: the event's request and block, everything else as before.
Selection event_selection(Selection selection, const Event& event);

// The log: what its first line says, and all of it as text, one message a line.
std::string log_sentence(const std::deque<Message>& messages);
std::string log_text(const std::deque<Message>& messages);
const char* message_kind_name(Message::Kind kind);  // "info", "warning", "error"

}  // namespace attnscope
