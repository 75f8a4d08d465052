#include "app/cli/cli.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <functional>
#include <memory>

#include "app/cli/backends_command.h"
#include "app/cli/bench_command.h"
#include "app/cli/capture_commands.h"
#include "app/cli/commands.h"
#include "app/cli/ess_command.h"
#include "app/cli/look_at.h"
#include "app/cli/look_commands.h"
#include "app/cli/mask_command.h"
#include "app/cli/model_commands.h"
#include "app/cli/model_options.h"
#include "app/cli/number_check.h"
#include "app/cli/study_command.h"
#include "app/cli/train_command.h"
#include "app/text/say.h"
#include "app/wiring/command_end.h"
#include "app/wiring/plugins.h"
#include "engine/config/scenario.h"
#include "engine/family/models.h"
#include "engine/io/nearest.h"
#include "reference/torch_module.h"

namespace attnscope {
namespace {

using Action = std::function<Result<as_status>()>;

// An empty path is a mistake (an unset variable), not a wish for no file.
const CLI::Validator kNotEmpty(
    [](std::string& text) { return text.empty() ? std::string("names no file") : std::string(); },
    "FILE");
const CLI::Validator kNoPipe(
    [](std::string& text) {
      return text == "-" ? std::string("- would be a file; --json prints the report")
                         : std::string();
    },
    "");

References parse_references(const std::string& name) {
  return name == "none" ? References::kNone : name == "sim" ? References::kSim : References::kBoth;
}

void add_run(CLI::App& app, Action& action) {
  auto* run =
      app.add_subcommand("run", "Run a scenario beside the references and print the errors");
  auto command = std::make_shared<RunCommand>();
  auto steps = std::make_shared<std::int64_t>(0);
  auto decode_steps = std::make_shared<std::int64_t>(0);
  auto references = std::make_shared<std::string>("both");
  auto lanes = std::make_shared<std::vector<std::string>>();
  auto invariants = std::make_shared<std::string>(invariants_name(default_invariants()));
  auto model = std::make_shared<ModelChoice>();
  run->add_option("scenario", command->scenario, "File, or a name from assets/scenarios")
      ->required();
  add_model_options(*run, model);
  auto* steps_option =
      run->add_option("--steps", *steps, "Scheduler iterations")->check(whole_from(0));
  auto* decode_option =
      run->add_option(
             "--decode-steps", *decode_steps,
             "Iterations after every request has finished prefill (default: the scenario's)")
          ->check(whole_from(0))
          ->excludes(steps_option);
  run->add_option("--lane", *lanes, "LANE for all ops, or OP=LANE for one; may be repeated")
      ->allow_extra_args(false)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  run->add_option("--references", *references, "none, sim or both")
      ->check(CLI::IsMember({"none", "sim", "both"}));
  run->add_option("--invariants", *invariants,
                  "What must hold of every step: off; step (the default: of block manager and "
                  "scheduler what a step touched); call (all of it around every call)")
      ->check(CLI::IsMember({"off", "step", "call"}));
  run->add_option("--profile", command->profile, kProfileHelp)->check(check_profile);
  auto* report = run->add_option("--report", command->report, "Write the full report, JSON")
                     ->check(kNotEmpty)
                     ->check(kNoPipe);
  run->add_option("--timeline", command->timeline, kTimelineHelp)->check(kNotEmpty);
  run->add_option("--tolerances", command->options.session.tolerance_file,
                  "Tolerance file (default: assets/tolerances.json)")
      ->check(kNotEmpty);
  run->add_option("--threads", command->options.session.threads, "Threads, 0 = all")
      ->check(CLI::Range(0, 4096));
  run->add_flag("--serial", command->options.session.serial, kSerialHelp);
  run->add_flag("--reuse", command->reuse,
                "Show the kept --report when binary, scenario and options are unchanged")
      ->needs(report);
  run->add_flag("--json", command->json, "Print the report as JSON instead of the table");
  run->callback([=, &action] {
    action = [=] {
      RunCommand c = *command;
      c.model = *model;
      if (steps_option->count() > 0) c.options.steps = *steps;
      if (decode_option->count() > 0) c.options.decode_steps = *decode_steps;
      if (!lanes->empty()) c.options.session.lanes = *lanes;
      c.options.session.references = parse_references(*references);
      c.options.session.invariants = *parse_invariants(*invariants);
      return run_command(c);
    };
  });
}

// "1600x1000".
const CLI::Validator kSize(
    [](std::string& text) {
      int width = 0, height = 0, end = 0;
      const bool good = std::sscanf(text.c_str(), "%5dx%5d%n", &width, &height, &end) == 2 &&
                        static_cast<std::size_t>(end) == text.size() && width >= 64 &&
                        height >= 64 && width <= 8192 && height <= 8192;
      return good ? std::string() : "is no WIDTHxHEIGHT from 64x64 to 8192x8192";
    },
    "WxH");

void add_gui(CLI::App& app, Action& action) {
  auto* gui = app.add_subcommand("gui", "Open the desktop app (also without any command)");
  auto command = std::make_shared<GuiCommand>();
  auto references = std::make_shared<std::string>("both");
  auto size = std::make_shared<std::string>();
  auto model = std::make_shared<ModelChoice>();
  auto beside = std::make_shared<std::string>();
  gui->add_option("scenario", command->scenario,
                  "File, a name from assets/scenarios, or a capture");
  gui->add_option("beside", *beside, "A capture to lay beside it, under one cursor");
  add_model_options(*gui, model);
  gui->add_option("--references", *references, "none, sim or both")
      ->check(CLI::IsMember({"none", "sim", "both"}));
  gui->add_option("--lane", command->lanes, "LANE for all ops, or OP=LANE for one; may be repeated")
      ->allow_extra_args(false)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  gui->add_option("--layout", command->layout, "step, cache, selection, error, review or compare");
  gui->add_option("--at", command->at, "Where to go: STEP/LAYER/OP, layer - for none");
  gui->add_option("--do", command->commands, "Commands to run: ID or ID=VALUE, comma separated")
      ->delimiter(',');
  auto* shot = gui->add_option("--screenshot", command->screenshot,
                               "Write one picture, with or without a display, and end")
                   ->check(kNotEmpty);
  gui->add_option("--report", command->report, "With --screenshot: write the run's report, JSON")
      ->needs(shot)
      ->check(kNotEmpty);
  gui->add_option("--tour-screenshots", command->tour,
                  "Write pictures of every layout, size and theme into this folder, and end")
      ->excludes(shot)
      ->check(kNotEmpty);
  gui->add_option("--size", *size, "Of window or picture, such as 1600x1000")->check(kSize);
  gui->add_option("--threads", command->threads, "Threads, 0 = all")->check(CLI::Range(0, 4096));
  gui->callback([=, &action] {
    action = [=] {
      GuiCommand c = *command;
      c.model = *model;
      c.references = parse_references(*references);
      if (!beside->empty()) {
        if (c.layout.empty()) c.layout = "compare";
        c.commands.insert(c.commands.begin(), "compare.open=" + *beside);
      }
      if (!size->empty()) std::sscanf(size->c_str(), "%5dx%5d", &c.width, &c.height);
      return gui_command(c);
    };
  });
}

void add_ops(CLI::App& app, Action& action) {
  auto* ops = app.add_subcommand("ops", "List the op table: id, taps, lanes, reference, tests");
  auto as_json = std::make_shared<bool>(false);
  ops->add_flag("--json", *as_json, "Print as JSON");
  ops->callback([=, &action] { action = [=] { return ops_command(*as_json); }; });
}

void add_lanes(CLI::App& app, Action& action) {
  auto* lanes = app.add_subcommand("lanes", "List the lanes: kernels, references, planted bugs");
  auto as_json = std::make_shared<bool>(false);
  lanes->add_flag("--json", *as_json, "Print as JSON");
  lanes->callback([=, &action] { action = [=] { return lanes_command(*as_json); }; });
}

void add_look_at(CLI::App& command, const std::shared_ptr<LookAt>& at,
                 bool place_may_be_absent = false) {
  command.add_option("scenario", at->scenario, "File, or a name from assets/scenarios")->required();
  add_model_options(command, std::shared_ptr<ModelChoice>(at, &at->model));
  command.add_option("place", at->place, "STEP/LAYER/OP, such as 7/2/sparse_attention")
      ->required(!place_may_be_absent);
  command.add_option("--lane", at->lanes, "LANE for all ops, or OP=LANE for one; may be repeated")
      ->allow_extra_args(false)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  command.add_option("--profile", at->profile, kProfileHelp)->check(check_profile);
  command.add_option("--threads", at->threads, "Threads, 0 = all")->check(CLI::Range(0, 4096));
  command.add_flag("--json", at->json, "Print as JSON");
}

struct TokenOptions {
  CLI::Option *request, *position;
};
TokenOptions add_token_choice(CLI::App& command, TokenChoice& chosen, CLI::Option* token,
                              const char* whose) {
  auto* request = command.add_option("--request", chosen.request, whose);
  auto* position =
      command
          .add_option(
              "--position", chosen.position,
              "In the place of --token: the token at this position of the request. Without a "
              "place: the first op that is wrong for it")
          ->check(whole_from(0))
          ->excludes(token);
  return {request, position};
}

void add_why(CLI::App& app, Action& action) {
  auto* why = app.add_subcommand(
      "why", "Why a value came out: contributions, writes to a slot, tokens pooled into an entry");
  auto at = std::make_shared<LookAt>();
  auto command = std::make_shared<WhyCommand>();
  add_look_at(*why, at, true);
  auto* token =
      why->add_option("--token", command->token, "Token row of the step (default: the last)")
          ->check(whole_from(0));
  why->add_option("--head", command->head, "Head (default 0)");
  why->add_option("--dim", command->dim, "Dim, or channel of an entry (default 0)");
  why->add_option("--rows", command->rows, "Lines to print at most (default 24)")
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{1} << 30));
  auto* slot = why->add_option("--slot", command->slot, "Instead: every write to this slot")
                   ->check(whole_from(0));
  auto* entry =
      why->add_option("--entry", command->entry, "Instead: the tokens pooled into this entry")
          ->check(whole_from(0))
          ->excludes(slot);
  const TokenOptions chosen = add_token_choice(
      *why, command->chosen, token, "Whose entry, or whose position: name or id (default 0)");
  why->add_option("--cache", command->cache,
                  "swa (the default), main, state, index or index_state; k (the default) or v of "
                  "models with dense attention");
  why->callback([=, &action] {
    if (chosen.request->count() > 0 && chosen.position->count() + entry->count() == 0) {
      throw CLI::RequiresError("--request", "--position or --entry");
    }
    action = [=] {
      WhyCommand c = *command;
      c.at = *at;
      return why_command(c);
    };
  });
}

