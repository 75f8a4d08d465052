// Commands of the session: cursor, runs, lanes, captures.
#include <fmt/format.h>

#include <algorithm>

#include "app/gui/command_group.h"
#include "app/gui/shell_commands.h"
#include "app/text/folder_list.h"
#include "app/text/format.h"
#include "app/views/error_view.h"
#include "app/views/op_order.h"
#include "app/wiring/lane_list.h"
#include "app/workbench/start_over.h"
#include "engine/backend/registry.h"
#include "engine/family/selected_entries.h"

namespace attnscope::gui {
namespace {

void add_moves(const CommandGroup& group, Workbench& bench) {
  group.add("op.forward", "Next op", "Goes to the next op; runs it if it has not run yet.", "Right",
            act([&] { bench.next_op(); }));
  group.add("op.back", "Previous op", "Goes back one op; replays it if it is no longer kept.",
            "Left", act([&] { bench.previous_op(); }));
  group.add("layer.forward", "Next layer", "The same op one layer on.", "Down",
            act([&] { bench.next_layer(); }));
  group.add("layer.back", "Previous layer", "The same op one layer back.", "Up",
            act([&] { bench.previous_layer(); }));
  group.add("step.forward", "Next step",
            "The same op one step on; runs the step if it has not run yet.", "Ctrl+Right",
            act([&] { bench.next_step(); }));
  group.add("step.back", "Previous step", "The same op one step back.", "Ctrl+Left",
            act([&] { bench.previous_step(); }));
  group.add("cursor.first", "First step", "The same op in step 0.", "Home",
            act([&] { bench.first_step(); }));
  group.add("cursor.last", "Newest step", "The same op in the newest step.", "End",
            act([&] { bench.last_step(); }));
  group.add("cursor.first_failure", "First failure", "The first tap that is wrong, over all steps.",
            "F8", [&](std::string_view) -> Result<void> {
              if (!bench.go_to_first_failure()) {
                bench.say(Message::Kind::kInfo, "No tap that was compared so far is wrong.");
              }
              return {};
            });
  group.add(
      "cursor.goto", "Go to ..",
      "Goes to an op by step, layer and name, such as 7/2/sparse_attention.", "",
      [&](std::string_view value) -> Result<void> {
        auto place = parse_place(value);
        if (!place) return place.error();
        if (!has_place(*bench.snapshot()->info, *place)) {
          return bad_input(
              fmt::format("cursor.goto: there is no {} in this model", format_place(*place)),
              "layers are the published numbers; - stands for none");
        }
        bench.go_to(*place);
        return {};
      },
      "STEP/LAYER/OP");
}

void add_runs(const CommandGroup& group, Workbench& bench) {
  group.add("run.until", "Run 8 steps", "Runs eight steps on.", "Ctrl+Shift+Right", act([&] {
              const std::int64_t goal = bench.snapshot()->cursor.step + 8;
              bench.run_until("running eight steps",
                              [goal](const Session& s) { return s.cursor().step >= goal; });
            }));
  group.add(
      "run.step", "Run to step ..", "Runs until a step is complete.", "",
      [&](std::string_view value) -> Result<void> {
        auto step = whole_value(value, "run.step", 0, std::int64_t{1} << 40);
        if (!step) return step.error();
        bench.run_until(fmt::format("running to step {}", *step),
                        [goal = *step](const Session& s) { return s.cursor().step > goal; });
        return {};
      },
      "STEP");
  group.add("run.until_decode", "Run until decode",
            "Runs until every request has finished its prefill.", "", act([&] {
              bench.run_until("running until decode",
                              [](const Session& s) { return s.decoding(); });
            }));
  group.add("run.until_wrong", "Run until a wrong tap", "Runs until a step has a wrong tap.", "",
            act([&] {
              bench.run_until("running until a wrong tap", [](const Session& s) {
                return !s.history().empty() && first_wrong(s.history().back().results) != nullptr;
              });
            }));
  group.add("run.until_selective", "Run until the indexer chooses",
            "Runs until a token sees more entries than the indexer may select.", "", act([&] {
              bench.run_until("running until the indexer chooses", [](const Session& s) {
                const std::int64_t k = s.parts().config.index_topk;
                const std::int64_t tokens = tokens_of_selected(s.parts().config);
                const auto& requests = s.serving().requests();
                return std::any_of(requests.begin(), requests.end(),
                                   [&](const Request& r) { return r.computed / tokens > k; });
              });
            }));
  group.add(
      "run.until_end", "Run to the end", "Runs until all requests are finished.", "Ctrl+End",
      act([&] { bench.run_until("running to the end", [](const Session&) { return false; }); }));
}

bool has_event(const StepSummary& step, EventKind kind) {
  return std::ranges::any_of(step.events, [&](const Event& e) { return e.kind == kind; });
}

// What of a step that ran can be asked for on the way back.
struct BackTo {
  const char* name;
  const char* what;  // "No step before this one has .."
  bool (*holds)(const StepSummary&);
};
constexpr BackTo kBackTo[] = {
    {"wrong", "a wrong tap",
     [](const StepSummary& s) { return first_wrong(s.results) != nullptr; }},
    {"near_tie", "a near-tie",
     [](const StepSummary& s) { return has_event(s, EventKind::kNearTie); }},
    {"prefill", "a prompt being computed", [](const StepSummary& s) { return !s.decode_only; }},
    {"selective", "more entries than the indexer may select",
     [](const StepSummary& s) { return s.selective; }},
    {"hit", "a prefix hit", [](const StepSummary& s) { return has_event(s, EventKind::kHit); }},
    {"preemption", "a preemption", [](const StepSummary& s) { return s.preemptions > 0; }},
    {"eviction", "an eviction",
     [](const StepSummary& s) { return has_event(s, EventKind::kEvict); }},
};
constexpr const char* kBackToNames =
    "wrong, near_tie, prefill, selective, hit, preemption, eviction";

void add_way_back(const CommandGroup& group, Workbench& bench) {
  group.add(
      "run.back_until", "Back until ..",
      "Goes to the newest step before this one with a wrong tap, a near-tie, a prompt being "
      "computed, more entries than may be selected, a prefix hit, a preemption or an eviction.",
      "",
      [&](std::string_view value) -> Result<void> {
        for (const BackTo& to : kBackTo) {
          if (value != to.name) continue;
          if (!bench.go_back_to(to.holds)) {
            bench.say(Message::Kind::kInfo,
                      fmt::format("No step before this one has {}.", to.what));
          }
          return {};
        }
        return usage_error(fmt::format("run.back_until: '{}' is unknown", value.substr(0, 40)),
                           std::string("allowed: ") + kBackToNames);
      },
      kBackToNames);
}

// A stop by its place in the list, counted from 1, or by its text.
Result<std::size_t> stop_by_name(const Workbench& bench, std::string_view value, const char* id) {
  const auto& stops = bench.stops();
  for (std::size_t i = 0; i < stops.size(); ++i) {
    if (value == stops[i].condition.text() || value == std::to_string(i + 1)) return i;
  }
  return usage_error(
      fmt::format("{}: there is no stop '{}'", id, value.substr(0, 40)),
      fmt::format("there are {}: a number from 1, or the text of one", stops.size()));
}

void add_stops(const CommandGroup& group, Workbench& bench) {
  group.add(
      "stop.add", "Stop at ..",
      "Adds a condition that a run stops at: wrong of sparse_attention, budget > 0.5, max > 40 of "
      "q_b_proj.y, nan, margin < 0.001, evict block 211, preempt.",
      "", [&](std::string_view value) { return bench.add_stop(value); }, "CONDITION");
  group.add(
      "stop.remove", "Remove a stop ..", "Takes a condition off the list of stops.", "",
      [&](std::string_view value) -> Result<void> {
        const auto index = stop_by_name(bench, value, "stop.remove");
        if (!index) return index.error();
        bench.remove_stop(*index);
        return {};
      },
      "NUMBER or CONDITION");
  group.add(
      "stop.switch", "Switch a stop on or off ..", "One that is off stays in the list.", "",
      [&](std::string_view value) -> Result<void> {
        const auto index = stop_by_name(bench, value, "stop.switch");
        if (!index) return index.error();
        bench.switch_stop(*index, !bench.stops()[*index].on);
        return {};
      },
      "NUMBER or CONDITION");
  group.add("run.to_stop", "Run to a stop",
            "Runs until a stop holds of a step, and goes to what it is about.", "F9",
            [&](std::string_view) { return bench.run_to_stop(); });
  group.add("run.back_to_stop", "Back to a stop",
            "Goes to the newest step before this one of which a stop holds.", "Shift+F9",
            [&](std::string_view) { return bench.back_to_stop(); });
}

// A note by its place in the list, counted from 1.
Result<std::size_t> note_by_number(const Workbench& bench, std::string_view value, const char* id) {
  const auto count = static_cast<std::int64_t>(bench.notes().size());
  if (count == 0)
    return usage_error(fmt::format("{}: there is no note", id), "note.add writes one");
  auto number = whole_value(value, id, 1, count);
  if (!number) return number.error();
  return static_cast<std::size_t>(*number - 1);
}

void add_places(const CommandGroup& group, CommandRegistry& registry, Workbench& bench) {
  registry.add({.id = "place.back",
                .title = "Back",
                .group = "Session",
                .help = "To the place that the last jump came from.",
                .shortcut = "Alt+Left",
                .run = act([&] { bench.go_back(); }),
                .enabled = [&] { return bench.can_go_back(); },
                .why_disabled = "nothing was jumped away from"});
  registry.add({.id = "place.forward",
                .title = "Forward",
                .group = "Session",
                .help = "To the place that Back came from.",
                .shortcut = "Alt+Right",
                .run = act([&] { bench.go_forward(); }),
                .enabled = [&] { return bench.can_go_forward(); },
                .why_disabled = "Back was not used, or a jump has led elsewhere since"});
  group.add("note.bookmark", "Bookmark", "Marks the op under the cursor and what is selected.",
            "Ctrl+B", [&](std::string_view) { return bench.add_note(""); });
  group.add(
      "note.add", "Note ..", "Writes a note on the op under the cursor and what is selected.", "",
      [&](std::string_view value) -> Result<void> {
        if (value.empty())
          return usage_error("note.add: no text", "note.bookmark marks without one");
        return bench.add_note(value);
      },
      "TEXT");
  group.add(
      "note.remove", "Remove a note ..", "Takes a note away.", "",
      [&](std::string_view value) -> Result<void> {
        const auto index = note_by_number(bench, value, "note.remove");
        return index ? bench.remove_note(*index) : Result<void>(index.error());
      },
      "NUMBER");
  group.add(
      "note.goto", "Go to a note ..", "Goes to a note's place, and selects what was selected.", "",
      [&](std::string_view value) -> Result<void> {
        const auto index = note_by_number(bench, value, "note.goto");
        if (!index) return index.error();
        bench.go_to_note(*index);
        return {};
      },
      "NUMBER");
}

void add_setup(const CommandGroup& group, Workbench& bench) {
  group.add("session.restart", "Start over", "Opens the scenario anew, from its first step.", "",
            [&](std::string_view) -> Result<void> { return start_over(bench); });
  group.add(
      "lane.set", "Lane ..",
      "Who computes: LANE for all ops, OP=LANE for one; opens the scenario anew.", "",
      [&](std::string_view value) -> Result<void> {
        if (bench.no_scenario()) return *bench.no_scenario();
        RunSetup setup = bench.setup();
        const auto equals = value.find('=');
        const bool of_one = equals != std::string_view::npos;
        const int op =
            of_one ? as_step_op_by_name(std::string(value.substr(0, equals)).c_str()) : -1;
        if (op >= 0) {
          set_lane(setup.lanes, static_cast<as_op_id>(op), std::string(value.substr(equals + 1)));
        } else {
          setup.lanes = {std::string(value)};  // of all ops, or refused with the names of the ops
        }
        if (auto ok = bench.check_setup(setup); !ok) return ok;
        bench.open(std::move(setup), true);
        return {};
      },
      "LANE or OP=LANE");
  group.add(
      "references.set", "References ..", "What ops are compared with: none, sim or both.", "",
      [&](std::string_view value) -> Result<void> {
        if (bench.no_scenario()) return *bench.no_scenario();
        RunSetup setup = bench.setup();
        if (value == "none") {
          setup.references = References::kNone;
        } else if (value == "sim") {
          setup.references = References::kSim;
        } else if (value == "both") {
          setup.references = References::kBoth;
        } else {
          return usage_error(fmt::format("references.set: '{}' is unknown", value.substr(0, 40)),
                             "allowed: none, sim, both");
        }
        bench.open(std::move(setup), true);
        return {};
      },
      "none, sim or both");
}

void add_captures(CommandRegistry& registry, Workbench& bench) {
  // A capture whose scenario is not here says so when it is asked for.
  const auto can_record = [&bench] {
    return bench.no_scenario() || !bench.setup().scenario.requests.empty();
  };
  registry.add({.id = "file.open_capture",
                .title = "Open capture ..",
                .group = "File",
                .help = "Shows what 'attnscope record' kept; nothing runs.",
                .argument = "FOLDER",
                .run = [&](std::string_view value) -> Result<void> {
                  return bench.open_capture(std::string(value));
                },
                .in_menu = false});
  registry.add({.id = "capture.record_all",
                .title = "Record",
                .group = "File",
                .help = "Records all values of the scenario in the folder NAME.acap where the app "
                        "was started; Escape stops it.",
                .run = act([&bench] {
                  const std::string name = free_capture_name(bench.setup().scenario.name);
                  if (auto ok = bench.record(name, CaptureLevel::kFull); !ok) {
                    bench.say(Message::Kind::kError, ok.error().text());
                  }
                }),
                .enabled = can_record,
                .why_disabled = "no scenario is open"});
  registry.add(
      {.id = "file.save_capture",
       .title = "Save capture ..",
       .group = "File",
       .help = "Writes the steps that are kept, all their taps, into a capture.",
       .argument = "FOLDER",
       .run = [&](std::string_view value) -> Result<void> {
         return bench.save_capture(std::string(value));
       },
       .enabled = [&bench] { return bench.snapshot() != nullptr && bench.capture() == nullptr; },
       .why_disabled = "there is no session whose steps could be kept",
       .in_menu = false});
}

}  // namespace

void add_session_commands(CommandRegistry& registry, Workbench& bench) {
  const CommandGroup group(
      registry, "Session", [&bench] { return bench.snapshot() != nullptr; }, kNoSession);
  add_moves(group, bench);
  add_runs(group, bench);
  add_way_back(group, bench);
  add_stops(group, bench);
  add_places(group, registry, bench);
  registry.add({.id = "run.cancel",
                .title = "Stop",
                .group = "Session",
                .help = "Stops what is running, between two ops.",
                .shortcut = "Escape",
                .run = act([&bench] { bench.cancel(); }),
                .enabled = [&bench] { return bench.busy(); },
                .why_disabled = "nothing is running"});
  add_setup(group, bench);
  add_captures(registry, bench);
}

}  // namespace attnscope::gui
