// The shell's commands: session, cursor, selection, panels, layouts, settings.
#include <fmt/format.h>

#include <charconv>
#include <cmath>

#include "app/common/format.h"
#include "app/common/lane_list.h"
#include "app/common/op_order.h"
#include "app/common/views/error_view.h"
#include "app/gui/layouts.h"
#include "app/gui/shell.h"
#include "app/gui/theme.h"
#include "engine/backend/registry.h"

namespace attnscope::gui {
namespace {

Result<std::int64_t> whole(std::string_view text, const char* what, std::int64_t low,
                           std::int64_t high) {
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < low || value > high) {
    return usage_error(fmt::format("{}: '{}' is not a whole number from {} to {}", what,
                                   text.substr(0, 40), low, high));
  }
  return value;
}

Result<float> number(std::string_view text, const char* what, float low, float high) {
  float value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || !(value >= low) ||
      !(value <= high)) {
    return usage_error(
        fmt::format("{}: '{}' is not a number from {} to {}", what, text.substr(0, 40), low, high));
  }
  return value;
}

// A command without a value that cannot fail.
template <class F>
std::function<Result<void>(std::string_view)> act(F action) {
  return [action](std::string_view) -> Result<void> {
    action();
    return {};
  };
}

struct Context {
  Shell& shell;
  Ui& ui;
  Workbench& bench;

  bool has_picture() const { return bench.snapshot() != nullptr; }
  bool can_go_on() const {
    return has_picture() && (!bench.snapshot()->finished || bench.moving());
  }
};

void add_captures(const Context& c) {
  Workbench& bench = c.bench;
  c.ui.commands.add({.id = "file.open_capture",
                     .title = "Open capture ..",
                     .group = "File",
                     .help = "Shows what 'attnscope record' kept; nothing runs.",
                     .argument = "FOLDER",
                     .run = [&](std::string_view value) -> Result<void> {
                       return bench.open_capture(std::string(value));
                     },
                     .in_menu = false});
  c.ui.commands.add({.id = "file.save_capture",
                     .title = "Save capture ..",
                     .group = "File",
                     .help = "Writes the steps that are kept, all their taps, into a capture.",
                     .argument = "FOLDER",
                     .run = [&](std::string_view value) -> Result<void> {
                       return bench.save_capture(std::string(value));
                     },
                     .enabled = [c] { return c.has_picture() && c.bench.capture() == nullptr; },
                     .why_disabled = "there is no session whose steps could be kept",
                     .in_menu = false});
}

constexpr const char* kNoSession = "no session is open; open a scenario first";