void add_plan(CLI::App& app, Action& action) {
  auto* plan = app.add_subcommand(
      "plan", "The plan of a step's attention: splits, what works on them, how evenly");
  auto at = std::make_shared<LookAt>();
  auto command = std::make_shared<PlanCommand>();
  add_look_at(*plan, at);
  plan->add_option("--token", command->token, "Token row of the step (default: all)")
      ->check(CLI::Range(std::int64_t{0}, std::int64_t{1} << 30));
  plan->add_option("--rows", command->rows, "Splits to print at most (default 24)")
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{1} << 30));
  plan->callback([=, &action] {
    action = [=] {
      PlanCommand c = *command;
      c.at = *at;
      return plan_command(c);
    };
  });
}

void add_what_if(CLI::App& app, Action& action) {
  auto* what_if = app.add_subcommand(
      "what-if", "Re-run one op with one thing changed, and show which change removes its error");
  auto at = std::make_shared<LookAt>();
  auto command = std::make_shared<WhatIfCommand>();
  add_look_at(*what_if, at, true);
  what_if->add_option("--with", command->with, "Lanes to try in its place (default cpu)")
      ->delimiter(',');
  auto* token = what_if
                    ->add_option("--token", command->token,
                                 "Token to compute alone (default: the worst, or the last)")
                    ->check(whole_from(0));
  const TokenOptions chosen =
      add_token_choice(*what_if, command->chosen, token, "Whose position: name or id (default 0)");
  chosen.request->needs(chosen.position);
  auto* after = what_if->add_flag(
      "--after", command->after,
      "Also run everything after it with each change, and compare the layers' outputs");
  what_if->add_option("--change", command->changes, "With --after: this change alone; repeatable")
      ->allow_extra_args(false)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
      ->needs(after);
  what_if
      ->add_flag("--once", command->once,
                 "With --after: change that op alone (default: later ones of its kind too)")
      ->needs(after);
  what_if->add_option("--steps", command->steps, "With --after: run so many steps (default: all)")
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{1} << 30))
      ->needs(after);
  what_if->callback([=, &action] {
    action = [=] {
      WhatIfCommand c = *command;
      c.at = *at;
      return what_if_command(c);
    };
  });
}

