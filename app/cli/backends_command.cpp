#include "app/cli/backends_command.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "app/cli/look_at.h"
#include "app/reports/backend_runs.h"
#include "app/text/format.h"
#include "app/text/say.h"
#include "app/views/backends_ask.h"
#include "app/views/backends_view.h"
#include "app/wiring/wiring.h"
#include "engine/backend/attention_request.h"
#include "engine/backend/attention_workspace.h"
#include "engine/backend/occupancy.h"
#include "engine/family/models.h"
#include "kernels/params/op_table.h"

namespace attnscope {
namespace {

using nlohmann::json;

struct ExplainCommand {
  std::string model;
  BackendsAsk ask;
  bool json = false;
};

std::vector<std::string> names_in(std::span<const char* const> names) {
  return {names.begin(), names.end()};
}

struct WorkspaceCommand {
  std::string model;
  WorkspaceNumbers numbers;
  bool json = false;
};

// A preset's name means the preset, whatever lies in the folder.
Result<ReadRequest> find_request(const std::string& model) {
  const auto presets = preset_names();
  if (std::ranges::find(presets, model) == presets.end()) return read_attention_request(model);
  Result<ModelConfig> config = preset(model);
  if (!config) return config.error();
  return ReadRequest{attention_request(*config), {}};
}

Result<ReadRequest> request_of(const ExplainCommand& command) {
  auto read = find_request(command.model);
  if (!read) return read.error();
  auto asked = with_asked(command.ask, std::move(read->request));
  if (!asked) return asked.error();
  read->request = std::move(*asked);
  return read;
}

json explain_json(const BackendSelection& selection, const BackendsView& view) {
  json lines = json::array();
  for (const BackendLine& line : view.lines) {
    json broken = json::array();
    for (const BrokenRule& rule : line.broken) {
      broken.push_back({{"rule", rule.rule},
                        {"stage", rule.stage == RuleStage::kLayer ? "layer" : "selector"},
                        {"asked", rule.asked},
                        {"allowed", rule.allowed}});
    }
    lines.push_back({{"backend", line.name},
                     {"version", line.version},
                     {"order", line.order},
                     {"state", line.word},
                     {"graphs", line.graph},
                     {"here", line.here},
                     {"source", line.source},
                     {"broken", broken}});
  }
  json out{{"format", "attnscope-backends"},
           {"version", 1},
           {"model", selection.request.model},
           {"sentence", view.sentence},
           {"asked", view.asked},
           {"taken", nullptr},
           {"backends", lines},
           {"notes", view.notes}};
  if (selection.chosen < 0) return out;
  out["taken"] = selection.verdicts[static_cast<std::size_t>(selection.chosen)].backend->name;
  out["block_size"] = selection.block_size;
  out["layout"] = selection.layout;
  return out;
}

void print_line(const BackendLine& line) {
  const char* mark = line.taken ? "->" : "  ";
  say("{} {:>2}  {:<28}{:<8}{:<18}{}\n", mark,
      line.order > 0 ? std::to_string(line.order) : std::string("-"), line.name, line.version,
      line.word, line.here);
  for (const BrokenRule& rule : line.broken) {
    say("         {}{}\n", describe(rule),
        rule.stage == RuleStage::kLayer ? " (when the layer is made)" : "");
  }
}

void print_tree(const BackendsView& view) {
  say("{}\n  asked: {}\n", view.sentence, view.asked);
  if (!view.given.empty()) say("  given: {}\n", view.given);
  for (const std::string& note : view.notes) say("  note: {}\n", note);
  say("\ntried in this order:\n");
  bool others = false;
  for (const BackendLine& line : view.lines) {
    if (line.order == 0 && !others) say("\nnot tried unless named:\n");
    others = others || line.order == 0;
    print_line(line);
  }
}

Result<as_status> explain_command(const ExplainCommand& command) {
  auto read = request_of(command);
  if (!read) return read.error();
  const AttentionRegistry registry;
  auto selection = explain_backends(registry, read->request);
  if (!selection) return selection.error();
  if (!read->note.empty()) selection->notes.insert(selection->notes.begin(), read->note);
  const BackendsView view = backends_view(*selection);
  if (command.json) {
    say_json(explain_json(*selection, view));
  } else {
    print_tree(view);
  }
  const auto chosen = chosen_backend(*selection);
  if (!chosen) return chosen.error();
  return AS_OK;
}

json backend_json(const AttentionBackend& b) {
  std::vector<std::string> platforms, types, versions, ops;
  for (const as_op_id op : b.ops) ops.emplace_back(as_op_find(op)->name);
  for (const AttentionPlatform one : b.platforms) platforms.emplace_back(platform_name(one));
  for (const AttentionType one : b.types) types.emplace_back(attention_type_name(one));
  for (const BackendVariant& one : b.variants) versions.emplace_back(one.name);
  return {{"backend", b.name},
          {"what", b.what},
          {"platforms", platforms},
          {"layers", layer_kind_name(b.kind)},
          {"head_sizes", describe(b.head_sizes)},
          {"block_sizes", describe(b.block_sizes)},
          {"dtypes", b.dtypes},
          {"cache_dtypes", b.cache_dtypes},
          {"types", types},
          {"versions", versions},
          {"mla", b.mla},
          {"sparse", b.sparse},
          {"sinks", b.sinks},
          {"metadata", metadata_form_name(b.metadata)},
          {"cache", b.cache.axes},
          {"graphs", graph_support_name(b.graph)},
          {"compute_capability", describe(b.gpus)},
          {"here", backend_here(b)},
          {"ops", ops},
          {"source", b.source}};
}

Result<as_status> list_backends_command(bool as_json) {
  const AttentionRegistry registry;
  if (as_json) {
    json rows = json::array();
    for (const AttentionBackend& backend : registry.all()) rows.push_back(backend_json(backend));
    say_json(json{{"format", "attnscope-backend-list"}, {"version", 1}, {"backends", rows}});
    return AS_OK;
  }
  for (const AttentionBackend& backend : registry.all()) {
    say("{}\n  {}; {}\n", backend.name, backend.what, backend_here(backend));
    say("  head sizes {}; blocks {}; cache [{}] as {}\n", describe(backend.head_sizes),
        describe(backend.block_sizes), fmt::join(backend.cache.axes, ", "),
        fmt::join(backend.cache_dtypes, ", "));
  }
  say("\n{} backends; attnscope backends explain MODEL says which one is taken\n",
      registry.all().size());
  return AS_OK;
}

Result<as_status> workspace_command(const WorkspaceCommand& command) {
  auto sums = workspace_sums(command.numbers);
  if (!sums) return sums.error();
  if (command.json) {
    json rows = json::array();
    for (const WorkspaceSum& sum : *sums) {
      rows.push_back({{"what", sum.what}, {"formula", sum.formula}, {"bytes", sum.bytes}});
    }
    say_json(json{{"format", "attnscope-workspace"}, {"version", 1}, {"sums", rows}});
    return AS_OK;
  }
  for (const WorkspaceSum& sum : *sums) {
    say("{:>10}  {}\n            {} = {}\n", format_bytes(static_cast<double>(sum.bytes)), sum.what,
        sum.formula, sum.numbers);
  }
  return AS_OK;
}

void add_explain(CLI::App& backends, std::function<Result<as_status>()>& action) {
  auto* explain = backends.add_subcommand(
      "explain", "The tree of rules by which a backend is taken for a model, path marked");
  auto command = std::make_shared<ExplainCommand>();
  explain->add_option("model", command->model, "Preset, config.json, or the folder that has one")
      ->required();
  explain->add_option("--gpu", command->ask.gpu,
                      "sm_80, sm_90, sm_100 .., rocm, xpu or cpu (sm_90)");
  explain->add_option("--dtype", command->ask.dtype, "float16, bfloat16 or float32 (the model's)");
  explain->add_option("--cache-dtype", command->ask.cache_dtype, "auto, fp8, fp8_ds_mla .. (auto)");
  explain
      ->add_option("--block-size", command->ask.block_size, "Tokens (default: the backend's own)")
      ->check(CLI::Range(1, 1 << 20));
  explain->add_option("--type", command->ask.type, "Of the layers (default: the model's)")
      ->check(CLI::IsMember(names_in(attention_types())));
  explain->add_option("--with", command->ask.with, "What layers have besides, comma separated")
      ->delimiter(',')
      ->check(CLI::IsMember(names_in(backend_features())));
  explain->add_option("--backend", command->ask.backend, "The one that must be taken");
  explain->add_flag("--json", command->json, "Print as JSON");
  explain->callback([=, &action] { action = [=] { return explain_command(*command); }; });
}

// Sizes of a model, where one is named and nothing else is said.
Result<WorkspaceNumbers> numbers_of(const WorkspaceCommand& command, const CLI::App& given) {
  WorkspaceNumbers n = command.numbers;
  if (command.model.empty()) return n;
  auto read = find_request(command.model);
  if (!read) return read.error();
  const AttentionRequest& request = read->request;
  const auto take = [&](const char* option, std::int64_t& number, std::int64_t of_model) {
    if (given.count(option) == 0) number = of_model;
  };
  take("--heads", n.heads, request.heads);
  take("--kv-heads", n.kv_heads, request.mla ? 0 : request.kv_heads);
  take("--head-size", n.head_size, request.head_size);
  take("--value-size", n.value_size, request.value_size);
  return n;
}

void add_workspace(CLI::App& backends, std::function<Result<as_status>()>& action) {
  auto* workspace = backends.add_subcommand(
      "workspace", "Bytes beside the cache: CUDA graph, split-KV, partitions, gathered prefill");
  auto command = std::make_shared<WorkspaceCommand>();
  WorkspaceNumbers& n = command->numbers;
  workspace->add_option("model", command->model,
                        "Whose heads these are (default: 32 of 128, 8 KV)");
  workspace->add_option("--batch", n.batch, "Requests at most (256)");
  workspace->add_option("--max-seq", n.max_seq, "Tokens of the longest request (8192)");
  workspace->add_option("--heads", n.heads, "Of queries");
  workspace->add_option("--kv-heads", n.kv_heads, "Of keys and values; 0: one row for all");
  workspace->add_option("--head-size", n.head_size, "Of queries and keys, or of the row");
  workspace->add_option("--value-size", n.value_size, "Of values and outputs");
  workspace->add_option("--splits", n.splits, "Of a row at most (32)");
  workspace->add_option("--partition", n.partition, "Tokens of a partition (512)");
  workspace->add_option("--gathered", n.gathered, "Tokens gathered at most (5 longest requests)");
  workspace->add_flag("--json", command->json, "Print as JSON");
  workspace->callback([=, &action] {
    action = [=]() -> Result<as_status> {
      WorkspaceCommand c = *command;
      auto numbers = numbers_of(c, *workspace);
      if (!numbers) return numbers.error();
      c.numbers = *numbers;
      return workspace_command(c);
    };
  });
}

struct OccupancyCommand {
  LaunchNumbers launch;
  std::string gpu;  // empty = all that are known
  bool json = false;
};

Result<as_status> occupancy_command(const OccupancyCommand& command) {
  std::vector<ComputeCapability> gpus;
  for (const GpuLimits& limits : gpu_limits()) gpus.push_back(limits.capability);
  if (!command.gpu.empty()) {
    AttentionRequest request;
    if (auto ok = set_platform(request, command.gpu); !ok) return ok.error();
    if (request.platform != AttentionPlatform::kCuda) {
      return bad_input("occupancy is of GPUs of NVIDIA", "allowed: such as sm_90");
    }
    gpus = {request.gpu};
  }
  json rows = json::array();
  std::vector<std::string> lines;
  std::optional<Error> refused;
  for (const ComputeCapability gpu : gpus) {
    const auto of = occupancy(command.launch, gpu);
    if (!of) {
      if (gpus.size() == 1) return of.error();
      refused = of.error();
      lines.push_back(fmt::format("{:<8}refused: {}", capability_name(gpu), of.error().message));
      rows.push_back({{"gpu", capability_name(gpu)}, {"refused", of.error().message}});
      continue;
    }
    json limits = json::object();
    std::vector<std::string> each;
    for (const OccupancyLimit& limit : of->limits) {
      limits[limit.what] = limit.blocks;
      each.push_back(fmt::format("{} {}", limit.what, limit.blocks));
    }
    lines.push_back(fmt::format("{:<8}{}", capability_name(gpu), describe(*of, gpu)));
    lines.push_back(fmt::format("        blocks by limit: {}", fmt::join(each, ", ")));
    rows.push_back({{"gpu", capability_name(gpu)},
                    {"blocks", of->blocks},
                    {"warps_of_block", of->warps_of_block},
                    {"share", of->share},
                    {"limits", limits},
                    {"by", of->by}});
  }
  if (refused && std::ranges::all_of(rows, [](const json& r) { return r.contains("refused"); })) {
    return *refused;
  }
  if (command.json) {
    say_json(json{{"format", "attnscope-occupancy"}, {"version", 1}, {"gpus", rows}});
    return AS_OK;
  }
  for (const std::string& line : lines) say("{}\n", line);
  return AS_OK;
}

void add_occupancy(CLI::App& backends, std::function<Result<as_status>()>& action) {
  auto* sub = backends.add_subcommand(
      "occupancy", "Blocks of a kernel that run on a multiprocessor at once, and what limits them");
  auto command = std::make_shared<OccupancyCommand>();
  sub->add_option("--threads", command->launch.threads, "Of a block")->required();
  sub->add_option("--registers", command->launch.registers, "Of a thread, as ptxas -v says (0)");
  sub->add_option("--shared", command->launch.shared, "Bytes of a block, static and dynamic (0)");
  sub->add_option("--gpu", command->gpu, "sm_80, sm_90 .. (default: all that are known)");
  sub->add_flag("--json", command->json, "Print as JSON");
  sub->callback([=, &action] { action = [=] { return occupancy_command(*command); }; });
}

struct CompareCommand {
  std::string scenario;
  BackendRunsOptions options;
  bool json = false;
};

Result<as_status> compare_command(const CompareCommand& command, const ModelChoice& choice) {
  const auto scenario = scenario_with_profile(command.scenario, "", choice);
  if (!scenario) return scenario.error();
  const auto runs = run_backends(*scenario, all_lanes(), command.options);
  if (!runs) return runs.error();
  if (command.json) {
    say_json(backend_runs_json(*runs));
  } else {
    say("{}", Lines{backend_runs_text(*runs)});
  }
  if (std::ranges::all_of(runs->runs, [](const BackendRun& r) { return !r.refused.empty(); })) {
    return AS_BAD_INPUT;  // as explain where no backend accepts a model
  }
  return worst_of(*runs) == Verdict::kWrong ? AS_MISMATCH : AS_OK;
}

void add_compare(CLI::App& backends, std::function<Result<as_status>()>& action) {
  auto* sub = backends.add_subcommand(
      "compare",
      "Run a scenario by every backend that takes its model, and compare what comes out");
  auto command = std::make_shared<CompareCommand>();
  auto choice = std::make_shared<ModelChoice>();
  sub->add_option("SCENARIO", command->scenario, "A scenario of dense attention, such as tiny-mha")
      ->required();
  sub->add_option("--model", choice->model,
                  "Folder of a checkpoint, a config.json or a preset, instead of its own");
  sub->add_option("--gpu", command->options.gpu,
                  "sm_80, sm_90, sm_100 .., rocm, xpu or cpu (sm_90)");
  sub->add_option("--lane", command->options.lanes,
                  "LANE for all ops, or OP=LANE for one, on the host (cpu); may be repeated");
  sub->add_option("--threads", command->options.threads, "Threads, 0 = all")
      ->check(CLI::Range(0, 4096));
  sub->add_flag("--json", command->json, "Print as JSON");
  sub->callback([=, &action] { action = [=] { return compare_command(*command, *choice); }; });
}

}  // namespace

void add_backends_command(CLI::App& app, std::function<Result<as_status>()>& action) {
  auto* backends = app.add_subcommand(
      "backends", "Attention backends of vLLM: which one a model gets, by which rules");
  backends->require_subcommand(1);
  auto* list = backends->add_subcommand("list", "All of them: what they can, whether it runs here");
  auto as_json = std::make_shared<bool>(false);
  list->add_flag("--json", *as_json, "Print as JSON");
  list->callback([=, &action] { action = [=] { return list_backends_command(*as_json); }; });
  add_explain(*backends, action);
  add_compare(*backends, action);
  add_workspace(*backends, action);
  add_occupancy(*backends, action);
}

}  // namespace attnscope
