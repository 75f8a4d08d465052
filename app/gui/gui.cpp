#include "app/gui/gui.h"

#include <fmt/format.h>
#include <imgui.h>

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>

#include "app/gui/file_dialog.h"
#include "app/gui/layouts.h"
#include "app/gui/loop.h"
#include "app/gui/process_memory.h"
#include "app/reports/report.h"
#include "app/text/format.h"
#include "app/text/say.h"
#include "app/text/state_folder.h"
#include "app/wiring/plugins.h"
#include "app/wiring/wiring.h"
#include "engine/io/json_file.h"
#include "engine/session/coverage.h"

namespace attnscope::gui {
namespace {

constexpr int kWidth = 1600, kHeight = 1000;
constexpr double kPatience = 60;  // of a picture for panels that are still computing

Result<void> open_first(App& app, const std::string& name, const GuiOptions& options) {
  if (is_capture_folder(name)) return app.bench().open_capture(name);
  if (auto ok = app.bench().check_lanes(options.lanes); !ok) return ok;  // before prompts are read
  auto scenario = load_scenario(name, options.model);
  if (!scenario) return scenario.error();
  RunSetup setup;
  setup.scenario = std::move(*scenario);
  setup.references = options.references;
  setup.lanes = options.lanes;
  if (auto ok = app.bench().check_setup(setup); !ok) return ok;
  app.bench().open(std::move(setup), true);
  return {};
}

Result<void> check_layout(const std::string& id) {
  if (id.empty() || find_layout(id) != nullptr) return {};
  std::string names;
  for (const Layout& layout : layouts()) {
    names += fmt::format("{}{}", names.empty() ? "" : ", ", layout.id);
  }
  return usage_error(fmt::format("--layout {}: unknown", id), "layouts: " + names);
}

// The place to go to and the commands to run once there is a picture, in this order.
std::vector<std::string> first_commands(const GuiOptions& options) {
  std::vector<std::string> commands = options.commands;
  if (!options.at.empty()) commands.insert(commands.begin(), "cursor.goto=" + options.at);
  return commands;
}

// A wrong word is said before a window opens or the first steps run, which may take their time.
Result<void> check_words(App& app, const GuiOptions& options) {
  for (const std::string& command : first_commands(options)) {
    if (auto known = app.commands().find_named(command); !known) return known.error();
  }
  return check_layout(options.layout);
}

// A checked one.
Result<void> choose_layout(App& app, const std::string& id) {
  if (id.empty()) return {};
  return app.commands().run("layout." + id);
}

// A place is gone to by the engine, which may find that the run has none; a picture of another
// place would be taken for it.
Result<void> check_arrived(const Workbench& bench, std::string_view command) {
  constexpr std::string_view kGoTo = "cursor.goto=";
  if (!command.starts_with(kGoTo)) return {};
  const auto place = parse_place(command.substr(kGoTo.size()));
  if (!place || bench.cursor() == *place) return {};
  std::string why = fmt::format("cursor.goto: {} was not reached", format_place(*place));
  if (!bench.messages().empty()) why = bench.messages().back().text;
  return bad_input(why, "");
}

// Some frames: docking finds its sizes, and a panel that was brought to the front is drawn. What it
// computes on a thread of its own ends before the next command, which may save it.
Result<void> draw_frames(App& app, Platform& platform) {
  constexpr int kFrames = 4;
  const double end = now_seconds() + kPatience;
  const auto waits = [&] { return app.shell().animating() && now_seconds() < end; };
  for (int i = 0; i < kFrames; i = waits() ? 1 : i + 1) {
    platform.begin_frame(0);
    app.frame();
  }
  if (auto ok = platform.render(); !ok) return ok;
  write_due_picture(app, platform);
  return {};
}

// A picture of what a panel could not compute would be taken for a result.
Result<void> check_computed(App& app) {
  const std::string why = app.shell().failure();
  return why.empty() ? Result<void>() : bad_input(why, "");
}

// All of it, waiting for each part. As in a window there are frames between commands: some are
// about what is on the screen.
Result<void> prepare(App& app, Platform& platform, const GuiOptions& options) {
  const std::string name = options.scenario.empty() ? "default" : options.scenario;
  const std::vector<std::string> commands = first_commands(options);
  if (auto ok = open_first(app, name, options); !ok) return ok;
  if (auto ok = choose_layout(app, options.layout); !ok) return ok;
  app.bench().wait_idle();
  if (!commands.empty()) {
    if (auto ok = draw_frames(app, platform); !ok) return ok;
  }
  for (const std::string& command : commands) {
    if (auto ok = app.commands().run(command); !ok) return ok;
    app.bench().wait_idle();
    if (auto ok = check_arrived(app.bench(), command); !ok) return ok;
    if (auto ok = draw_frames(app, platform); !ok) return ok;
    if (auto ok = check_computed(app); !ok) return ok;
  }
  return {};
}

// What only `attnscope run` keeps: left out, not zero.
void leave_out_unknown(nlohmann::json& report) {
  for (const char* key : {"ref_model", "invariants", "distributions", "context_parallel"}) {
    report.erase(key);
  }
  for (const char* key : {"peak_bytes", "hashing_seconds"}) report["run"].erase(key);
  for (const char* key : {"drafted_tokens", "accepted_drafts", "swaps_refused"}) {
    report["serving"].erase(key);
  }
  for (nlohmann::json& step : report["steps"]) {
    for (const char* key : {"sampled", "drafted", "accepted", "proposed"}) step.erase(key);
  }
}

Result<void> write_report(const Workbench& bench, const std::string& path) {
  const Snapshot* now = bench.snapshot();
  if (now == nullptr) return {};
  RunOptions options;
  options.session.lanes = bench.setup().lanes;
  options.session.references = bench.setup().references;
  RunResult result;
  result.lanes = now->info->lanes;
  result.weights_read = now->info->weights_read;
  result.guard = now->invariants;
  result.guarded_steps = now->invariant_steps;
  result.violation = now->violation;
  result.decisions = now->decisions;
  result.wrong_decision = now->wrong_decision;
  std::vector<TapResult> all;
  std::map<std::int64_t, StepCoverage> covered;
  for (const auto& step : now->steps) {
    if (!step->complete) continue;
    StepRecord record;
    record.step = step->step;
    record.tokens = step->tokens;
    record.decode_only = step->decode_only;
    record.seconds = step->seconds;
    record.wall_seconds = step->wall_seconds;
    record.results = step->results;
    record.timings = step->timings;
    record.selective = step->selective;
    record.pools = step->pools;
    result.serving.hit_tokens += step->hit_tokens;
    result.serving.preemptions += step->preemptions;
    for (const Event& e : step->events) result.serving.hits += e.kind == EventKind::kHit ? 1 : 0;
    if (step->cache_events) {
      for (const CacheEvent& e : *step->cache_events) {
        result.serving.blocks_out += e.kind == CacheEventKind::kSwapOut ? 1 : 0;
        result.serving.blocks_in += e.kind == CacheEventKind::kSwapIn ? 1 : 0;
      }
    }
    if (step->coverage) covered.emplace(step->step, *step->coverage);
    result.decode_steps += step->decode_only ? 1 : 0;
    result.engine_seconds += step->seconds;
    result.wall_seconds += step->wall_seconds;
    all.insert(all.end(), step->results.begin(), step->results.end());
    result.steps.push_back(std::move(record));
  }
  for (const RequestView& r : now->requests) {
    result.serving.recomputed += r.request.recomputed;
    const bool aborted = r.request.state == RequestState::kAborted;
    result.serving.aborted += aborted ? 1 : 0;
    result.serving.tokenless += r.request.ended_tokenless() ? 1 : 0;
  }
  result.coverage = exercised(now->info->config, covered);
  result.summary = summarise(all, now->info->drift_limit);
  options.steps = static_cast<std::int64_t>(result.steps.size());
  nlohmann::json report = make_report(bench.setup().scenario, options, result,
                                      run_key(bench.setup().scenario, options));
  leave_out_unknown(report);
  return write_text_file(path, json_text(report, 1) + "\n");
}

// One picture (or all of the tour), then the end.
Result<as_status> run_once(const GuiOptions& options, const GuiParts& parts,
                           const std::string& state) {
  App::Options app_options;
  app_options.state_folder = state;
  app_options.keep_settings = false;
  app_options.threads = options.threads;
  App app(app_options, parts);
  app.settings().tour_seen = true;
  app.settings().animations = false;
  if (auto ok = check_words(app, options); !ok) return ok.error();
  for (const std::string& problem : app.problems()) say(stderr, "attnscope: {}\n", problem);
  auto platform = make_offscreen(options.width > 0 ? options.width : kWidth,
                                 options.height > 0 ? options.height : kHeight);
  if (!platform) return platform.error();
  app.shell().set_graphics((*platform)->description());
  if (auto ok = prepare(app, **platform, options); !ok) return ok.error();
  if (!options.tour.empty()) {
    if (auto ok = write_tour(app, **platform, options.tour); !ok) return ok.error();
    say("pictures: {}\n", std::filesystem::absolute(options.tour).string());
    return AS_OK;
  }
  auto picture = settled_picture(app, **platform);
  if (!picture) return picture.error();
  if (auto ok = check_computed(app); !ok) return ok.error();
  const std::vector<std::string> printed = plugin_faults();  // when they happened
  bool damaged = false;                                      // a capture that is shown
  for (const Message& message : app.bench().messages()) {
    const bool again = std::ranges::any_of(
        printed, [&](const std::string& fault) { return message.text.starts_with(fault); });
    if (message.kind == Message::Kind::kError && !again) {
      say(stderr, "attnscope: {}\n", message.text);
      damaged = damaged || app.bench().capture() != nullptr;
    }
  }
  if (auto ok = write_png(*picture, options.screenshot); !ok) return ok.error();
  say("picture: {}\n", std::filesystem::absolute(options.screenshot).string());
  if (!options.report.empty()) {
    if (auto ok = write_report(app.bench(), options.report); !ok) return ok.error();
    say("report:  {}\n", std::filesystem::absolute(options.report).string());
  }
  return damaged ? AS_BAD_INPUT : AS_OK;
}

Result<as_status> run_window(const GuiOptions& options, const GuiParts& parts,
                             const std::string& state) {
  App::Options app_options;
  app_options.state_folder = state;
  app_options.threads = options.threads;
  // The session's thread wakes the window; the window comes after the session and ends before it.
  std::atomic<Platform*> awake{nullptr};
  app_options.on_change = [&] {
    if (Platform* platform = awake.load()) platform->wake();
  };
  App app(app_options, parts);
  if (auto ok = check_words(app, options); !ok) return ok.error();
  for (const std::string& problem : app.problems()) say(stderr, "attnscope: {}\n", problem);
  const Settings& settings = app.settings();
  auto platform =
      make_window("attnscope", options.width > 0 ? options.width : settings.window_width,
                  options.height > 0 ? options.height : settings.window_height, settings.window_at);
  if (!platform) return platform.error();
  awake = platform->get();
  app.shell().set_content_scale((*platform)->content_scale());
  app.shell().set_graphics((*platform)->description());
  (*platform)->on_drop = [&](const std::vector<std::string>& files) {
    for (const std::string& file : files) app.shell().ui().run(opening_command(file));
  };
  // What was open last time comes back, unless something else is asked for.
  const std::string wanted = options.scenario.empty() ? settings.scenario : options.scenario;
  Result<void> opened = open_first(app, wanted, options);
  if (opened) {
    remember(app.settings(), wanted);
  } else if (options.scenario.empty()) {
    app.bench().say(Message::Kind::kWarning, opened.error().text());
    opened = open_first(app, "default", options);
  }
  // The window opens all the same: another scenario or layout can be chosen there.
  Result<void> prepared = opened ? choose_layout(app, options.layout) : opened;
  if (!prepared) complain(app, prepared.error());
  const double start = now_seconds();
  const auto commands = prepared ? first_commands(options) : std::vector<std::string>();
  Result<void> ran = run_loop(app, **platform, commands, [&] {
    app.bench().say(Message::Kind::kNote, fmt::format("First picture {} after the window opened.",
                                                      format_us((now_seconds() - start) * 1e6)));
  });
  awake = nullptr;
  platform->reset();
  if (!ran) return ran.error();
  return AS_OK;
}

}  // namespace

Result<Image> settled_picture(App& app, Platform& platform) {
  app.bench().wait_idle();
  // Docking, tables and wrapped texts need some frames to find their sizes; what a panel computes
  // on a thread of its own (two captures compared) takes its time.
  const double end = now_seconds() + kPatience;
  const auto waits = [&] { return app.shell().animating() && now_seconds() < end; };
  for (int i = 0, quiet = 0; i < 40 && quiet < 6; i = waits() ? 0 : i + 1) {
    platform.begin_frame(0);
    const bool changed = app.frame();
    if (auto ok = platform.render(); !ok) return ok.error();
    if (app.bench().busy()) app.bench().wait_idle();
    quiet = changed || app.shell().animating() ? 0 : quiet + 1;
  }
  return platform.read_pixels();
}

Result<as_status> run_gui(const GuiOptions& options, const GuiParts& parts) {
  give_memory_back();
  std::string state;
  if (auto folder = state_folder()) {
    state = *folder;
  } else {
    say(stderr, "attnscope: {}; settings will not be kept\n", folder.error().text());
  }
  if (!options.tour.empty() || !options.screenshot.empty()) return run_once(options, parts, state);
  if (!has_display()) {
    if (state.empty()) {
      return Error{AS_NO_ENVIRONMENT, "no display, and no folder to put a picture into",
                   "set DISPLAY, or use --screenshot FILE"};
    }
    say("no display (DISPLAY is not set): drawing off screen\n");
    GuiOptions once = options;
    once.screenshot = state + "/attnscope.png";
    once.report = state + "/attnscope.json";
    return run_once(once, parts, state);
  }
  return run_window(options, parts, state);
}

}  // namespace attnscope::gui