void add_sweep(CLI::App& app, Action& action) {
  auto* sweep =
      app.add_subcommand("sweep", "Run a scenario for many values of one parameter, side by side");
  auto command = std::make_shared<SweepCommand>();
  command->metrics = {"wrong", "changed", "drift"};
  add_model_options(*sweep, std::shared_ptr<ModelChoice>(command, &command->model));
  sweep->add_option("scenario", command->scenario, "File, or a name from assets/scenarios")
      ->required();
  sweep
      ->add_option("--vary", command->vary,
                   "PARAMETER=FIRST..LAST or =A,B,C: prompt, topk, window, seed, sink, switch, "
                   "token_budget, max_seqs, or a key of the scenario: serving.policy=fcfs,priority")
      ->required();
  sweep
      ->add_option("--metric", command->metrics,
                   "wrong, changed, budget, drift, swapped, near_ties, sink, selective")
      ->delimiter(',');
  sweep->add_option("--lane", command->lanes, "LANE for all ops, or OP=LANE for one")
      ->allow_extra_args(false)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  sweep->add_option("--decode-steps", command->decode_steps, "Of every run (default 2)")
      ->check(CLI::Range(std::int64_t{0}, std::int64_t{1} << 30));
  sweep->add_option("--threads", command->threads, "Threads, 0 = all")->check(CLI::Range(0, 4096));
  sweep->add_flag("--json", command->json, "Print as JSON");
  sweep->callback([=, &action] { action = [=] { return sweep_command(*command); }; });
}

