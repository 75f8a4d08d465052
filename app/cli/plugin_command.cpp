#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "app/cli/capture_commands.h"
#include "app/reports/report_parts.h"
#include "app/text/say.h"
#include "app/wiring/case_lane.h"
#include "app/wiring/plugins.h"
#include "app/wiring/wiring.h"
#include "engine/examine/examine.h"
#include "engine/examine/helper_calls.h"
#include "engine/io/json_file.h"
#include "engine/io/plural.h"
#include "engine/opcase/case_file.h"
#include "kernels/cpu/thread_pool.h"

namespace attnscope {
namespace {

using PluginAction = std::function<Result<as_status>()>;

struct CheckPluginCommand {
  std::string library, keep;
  std::vector<std::string> ops;
  int threads = 0;
  bool as_json = false;
};

// Ops of the plugin that have calls of their own; those that are named, where any are.
Result<std::vector<CaseOp>> examined_ops(const Lane& lane, const std::vector<std::string>& names) {
  std::vector<CaseOp> found;
  if (!names.empty()) {
    for (const std::string& name : names) {
      auto op = case_op_by_name(name);
      if (!op) return op.error();
      if (lane.ops[op->id] == nullptr) {
        return usage_error(fmt::format("--op {}: {} has no such op", name, lane.name),
                           "leave --op out: all that it has are checked");
      }
      found.push_back(*op);
    }
    return found;
  }
  for (int i = 0; const as_op_info* info = as_op_at(i); ++i) {
    if (lane.ops[info->id] == nullptr) continue;
    const CaseOp op = *find_case_op(info->id);
    if (!op.helper || !helper_calls(op).empty()) found.push_back(op);
  }
  return found;
}

// Where the smallest call that breaks a clause is kept; empty = nowhere.
Result<std::string> keep_call(const ClauseFinding& finding, const CaseOp& op,
                              const std::string& folder) {
  if (folder.empty() || !finding.smallest) return std::string();
  std::error_code code;
  std::filesystem::create_directories(folder, code);
  const std::string path = fmt::format("{}/{}.{}.json", folder, op.name, finding.clause->id);
  if (auto ok = write_case(*finding.smallest, path); !ok) return ok.error();
  return path;
}

void print_finding(const ClauseFinding& finding, const std::string& file) {
  const std::string calls =
      finding.calls > 0 ? fmt::format(" ({})", counted(finding.calls, "call", "calls")) : "";
  say("  {:<12} {:<16} {}{}\n", clause_verdict_name(finding.verdict), finding.clause->id,
      finding.clause->text, calls);
  if (!finding.note.empty()) say("  {:<29} {}\n", "", finding.note);
  if (!file.empty()) say("  {:<29} kept as {}\n", "", file);
}

Result<as_status> check_plugin(const CheckPluginCommand& c) {
  PluginChoice choice = plugin_choice();
  choice.libraries = {c.library};
  if (auto ok = open_plugins(choice); !ok) return ok.error();
  PluginLane& plugin = *plugins().front();
  plugin.set_strict(true);
  auto tolerances = Tolerances::load();
  if (!tolerances) return tolerances.error();
  auto ops = examined_ops(plugin.lane(), c.ops);
  if (!ops) return ops.error();
  const LaneRegistry registry = all_lanes();
  const cpu::ThreadPool pool(c.threads);
  nlohmann::json report = nlohmann::json::array();
  bool kept = true;
  for (const CaseOp& op : *ops) {
    ExamineOptions options;
    options.lane = {plugin.lane().name, plugin.lane().ops[op.id]};
    options.run = case_options(registry, op, *tolerances, pool.handle());
    if (auto sim = find_case_lane(registry, "ref.sim", op)) options.reference = *sim;
    if (plugin.on_device(op.id)) {
      options.not_far = "its tensors lie on the GPU, where a cache of 4 GiB is not copied to";
    }
    if (!choice.in_process) {
      options.set_poison = [&plugin](std::uint8_t byte) { plugin.set_poison(byte); };
    }
    auto findings = examine(static_cast<as_op_id>(op.id), options);
    if (!findings) return findings.error();
    if (!c.as_json) say("{}\n", op.name);
    for (const ClauseFinding& finding : *findings) {
      kept = kept && finding.verdict != ClauseVerdict::kBroken;
      auto file = keep_call(finding, op, c.keep);
      if (!file) return file.error();
      if (!c.as_json) print_finding(finding, *file);
      report.push_back({{"op", op.name},
                        {"clause", finding.clause->id},
                        {"verdict", clause_verdict_name(finding.verdict)},
                        {"calls", finding.calls},
                        {"note", finding.note},
                        {"case", *file}});
    }
  }
  if (c.as_json) {
    say_json(nlohmann::json({{"format", "attnscope-plugin-check"},
                             {"version", 1},
                             {"lane", plugin.lane().name},
                             {"kept", kept},
                             {"clauses", report}}));
  }
  return kept ? AS_OK : AS_MISMATCH;
}

}  // namespace

void add_plugin_commands(CLI::App& app, PluginAction& action) {
  auto* group = app.add_subcommand("plugin", "Own kernels, tried on purpose");
  group->require_subcommand(1);
  auto* check = group->add_subcommand(
      "check", "Call a plugin's ops as their contracts allow and runs seldom do, clause by clause");
  auto c = std::make_shared<CheckPluginCommand>();
  check->add_option("library", c->library, "Shared library with kernels")->required();
  check->add_option("--op", c->ops, "This op alone; may be repeated")
      ->allow_extra_args(false)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  check->add_option("--keep", c->keep, "Folder for the smallest call that breaks each clause");
  check->add_option("--threads", c->threads, "Threads, 0 = all")->check(CLI::Range(0, 4096));
  check->add_flag("--json", c->as_json, "Print as JSON");
  check->callback([=, &action] { action = [=] { return check_plugin(*c); }; });
}

}  // namespace attnscope
