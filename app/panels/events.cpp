// Events and log: what the session did, by kind, and what the app said. A click on an event goes to
// its place and selects its request and block. And what a run is to be stopped at.
#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <vector>

#include "app/gui/data_table.h"
#include "app/gui/icons.h"
#include "app/gui/text_input.h"
#include "app/gui/theme.h"
#include "app/gui/widgets.h"
#include "app/panels/panels.h"
#include "app/text/format.h"
#include "app/views/events_view.h"
#include "engine/io/plural.h"

namespace attnscope::gui {
namespace {

constexpr std::size_t kMostRows = 5000;   // rows of the table; a session may have more events
constexpr double kRefreshSeconds = 0.25;  // while the session runs, the table is made anew so often
constexpr const char* kListTabs[] = {"Events", "Log", "Stops"};
constexpr const char* kListNames[] = {"events", "log", "stops"};  // in commands

class EventsPanel : public Panel {
 public:
  EventsPanel() : Panel("events", "Events and log") { events_.follow_end = log_.follow_end = true; }
  void register_commands(Ui& ui) override;
  void draw(Ui& ui) override;
  bool scrolls() const override { return false; }

 private:
  void refresh(const Ui& ui);
  void draw_events(Ui& ui);
  void draw_kinds();
  void draw_log(Ui& ui);
  void draw_stops(Ui& ui);
  void look_at_stops(const Ui& ui);
  void draw_stop(Ui& ui, std::size_t index);
  void fill_events();
  void fill_log(const std::deque<Message>& messages);