void add_profiles(CLI::App& app, Action& action) {
  auto* profiles = app.add_subcommand(
      "profiles", "What each disputed switch of the model does to outputs and selections");
  auto command = std::make_shared<ProfilesCommand>();
  add_model_options(*profiles, std::shared_ptr<ModelChoice>(command, &command->model));
  profiles->add_option("scenario", command->scenario, "File, or a name from assets/scenarios")
      ->required();
  profiles
      ->add_option("--profile", command->profile, "Compare with vllm or deepseek (the scenario's)")
      ->check(check_profile);
  profiles->add_option("--threads", command->threads, "Threads, 0 = all")
      ->check(CLI::Range(0, 4096));
  profiles->add_flag("--json", command->json, "Print as JSON");
  profiles->callback([=, &action] { action = [=] { return profiles_command(*command); }; });
}

void add_doctor(CLI::App& app, Action& action) {
  auto* doctor =
      app.add_subcommand("doctor", "What this machine and build have, what a missing piece costs");
  auto as_json = std::make_shared<bool>(false);
  doctor->add_flag("--json", *as_json, "Print as JSON");
  doctor->callback([=, &action] { action = [=] { return doctor_command(*as_json); }; });
}

void add_layout(CLI::App& blocks, Action& action) {
  auto* layout = blocks.add_subcommand("layout", "Groups, pages, bytes and capacity of a model");
  auto command = std::make_shared<LayoutCommand>();
  layout
      ->add_option("preset", command->model,
                   fmt::format("{}, or a config.json", fmt::join(preset_names(), ", ")))
      ->required();
  layout->add_option("--gpu-memory", command->gpu_memory, "GiB for caches (default 40)")
      ->check(number_between(0.001, 1e6));
  layout->add_option("--profile", command->profile, "M: per tensor, A: packed (default)")
      ->check(CLI::IsMember({"M", "A"}));
  layout->add_option("--layers", command->layers, "Layers that run, such as 0,2,3,4")
      ->delimiter(',');
  layout->add_option("--model-profile", command->model_profile, "vllm or deepseek")
      ->check(check_profile);
  layout->add_option("--max-model-len", command->max_model_len, "Tokens (default: the model's)")
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{1} << 30));
  layout->add_option("--token-budget", command->token_budget, "Tokens a step (default 8192)")
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{1} << 30));
  layout->add_option("--tp", command->ranks, "Of one rank of so many that divide the heads")
      ->check(CLI::Range(1, 128));
  layout->add_option("--cache-dtype", command->cache_dtype,
                     "What rows of K and V hold: fp8_tensor");
  layout
      ->add_option("--first-tokens-16bit", command->first_tokens,
                   "Beside rows of codes: so many first tokens of a request keep 16 bits")
      ->check(CLI::Range(0, 1 << 24));
  layout->add_flag("--json", command->json, "Print as JSON");
  layout->callback([=, &action] { action = [=] { return layout_command(*command); }; });
}