void add_session(const Context& c) {
  auto& commands = c.ui.commands;
  Workbench& bench = c.bench;
  const auto open = [c] { return c.has_picture(); };
  const auto add = [&](const char* id, const char* title, const char* help, const char* shortcut,
                       std::function<Result<void>(std::string_view)> run,
                       const char* argument = "") {
    commands.add({.id = id,
                  .title = title,
                  .group = "Session",
                  .help = help,
                  .shortcut = shortcut,
                  .argument = argument,
                  .run = std::move(run),
                  .enabled = open,
                  .why_disabled = kNoSession,
                  .in_menu = *argument == '\0'});
  };
  add("op.forward", "Next op", "Goes to the next op; runs it if it has not run yet.", "Right",
      act([&] { bench.next_op(); }));
  add("op.back", "Previous op", "Goes back one op; replays it if it is no longer kept.", "Left",
      act([&] { bench.previous_op(); }));
  add("layer.forward", "Next layer", "The same op one layer on.", "Down",
      act([&] { bench.next_layer(); }));
  add("layer.back", "Previous layer", "The same op one layer back.", "Up",
      act([&] { bench.previous_layer(); }));
  add("step.forward", "Next step", "The same op one step on; runs the step if it has not run yet.",
      "Ctrl+Right", act([&] { bench.next_step(); }));
  add("step.back", "Previous step", "The same op one step back.", "Ctrl+Left",
      act([&] { bench.previous_step(); }));
  add("cursor.first", "First step", "The same op in step 0.", "Home",
      act([&] { bench.first_step(); }));
  add("cursor.last", "Newest step", "The same op in the newest step.", "End",
      act([&] { bench.last_step(); }));
  add("cursor.first_failure", "First failure", "The first tap that is wrong, over all steps.", "F8",
      [&](std::string_view) -> Result<void> {
        if (!bench.go_to_first_failure()) {
          bench.say(Message::Kind::kInfo, "No tap that was compared so far is wrong.");
        }
        return {};
      });
  add(
      "cursor.goto", "Go to ..",
      "Goes to an op by step, layer and name, such as 7/2/sparse_attention.", "",
      [&](std::string_view value) -> Result<void> {
        auto place = parse_place(value);
        if (!place) return place.error();
        if (!has_place(*bench.snapshot()->info, *place)) {
          return usage_error(
              fmt::format("cursor.goto: there is no {} in this model", format_place(*place)),
              "layers are the published numbers; - stands for none");
        }
        bench.go_to(*place);
        return {};
      },
      "STEP/LAYER/OP");
  add("run.until", "Run 8 steps", "Runs eight steps on.", "Ctrl+Shift+Right", act([&] {
        const std::int64_t goal = bench.snapshot()->cursor.step + 8;
        bench.run_until("running eight steps",
                        [goal](const Session& s) { return s.cursor().step >= goal; });
      }));
  add(
      "run.step", "Run to step ..", "Runs until a step is complete.", "",
      [&](std::string_view value) -> Result<void> {
        auto step = whole(value, "run.step", 0, std::int64_t{1} << 40);
        if (!step) return step.error();
        bench.run_until(fmt::format("running to step {}", *step),
                        [goal = *step](const Session& s) { return s.cursor().step > goal; });
        return {};
      },
      "STEP");
  add("run.until_decode", "Run until decode", "Runs until every request has finished its prefill.",
      "", act([&] {
        bench.run_until("running until decode", [](const Session& s) { return s.decoding(); });
      }));
  add("run.until_wrong", "Run until a wrong tap", "Runs until a step has a wrong tap.", "",
      act([&] {
        bench.run_until("running until a wrong tap", [](const Session& s) {
          return !s.history().empty() && first_wrong(s.history().back().results) != nullptr;
        });
      }));
  add("run.until_selective", "Run until the indexer chooses",
      "Runs until a token sees more entries than the indexer may select.", "", act([&] {
        bench.run_until("running until the indexer chooses", [](const Session& s) {
          const std::int64_t k = s.parts().config.index_topk;
          const auto& requests = s.serving().requests();
          return std::any_of(requests.begin(), requests.end(),
                             [&](const Request& r) { return r.computed / 4 > k; });
        });
      }));
  add("run.until_end", "Run to the end", "Runs until all requests are finished.", "Ctrl+End",
      act([&] { bench.run_until("running to the end", [](const Session&) { return false; }); }));
  commands.add({.id = "run.cancel",
                .title = "Stop",
                .group = "Session",
                .help = "Stops what is running, between two ops.",
                .shortcut = "Escape",
                .run = act([&] { bench.cancel(); }),
                .enabled = [&] { return bench.busy(); },
                .why_disabled = "nothing is running"});
  add("session.restart", "Start over", "Opens the scenario anew, from its first step.", "",
      act([&] { bench.open(RunSetup(bench.setup()), false); }));
  add(
      "lane.set", "Lane ..",
      "Who computes: LANE for all ops, OP=LANE for one; opens the scenario anew.", "",
      [&](std::string_view value) -> Result<void> {
        RunSetup setup = bench.setup();
        const auto equals = value.find('=');
        const bool of_one = equals != std::string_view::npos;
        const int op = of_one ? as_op_by_name(std::string(value.substr(0, equals)).c_str()) : -1;
        if (op >= 0) {
          set_lane(setup.lanes, static_cast<as_op_id>(op), std::string(value.substr(equals + 1)));
        } else {
          setup.lanes = {std::string(value)};  // of all ops, or refused with the names of the ops
        }
        if (auto ok = bench.check_lanes(setup.lanes); !ok) return ok;
        bench.open(std::move(setup), true);
        return {};
      },
      "LANE or OP=LANE");
  add(
      "references.set", "References ..", "What ops are compared with: none, sim or both.", "",
      [&](std::string_view value) -> Result<void> {
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

// Moves the selected token within its request, or to another request.
void move_token(Workbench& bench, std::int64_t by) {
  const std::int32_t request = bench.selected_request();
  if (request < 0) return;
  const auto& tokens =
      bench.step()->requests.empty()
          ? bench.snapshot()->requests[static_cast<std::size_t>(request)].request.tokens
          : bench.step()->requests[static_cast<std::size_t>(request)].request.tokens;
  const auto last = static_cast<std::int64_t>(tokens.size()) - 1;
  const std::int64_t from =
      bench.selection().position >= 0 ? bench.selection().position : bench.selected_position();
  bench.select_token(request,
                     std::clamp<std::int64_t>(from + by, 0, std::max<std::int64_t>(last, 0)));
}

void add_selection(const Context& c) {
  auto& commands = c.ui.commands;
  Workbench& bench = c.bench;
  const auto add = [&](const char* id, const char* title, const char* help, const char* shortcut,
                       std::function<Result<void>(std::string_view)> run,
                       const char* argument = "") {
    commands.add({.id = id,
                  .title = title,
                  .group = "Selection",
                  .help = help,
                  .shortcut = shortcut,
                  .argument = argument,
                  .run = std::move(run),
                  .enabled = [c] { return c.has_picture(); },
                  .why_disabled = kNoSession,
                  .in_menu = *argument == '\0'});
  };
  add("select.next_token", "Next token", "Selects the token after the selected one.",
      "RightBracket", act([&] { move_token(bench, 1); }));
  add("select.previous_token", "Previous token", "Selects the token before the selected one.",
      "LeftBracket", act([&] { move_token(bench, -1); }));
  add("select.newest_token", "Newest token", "Selects the request's last token in the step.", "N",
      act([&] { bench.select_token(bench.selection().request, -1); }));
  add("select.next_request", "Next request", "Selects the next request.", "R", act([&] {
        const auto count = static_cast<std::int32_t>(bench.snapshot()->info->request_names.size());
        if (count > 0) bench.select_token((bench.selection().request + 1) % count, -1);
      }));
  const auto turn_head = [&](int by) {
    Selection selection = bench.selection();
    const int heads = bench.snapshot()->info->config.heads;
    selection.head = (selection.head + by + heads) % heads;
    bench.select(selection);
  };
  add("select.next_head", "Next head", "Selects the next head.", "H",
      act([turn_head] { turn_head(1); }));
  add("select.previous_head", "Previous head", "Selects the previous head.", "Shift+H",
      act([turn_head] { turn_head(-1); }));
  add("select.none", "Clear selection", "Forgets block, entry and element; keeps the request.", "",
      act([&] {
        Selection cleared;
        cleared.request = bench.selection().request;
        bench.select(cleared);
      }));
  add(
      "select.token", "Token ..", "Selects a token by request and position, such as 0/2051.", "",
      [&](std::string_view value) -> Result<void> {
        const auto slash = value.find('/');
        const auto requests = static_cast<std::int64_t>(bench.snapshot()->requests.size());
        auto request = whole(value.substr(0, slash), "select.token, request", 0, requests - 1);
        if (!request) return request.error();
        if (slash == std::string_view::npos) {
          return usage_error("select.token: no position", "write REQUEST/POSITION, such as 0/2051");
        }
        const auto& r = bench.snapshot()->requests[static_cast<std::size_t>(*request)].request;
        auto position =
            whole(value.substr(slash + 1), "select.token, position", 0, r.num_tokens() - 1);
        if (!position) return position.error();
        bench.select_token(static_cast<std::int32_t>(*request), *position);
        return {};
      },
      "REQUEST/POSITION");
  const auto pick = [&](const char* what, auto limit, auto set) {
    return [&bench, what, limit, set](std::string_view value) -> Result<void> {
      auto number = whole(value, what, 0, limit());
      if (!number) return number.error();
      Selection selection = bench.selection();
      set(selection, *number);
      bench.select(selection);
      return {};
    };
  };
  add("select.head", "Head ..", "Selects a head.", "",
      pick(
          "select.head",
          [&bench]() -> std::int64_t { return bench.snapshot()->info->config.heads - 1; },
          [](Selection& s, std::int64_t n) { s.head = static_cast<int>(n); }),
      "HEAD");
  add("select.block", "Block ..", "Selects a block by its id.", "",
      pick(
          "select.block",
          [&bench]() -> std::int64_t { return bench.snapshot()->info->num_blocks - 1; },
          [](Selection& s, std::int64_t n) {
            s.block = static_cast<std::int32_t>(n);
            s.row = -1;
          }),
      "BLOCK");
  add("select.entry", "Entry ..", "Selects a compressed entry of the request.", "",
      pick(
          "select.entry", [] { return std::int64_t{1} << 24; },
          [](Selection& s, std::int64_t n) { s.entry = n; }),
      "ENTRY");
}

}  // namespace

void register_shell_commands(Shell& shell) {
  Ui& ui = shell.ui_;
  CommandRegistry& commands = ui.commands;
  const Context context{shell, ui, ui.bench};
  add_session(context);
  add_captures(context);
  add_selection(context);

  const auto add = [&](const char* id, const char* title, const char* group, const char* help,
                       const char* shortcut, std::function<Result<void>(std::string_view)> run,
                       const char* argument = "") {
    commands.add({.id = id,
                  .title = title,
                  .group = group,
                  .help = help,
                  .shortcut = shortcut,
                  .argument = argument,
                  .run = std::move(run),
                  .in_menu = *argument == '\0'});
  };
  add(
      "app.screenshot", "Picture ..", "File", "Writes the next frame as a PNG file.", "",
      [&shell](std::string_view value) -> Result<void> {
        if (value.empty()) return usage_error("app.screenshot: names no file");
        shell.screenshot_ = std::string(value);
        return {};
      },
      "FILE");
  add("app.reset_graphics", "Restart graphics", "File",
      "Makes the graphics context and all pictures anew, after a driver's hiccup.", "",
      act([&shell] { shell.reset_graphics_ = true; }));
  add("app.quit", "Quit", "File", "Saves settings and layout, and ends.", "Ctrl+Q",
      act([&shell] { shell.wants_close_ = true; }));

  for (const auto& panel : shell.panels_) {
    Panel* p = panel.get();
    commands.add({.id = fmt::format("panel.{}", p->id()),
                  .title = p->title(),
                  .group = "View",
                  .help = fmt::format("Brings the panel \"{}\" to the front.", p->title()),
                  .run = act([&shell, p] {
                    p->open = true;
                    shell.focus_panel_ = p->id();
                  }),
                  .checked = [p] { return p->open; }});
  }
  add(
      "panel.close", "Close panel ..", "View", "Closes a panel by its id.", "",
      [&shell](std::string_view value) -> Result<void> {
        Panel* panel = shell.panel(value);
        if (panel == nullptr) {
          std::string ids;
          for (const auto& p : shell.panels_)
            ids += fmt::format("{}{}", ids.empty() ? "" : ", ", p->id());
          return usage_error(fmt::format("panel.close: no panel '{}'", value.substr(0, 40)),
                             "panels: " + ids);
        }
        panel->open = false;
        return {};
      },
      "PANEL");

  for (const Layout& layout : layouts()) {
    commands.add({.id = fmt::format("layout.{}", layout.id),
                  .title = layout.title,
                  .group = "Layout",
                  .help = layout.help,
                  .shortcut = layout.shortcut,
                  .run = act([&shell, id = std::string(layout.id)] {
                    if (shell.layout_ == id) return;
                    shell.save();
                    shell.switch_layout(id, false);
                    shell.dirty_ = true;
                  }),
                  .checked = [&shell, id = layout.id] { return shell.layout_ == id; }});
  }
  add("layout.reset", "Reset layout", "Layout", "Puts every panel back where it was at first.",
      "Ctrl+Shift+F1", act([&shell] { shell.switch_layout(shell.layout_, true); }));

  const auto change = [&shell](auto set) {
    return act([&shell, set] { shell.change_settings(set); });
  };
  add("settings.theme_toggle", "Light or dark", "View", "Switches between light and dark.",
      "Ctrl+L", change([](Settings& s) { s.theme = theme().dark ? "light" : "dark"; }));
  add(
      "settings.theme", "Theme ..", "View", "Takes a theme by name or file.", "",
      [&shell](std::string_view value) -> Result<void> {
        auto wanted = load_theme(std::string(value));
        if (!wanted) return wanted.error();
        shell.change_settings([&](Settings& s) { s.theme = std::string(value); });
        return {};
      },
      "NAME or FILE");
  add("settings.scale_up", "Larger", "View", "Larger text and spacing.", "Ctrl+Equal",
      change([](Settings& s) { s.scale = std::min(3.0f, std::round(s.scale * 8 + 1) / 8); }));
  add("settings.scale_down", "Smaller", "View", "Smaller text and spacing.", "Ctrl+Minus",
      change([](Settings& s) { s.scale = std::max(0.75f, std::round(s.scale * 8 - 1) / 8); }));
  add(
      "settings.scale", "Scale ..", "View", "Size of text and spacing, 1 = as made.", "",
      [&shell](std::string_view value) -> Result<void> {
        auto scale = number(value, "settings.scale", 0.75f, 3);
        if (!scale) return scale.error();
        shell.change_settings([&](Settings& s) { s.scale = *scale; });
        return {};
      },
      "0.75 to 3");
  commands.add({.id = "settings.animations",
                .title = "Animations",
                .group = "View",
                .help = "Motion where it explains something.",
                .run = change([](Settings& s) { s.animations = !s.animations; }),
                .checked = [&ui] { return ui.settings.animations; }});
  commands.add({.id = "pool.free_order",
                .title = "Order of the free list",
                .group = "View",
                .help = "Free blocks of the pool map show when their turn comes.",
                .run = change([](Settings& s) { s.free_list_order = !s.free_list_order; }),
                .checked = [&ui] { return ui.settings.free_list_order; }});
  add(
      "settings.colour_map", "Colours of values ..", "View", "viridis or grey.", "",
      [&shell](std::string_view value) -> Result<void> {
        if (value != "viridis" && value != "grey") {
          return usage_error(
              fmt::format("settings.colour_map: '{}' is unknown", value.substr(0, 40)),
              "allowed: viridis, grey");
        }
        shell.change_settings([&](Settings& s) { s.colour_map = std::string(value); });
        return {};
      },
      "viridis or grey");
  add(
      "settings.trace_budget", "Memory for traces ..", "View",
      "MiB kept for the tensors of past steps; takes effect with the next session.", "",
      [&shell](std::string_view value) -> Result<void> {
        auto mb = whole(value, "settings.trace_budget", 16, 1 << 20);
        if (!mb) return mb.error();
        shell.change_settings([&](Settings& s) { s.trace_budget_mb = *mb; });
        shell.ui_.bench.set_trace_budget(*mb);
        return {};
      },
      "MiB");
  commands.add(
      {.id = "settings.undo",
       .title = "Undo setting",
       .group = "View",
       .help = "Takes the last change of a setting back.",
       .shortcut = "Ctrl+Z",
       .run = act([&shell] { shell.restore_settings(shell.undo_.undo(shell.ui_.settings)); }),
       .enabled = [&shell] { return shell.undo_.can_undo(); },
       .why_disabled = "no setting was changed"});
  commands.add(
      {.id = "settings.redo",
       .title = "Redo setting",
       .group = "View",
       .help = "Makes the change that was taken back again.",
       .shortcut = "Ctrl+Shift+Z",
       .run = act([&shell] { shell.restore_settings(shell.undo_.redo(shell.ui_.settings)); }),
       .enabled = [&shell] { return shell.undo_.can_redo(); },
       .why_disabled = "nothing was taken back"});
  add("settings.reset", "Reset settings", "View", "All settings as at first; can be undone.", "",
      change([](Settings& s) {
        Settings fresh;
        keep_state(s, fresh);
        s = fresh;
      }));
  add(
      "shortcut.set", "Shortcut ..", "View", "Gives a command a key: ID:KEYS, or ID: for none.", "",
      [&shell](std::string_view value) -> Result<void> {
        const auto colon = value.find(':');
        if (colon == std::string_view::npos) {
          return usage_error("shortcut.set: no ':'", "write ID:KEYS, such as op.forward:Ctrl+N");
        }
        auto& registry = shell.ui_.commands;
        const std::string id(value.substr(0, colon));
        if (auto ok = registry.set_shortcut(id, std::string(value.substr(colon + 1))); !ok)
          return ok;
        shell.change_settings([&](Settings& s) { s.shortcuts = registry.user_shortcuts(); });
        return {};
      },
      "ID:KEYS");
  add("shortcut.reset", "Reset shortcuts", "View", "All shortcuts as at first.", "", act([&shell] {
        shell.ui_.commands.reset_shortcuts();
        shell.change_settings([](Settings& s) { s.shortcuts.clear(); });
      }));
  commands.add({.id = "tour.seen",
                .title = "Tour seen",
                .group = "Help",
                .help = "The tour does not show itself again.",
                .run = act([&ui] { ui.settings.tour_seen = true; }),  // no setting to undo
                .in_menu = false});
}

}  // namespace attnscope::gui
