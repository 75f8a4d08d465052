#include "app/reports/scenario_needs.h"

#include <fmt/format.h>

#include <algorithm>

#include "app/text/format.h"
#include "engine/cache/cache_layout.h"
#include "engine/family/family.h"
#include "engine/family/model_weights.h"
#include "engine/family/models.h"
#include "engine/family/tensor_parallel.h"

namespace attnscope {
namespace {

// "SWA, C4A, C128A, C4A", or "2 SWA, 21 C4A, 20 C128A" where there are many.
std::string layer_list(const ModelConfig& model) {
  constexpr int kMost = 8;
  std::string text;
  const auto add = [&](const std::string& item) { text += (text.empty() ? "" : ", ") + item; };
  if (model.num_layers() <= kMost) {
    for (int i = 0; i < model.num_layers(); ++i) add(layer_type_name(model, i));
    return text;
  }
  for (const std::string_view type : family_of(model).layer_types) {
    int count = 0;
    for (int i = 0; i < model.num_layers(); ++i) count += layer_type_name(model, i) == type ? 1 : 0;
    if (count > 0) add(fmt::format("{} {}", count, type));
  }
  return text;
}

}  // namespace

ScenarioNeeds scenario_needs(const Scenario& scenario) {
  ScenarioNeeds needs;
  // A session has the caches of all ranks.
  const TensorParallel& parallel = scenario.parallel;
  const CacheLayout layout = with_peers(build_cache_layout(rank_config(scenario.model, parallel)),
                                        parallel.size, parallel.rank);
  needs.usable = scenario.pool_blocks - 1;
  needs.pool_bytes = scenario.pool_blocks * layout.block_stride;
  needs.weight_bytes = weight_bytes(scenario.model);
  std::int64_t reserved = 0;
  bool full = false;
  for (const ScenarioRequest& request : scenario.requests) {
    RequestNeed need;
    need.prompt = static_cast<std::int64_t>(request.tokens.size());
    need.fresh = request.max_new_tokens;
    need.blocks = layout.demand(need.prompt + need.fresh, scenario.limits.token_budget);
    needs.blocks += need.blocks;
    full = full || reserved + need.blocks > needs.usable ||
           needs.at_once >= scenario.limits.max_requests;
    if (!full) {
      reserved += need.blocks;
      ++needs.at_once;
    }
    needs.requests.push_back(need);
  }
  needs.profile = profile_lines(scenario.model);
  return needs;
}

std::string scenario_sentence(const Scenario& scenario, const ScenarioNeeds& needs) {
  std::int64_t prompt = 0;
  for (const RequestNeed& need : needs.requests) prompt += need.prompt;
  const auto requests = static_cast<std::int64_t>(needs.requests.size());
  std::string text = fmt::format(
      "{}: {}, {} ({}), {}, {}; ", scenario.name,
      rank_config(scenario.model, scenario.parallel).name,
      plural(scenario.model.num_layers(), "layer", "layers"), layer_list(scenario.model),
      plural(requests, "request", "requests"), plural(prompt, "prompt token", "prompt tokens"));
  const std::string pool =
      fmt::format("the pool of {}", plural(scenario.pool_blocks, "block", "blocks"));
  if (needs.at_once == requests) {
    return text + (requests == 1
                       ? fmt::format("{} holds it ({} needed).", pool, format_count(needs.blocks))
                       : fmt::format("{} holds all at once ({} needed).", pool,
                                     format_count(needs.blocks)));
  }
  if (needs.at_once >= scenario.limits.max_requests) {
    return text + fmt::format("at most {} run at once, the others wait.", needs.at_once);
  }
  return text + fmt::format("{} holds {} at once, the others wait ({} needed for all).", pool,
                            needs.at_once, format_count(needs.blocks));
}

std::string memory_sentence(const Scenario& scenario, const ScenarioNeeds& needs) {
  const auto bytes = [](std::int64_t n) { return format_bytes(static_cast<double>(n)); };
  return fmt::format("Caches {} ({} × {}), weights {}.", bytes(needs.pool_bytes),
                     plural(scenario.pool_blocks, "block", "blocks"),
                     bytes(needs.pool_bytes / std::max<std::int64_t>(scenario.pool_blocks, 1)),
                     bytes(needs.weight_bytes));
}

std::vector<std::string> profile_lines(const ModelConfig& model) {
  const auto own = family_of(model).switches(model);
  if (own.empty()) return {"Nothing: this model has no switches."};
  const ProfileSwitches* found = &model.switches;
  const auto yes = [](bool on) { return on ? "yes" : "no"; };
  constexpr const char* kNorms[] = {"fp32", "bf16 at every step", "bf16 factor"};
  constexpr const char* kScores[] = {"fp32", "bf16 at every step", "sums of e4m3 products"};
  constexpr const char* kForms[] = {"one over all rows", "earlier rows apart, merged",
                                    "a common prefix once for all, merged"};
  const auto has = [&](std::string_view name) { return std::ranges::count(own, name) != 0; };
  if (has("attention_form")) {
    return {fmt::format("passes of attention: {}", kForms[found->attention_form])};
  }
  const std::string scores = fmt::format("index scores: {}", kScores[found->index_scores]);
  if (!has("hadamard")) return {scores};
  return {
      scores,
      fmt::format("index rows: {}", found->index_format == AS_RECORD_INDEX_MXFP4 ? "MXFP4" : "FP8"),
      fmt::format("Hadamard rotation of index rows: {}", yes(found->hadamard)),
      fmt::format("pooled entries rounded to bf16: {}", yes(found->round_pooled)),
      fmt::format("norm of query heads: {}", kNorms[found->q_norm]),
      fmt::format("YaRN in SWA-only layers: {}", yes(found->ratio0_yarn)),
      fmt::format("prompts attend over rows gathered before: {}", yes(found->gathered_prefill)),
      fmt::format("large projections: {}", !found->fp8_projections ? "bf16"
                                           : found->bf16_wo_a      ? "FP8, the output's first bf16"
                                                                   : "FP8"),
  };
}

}  // namespace attnscope