void add_blocks(CLI::App& app, Action& action) {
  auto* blocks =
      app.add_subcommand("blocks", "The block manager and the scheduler alone, without a model");
  blocks->require_subcommand(1);
  auto* simulate = blocks->add_subcommand(
      "simulate", "Run a generated workload and print its digests and counters");
  auto command = std::make_shared<SimulateCommand>();
  simulate->add_option("workload", command->workload, "File, or a name from assets/workloads")
      ->required();
  simulate->add_option("--profile", command->profile, "M or A (default: the file's)")
      ->check(CLI::IsMember({"M", "A"}));
  simulate->add_option("--events", command->events, "Write the log of block events, JSONL")
      ->check(kNotEmpty);
  simulate->add_flag("--check", command->check,
                     "Check all invariants around every call, and every decision; slow");
  simulate->add_flag("--json", command->json, "Print as JSON");
  simulate->callback([=, &action] { action = [=] { return simulate_command(*command); }; });

  auto* replay =
      blocks->add_subcommand("replay", "Apply recorded calls and print the state after each");
  auto file = std::make_shared<std::string>();
  replay->add_option("file", *file, "JSONL, format attnscope-blocks-replay 1")->required();
  replay->callback([=, &action] { action = [=] { return replay_command(*file); }; });

  auto* events = blocks->add_subcommand(
      "events", "Read a serving engine's stream of cache events and show the map it tells of");
  auto as_json = std::make_shared<bool>(false);
  events->add_option("file", *file, "JSON, JSON Lines or MessagePack")->required();
  events->add_flag("--json", *as_json, "Print as JSON");
  events->callback(
      [=, &action] { action = [=] { return cache_events_command(*file, *as_json); }; });
  add_layout(*blocks, action);
}

// Words that no command takes, in the order in which they were said.
std::string extras_text(const CLI::App& app, const CLI::App& last) {
  const std::vector<std::string> extras = app.remaining(true);
  if (extras.empty() || !extras[0].starts_with("--")) {
    return fmt::format("not expected: {}", fmt::join(extras, " "));
  }
  const std::string word = extras[0].substr(0, extras[0].find('='));
  std::vector<std::string> names;
  for (const CLI::App* of : {&last, &app}) {
    for (const CLI::Option* option : of->get_options()) {
      for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
    }
  }
  const auto near = nearest_names(word, names);
  return fmt::format("there is no option {}{}{}", word, near.empty() ? "" : "; did you mean ",
                     fmt::join(near, ", "));
}

std::vector<std::string> command_names(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::App* command : app.get_subcommands({})) names.push_back(command->get_name());
  return names;
}

