// attnscope case explain: why the outputs that a case holds are wrong.
#include <fmt/format.h>

#include <memory>
#include <nlohmann/json.hpp>

#include "app/cli/capture_commands.h"
#include "app/reports/explain_call.h"
#include "app/text/say.h"
#include "app/wiring/case_lane.h"
#include "app/wiring/plugins.h"
#include "app/wiring/wiring.h"
#include "engine/opcase/case_file.h"
#include "kernels/cpu/thread_pool.h"

namespace attnscope {
namespace {

struct ExplainCaseCommand {
  std::string file, lane, tolerances;  // lane: empty = the outputs that the case holds
  int threads = 0;
  bool as_json = false;
};

Result<as_status> explain_case_command(const ExplainCaseCommand& c) {
  auto tolerances = Tolerances::load(c.tolerances);
  if (!tolerances) return tolerances.error();
  auto kept = read_case(c.file);
  if (!kept) return kept.error();
  const cpu::ThreadPool pool(c.threads);
  const LaneRegistry registry = all_lanes();
  if (!c.lane.empty()) {
    for (const auto& plugin : plugins()) plugin->set_strict(true);
    auto lane = find_case_lane(registry, c.lane, kept->op);
    if (!lane) return lane.error();
    auto ran =
        rerun_case(*kept, *lane, case_options(registry, kept->op, *tolerances, pool.handle()));
    if (!ran)
      return Error{ran.error().code, fmt::format("{}: {}", c.file, ran.error().message),
                   ran.error().hint};
    kept = std::move(ran);
  }
  auto why = explain_call(*kept, registry, *tolerances, pool.handle());
  if (!why) {
    return Error{why.error().code, fmt::format("{}: {}", c.file, why.error().message),
                 why.error().hint};
  }
  if (c.as_json) {
    nlohmann::json out = explanation_json(*why);
    out["format"] = "attnscope-case-explain";
    out["version"] = 1;
    out["file"] = c.file;
    say_json(out);
  } else if (!why->wrong()) {
    say("{}: {} of lane {} is right: there is nothing to explain\n", c.file, kept->op.name,
        kept->origin.lane);
  } else {
    say("{}: {} of lane {}\n", c.file, kept->op.name, kept->origin.lane);
    for (const std::string& line : why->lines()) say("  {}\n", line);
  }
  return why->wrong() ? AS_MISMATCH : AS_OK;
}

}  // namespace

void add_case_explain(CLI::App& app, std::function<Result<as_status>()>& action) {
  auto* command = app.add_subcommand(
      "explain",
      "Why the outputs of a case are wrong: their pattern, known mistakes that give them");
  auto c = std::make_shared<ExplainCaseCommand>();
  command->add_option("file", c->file, "A case")->required();
  command->add_option("--lane", c->lane,
                      "Explain the outputs of this lane (default: those that the case holds)");
  command->add_option("--tolerances", c->tolerances,
                      "Tolerance file (default: assets/tolerances.json)");
  command->add_option("--threads", c->threads, "Threads, 0 = all")->check(CLI::Range(0, 4096));
  command->add_flag("--json", c->as_json, "Print as JSON");
  command->callback([=, &action] { action = [=] { return explain_case_command(*c); }; });
}

}  // namespace attnscope