  int tab_ = 0;
  std::uint32_t kinds_ = kAllEventKinds;
  std::shared_ptr<const Snapshot> held_;  // keeps the events that view_ points to
  EventsView view_;
  std::uint64_t version_ = 0;  // of view_
  std::uint32_t shown_kinds_ = 0;
  double refreshed_ = -1;
  std::int64_t selected_ = -1;
  std::uint64_t log_version_ = 0;
  double newest_message_ = -1;
  std::size_t messages_ = 0;
  DataTable events_, log_;
  std::string typed_, refused_;     // a stop that is being added; why it was not
  std::vector<std::string> holds_;  // by stop: why it holds of the step that is shown; empty = not
  std::uint64_t held_at_ = 0;       // the workbench's version that holds_ is of
};

ImU32 kind_colour(EventKind kind) {
  const Theme& t = theme();
  switch (kind) {
    case EventKind::kWrong:
    case EventKind::kError:
      return t.bad;
    case EventKind::kNearTie:
      return t.tie;
    case EventKind::kBack:
      return t.warn;
    default:
      return t.text_dim;
  }
}

ImU32 message_colour(Message::Kind kind) {
  return kind == Message::Kind::kError     ? theme().bad
         : kind == Message::Kind::kWarning ? theme().warn
                                           : theme().text_dim;
}

TableCell number_cell(std::int64_t value) {
  if (value < 0) return {};
  return {format_count(value), 0, static_cast<double>(value), true, std::to_string(value)};
}

void EventsPanel::register_commands(Ui& ui) {
  ui.commands.add({.id = "events.show",
                   .title = "Events, log or stops ..",
                   .group = "View",
                   .help = "Which of its three lists the panel shows.",
                   .shortcut = {},
                   .argument = "events, log or stops",
                   .run = [this](std::string_view value) -> Result<void> {
                     const auto* named = std::ranges::find(kListNames, value);
                     if (named == std::end(kListNames)) {
                       return usage_error(
                           fmt::format("events.show: '{}' is unknown", value.substr(0, 40)),
                           "allowed: events, log, stops");
                     }
                     tab_ = static_cast<int>(named - std::begin(kListNames));
                     return {};
                   },
                   .in_menu = false});
  ui.commands.add({.id = "events.toggle",
                   .title = "Show or hide events of a kind ..",
                   .group = "View",
                   .help = "Shows or hides one kind of events.",
                   .shortcut = {},
                   .argument = "KIND",
                   .run = [this](std::string_view value) -> Result<void> {
                     const int kind = event_kind_by_name(value);
                     if (kind < 0) {
                       return usage_error(
                           fmt::format("events.toggle: '{}' is no kind", value.substr(0, 40)),
                           "kinds: " + event_kind_names());
                     }
                     kinds_ ^= 1u << static_cast<unsigned>(kind);
                     return {};
                   },
                   .in_menu = false});
  ui.commands.add({.id = "events.copy_log",
                   .title = "Copy the log",
                   .group = "View",
                   .help = "All messages, one a line, to the clipboard.",
                   .shortcut = {},
                   .argument = {},
                   .run = [&ui](std::string_view) -> Result<void> {
                     ImGui::SetClipboardText(log_text(ui.bench.messages()).c_str());
                     return {};
                   },
                   .enabled = [&ui] { return !ui.bench.messages().empty(); },
                   .why_disabled = "there is no message"});
}

void EventsPanel::draw(Ui& ui) {
  ImGui::PushStyleVar(ImGuiStyleVar_FramePadding, ImVec2(px(8), px(2)));
  segmented("##list", &tab_, kListTabs, 3);
  ImGui::PopStyleVar();
  if (tab_ == 1) {
    draw_log(ui);
  } else if (tab_ == 2) {
    draw_stops(ui);
  } else {
    draw_events(ui);
  }
}

void EventsPanel::refresh(const Ui& ui) {
  const bool same = held_.get() == ui.bench.snapshot() && shown_kinds_ == kinds_;
  const double now = ImGui::GetTime();
  const bool soon = ui.bench.busy() && now - refreshed_ < kRefreshSeconds && shown_kinds_ == kinds_;
  if (version_ > 0 && (same || soon)) return;
  // Another session numbers its events anew.
  if (held_ && held_->info != ui.bench.snapshot()->info) selected_ = -1;
  held_ = ui.bench.shared_snapshot();
  shown_kinds_ = kinds_;
  refreshed_ = now;
  view_ = events_view(*held_, kinds_, kMostRows);
  ++version_;
}

void EventsPanel::draw_events(Ui& ui) {
  if (ui.bench.snapshot() == nullptr) {
    empty_state(ui, "No session is open, so nothing has happened yet.");
    return;
  }
  refresh(ui);
  sentence(events_sentence(view_), events_verdict(view_));
  draw_kinds();
  if (view_.rows.empty()) {
    empty_state(ui,
                kinds_ == kAllEventKinds
                    ? "Nothing has happened yet: no step has run."
                    : "No event of the chosen kinds; click a chip above for another one.",
                kinds_ == kAllEventKinds ? "step.forward" : "");
    return;
  }
  fill_events();
  const auto clicked = events_.draw("##events", ImVec2(-1, -1), selected_);
  if (!clicked) return;
  selected_ = *clicked;
  // Keys count from the oldest event that is shown.
  const Event& event = *view_.rows[static_cast<std::size_t>(*clicked)];
  const Event copy = event;
  ui.bench.select(event_selection(ui.bench.selection(), copy));
  if (event_has_place(*ui.bench.snapshot()->info, copy)) ui.bench.go_to(copy.place);
}

// One chip a kind that occurs: its count; a click shows it alone.
void EventsPanel::draw_kinds() {
  const Theme& t = theme();
  bool first = true;
  const float right = ImGui::GetCursorScreenPos().x + ImGui::GetContentRegionAvail().x;
  ImGui::PushStyleVar(ImGuiStyleVar_FramePadding, ImVec2(px(6), px(1)));
  ImGui::PushStyleVar(ImGuiStyleVar_ItemSpacing, ImVec2(px(4), px(3)));
  for (int kind = 0; kind < kEventKinds; ++kind) {
    const std::int64_t count = view_.counts[static_cast<std::size_t>(kind)];
    if (count == 0) continue;
    const auto bit = 1u << static_cast<unsigned>(kind);
    const bool on = (kinds_ & bit) != 0;
    const char* name = event_kind_name(static_cast<EventKind>(kind));
    const std::string label = fmt::format("{} {}###{}", name, format_count(count), name);
    const float width = ImGui::CalcTextSize(label.c_str(), nullptr, true).x + px(12);
    if (!first) {
      ImGui::SameLine();
      if (ImGui::GetCursorScreenPos().x + width > right) ImGui::NewLine();
    }
    first = false;
    ImGui::PushStyleColor(ImGuiCol_Button, on ? t.raised : 0);
    ImGui::PushStyleColor(ImGuiCol_Border, on ? t.border : t.grid);
    ImGui::PushStyleColor(ImGuiCol_Text,
                          on ? kind_colour(static_cast<EventKind>(kind)) : t.text_faint);
    ImGui::PushStyleVar(ImGuiStyleVar_FrameBorderSize, 1);
    if (ImGui::Button(label.c_str())) {
      if (ImGui::GetIO().KeyCtrl) {
        kinds_ ^= bit;
      } else {
        kinds_ = kinds_ == bit ? kAllEventKinds : bit;
      }
    }
    ImGui::PopStyleVar();
    ImGui::PopStyleColor(3);
    if (ImGui::IsItemHovered(ImGuiHoveredFlags_DelayShort)) {
      tooltip(fmt::format(
          "{} of kind '{}'\nclick: {}\nCtrl+click: {}", plural(count, "event", "events"), name,
          kinds_ == bit ? "all kinds again" : "these alone", on ? "without these" : "these too"));
    }
  }
  ImGui::PopStyleVar(2);
}

void EventsPanel::fill_events() {
  events_.begin(version_);
  if (!events_.stale()) return;
  events_.columns({{"step", true, 0.6f},
                   {"kind", false, 1.25f},  // "preempted", whole in a narrow panel
                   {"request", true, 0.9f, "Number of the request."},
                   {"group", true, 0.7f, "Cache group of the block."},
                   {"block", true, 0.7f, "Physical block."},
                   {"what", false, 3.3f}});
  for (std::size_t i = 0; i < view_.rows.size(); ++i) {
    const Event& event = *view_.rows[i];
    TableCell block = number_cell(event.block);
    if (event.block > 0 && event.request >= 0) block.colour = owner_colour(event.request);
    events_.row({number_cell(event.place.step),
                 {event_kind_name(event.kind), kind_colour(event.kind)},
                 number_cell(event.request),
                 number_cell(event.group),
                 std::move(block),
                 {event.text}},
                static_cast<std::int64_t>(i));
  }
}

void EventsPanel::draw_log(Ui& ui) {
  const std::deque<Message>& messages = ui.bench.messages();
  sentence(log_sentence(messages));
  if (messages.empty()) return;
  command_button(ui, "events.copy_log", fmt::format("{} Copy", icon::kCopy).c_str());
  fill_log(messages);
  log_.draw("##log", ImVec2(-1, -1), -1);
}

void EventsPanel::draw_stops(Ui& ui) {
  const auto& stops = ui.bench.stops();
  const auto on = std::ranges::count_if(stops, [](const auto& s) { return s.on; });
  sentence(stops.empty()
               ? "A run can be stopped at what you look for: name it below."
               : fmt::format("{} of {} stops {} on; a run ends where one holds of a step.", on,
                             stops.size(), agree(on, "is", "are")));
  command_button(ui, "run.back_to_stop", fmt::format("{} Back", icon::kFastBackward).c_str());
  ImGui::SameLine(0, px(4));
  command_button(ui, "run.to_stop", fmt::format("{} Run on", icon::kFastForward).c_str());
  ImGui::SameLine(0, px(8));
  if (ImGui::GetContentRegionAvail().x < px(140)) ImGui::NewLine();  // a condition has some words
  ImGui::SetNextItemWidth(-1);
  const bool added = text_input("##stop", typed_, "wrong of sparse_attention",
                                ImGuiInputTextFlags_EnterReturnsTrue);
  if (ImGui::IsItemHovered(ImGuiHoveredFlags_DelayNormal)) {
    tooltip(
        "A condition on a step, then Enter:\n"
        "wrong of 3/wo_b.y\nbudget > 0.5\nmax > 40 of q_b_proj.y\nnan\nmargin < 0.001\n"
        "evict block 211\npreempt request 2\nnull_read");
  }
  if (added) {
    const auto ok = ui.bench.add_stop(typed_);
    refused_ = ok ? "" : ok.error().text();
    if (ok) typed_.clear();
  }
  if (!refused_.empty() && !typed_.empty()) paragraph(refused_, Verdict::kWrong);
  look_at_stops(ui);
  ImGui::BeginChild("##stops", ImVec2(-1, -1));
  for (std::size_t i = 0; i < ui.bench.stops().size(); ++i) draw_stop(ui, i);
  ImGui::EndChild();
}

// Figures of values take a while: once a picture.
void EventsPanel::look_at_stops(const Ui& ui) {
  if (held_at_ == ui.bench.version()) return;
  held_at_ = ui.bench.version();
  holds_.clear();
  const StepSummary* step = ui.bench.summary();
  for (const Workbench::Stop& stop : ui.bench.stops()) {
    const auto hit = step != nullptr && stop.on
                         ? stop.condition.find(*ui.bench.snapshot()->info, *step, ui.bench.step())
                         : std::nullopt;
    holds_.push_back(hit ? hit->why : std::string());
  }
}

void EventsPanel::draw_stop(Ui& ui, std::size_t index) {
  const Workbench::Stop& stop = ui.bench.stops()[index];
  const std::string text = stop.condition.text();
  ImGui::PushID(static_cast<int>(index));
  const float right = ImGui::GetCursorPosX() + ImGui::GetContentRegionAvail().x;
  bool on = stop.on;
  if (ImGui::Checkbox(text.c_str(), &on)) ui.bench.switch_stop(index, on);
  if (ImGui::IsItemHovered(ImGuiHoveredFlags_DelayShort)) {
    tooltip(on ? "Click: it stays in the list, and no run stops at it."
               : "Click: runs stop at it again.");
  }
  if (index < holds_.size() && !holds_[index].empty()) {
    ImGui::SameLine(0, px(10));
    coloured(theme().warn, "holds here");
    if (ImGui::IsItemHovered(ImGuiHoveredFlags_DelayShort)) tooltip(holds_[index]);
  }
  const float cross = ImGui::CalcTextSize(icon::kCross).x + px(12);
  ImGui::SameLine(right - cross);
  const bool removed = ImGui::Button(icon::kCross);
  if (ImGui::IsItemHovered(ImGuiHoveredFlags_DelayShort)) tooltip("Take it off the list.");
  ImGui::PopID();
  if (removed) ui.bench.remove_stop(index);
}

void EventsPanel::fill_log(const std::deque<Message>& messages) {
  // The deque drops old messages: its length alone does not tell that one came.
  if (messages.size() != messages_ || messages.back().seconds != newest_message_) {
    messages_ = messages.size();
    newest_message_ = messages.back().seconds;
    ++log_version_;
  }
  log_.begin(log_version_);
  if (!log_.stale()) return;
  log_.columns({{"time (s)", true, 0.6f, "Since the app was started."},
                {"kind", false, 0.6f},
                {"message", false, 6}});
  std::int64_t key = 0;
  for (const Message& message : messages) {
    log_.row({{fmt::format("{:.1f}", message.seconds), 0, message.seconds, true,
               format_exact(message.seconds)},
              {message_kind_name(message.kind), message_colour(message.kind)},
              {message.text}},
             key++);
  }
}

}  // namespace

std::unique_ptr<Panel> make_events_panel() { return std::make_unique<EventsPanel>(); }

}  // namespace attnscope::gui
