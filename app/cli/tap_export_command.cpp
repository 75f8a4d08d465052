#include <fmt/format.h>

#include <memory>

#include "app/cli/look_at.h"
#include "app/cli/model_commands.h"
#include "app/cli/model_options.h"
#include "app/cli/number_check.h"
#include "app/cli/progress_bar.h"
#include "app/reports/tap_export.h"
#include "app/text/format.h"
#include "app/text/interrupt.h"
#include "app/text/overwrite.h"
#include "app/text/say.h"
#include "app/wiring/wiring.h"
#include "engine/io/plural.h"

namespace attnscope {
namespace {

struct TapExportCommand {
  std::string scenario, output, profile;
  ModelChoice model;
  TapExportOptions options;
  std::int64_t steps = -1, decode_steps = -1;
  bool force = false;
};

Result<as_status> tap_export(const TapExportCommand& c) {
  if (!c.output.ends_with(".safetensors")) {
    return usage_error(fmt::format("-o {}: taps are written as safetensors", c.output),
                       "name a file that ends in .safetensors; safetensors.torch.load_file(FILE) "
                       "gives torch tensors");
  }
  if (auto ok = check_free(c.output, c.force); !ok) return ok.error();
  auto scenario = scenario_with_profile(c.scenario, c.profile, c.model);
  if (!scenario) return scenario.error();
  TapExportOptions options = c.options;
  if (c.steps >= 0) options.steps = c.steps;
  if (c.decode_steps >= 0) options.decode_steps = c.decode_steps;
  catch_interrupts();
  options.stopped = [] { return interrupted() != 0; };
  auto totals = [&] {
    ProgressBar bar;
    return export_taps(*scenario, all_lanes(), options, c.output,
                       [&](const RunProgress& p) { bar(p); });
  }();
  if (interrupted() != 0 && !(totals && totals->complete)) ended_early();
  if (!totals) return totals.error();
  say("{}: {} tensors of {}, lane {}, {}\n", c.output, totals->tensors,
      counted(totals->steps, "step", "steps"), options.lane,
      format_bytes(static_cast<double>(totals->bytes)));
  if (!totals->complete) {
    say("INCOMPLETE: {} ended the run; the file holds what was done before it\n", interrupt_name());
  }
  return AS_OK;
}

}  // namespace

void add_tap_export_command(CLI::App& app, std::function<Result<as_status>()>& action) {
  auto* command = app.add_subcommand(
      "tap-export", "Run a scenario and write taps of any lane, references too, as safetensors");
  auto c = std::make_shared<TapExportCommand>();
  command->add_option("scenario", c->scenario, "File, or a name from assets/scenarios")->required();
  add_model_options(*command, std::shared_ptr<ModelChoice>(c, &c->model));
  command->add_option("--lane", c->options.lane, "cpu (default), cuda, .., ref.sim or ref.exact");
  command->add_option("--taps", c->options.taps, "OP.TAP, OP for all its outputs, or all")
      ->delimiter(',')
      ->required();
  command->add_option("--layer", c->options.layers, "Of these layers alone")->delimiter(',');
  auto* steps =
      command->add_option("--steps", c->steps, "Scheduler iterations")->check(whole_from(1));
  command
      ->add_option("--decode-steps", c->decode_steps,
                   "Iterations after every request has finished prefill (default: the scenario's)")
      ->check(whole_from(0))
      ->excludes(steps);
  command->add_option("--profile", c->profile, kProfileHelp)->check(check_profile);
  command->add_option("--threads", c->options.threads, "Threads, 0 = all")
      ->check(CLI::Range(0, 4096));
  command->add_option("-o,--output", c->output, "The file to write, .safetensors")->required();
  command->add_flag("--force", c->force, kForceHelp);
  command->callback([=, &action] { action = [=] { return tap_export(*c); }; });
}

}  // namespace attnscope