// What the parser says, in our words.
std::string problem_text(const CLI::ParseError& e) {
  std::string problem = e.what();
  std::replace(problem.begin(), problem.end(), '\n', ' ');
  const std::string many = ": At Most 1 required but received ";
  if (const auto at = problem.find(many); at != std::string::npos) {
    return fmt::format("{} is given {} times, and takes one value", problem.substr(0, at),
                       problem.substr(at + many.size()));
  }
  const std::string other = "Could not convert: ";
  if (const auto is = problem.find(" = "); problem.starts_with(other) && is != std::string::npos) {
    return fmt::format("{}: '{}' is no number that it takes",
                       problem.substr(other.size(), is - other.size()), problem.substr(is + 3));
  }
  return problem;
}

// One line: what is wrong with the words, and where help is.
std::string usage_text(const CLI::App& app, const std::string& first, const CLI::ParseError& e) {
  std::string problem = problem_text(e);
  std::vector<std::string> names = command_names(app);
  const bool known = std::find(names.begin(), names.end(), first) != names.end();
  if (!known && !first.empty() && first[0] != '-') {
    const auto nearest = nearest_names(first, names);
    const std::vector<std::string> scenarios = scenario_names();
    if (first.ends_with(".json") ||
        std::find(scenarios.begin(), scenarios.end(), first) != scenarios.end()) {
      return fmt::format("there is no command '{0}'; a scenario runs with 'attnscope run {0}'",
                         first);
    }
    return fmt::format("there is no command '{}'; {}{}", first,
                       nearest.empty() ? "commands: " : "did you mean ",
                       fmt::join(nearest.empty() ? names : nearest, ", "));
  }
  std::string command;  // that it was said to, "golden run "
  const CLI::App* last = &app;
  while (!last->get_subcommands().empty()) {
    last = last->get_subcommands().back();
    command += last->get_name() + " ";
  }
  if (dynamic_cast<const CLI::ExtrasError*>(&e) != nullptr && last != &app) {
    problem = extras_text(app, *last);
  }
  if (last != &app && last->get_require_subcommand_min() > 0) {
    names.clear();
    for (const CLI::App* below : last->get_subcommands({})) names.push_back(below->get_name());
    problem = fmt::format("{}takes one of {}", command, fmt::join(names, ", "));
  }
  return fmt::format("{}; 'attnscope {}--help' lists what there is", problem, command);
}

// Without a command the words are the app's, which is not meant where a command stands among them;
// empty: none does. taken: the app has no use for the words as they are.
std::string misplaced_text(const CLI::App& app, const std::vector<std::string>& arguments,
                           std::size_t from, bool taken) {
  const std::vector<std::string> names = command_names(app);
  const auto first = arguments.begin() + static_cast<std::ptrdiff_t>(from);
  const auto command = std::find_if(first, arguments.end(), [&](const std::string& word) {
    return std::find(names.begin(), names.end(), word) != names.end();
  });
  if (command == arguments.end()) return "";
  const auto scenario = app.get_subcommand("gui")->get_option("scenario")->results();
  std::error_code code;
  if (taken &&
      (scenario.empty() || scenario[0] != *command || std::filesystem::exists(*command, code))) {
    return "";
  }
  return fmt::format(
      "{0} stands before the command: options of '{1}' stand behind it, as in "
      "'attnscope {1} .. {2}'; 'attnscope {1} --help' lists them",
      first->substr(0, first->find('=')), *command, fmt::join(first, command, " "));
}

}  // namespace

// Options of every command: they stand before or behind it.
void add_common(CLI::App& app, PluginChoice& choice, bool& any_text_file,
                std::string& reference_device) {
  app.add_flag("--any-text-file", any_text_file,
               "Let scenarios read prompts that lie outside of their folder and of the assets");
  app.add_option("--plugin", choice.libraries,
                 "Shared library with kernels of your own, lane plugin:NAME; may be repeated")
      ->allow_extra_args(false)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
      ->check(kNotEmpty);
  app.add_flag("--in-process", choice.in_process,
               "Run plugins in this process: fast, and a crash of theirs is ours");
  app.add_option("--plugin-timeout", choice.seconds_limit, "Seconds for one call (10)")
      ->check(number_between(0.01, 86400.0));
  app.add_option("--reference-device", reference_device,
                 "Where references compute: cpu (the default), or a device of the installed "
                 "libtorch, such as cuda or cuda:1")
      ->check(device_name());
  const std::function<void(CLI::App*)> pass_on = [&](CLI::App* command) {
    command->fallthrough();
    for (CLI::App* below : command->get_subcommands({})) pass_on(below);
  };
  for (CLI::App* command : app.get_subcommands({})) pass_on(command);
}

