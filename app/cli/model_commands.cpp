#include "app/cli/model_commands.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "app/cli/commands.h"
#include "app/cli/look_at.h"
#include "app/reports/report.h"
#include "app/text/format.h"
#include "app/text/say.h"
#include "app/wiring/find_model.h"
#include "engine/checkpoint/checkpoint.h"
#include "engine/checkpoint/export_checkpoint.h"
#include "engine/config/scenario.h"
#include "engine/family/model_weights.h"
#include "engine/family/models.h"
#include "engine/family/preset_name.h"
#include "engine/io/shell_word.h"
#include "engine/model/memory.h"
#include "kernels/cpu/thread_pool.h"

namespace attnscope {
namespace {

using Action = std::function<Result<as_status>()>;
using nlohmann::json;

struct ModelCommand {
  std::string model, output, dtype = "bf16";
  std::vector<int> layers;
  std::int64_t seed = -1;
  int threads = 0;
  bool json = false;
};

// What is read costs as much again where it is written in FP8.
Result<void> check_room(const ModelConfig& config) {
  return check_memory(2 * parameter_count(config));
}

Result<LoadedWeights> read_checkpoint(const std::string& folder, const ModelConfig& config,
                                      const as_threads* threads) {
  auto checkpoint = Checkpoint::open(folder, config);
  if (!checkpoint) return checkpoint.error();
  return load_weights(**checkpoint, config, threads);
}

Result<as_status> tensors_command(const ModelCommand& c) {
  if (!is_checkpoint_folder(c.model)) {
    return bad_input(fmt::format("{}: no folder with a config.json", c.model),
                     "name the folder of a checkpoint");
  }
  auto config = find_model(c.model, c.layers, "");
  if (!config) return config.error();
  if (auto ok = check_room(*config); !ok) return ok.error();
  cpu::ThreadPool pool(c.threads);
  auto loaded = read_checkpoint(c.model, *config, pool.handle());
  if (!loaded) return loaded.error();
  std::uint64_t bytes = 0;
  json rows = json::array();
  for (const TensorUse& use : loaded->used) {
    bytes += use.bytes;
    rows.push_back(use_json(use));
  }
  if (c.json) {
    say_json(json{{"format", "attnscope-model-tensors"},
                  {"version", 1},
                  {"model", c.model},
                  {"layers", config->layers},
                  {"bytes", bytes},
                  {"unused", loaded->unused},
                  {"tensors", rows}});
    return AS_OK;
  }
  std::map<std::string, int> warnings;  // tensors of each
  for (const TensorUse& use : loaded->used) {
    say("{:<44} {:<8}{:<9} [{}]  {}", use.name, use.dtype,
        use.scales.empty() ? "" : "x " + use.scales, fmt::join(use.shape, ", "), use.shard);
    if (use.rounded > 0) say("  {} values rounded", use.rounded);
    say("\n");
    if (!use.warning.empty()) ++warnings[use.warning];
  }
  for (const auto& [text, count] : warnings) say("warning: {} (tensors: {})\n", text, count);
  say("\n{} tensors of layers {} read, {}; {} others in the checkpoint not used\n",
      loaded->used.size(), fmt::join(config->layers, ","), format_bytes(static_cast<double>(bytes)),
      loaded->unused);
  return AS_OK;
}

// The model of a scenario, a preset, a config.json or a checkpoint, with the seed of its weights.
struct ExportSource {
  ModelConfig config;
  std::uint64_t seed = 1;
  std::string checkpoint;  // empty: synthetic weights
};

Result<ExportSource> export_source(const ModelCommand& c) {
  ExportSource source;
  const bool is_preset = is_preset_name(c.model);
  const bool is_config = c.model.ends_with("config.json") || is_checkpoint_folder(c.model);
  if (is_preset || is_config) {
    auto config = find_model(c.model, c.layers, "");
    if (!config) return config.error();
    source.config = std::move(*config);
    if (!is_preset && is_checkpoint_folder(c.model)) source.checkpoint = c.model;
    if (is_preset && !trained_base(c.model).empty())
      source.checkpoint = *trained_checkpoint(c.model);
  } else {
    ModelChoice choice;
    choice.layers = c.layers;
    auto scenario = load_scenario(c.model, choice);
    if (!scenario) return scenario.error();
    source.config = scenario->model;
    source.seed = scenario->seed;
    source.checkpoint = scenario->checkpoint;
  }
  if (c.seed >= 0 && !source.checkpoint.empty()) {
    return usage_error(fmt::format("--seed {} has no effect: the weights are read from {}", c.seed,
                                   source.checkpoint),
                       "leave it out, or name a preset or a config.json without weights");
  }
  if (c.seed >= 0) source.seed = static_cast<std::uint64_t>(c.seed);
  return source;
}

Result<as_status> export_command(const ModelCommand& c) {
  auto source = export_source(c);
  if (!source) return source.error();
  if (auto ok = check_room(source->config); !ok) return ok.error();
  cpu::ThreadPool pool(c.threads);
  Weights weights;
  if (source->checkpoint.empty()) {
    weights = synthetic_weights(source->config, source->seed, pool.handle());
  } else {
    auto loaded = read_checkpoint(source->checkpoint, source->config, pool.handle());
    if (!loaded) return loaded.error();
    weights = std::move(loaded->weights);
  }
  const ExportDtype dtype = c.dtype == "fp8" ? ExportDtype::kFp8 : ExportDtype::kBf16;
  auto totals = export_checkpoint(weights, source->config, c.output, dtype, pool.handle());
  if (!totals) return totals.error();
  if (c.json) {
    say_json(json{{"format", "attnscope-model-export"},
                  {"version", 1},
                  {"path", c.output},
                  {"tensors", totals->tensors},
                  {"shards", totals->shards},
                  {"bytes", totals->bytes},
                  {"values_in_fp8", totals->in_blocks},
                  {"values_changed", totals->changed}});
    return AS_OK;
  }
  say("{}: {} tensors in {} shards, {}, {}\n", c.output, totals->tensors, totals->shards,
      format_bytes(static_cast<double>(totals->bytes)), c.dtype);
  if (totals->in_blocks > 0) {
    say("{} of {} values in FP8 are others than in bf16\n", totals->changed, totals->in_blocks);
  }
  const std::vector<std::string> scenarios = scenario_names();
  const bool own = std::ranges::find(scenarios, source->config.name) != scenarios.end();
  say("run it with: attnscope run {} --model {}\n", own ? source->config.name : "default",
      shell_word(c.output));
  return AS_OK;
}

void add_describe(CLI::App& model, Action& action) {
  auto* describe = model.add_subcommand(
      "describe", "Dimensions, layers, cache groups, parameter and cache bytes");
  auto command = std::make_shared<DescribeCommand>();
  describe
      ->add_option("preset", command->model,
                   "v4-flash, v4-pro, tiny, a config.json, or the folder of a checkpoint")
      ->required();
  describe->add_option("--layers", command->layers, "Layers that run, such as 0,2,3,4")
      ->delimiter(',');
  describe->add_option("--profile", command->profile, "vllm or deepseek")->check(check_profile);
  describe->add_flag("--json", command->json, "Print as JSON");
  describe->callback([=, &action] { action = [=] { return describe_command(*command); }; });
}

}  // namespace

void add_model_commands(CLI::App& app, Action& action) {
  auto* model = app.add_subcommand("model", "Models: presets, configuration files, checkpoints");
  model->require_subcommand(1);
  add_describe(*model, action);

  auto* tensors = model->add_subcommand(
      "tensors", "Read a checkpoint as a run would, and list what was read from which shard");
  auto c = std::make_shared<ModelCommand>();
  tensors->add_option("folder", c->model, "config.json, index and safetensors files")->required();
  tensors->add_option("--layers", c->layers, "Layers that run, such as 0,2,3,4")->delimiter(',');
  tensors->add_option("--threads", c->threads, "Threads, 0 = all")->check(CLI::Range(0, 4096));
  tensors->add_flag("--json", c->json, "Print as JSON");
  tensors->callback([=, &action] { action = [=] { return tensors_command(*c); }; });

  auto* save = model->add_subcommand(
      "export", "Write a model as a checkpoint folder with published names and dtypes");
  save->add_option("model", c->model, "Scenario, preset, config.json, or folder of a checkpoint")
      ->required();
  save->add_option("-o,--output", c->output, "The folder to make")->required();
  save->add_option("--dtype", c->dtype, "Of the large projections: bf16 (default) or fp8")
      ->check(CLI::IsMember({"bf16", "fp8"}));
  save->add_option("--layers", c->layers, "Layers to write, such as 0,2,3,4")->delimiter(',');
  save->add_option("--seed", c->seed, "Of synthetic weights (default: the scenario's, else 1)")
      ->check(CLI::Range(std::int64_t{0}, std::int64_t{1} << 62));
  save->add_option("--threads", c->threads, "Threads, 0 = all")->check(CLI::Range(0, 4096));
  save->add_flag("--json", c->json, "Print as JSON");
  save->callback([=, &action] { action = [=] { return export_command(*c); }; });
}

}  // namespace attnscope
