#include "app/cli/train_command.h"

#include <chrono>
#include <memory>
#include <string>

#include "app/cli/writable.h"
#include "app/reports/train_lock.h"
#include "app/reports/train_report.h"
#include "app/reports/train_run.h"
#include "app/text/interrupt.h"
#include "app/text/say.h"
#include "engine/io/elapsed.h"
#include "engine/io/json_file.h"
#include "engine/io/shell_word.h"
#include "engine/io/trained_models.h"
#include "kernels/cpu/thread_pool.h"

namespace attnscope {
namespace {

struct TrainCommand {
  TrainPlan plan;
  bool again = false;
};

struct TrainReportCommand {
  std::vector<std::string> folders;
  std::string model = "tiny-v3.2", csv;
  TrainReportOptions options;
  int threads = 0;
};

std::string clock_text(double seconds) {
  const auto whole = static_cast<std::int64_t>(seconds + 0.5);
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

Result<as_status> train_command(const TrainCommand& c) {
  TrainPlan asked = c.plan;
  if (auto known = trainable_model(asked.model); !known) return known.error();
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
  say("{} of {}, seed {}: {} steps of {} x {} bytes; {} bytes of text, {} held out; "
      "state in {}\n",
      plan.what, plan.model, plan.seed, run.steps_in_all(), plan.sequences, plan.length,
      run.text().learnt_bytes(), run.text().held_bytes(), plan.folder);
  if (run.steps_made() > 0) say("goes on behind step {}\n", run.steps_made());
  catch_interrupts();
  bool stopped = false;
  if (auto ok = walk(run, stopped); !ok) return ok.error();
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
  if (auto ok = check_writable("--csv", c.csv); !ok) return ok.error();
  cpu::ThreadPool pool(c.threads);
  auto report = train_report(c.model, *folders, c.options, pool.handle());
  if (!report) return report.error();
  say("{}", Lines{train_report_text(*report)});
  if (!c.csv.empty()) {
    if (auto ok = write_text_file(c.csv, train_report_csv(*report)); !ok) return ok.error();
  }
  return report->holds() ? AS_OK : AS_MISMATCH;
}

constexpr std::int64_t kMostSteps = 1'000'000;

CLI::App* add_training(CLI::App& train, const char* name, const char* help,
                       const std::shared_ptr<TrainCommand>& c,
                       std::function<Result<as_status>()>& action) {
  auto* command = train.add_subcommand(name, help);
  TrainPlan& p = c->plan;
  command->add_option("MODEL", p.model, "A preset with an indexer: tiny-v3.2")->required();
  command->add_option("-o,--output", p.folder,
                      "Folder of state, CSV and checkpoints (below ~/.local/share/attnscope)");
  command->add_option("--seed", p.seed, fmt::format("Of weights and text ({})", p.seed))
      ->check(CLI::Range(std::int64_t{0}, std::int64_t{1} << 53));
  command->add_option("--steps", p.steps, fmt::format("Gradients ({})", p.steps))
      ->check(CLI::Range(std::int64_t{1}, kMostSteps));
  command->add_option("--rate", p.rate, fmt::format("Of learning, Adam's ({})", p.rate))
      ->check(CLI::Range(1e-9, 0.999));
  command
      ->add_option(
          "--interval", p.interval,
          fmt::format("Steps from one measure and saved state to the next ({})", p.interval))
      ->check(CLI::Range(std::int64_t{1}, kMostSteps));
  command->add_option("--held", p.held, fmt::format("Held-out sequences of a measure ({})", p.held))
      ->check(CLI::Range(1, 4096));
  command->add_option("--sequences", p.sequences, fmt::format("Of a step ({})", p.sequences))
      ->check(CLI::Range(1, 256));
  command->add_option("--length", p.length, fmt::format("Bytes of a sequence ({})", p.length))
      ->check(CLI::Range(2, 4099));
  command->add_option("--text", p.text, "Files to learn from (the program's own manual)");
  command
      ->add_option(
          "--threads", p.threads,
          fmt::format("Of libtorch; the bytes of the result depend on them ({})", p.threads))
      ->check(CLI::Range(1, 256));
  command->add_flag("--restart", c->again, "Remove what was trained there before, and begin again");
  command->callback([=, &action] { action = [=] { return train_command(*c); }; });
  return command;
}

}  // namespace

void add_train_command(CLI::App& app, std::function<Result<as_status>()>& action) {
  auto* train =
      app.add_subcommand("train", "Train a small model, and its indexer, on this machine");
  train->require_subcommand(1);
  auto model = std::make_shared<TrainCommand>();
  model->plan = model_plan();
  add_training(*train, "model", "The model, by the next byte of a text", model, action);
  auto indexer = std::make_shared<TrainCommand>();
  indexer->plan = indexer_plan();
  auto* command = add_training(*train, "indexer", "The indexer of a trained model, in two stages",
                               indexer, action);
  TrainPlan& p = indexer->plan;
  command
      ->add_option("--sparse-steps", p.sparse_steps,
                   fmt::format("Gradients of the second stage ({})", p.sparse_steps))
      ->check(CLI::Range(std::int64_t{0}, kMostSteps));
  command
      ->add_option("--sparse-rate", p.sparse_rate,
                   fmt::format("Of learning in the second stage ({})", p.sparse_rate))
      ->check(CLI::Range(1e-9, 0.999));
  auto* report = train->add_subcommand(
      "report", "What trained indexers select on held-out text, beside chance and the last tokens");
  auto c = std::make_shared<TrainReportCommand>();
  report->add_option("FOLDER", c->folders, "Of trainings (all seeds that there are)");
  report->add_option("--model", c->model, "The preset that was trained (tiny-v3.2)");
  report->add_option("--text", c->options.text, "Files that were learnt from");
  report->add_option("--length", c->options.length, "Bytes of a sequence (1024)")
      ->check(CLI::Range(2, 4099));
  report->add_option("--sequences", c->options.sequences, "Of held-out text, at most (16)")
      ->check(CLI::Range(1, 4096));
  report->add_option("--csv", c->csv, "Write the numbers");
  report->add_option("--threads", c->threads, "Threads, 0 = all")->check(CLI::Range(0, 4096));
  report->callback([=, &action] { action = [=] { return report_command(*c); }; });
}

}  // namespace attnscope