namespace {

// Where the command stands, behind the options of every command.
std::size_t command_index(const std::vector<std::string>& arguments) {
  std::size_t i = 1;
  while (i < arguments.size()) {
    const std::string& word = arguments[i];
    if (word == "--plugin" || word == "--plugin-timeout" || word == "--reference-device") {
      i += 2;
    } else if (word == "--in-process" || word == "--any-text-file" ||
               word.starts_with("--plugin=") || word.starts_with("--plugin-timeout=") ||
               word.starts_with("--reference-device=")) {
      ++i;
    } else {
      break;
    }
  }
  return std::min(i, arguments.size());
}

int run_words(const std::vector<std::string>& arguments) {
  CLI::App app("attnscope: a workbench for paged sparse attention", "attnscope");
  app.set_version_flag("--version", ATTNSCOPE_VERSION);
  app.require_subcommand(1);
  app.footer(
      "Exit codes: 0 ok, 1 mismatch, 2 usage, 3 bad input, 4 missing environment, 5 internal, "
      "130 and 143 ended by SIGINT and SIGTERM");
  Action action;
  add_gui(app, action);
  add_run(app, action);
  add_capture_commands(app, action);
  add_diff_command(app, action);
  add_case_commands(app, action);
  add_plugin_commands(app, action);
  add_golden_commands(app, action);
  add_ops(app, action);
  add_why(app, action);
  add_plan(app, action);
  add_what_if(app, action);
  add_sweep(app, action);
  add_profiles(app, action);
  add_lanes(app, action);
  add_model_commands(app, action);
  add_tap_export_command(app, action);
  add_doctor(app, action);
  add_blocks(app, action);
  add_backends_command(app, action);
  add_mask_command(app, action);
  add_study_command(app, action);
  add_train_command(app, action);
  add_ess_command(app, action);
  add_bench_command(app, action);
  PluginChoice plugin_choice;
  bool any_text_file = false;
  std::string reference_device = "cpu";
  add_common(app, plugin_choice, any_text_file, reference_device);
  std::vector<std::string> reversed(arguments.rbegin(), arguments.rend());
  if (!reversed.empty()) reversed.pop_back();
  // Without a command it is the app that is wanted.
  const std::size_t command = command_index(arguments);
  const std::string first = command < arguments.size() ? arguments[command] : "";
  const bool option = first.rfind("--", 0) == 0 && first != "--help" && first != "--version";
  if (first.empty() || option) reversed.emplace_back("gui");
  try {
    app.parse(reversed);
  } catch (const CLI::ParseError& e) {
    if (e.get_exit_code() == static_cast<int>(CLI::ExitCodes::Success)) {
      app.exit(e);
      return all_said() ? AS_OK : AS_BAD_INPUT;
    }
    const std::string misplaced = option ? misplaced_text(app, arguments, command, false) : "";
    say(stderr, "attnscope: {}\n", misplaced.empty() ? usage_text(app, first, e) : misplaced);
    return AS_USAGE;
  }
  if (const std::string misplaced = option ? misplaced_text(app, arguments, command, true) : "";
      !misplaced.empty()) {
    say(stderr, "attnscope: {}\n", misplaced);
    return AS_USAGE;
  }
  allow_text_files_anywhere(any_text_file);
  if (auto ok = open_plugins(plugin_choice); !ok) {
    say(stderr, "attnscope: {}\n", ok.error().text());
    return ok.error().code;
  }
  if (auto ok = reference::use_device(reference_device); !ok) {
    say(stderr, "attnscope: {}\n", ok.error().text());
    return ok.error().code;
  }
  return exit_code_of(action());
}

}  // namespace

int run_cli(const std::vector<std::string>& arguments) {
  return guarded_main([&] { return run_words(arguments); });
}

}  // namespace attnscope
