#include "app/cli/train_command.h"

#include <chrono>
#include <cmath>
#include <memory>
#include <string>

#include "app/cli/number_check.h"
#include "app/cli/writable.h"
#include "app/reports/train_lock.h"
#include "app/reports/train_report.h"
#include "app/reports/train_run.h"
#include "app/reports/train_svg.h"
#include "app/text/interrupt.h"
#include "app/text/say.h"
#include "engine/io/elapsed.h"
#include "engine/io/json_file.h"
#include "engine/io/shell_word.h"
#include "engine/io/trained_models.h"
#include "kernels/cpu/thread_pool.h"
#include "reference/torch_module.h"

namespace attnscope {
namespace {

struct TrainCommand {
  // What was asked for: 0, and -1 of sparse_steps, leave it to default_plan().
  TrainPlan asked;
  std::string device;  // empty = where references compute
  bool again = false;
};

struct TrainReportCommand {
  std::vector<std::string> folders;
  std::string model = "tiny-v3.2", device, csv, svg;
  TrainReportOptions options;
  int threads = 0;
};

std::string clock_text(double seconds) {
  const std::int64_t whole = std::llround(seconds);
  return fmt::format("{}:{:02}", whole / 60, whole % 60);
}

// The interval that has just ended: its layers together.
void say_interval(const TrainRun& run, double seconds_left) {
  const TrainRow& last = run.rows().back();
  double recall = 0, mass = 0, changed = 0, layers = 0;
  for (auto r = run.rows().rbegin(); r != run.rows().rend() && r->step == last.step; ++r) {
    recall += r->recall, mass += r->mass, changed += r->changed, layers += 1;
  }
  say("{:>5}/{} {:<8}loss {:.4f}  held out {:.4f}, sparse {:.4f}  kl {:.3f}  recall {:.3f}  "
      "mass {:.3f}  changed {:.3f}  {} left\n",
      last.step, run.steps_in_all(), last.stage, last.loss, last.held_loss, last.held_sparse,
      last.kl, recall / layers, mass / layers, changed / layers, clock_text(seconds_left));
  std::fflush(stdout);
}

Result<void> walk(TrainRun& run, bool& stopped) {
  const auto start = std::chrono::steady_clock::now();
  const std::int64_t from = run.steps_made();
  while (!run.done()) {
    if (interrupted() != 0) {
      stopped = true;
      return run.save();
    }
    auto ended = run.step();
    if (!ended) return ended.error();
    if (!*ended) continue;
    const double each = seconds_since(start) / static_cast<double>(run.steps_made() - from);
    say_interval(run, each * static_cast<double>(run.steps_in_all() - run.steps_made()));
  }
  return {};
}

// What was asked for, with the model's schedule where nothing was.
Result<TrainPlan> planned(const TrainPlan& asked) {
  auto config = trainable_model(asked.model);
  if (!config) return config.error();
  const TrainPlan usual = default_plan(asked.what, *config);
  TrainPlan p = asked;
  for (const auto number : {&TrainPlan::steps, &TrainPlan::interval, &TrainPlan::length}) {
    if (p.*number == 0) p.*number = usual.*number;
  }
  if (p.sparse_steps < 0) p.sparse_steps = usual.sparse_steps;
  if (p.rate == 0) p.rate = usual.rate;
  if (p.sparse_rate == 0) p.sparse_rate = usual.sparse_rate;
  return p;
}

Result<void> use_train_device(const std::string& device) {
  if (device.empty()) return {};
  if (device == "cpu" && reference::beside_host()) {
    return usage_error("--device cpu: references were given another device",
                       "leave --reference-device out");
  }
  auto used = reference::use_device(device);
  if (used || used.error().code == AS_USAGE) return used;
  return Error{used.error().code, used.error().message,
               "leave --device out, the host trains too, or install a libtorch that has it and run "
               "./attnscope"};
}

Result<as_status> train_command(const TrainCommand& c) {
  auto whole = planned(c.asked);
  if (!whole) return whole.error();
  TrainPlan asked = std::move(*whole);
  if (auto ok = use_train_device(c.device); !ok) return ok.error();
  if (asked.folder.empty()) {
    auto folder = train_folder(asked);
    if (!folder) return folder.error();
    asked.folder = std::move(*folder);
  }
  auto lock = TrainLock::take(asked.folder);
  if (!lock) return lock.error();
  cpu::ThreadPool pool(static_cast<int>(asked.threads));
  auto opened = TrainRun::open(std::move(asked), c.again, pool.handle());
  if (!opened) return opened.error();
  TrainRun& run = **opened;
  const TrainPlan& plan = run.plan();
  if (run.done() && run.finished()) {
    say("{}: trained already; --restart trains it again\n", run.checkpoint());
    return AS_OK;
  }
  say("{} of {}, seed {}: {} steps of {} x {} bytes{}; {} bytes of text, {} held out; "
      "state in {}\n",
      plan.what, plan.model, plan.seed, run.steps_in_all(), plan.sequences, plan.length,
      c.device.empty() ? "" : " on " + c.device, run.text().learnt_bytes(), run.text().held_bytes(),
      plan.folder);
  if (run.steps_made() > 0) say("goes on behind step {}\n", run.steps_made());
  catch_interrupts();
  bool stopped = false;
  const auto start = std::chrono::steady_clock::now();
  const std::int64_t from = run.steps_made();
  if (auto ok = walk(run, stopped); !ok) return ok.error();
  say("{} steps and their measures took {}\n", run.steps_made() - from,
      clock_text(seconds_since(start)));
  if (stopped) {
    say("stopped behind step {}, saved; the same command goes on\n", run.steps_made());
    ended_early();
    return AS_OK;
  }
  if (auto ok = run.finish(); !ok) return ok.error();
  say("{}: a checkpoint with published names\n", run.checkpoint());
  if (plan.what == kTrainedModel) {
    say("then: attnscope train indexer {} --seed {} -o {}\n", plan.model, plan.seed,
        shell_word(plan.folder));
  } else {
    say("run it with: attnscope run {} --model {}\n", plan.model, shell_word(run.checkpoint()));
  }
  return AS_OK;
}

Result<as_status> report_command(const TrainReportCommand& c) {
  auto folders =
      c.folders.empty() ? trained_seeds(c.model) : Result<std::vector<std::string>>(c.folders);
  if (!folders) return folders.error();
  for (const auto& [option, path] : {std::pair{"--csv", &c.csv}, std::pair{"--svg", &c.svg}}) {
    if (auto ok = check_writable(option, *path); !ok) return ok.error();
  }
  if (auto ok = use_train_device(c.device); !ok) return ok.error();
  cpu::ThreadPool pool(c.threads);
  auto report = train_report(c.model, *folders, c.options, pool.handle());
  if (!report) return report.error();
  say("{}", Lines{train_report_text(*report)});
  if (!c.csv.empty()) {
    if (auto ok = write_text_file(c.csv, train_report_csv(*report)); !ok) return ok.error();
  }
  if (!c.svg.empty()) {
    auto drawing = train_svg(c.model, *folders);
    if (!drawing) return drawing.error();
    if (auto ok = write_text_file(c.svg, *drawing); !ok) return ok.error();
  }
  return report->holds() ? AS_OK : AS_MISMATCH;
}

constexpr std::int64_t kMostSteps = 1'000'000;

constexpr char kDeviceHelp[] =
    "Device of libtorch that computes: cpu, or cuda, cuda:1 where it has one (cpu)";

// "tiny-v3.2: 400, tiny: 180", of the models whose schedules differ.
template <class T>
std::string usual(const char* what, T TrainPlan::*number) {
  std::string out;
  for (const char* name : {"tiny-v3.2", "tiny"}) {
    if (const auto config = trainable_model(name)) {
      out += fmt::format("{}{}: {}", out.empty() ? "" : ", ", name,
                         default_plan(what, *config).*number);
    }
  }
  return out;
}

CLI::App* add_training(CLI::App& train, const char* name, const char* help,
                       const std::shared_ptr<TrainCommand>& c,
                       std::function<Result<as_status>()>& action) {
  auto* command = train.add_subcommand(name, help);
  TrainPlan& p = c->asked;
  p.what = name;
  p.sparse_steps = -1;
  command->add_option("MODEL", p.model, "A small preset with an indexer: tiny-v3.2, tiny")
      ->required();
  command->add_option("-o,--output", p.folder,
                      "Folder of state, CSV and checkpoints (below ~/.local/share/attnscope)");
  command->add_option("--seed", p.seed, fmt::format("Of weights and text ({})", p.seed))
      ->check(CLI::Range(std::int64_t{0}, std::int64_t{1} << 53));
  const auto whole = [&](const char* option, std::int64_t TrainPlan::*to, const char* what,
                         std::int64_t least, std::int64_t most) {
    command->add_option(option, p.*to, fmt::format("{} ({})", what, usual(name, to)))
        ->check(CLI::Range(least, most));
  };
  const auto rate = [&](const char* option, double TrainPlan::*to, const char* what) {
    command->add_option(option, p.*to, fmt::format("{} ({})", what, usual(name, to)))
        ->check(number_between(1e-9, 0.999));
  };
  whole("--steps", &TrainPlan::steps, "Gradients", 1, kMostSteps);
  rate("--rate", &TrainPlan::rate, "Of learning, Adam's");
  whole("--interval", &TrainPlan::interval, "Steps from one measure and saved state to the next", 1,
        kMostSteps);
  whole("--length", &TrainPlan::length, "Bytes of a sequence", 2, 4099);
  command->add_option("--held", p.held, fmt::format("Held-out sequences of a measure ({})", p.held))
      ->check(CLI::Range(1, 4096));
  command->add_option("--sequences", p.sequences, fmt::format("Of a step ({})", p.sequences))
      ->check(CLI::Range(1, 256));
  command->add_option("--text", p.text, "Files to learn from (the program's own manual)");
  command
      ->add_option(
          "--threads", p.threads,
          fmt::format("Of libtorch; the bytes of the result depend on them ({})", p.threads))
      ->check(CLI::Range(1, 256));
  command->add_option("--device", c->device, kDeviceHelp)->check(device_name());
  if (std::string_view(name) == kTrainedIndexer) {
    whole("--sparse-steps", &TrainPlan::sparse_steps, "Gradients of the second stage", 0,
          kMostSteps);
    rate("--sparse-rate", &TrainPlan::sparse_rate, "Of learning in the second stage");
  }
  command->add_flag("--restart", c->again, "Remove what was trained there before, and begin again");
  command->callback([=, &action] { action = [=] { return train_command(*c); }; });
  return command;
}

}  // namespace

void add_train_command(CLI::App& app, std::function<Result<as_status>()>& action) {
  auto* train =
      app.add_subcommand("train", "Train a small model, and its indexer, on this machine");
  train->require_subcommand(1);
  add_training(*train, kTrainedModel, "The model, by the next byte of a text",
               std::make_shared<TrainCommand>(), action);
  add_training(*train, kTrainedIndexer, "The indexer of a trained model, in two stages",
               std::make_shared<TrainCommand>(), action);
  auto* report = train->add_subcommand(
      "report", "What trained indexers select on held-out text, beside chance and the last tokens");
  auto c = std::make_shared<TrainReportCommand>();
  report->add_option("FOLDER", c->folders, "Of trainings (all seeds that there are)");
  report->add_option("--model", c->model, "The preset that was trained (tiny-v3.2)");
  report->add_option("--text", c->options.text, "Files that were learnt from");
  report->add_option("--length", c->options.length, "Bytes of a sequence (as in training)")
      ->check(CLI::Range(2, 4099));
  report->add_option("--sequences", c->options.sequences, "Of held-out text, at most (16)")
      ->check(CLI::Range(1, 4096));
  report->add_option("--csv", c->csv, "Write the numbers");
  report->add_option("--svg", c->svg, "Write a drawing of the curves that training left");
  report->add_option("--device", c->device, kDeviceHelp)->check(device_name());
  report->add_option("--threads", c->threads, "Threads, 0 = all")->check(CLI::Range(0, 4096));
  report->callback([=, &action] { action = [=] { return report_command(*c); }; });
}

}  // namespace attnscope
