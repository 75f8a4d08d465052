#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>

#include "app/cli/capture_commands.h"
#include "app/cli/look_at.h"
#include "app/cli/model_options.h"
#include "app/reports/case_check.h"
#include "app/reports/case_of_capture.h"
#include "app/reports/case_python.h"
#include "app/reports/report_parts.h"
#include "app/text/format.h"
#include "app/text/overwrite.h"
#include "app/text/say.h"
#include "app/wiring/case_lane.h"
#include "app/wiring/plugins.h"
#include "app/wiring/wiring.h"
#include "engine/io/json_file.h"
#include "engine/io/shell_word.h"
#include "engine/model/numbers.h"
#include "engine/opcase/case_file.h"
#include "engine/session/place.h"
#include "kernels/cpu/thread_pool.h"

namespace attnscope {
namespace {

using nlohmann::json;
using Action = std::function<Result<as_status>()>;

std::string extents_text(const std::vector<std::int64_t>& shape) {
  return fmt::format("[{}]", fmt::join(shape, ","));
}

// ---- save

struct SaveCommand {
  LookAt at;
  std::string output;
  bool force = false;
};

Result<OpCase> case_of_scenario(const LookAt& at, const Place& place) {
  auto session = session_at(at, place, nullptr);
  if (!session) return session.error();
  const OpParams& params = (*session)->last_called();
  return keep_case(*find_case_op(params.op()), params.data(),
                   {at.scenario, (*session)->lanes().lane(place.op), place.step, place.layer});
}

Result<OpCase> case_of_recording(const std::string& path, const Place& place) {
  auto capture = Capture::open(path);
  if (!capture) return capture.error();
  return case_of_capture(**capture, place);
}

// A case that `save` made makes room for another one. What was imported or edited does not.
bool can_be_saved_again(const std::string& path) {
  const auto kept = read_case(path);
  return kept && kept->origin.step >= 0 && !kept->origin.from.ends_with(", edited");
}

Result<as_status> save_command(const SaveCommand& c) {
  auto place = parse_place(c.at.place);
  if (!place) return place.error();
  if (is_capture_folder(c.at.scenario) && c.at.model.any()) {
    return usage_error(
        fmt::format("{} is a capture: its model and its inputs are recorded", c.at.scenario),
        "leave out --model, --layers, --hidden-states, --tp and --rank, or name a scenario");
  }
  if (auto ok = check_free(c.output, c.force || can_be_saved_again(c.output)); !ok) {
    return ok.error();
  }
  auto kept = is_capture_folder(c.at.scenario) ? case_of_recording(c.at.scenario, *place)
                                               : case_of_scenario(c.at, *place);
  if (!kept) return kept.error();
  if (auto ok = check_kept(*kept, all_lanes()); !ok) return ok.error();
  if (auto ok = write_case(*kept, c.output); !ok) return ok.error();
  std::size_t bytes = 0;
  for (const auto& [name, t] : kept->tensors) bytes += t.bytes.size();
  for (const auto& [name, t] : kept->caches) bytes += t.rows.size();
  if (c.at.json) {
    say_json(json({{"format", "attnscope-case-save"},
                   {"version", 1},
                   {"file", c.output},
                   {"op", kept->op.name},
                   {"bytes", bytes}}));
  } else {
    say("{}: {}, {}, {}, {}\n", c.output, format_place(*place),
        plural(to_count(kept->tensors.size()), "tensor", "tensors"),
        plural(to_count(kept->caches.size()), "cache", "caches"),
        format_bytes(static_cast<double>(bytes)));
  }
  return AS_OK;
}

void add_case_save(CLI::App& app, Action& action) {
  auto* save = app.add_subcommand("save", "Keep one op's call: its numbers, inputs and outputs");
  auto c = std::make_shared<SaveCommand>();
  save->add_option("scenario", c->at.scenario,
                   "File, name from assets/scenarios, or a full capture")
      ->required();
  save->add_option("--at", c->at.place,
                   "STEP/LAYER/OP, such as 7/2/sparse_attention; layer - = none")
      ->required();
  save->add_option("-o,--output", c->output, "NAME.json; tensors go to NAME.safetensors beside it")
      ->required();
  add_model_options(*save, std::shared_ptr<ModelChoice>(c, &c->at.model));
  save->add_option("--lane", c->at.lanes, "LANE for all ops, or OP=LANE for one; may be repeated")
      ->allow_extra_args(false)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  save->add_option("--profile", c->at.profile, kProfileHelp)->check(check_profile);
  save->add_option("--threads", c->at.threads, "Threads, 0 = all")->check(CLI::Range(0, 4096));
  save->add_flag("--force", c->force, "Replace a file that is no case");
  save->add_flag("--json", c->at.json, "Print as JSON");
  save->callback([=, &action] { action = [=] { return save_command(*c); }; });
}

// ---- run

struct RunCaseCommand {
  std::vector<std::string> files, lanes = {"cpu"};
  std::string tolerances;
  int threads = 0, repeat = 3;
  bool as_json = false;
};

// An output without an element says nothing.
const char* shown_verdict(const CaseTap& tap) {
  return verdict_name(tap.comparison.elements > 0 ? tap.verdict : Verdict::kNotCompared);
}

json run_json(const std::string& file, const OpCase& kept, const CaseRun& run) {
  json taps = json::array();
  for (const CaseTap& t : run.taps) {
    json worst = nullptr;
    if (!t.comparison.worst.index.empty() && t.comparison.budget_used > 0) {
      worst = {{"index", t.comparison.worst.index},
               {"value", number_json(t.comparison.worst.value)},
               {"expected", number_json(t.comparison.worst.reference)}};
    }
    taps.push_back({{"tap", t.tap},
                    {"dtype", t.dtype},
                    {"shape", t.shape},
                    {"verdict", shown_verdict(t)},
                    {"tolerance", t.tolerance},
                    {"elements", t.comparison.elements},
                    {"differing", t.comparison.figures.differing},
                    {"beyond", t.comparison.figures.beyond},
                    {"max_abs", number_json(t.comparison.figures.max_abs)},
                    {"cosine", number_json(t.comparison.figures.cosine)},
                    {"budget_used", number_json(t.comparison.budget_used)},
                    {"worst", worst},
                    {"note", t.note}});
  }
  return {{"format", "attnscope-case-run"},
          {"version", 1},
          {"file", file},
          {"op", kept.op.name},
          {"lane", run.lane},
          {"stored_lane", kept.origin.lane},
          {"microseconds", run.microseconds},
          {"taps", taps},
          {"trespasses", run.trespasses},
          {"compared", run.compared()},
          {"right", run.right()}};
}

void print_run(const std::string& file, const OpCase& kept, const CaseRun& run) {
  say("{}: {}, lane {} against {} of lane {}, {}\n", file, kept.op.name, run.lane,
      kept.origin.step >= 0
          ? format_place({kept.origin.step, kept.origin.layer, static_cast<as_op_id>(kept.op.id)})
          : kept.origin.from,
      kept.origin.lane, format_us(run.microseconds));
  for (const CaseTap& t : run.taps) {
    const Comparison& c = t.comparison;
    say("  {:<12} {:<5} {:<18} {:<12} {:>9} of {} differ, max abs {}, {:.3g} of {}\n", t.tap,
        t.dtype, extents_text(t.shape), shown_verdict(t), c.figures.differing, c.elements,
        format_error(c.figures.max_abs), c.budget_used, t.tolerance);
    if (t.verdict == Verdict::kWrong && !c.worst.index.empty() &&
        (c.figures.beyond > 0 || t.rule.top_k)) {
      say("    worst at {}: {} instead of {}\n", extents_text(c.worst.index),
          format_exact(c.worst.value), format_exact(c.worst.reference));
    }
    if (!t.note.empty()) say("    {}\n", t.note);
  }
  for (const std::string& text : run.trespasses) {
    say("  wrote where it must not: {}\n", text);
  }
  const bool silent = run.compared() == 0 && run.trespasses.empty();
  if (silent) {
    say("  not compared: {}\n", kept.unknown.empty()
                                    ? "the call has no element to put out"
                                    : "nothing is known of what it should put out");
  } else {
    say("  {}\n", run.right() ? "right" : "wrong");
  }
}

Result<as_status> run_case_command(const RunCaseCommand& c) {
  auto tolerances = Tolerances::load(c.tolerances);
  if (!tolerances) return tolerances.error();
  const LaneRegistry registry = all_lanes();
  // A case asks what the plugin does: nobody stands in.
  for (const auto& plugin : plugins()) plugin->set_strict(true);
  const cpu::ThreadPool pool(c.threads);
  json runs = json::array();
  bool right = true;
  for (const std::string& file : c.files) {
    auto kept = read_case(file);
    if (!kept) return kept.error();
    CaseRunOptions options = case_options(registry, kept->op, *tolerances, pool.handle());
    options.judge_kept_lists = true;
    options.repeat = c.repeat;
    for (const std::string& name : c.lanes) {
      auto lane = find_case_lane(registry, name, kept->op);
      if (!lane) return lane.error();
      PluginLane* plugin = find_plugin(name);
      const std::int64_t failures = plugin != nullptr ? plugin->failures() : 0;
      if (plugin != nullptr) plugin->reset_timings();
      auto run = run_case(*kept, *lane, options);
      if (plugin != nullptr && plugin->failures() > failures) {
        // That is what the case is there to find out; the others are run all the same.
        const std::string what = run ? "the plugin failed" : run.error().message;
        say(stderr, "attnscope: {}: {}\n", file, what);
        runs.push_back({{"format", "attnscope-case-run"},
                        {"version", 1},
                        {"file", file},
                        {"op", kept->op.name},
                        {"lane", name},
                        {"right", false},
                        {"error", what}});
        right = false;
        continue;
      }
      if (plugin != nullptr && run) {
        for (const PluginTiming& t : plugin->timings()) {
          if (t.op == kept->op.id) run->microseconds = t.microseconds;
        }
      }
      if (!run) {
        return Error{run.error().code, fmt::format("{}: {}", file, run.error().message),
                     run.error().hint};
      }
      right = right && run->right();
      if (c.as_json) {
        runs.push_back(run_json(file, *kept, *run));
      } else {
        print_run(file, *kept, *run);
      }
    }
  }
  if (c.as_json) {
    say_json(runs.size() == 1
                 ? runs[0]
                 : json{{"format", "attnscope-case-runs"}, {"version", 1}, {"runs", runs}});
  }
  return right ? AS_OK : AS_MISMATCH;
}

void add_case_run(CLI::App& app, Action& action) {
  auto* run =
      app.add_subcommand("run", "Run cases in a lane and compare with the outputs that they hold");
  auto c = std::make_shared<RunCaseCommand>();
  run->add_option("files", c->files, "Cases: .json files of 'attnscope case save'")->required();
  run->add_option("--lane", c->lanes, "cpu, cuda, mutant:NAME, ref.sim, ..; may be repeated")
      ->allow_extra_args(false)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  run->add_option("--tolerances", c->tolerances,
                  "Tolerance file (default: assets/tolerances.json)");
  run->add_option("--repeat", c->repeat, "Calls; the fastest one's time is shown (3)")
      ->check(CLI::Range(1, 1000000));
  run->add_option("--threads", c->threads, "Threads, 0 = all")->check(CLI::Range(0, 4096));
  run->add_flag("--json", c->as_json, "Print as JSON");
  run->callback([=, &action] { action = [=] { return run_case_command(*c); }; });
}

// ---- show

Result<as_status> show_case(const std::string& file, bool as_json) {
  auto kept = read_case(file);
  if (!kept) return kept.error();
  json tensors = json::array();
  if (!as_json) {
    say("{}: {}\n  {}\n  from {}{}, lane {}\n", file, kept->op.name, kept->op.summary,
        kept->origin.from,
        kept->origin.step >= 0 ? ", " + format_place({kept->origin.step, kept->origin.layer,
                                                      static_cast<as_op_id>(kept->op.id)})
                               : "",
        kept->origin.lane);
    for (const auto& [name, v] : kept->integers) say("  {} = {}\n", name, v);
    for (const auto& [name, v] : kept->reals) say("  {} = {}\n", name, format_exact(v));
  }
  for (const as_tap_info& tap : kept->op.taps) {
    const char* side = tap.direction == AS_TAP_IN ? "in" : "out";
    if (const auto t = kept->tensors.find(tap.name); t != kept->tensors.end()) {
      const std::string dtype = as_dtype_name(t->second.dtype);
      tensors.push_back(
          {{"tap", tap.name}, {"side", side}, {"dtype", dtype}, {"shape", t->second.shape}});
      if (!as_json) {
        say("  {:<3} {:<14} {:<5} {}\n", side, tap.name, dtype, extents_text(t->second.shape));
      }
    } else if (const auto r = kept->caches.find(tap.name); r != kept->caches.end()) {
      tensors.push_back({{"tap", tap.name}, {"side", side}, {"rows", r->second.slots.size()}});
      if (!as_json) {
        say("  {:<3} {:<14} {} rows of {} bytes, of {} blocks of {}\n", side, tap.name,
            r->second.slots.size(), r->second.row_bytes(), r->second.blocks,
            r->second.rows_per_block);
      }
    }
  }
  if (as_json) {
    say_json(json({{"format", "attnscope-case-show"},
                   {"version", 1},
                   {"file", file},
                   {"op", kept->op.name},
                   {"integers", kept->integers},
                   {"reals", kept->reals},
                   {"taps", tensors}}));
  }
  return AS_OK;
}

void add_case_show(CLI::App& app, Action& action) {
  auto* show = app.add_subcommand("show", "What a case holds");
  struct Command {
    std::string file;
    bool as_json = false;
  };
  auto c = std::make_shared<Command>();
  show->add_option("file", c->file, "A case")->required();
  show->add_flag("--json", c->as_json, "Print as JSON");
  show->callback([=, &action] { action = [=] { return show_case(c->file, c->as_json); }; });
}

// ---- export

struct ExportCommand {
  std::string file, output, tolerances;
  bool python = false, force = false;
};

Result<as_status> export_command(const ExportCommand& c) {
  namespace fs = std::filesystem;
  if (!c.python) return usage_error("case export: into what?", "--python writes a script");
  auto kept = read_case(c.file);
  if (!kept) return kept.error();
  auto tolerances = Tolerances::load(c.tolerances);
  if (!tolerances) return tolerances.error();
  const fs::path output =
      c.output.empty() ? fs::path(c.file).replace_extension(".py") : fs::path(c.output);
  if (auto ok = check_free(output.string(), c.force); !ok) return ok.error();
  std::error_code code;
  const fs::path folder = fs::absolute(output, code).parent_path();
  // The script finds its case wherever both are moved together.
  const fs::path from = fs::relative(fs::absolute(c.file, code), folder, code);
  auto script = python_script(*kept, code ? c.file : from.string(), *tolerances);
  if (!script) return script.error();
  if (auto ok = write_text_file(output.string(), *script); !ok) return ok.error();
  say("{}: python3 {} FILE.py calls run(case) of FILE.py\n", output.string(),
      shell_word(output.string()));
  return AS_OK;
}

void add_case_export(CLI::App& app, Action& action) {
  auto* command =
      app.add_subcommand("export", "Write a script that runs the case with a function of yours");
  auto c = std::make_shared<ExportCommand>();
  command->add_option("file", c->file, "A case")->required();
  command->add_flag("--python", c->python, "A Python script, for numpy or torch");
  command->add_option("-o,--output", c->output, "The script (default: NAME.py beside NAME.json)");
  command->add_option("--tolerances", c->tolerances,
                      "Tolerance file (default: assets/tolerances.json)");
  command->add_flag("--force", c->force, kForceHelp);
  command->callback([=, &action] { action = [=] { return export_command(*c); }; });
}

}  // namespace

void add_case_commands(CLI::App& app, Action& action) {
  auto* group = app.add_subcommand(
      "case", "Single calls of ops: save, run in any lane, explain, show, edit, export, import");
  group->require_subcommand(1);
  add_case_save(*group, action);
  add_case_run(*group, action);
  add_case_explain(*group, action);
  add_case_show(*group, action);
  add_case_edit(*group, action);
  add_case_export(*group, action);
  add_case_import(*group, action);
}

}  // namespace attnscope
