#include <fmt/format.h>
#include <fmt/ranges.h>

#include <memory>

#include "app/cli/capture_commands.h"
#include "app/text/overwrite.h"
#include "app/text/say.h"
#include "app/wiring/case_lane.h"
#include "app/wiring/wiring.h"
#include "engine/io/shell_word.h"
#include "engine/opcase/case_edit.h"
#include "engine/opcase/case_edit_check.h"
#include "engine/opcase/case_file.h"
#include "engine/opcase/case_run.h"
#include "kernels/cpu/thread_pool.h"

namespace attnscope {
namespace {

struct EditCommand {
  std::string file, output, lane = "cpu";
  std::vector<std::string> changes;
  bool force = false;
};

Result<as_status> edit_command(const EditCommand& c) {
  if (auto ok = check_free(c.output, c.force); !ok) return ok.error();
  auto kept = read_case(c.file);
  if (!kept) return kept.error();
  auto tolerances = Tolerances::load("");
  if (!tolerances) return tolerances.error();
  const LaneRegistry registry = all_lanes();
  auto lane = find_case_lane(registry, c.lane, kept->op);
  if (!lane) return lane.error();
  auto edited = edit_case(*kept, c.changes);
  if (!edited) return edited.error();
  const cpu::ThreadPool pool(0);
  CaseRunOptions run = case_options(registry, edited->kept.op, *tolerances, pool.handle());
  run.refused = fmt::format("{} is as it was; choose another value in --set {}", c.file,
                            fmt::join(c.changes, " --set "));
  auto done = rerun_case(edited->kept, *lane, run);
  if (!done) return done.error();
  const auto fault = edit_fault(*kept, *done, c.changes);
  if (!fault) return fault.error();
  if (!fault->empty()) {
    return Error{
        AS_MISMATCH,
        fmt::format("{}: the case that was made is not the one asked for: {}", c.output, *fault),
        "the edit itself is at fault: please report it"};
  }
  if (!done->origin.from.ends_with(", edited")) done->origin.from += ", edited";
  if (auto ok = write_case(*done, c.output); !ok) return ok.error();
  say("{}: {}, its outputs are those of lane {}\n", c.output, done->op.name, lane->name);
  for (const std::string& note : edited->notes) say("  {}\n", note);
  say("judge them with: attnscope case run {} --lane ref.sim\n", shell_word(c.output));
  return AS_OK;
}

}  // namespace

void add_case_edit(CLI::App& app, std::function<Result<as_status>()>& action) {
  auto* command = app.add_subcommand(
      "edit", "Another case from one: with another number or input, and what a kernel makes of it");
  auto c = std::make_shared<EditCommand>();
  command->add_option("file", c->file, "A case")->required();
  command
      ->add_option("--set", c->changes,
                   "NAME=NUMBER, or INPUT=FILE.safetensors[:TENSOR]; may be repeated")
      ->required()
      ->allow_extra_args(false)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  command->add_option("-o,--output", c->output, "NAME.json")->required();
  command->add_option("--lane", c->lane, "Whose outputs it gets (cpu)");
  command->add_flag("--force", c->force, kForceHelp);
  command->callback([=, &action] { action = [=] { return edit_command(*c); }; });
}

}  // namespace attnscope
