#include <fmt/format.h>
#include <unistd.h>

#include <memory>
#include <nlohmann/json.hpp>

#include "app/cli/capture_commands.h"
#include "app/cli/commands.h"
#include "app/cli/look_at.h"
#include "app/cli/model_options.h"
#include "app/cli/number_check.h"
#include "app/cli/progress_bar.h"
#include "app/reports/capture_record.h"
#include "app/reports/capture_report.h"
#include "app/reports/chrome_trace.h"
#include "app/reports/report_parts.h"
#include "app/text/format.h"
#include "app/text/interrupt.h"
#include "app/text/overwrite.h"
#include "app/text/say.h"
#include "app/wiring/wiring.h"
#include "engine/capture/capture_pack.h"
#include "engine/family/family.h"
#include "engine/io/nearest.h"
#include "engine/io/shell_word.h"
#include "engine/session/lanes_ran.h"

namespace attnscope {
namespace {

using Action = std::function<Result<as_status>()>;

struct RecordCommand {
  ModelChoice model;
  std::string scenario, path, level = "tables", references = "both";
  std::vector<std::string> lanes, ops, requests;
  std::vector<std::string> layers;
  std::string steps_filter, cache_steps, rows, profile, tolerances;
  std::int64_t steps = -1, decode_steps = -1;
  int threads = 0;
  bool weights = false, json = false, force = false, as_served = false, serial = false;
};

// The options of a recording of times are those that it can keep.
Result<void> serve(RecordCommand& c) {
  if (c.references == "sim" || c.level == "full" || !c.rows.empty() || c.weights ||
      !c.cache_steps.empty() || !c.requests.empty()) {
    return usage_error("--as-served keeps when ops ran, and no values",
                       "leave out --references, --level full, --rows, --request, --cache-at and "
                       "--weights, or --as-served");
  }
  c.references = "none";
  c.level = "summary";
  return {};
}

Result<CaptureFilter> parse_filter(const RecordCommand& c, const ModelConfig& model) {
  CaptureFilter filter;
  if (!c.steps_filter.empty()) {
    auto ranges = parse_ranges(c.steps_filter, "--at-steps");
    if (!ranges) return ranges.error();
    filter.steps = std::move(*ranges);
  }
  for (const std::string& text : c.layers) {
    int layer = -2;
    for (const int known : model.layers) {
      if (text == std::to_string(known)) layer = known;
    }
    if (text == "-") layer = -1;
    if (layer == -2) {
      return usage_error(
          fmt::format("--layer {}: the model does not run it", text),
          fmt::format("layers: {}, or - for the ops outside them", fmt::join(model.layers, ", ")));
    }
    filter.layers.push_back(layer);
  }
  for (const std::string& text : c.ops) {
    const std::int32_t op = as_step_op_by_name(text.c_str());
    if (op < 0) {
      std::vector<std::string> names;
      for (int i = 0; const as_op_info* known = as_op_at(i); ++i) {
        if (as_step_op_by_name(known->name) >= 0) names.emplace_back(known->name);
      }
      return usage_error(fmt::format("--op {}: there is no such op", text),
                         did_you_mean(text, names) + "'attnscope ops' lists them");
    }
    filter.ops.push_back(static_cast<as_op_id>(op));
  }
  return filter;
}

// Known before the run where its number of steps is.
Result<void> check_steps(const RecordCommand& c, const CaptureOptions& capture) {
  if (c.steps < 0) return {};
  const auto check = [&](const char* option, std::int64_t step) -> Result<void> {
    if (step < c.steps) return {};
    return usage_error(fmt::format("{} {}: with --steps {} the run ends after step {}", option,
                                   step, c.steps, c.steps - 1),
                       "ask for more --steps, or for an earlier one");
  };
  for (const CaptureFilter::Range& range : capture.filter.steps) {
    if (auto ok = check("--at-steps", range.first); !ok) return ok;
  }
  for (const std::int64_t step : capture.cache_steps) {
    if (auto ok = check("--cache-at", step); !ok) return ok;
  }
  return {};
}

Result<RecordOptions> record_options(const RecordCommand& c, const Scenario& scenario) {
  RecordOptions options;
  if (c.steps >= 0) options.run.steps = c.steps;
  if (c.decode_steps >= 0) options.run.decode_steps = c.decode_steps;
  if (!c.lanes.empty()) options.run.session.lanes = c.lanes;
  options.run.session.tolerance_file = c.tolerances;
  options.run.session.threads = c.threads;
  options.run.session.serial = c.serial;
  options.as_served = c.as_served;
  options.run.session.references = c.references == "none"  ? References::kNone
                                   : c.references == "sim" ? References::kSim
                                                           : References::kBoth;
  options.capture.level = *capture_level_by_name(c.level);
  auto filter = parse_filter(c, scenario.model);
  if (!filter) return filter.error();
  options.capture.filter = std::move(*filter);
  if (!options.capture.filter.empty() && options.capture.level != CaptureLevel::kFull) {
    return usage_error("--at-steps, --layer and --op choose whose values are kept",
                       "values are kept at --level full");
  }
  options.capture.weights = c.weights;
  options.capture.replace = c.force;
  if (!c.cache_steps.empty()) {
    auto ranges = parse_ranges(c.cache_steps, "--cache-at");
    if (!ranges) return ranges.error();
    for (const CaptureFilter::Range& range : *ranges) {
      if (range.last - range.first > 100000) {
        return usage_error("--cache-at: more than 100000 steps", "name fewer");
      }
      for (std::int64_t s = range.first; s <= range.last; ++s) {
        options.capture.cache_steps.push_back(s);
      }
    }
  }
  if (auto ok = check_steps(c, options.capture); !ok) return ok.error();
  options.requests = c.requests;
  if (!c.rows.empty()) options.rows = c.rows == "all" ? 0 : std::atoll(c.rows.c_str());
  return options;
}

Result<as_status> record_command(RecordCommand c) {
  if (c.as_served) {
    if (auto ok = serve(c); !ok) return ok.error();
  }
  auto scenario = scenario_with_profile(c.scenario, c.profile, c.model);
  if (!scenario) return scenario.error();
  auto options = record_options(c, *scenario);
  if (!options) return options.error();
  if (auto ok = check_free(c.path, c.force); !ok) return ok.error();
  catch_interrupts();
  options->cancelled = [] { return interrupted() != 0; };
  auto result = [&] {
    ProgressBar bar;
    return record_scenario(*scenario, all_lanes(), *options, c.path,
                           [&](const RunProgress& p) { bar(p); });
  }();
  if (!result) return result.error();
  if (result->cancelled) ended_early();
  const bool bad = result->summary.count(Verdict::kWrong) > 0 || result->summary.diverged ||
                   result->summary.stood_in;
  const std::string verdict = result->cancelled && !bad ? "incomplete" : result->summary.verdict();
  const std::string& where = result->cancelled ? result->folder : c.path;
  if (c.json) {
    say_json(nlohmann::json({{"format", "attnscope-record"},
                             {"version", 1},
                             {"path", where},
                             {"complete", !result->cancelled},
                             {"interrupted", result->cancelled ? nlohmann::json(interrupt_name())
                                                               : nlohmann::json(nullptr)},
                             {"steps", result->totals.steps},
                             {"bytes", result->totals.bytes},
                             {"verdict", verdict},
                             {"idle_lanes", result->idle_lanes},
                             {"cut_short", result->cut_short},
                             {"engine_seconds", result->engine_seconds},
                             {"run_seconds", result->run_seconds},
                             {"write_seconds", result->write_seconds},
                             {"note", result->note},
                             {"wall_seconds", result->wall_seconds}}));
  } else {
    say("{}: {}, {}, level {}; {}\n", where, plural(result->totals.steps, "step", "steps"),
        format_bytes(static_cast<double>(result->totals.bytes)), c.level,
        taps_text(result->summary));
    say("{} in all: ops {}, with references and copies {}, writing {} beside them\n",
        format_us(result->wall_seconds * 1e6), format_us(result->engine_seconds * 1e6),
        format_us(result->run_seconds * 1e6), format_us(result->write_seconds * 1e6));
    if (!result->note.empty()) say("{}\n", result->note);
    if (!result->idle_lanes.empty())
      say("verdict: {}, but {}\n", verdict, idle_text(result->idle_lanes));
    if (result->cancelled) say("INCOMPLETE: {} ended the recording\n", interrupt_name());
    if (result->totals.steps > 0) {
      say("open it with: attnscope show {0}, or attnscope gui {0}\n", shell_word(where));
    } else {
      say("no step was whole: nothing was kept\n");
    }
  }
  return bad || (!result->idle_lanes.empty() && !result->cut_short) ? AS_MISMATCH : AS_OK;
}

void add_record(CLI::App& app, Action& action) {
  auto* record =
      app.add_subcommand("record", "Run a scenario and keep what it computed: a capture");
  auto c = std::make_shared<RecordCommand>();
  record->add_option("scenario", c->scenario, "File, or a name from assets/scenarios")->required();
  add_model_options(*record, std::shared_ptr<ModelChoice>(c, &c->model));
  record->add_option("-o,--output", c->path, "The capture, a folder such as run.acap")->required();
  record->add_option("--level", c->level, "summary, tables (default) or full")
      ->check(CLI::IsMember({"summary", "tables", "full"}));
  record->add_option("--at-steps", c->steps_filter, "Keep values of these steps alone: 3,5-9");
  record->add_option("--layer", c->layers, "Keep values of these layers alone; - = outside them")
      ->delimiter(',');
  record->add_option("--op", c->ops, "Keep values of these ops alone")->delimiter(',');
  record->add_option("--request", c->requests, "Keep rows of these requests alone: names or ids")
      ->delimiter(',');
  record
      ->add_option(
          "--rows", c->rows,
          "Token rows of a step that are kept at most, or all (all at level full, else 64)")
      ->check([](const std::string& text) {
        const bool number = !text.empty() && text.size() < 9 &&
                            text.find_first_not_of("0123456789") == std::string::npos;
        return text == "all" || (number && text != "0")
                   ? std::string()
                   : "is no number of rows from 1 on, nor 'all'";
      });
  record->add_option("--cache-at", c->cache_steps, "Keep all blocks in use after these steps");
  record->add_flag("--weights", c->weights, "Keep the model's weights, once");
  auto* steps =
      record->add_option("--steps", c->steps, "Scheduler iterations")->check(whole_from(1));
  record
      ->add_option("--decode-steps", c->decode_steps,
                   "Iterations after every request has finished prefill (default: the scenario's)")
      ->check(whole_from(0))
      ->excludes(steps);
  record->add_option("--lane", c->lanes, "LANE for all ops, or OP=LANE for one; may be repeated")
      ->allow_extra_args(false)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  record->add_option("--references", c->references, "none, sim or both")
      ->check(CLI::IsMember({"none", "sim", "both"}));
  record->add_option("--profile", c->profile, kProfileHelp)->check(check_profile);
  record->add_option("--tolerances", c->tolerances,
                     "Tolerance file (default: assets/tolerances.json)");
  record->add_option("--threads", c->threads, "Threads, 0 = all")->check(CLI::Range(0, 4096));
  record->add_flag("--as-served", c->as_served,
                   "Keep when ops ran, and no values: decode steps of a GPU run as a whole");
  record->add_flag("--serial", c->serial, kSerialHelp);
  record->add_flag("--force", c->force, kForceHelp);
  record->add_flag("--json", c->json, "Print as JSON");
  record->callback([=, &action] { action = [=] { return record_command(*c); }; });
}

struct ShowCommand {
  std::string path;
  std::int64_t step = -1;
  bool verify = false, json = false;
  std::string timeline;  // a file
};

Result<as_status> show_command(const ShowCommand& c) {
  auto capture = Capture::open(c.path);
  if (!capture) return capture.error();
  if (c.verify) {
    if (auto ok = (*capture)->verify(); !ok) return ok.error();
  }
  auto description =
      describe_capture(**capture, c.step >= 0 ? std::optional<std::int64_t>(c.step) : std::nullopt);
  if (!description) return description.error();
  if (!c.timeline.empty()) {
    std::vector<TimedStep> steps;
    for (const auto& s : (*capture)->summaries()) {
      if (c.step < 0 || s->step == c.step) steps.push_back({s->step, s->tokens, &s->timings});
    }
    const SessionInfo& info = *(*capture)->info();
    auto ok = write_timeline(c.timeline, steps, *model_graph(info.config), c.path);
    if (!ok) return ok.error();
  }
  say("{}", Lines{c.json ? json_text(*description, 1) + "\n" : format_capture(*description)});
  if (c.verify && !c.json) say("\neverything in it fits its checksums\n");
  return AS_OK;
}

void add_show_capture(CLI::App& app, Action& action) {
  auto* show = app.add_subcommand("show", "What a capture holds");
  auto c = std::make_shared<ShowCommand>();
  show->add_option("capture", c->path, "A folder made by 'attnscope record'")->required();
  show->add_option("--step", c->step, "With the ops of this step and their taps")
      ->check(whole_from(0));
  show->add_option("--timeline", c->timeline, kTimelineHelp)->check([](const std::string& file) {
    return file.empty() ? "a file name is needed" : "";
  });
  show->add_flag("--verify", c->verify, "Read everything and compare checksums");
  show->add_flag("--json", c->json, "Print as JSON");
  show->callback([=, &action] { action = [=] { return show_command(*c); }; });
}

void add_pack(CLI::App& app, Action& action) {
  auto* pack = app.add_subcommand("pack", "Make one compressed file of a capture, for sending");
  struct Command {
    std::string from, to;
    int level = 3;
    UnpackOptions unpack;
    bool force = false;
  };
  auto c = std::make_shared<Command>();
  const auto print = [](const PackTotals& t, const std::string& made) {
    say("{}: {} files, {} in {} packed\n", made, t.files,
        format_bytes(static_cast<double>(t.bytes)), format_bytes(static_cast<double>(t.packed)));
    return AS_OK;
  };
  pack->add_option("capture", c->from, "A capture")->required();
  pack->add_option("-o,--output", c->to, "The file (default: CAPTURE.tar.zst)");
  pack->add_option("--compression", c->level, "1, fast, to 19, small (3)")
      ->check(CLI::Range(1, 19));
  pack->add_flag("--force", c->force, kForceHelp);
  pack->callback([=, &action] {
    action = [=]() -> Result<as_status> {
      std::string from = c->from;
      while (from.size() > 1 && from.back() == '/') from.pop_back();
      const std::string to = c->to.empty() ? from + ".tar.zst" : c->to;
      if (auto ok = check_free(to, c->force); !ok) return ok.error();
      auto totals = pack_capture(from, to, c->level);
      if (!totals) return totals.error();
      const as_status printed = print(*totals, to);
      if (!totals->damage) return printed;
      totals->damage->message += "; packed as it is";
      return *totals->damage;
    };
  });
  auto* unpack = app.add_subcommand("unpack", "Make a capture of a packed file");
  unpack->add_option("file", c->from, "A file made by 'attnscope pack'")->required();
  unpack->add_option("-o,--output", c->to,
                     "The capture (default: the file's name without .tar.zst)");
  unpack->add_flag("--large", c->unpack.large,
                   "Also when it becomes more than 50 times as large as its file, and over 64 MiB");
  unpack->add_flag("--force", c->force, kForceHelp);
  unpack->callback([=, &action] {
    action = [=]() -> Result<as_status> {
      std::string to = c->to;
      if (to.empty()) {
        if (!c->from.ends_with(".tar.zst")) {
          return usage_error(c->from + ": its name does not end in .tar.zst",
                             "say what to make: -o NAME.acap");
        }
        to = c->from.substr(0, c->from.size() - 8);
      }
      if (auto ok = check_free(to, c->force); !ok) return ok.error();
      auto totals = unpack_capture(c->from, to, c->unpack);
      if (!totals) return totals.error();
      return print(*totals, to);
    };
  });
}

}  // namespace

void add_capture_commands(CLI::App& app, Action& action) {
  add_record(app, action);
  add_show_capture(app, action);
  add_pack(app, action);
}

}  // namespace attnscope
