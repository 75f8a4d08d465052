// What each contradiction between published implementations does to outputs and selections.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "app/cli/look_at.h"
#include "app/text/say.h"
#include "app/wiring/wiring.h"
#include "engine/family/family.h"
#include "engine/family/models.h"
#include "engine/model/profile_switches.h"
#include "engine/session/place.h"
#include "engine/trace/compare.h"
#include "kernels/cpu/rope_table.h"
#include "kernels/layout/records.h"
#include "kernels/params/tensor_view.h"

namespace attnscope {
namespace {

using nlohmann::json;

// One way to run the scenario.
struct Variant {
  std::string name, sentence;
  ProfileSwitches switches;
};

// Every other value of every switch that the model has, then the profiles.
std::vector<Variant> variants(const ModelConfig& model) {
  const ProfileSwitches& base = model.switches;
  const auto own = family_of(model).switches(model);
  std::vector<Variant> all;
  for (const SwitchInfo& info : all_switches()) {
    const std::string_view name = info.name;
    if (std::ranges::find(own, name) == own.end()) continue;
    if (name == "multiprocessors" && base.attention_plan == AS_PLAN_NONE) continue;
    for (std::size_t value = 0; value < info.values.size(); ++value) {
      if (static_cast<int>(value) == info.get(base)) continue;
      Variant variant{fmt::format("{}={}", info.name, info.values[value]), info.sentence, base};
      // Not beside what another switch is set to.
      if (!set_switch(variant.switches, name, info.values[value])) continue;
      all.push_back(std::move(variant));
    }
  }
  for (const char* profile : {"vllm", "deepseek"}) {
    all.push_back(
        {profile, fmt::format("every switch as profile {}", profile), *profile_switches(profile)});
  }
  return all;
}

// Positions at which rotary tables are held against each other, as far as the model goes.
constexpr std::int64_t kPositions[] = {128, 1024, 8192, 65536, 1048575};

// Largest difference of a cosine or sine, over all pairs and running layers, at each position.
std::vector<std::pair<std::int64_t, double>> rotary_effect(const ModelConfig& model,
                                                           const ProfileSwitches& other) {
  std::vector<std::pair<std::int64_t, double>> out;
  ModelConfig changed = model;
  changed.switches = other;
  for (const std::int64_t position : kPositions) {
    if (position >= model.max_position) break;
    double largest = 0;
    for (int i = 0; i < model.num_layers(); ++i) {
      float a[AS_ROPE_DIM], b[AS_ROPE_DIM];
      cpu::rope_table_row(cpu::rope_frequencies(layer_rope(model, i)), position, a);
      cpu::rope_table_row(cpu::rope_frequencies(layer_rope(changed, i)), position, b);
      for (int k = 0; k < AS_ROPE_DIM; ++k) {
        largest =
            std::max(largest, std::fabs(static_cast<double>(a[k]) - static_cast<double>(b[k])));
      }
    }
    out.emplace_back(position, largest);
  }
  return out;
}

// What one run gave, as long as all runs have the same tokens: up to the first sampled one.
struct Outcome {
  std::map<std::pair<std::int64_t, int>, std::vector<float>> outputs;  // step, layer
  std::map<std::pair<std::int64_t, int>, std::vector<std::set<std::int32_t>>> selections;
};

Result<Outcome> run(const ProfilesCommand& command, Scenario scenario,
                    const ProfileSwitches& switches) {
  scenario.model.switches = switches;
  SessionOptions options;
  options.references = References::kNone;
  options.threads = command.threads;
  options.rewind_every = 0;
  auto session = Session::create(scenario, all_lanes(), options);
  if (!session) return session.error();
  Session& s = **session;
  Outcome outcome;
  bool sampled = false;
  while (!s.finished() && !sampled) {
    const std::int64_t step = s.cursor().step;
    while (!s.finished() && s.cursor().step == step) {
      if (auto ok = s.op(); !ok) return ok.error();
      if (!s.ran_any()) continue;
      const Place place = last_place(s);
      const OpParams& params = s.last_params();
      if (place.op == AS_OP_RESIDUAL) {
        const as_tensor& out = params.get<as_residual_params>().out;
        auto& values = outcome.outputs[{place.step, place.layer}];
        for (std::int64_t t = 0; t < out.shape[0]; ++t) {
          for (std::int64_t d = 0; d < out.shape[1]; ++d) {
            values.push_back(static_cast<float>(element(out, t, d)));
          }
        }
      } else if (as_op_role(place.op) == AS_ROLE_SELECT) {
        const as_tensor& list = params.get<as_indexer_topk_params>().indices;
        auto& sets = outcome.selections[{place.step, place.layer}];
        for (std::int64_t t = 0; t < list.shape[0]; ++t) {
          const auto* row = at<std::int32_t>(list, t);
          sets.emplace_back(row, row + list.shape[1]);
          sets.back().erase(-1);
        }
      }
      sampled = sampled || place.op == AS_OP_SAMPLE;
    }
  }
  return outcome;
}

struct Effect {
  double cosine = 0;
  double recall = 1;  // worst token
  std::int64_t tokens = 0, changed = 0;
};

// By layer, of all steps together.
std::map<int, Effect> effects(const Outcome& base, const Outcome& other) {
  std::map<int, Effect> out;
  std::map<int, std::pair<double, double>> sums;
  for (const auto& [where, a] : base.outputs) {
    const auto b = other.outputs.find(where);
    if (b == other.outputs.end()) continue;
    auto& [ab, aa_bb] = sums[where.second];
    for (std::size_t i = 0; i < a.size(); ++i) {
      const auto x = static_cast<double>(a[i]), y = static_cast<double>(b->second[i]);
      ab += x * y;
      aa_bb += x * x + y * y;
    }
  }
  for (const auto& [layer, sum] : sums) {
    out[layer].cosine = sum.second == 0 ? 0 : std::max(0.0, 1 - 2 * sum.first / sum.second);
  }
  for (const auto& [where, a] : base.selections) {
    const auto b = other.selections.find(where);
    if (b == other.selections.end()) continue;
    Effect& effect = out[where.second];
    for (std::size_t t = 0; t < a.size(); ++t) {
      if (a[t].empty()) continue;
      ++effect.tokens;
      std::int64_t kept = 0;
      for (const std::int32_t entry : a[t])
        kept += static_cast<std::int64_t>(b->second[t].count(entry));
      const double recall = static_cast<double>(kept) / static_cast<double>(a[t].size());
      effect.recall = std::min(effect.recall, recall);
      effect.changed += recall < 1 ? 1 : 0;
    }
  }
  return out;
}

}  // namespace

Result<as_status> profiles_command(const ProfilesCommand& command) {
  auto scenario = scenario_with_profile(command.scenario, command.profile, command.model);
  if (!scenario) return scenario.error();
  if (family_of(scenario->model).switches(scenario->model).empty()) {
    return bad_input(fmt::format("scenario {}: model {} of family {} has no switches",
                                 scenario->name, scenario->model.name, scenario->model.family),
                     "published implementations agree on it; choose a scenario of another model");
  }
  auto base = run(command, *scenario, scenario->model.switches);
  if (!base) return base.error();
  json rows = json::array();
  if (!command.json) {
    say("scenario {}, against profile {}, up to the first sampled token\n\n", scenario->name,
        scenario->model.switches.profile);
  }
  for (const Variant& variant : variants(scenario->model)) {
    auto outcome = run(command, *scenario, variant.switches);
    if (!outcome) return outcome.error();
    json layers = json::array();
    if (!command.json) say("{}: {}\n", variant.name, variant.sentence);
    for (const auto& [layer, effect] : effects(*base, *outcome)) {
      layers.push_back({{"layer", layer},
                        {"cosine", effect.cosine},
                        {"recall", effect.recall},
                        {"tokens", effect.tokens},
                        {"tokens_changed", effect.changed}});
      if (command.json) continue;
      say("  layer {:<3} output 1-cos {:<10.2g}", layer, effect.cosine);
      if (effect.tokens > 0) {
        say(" selection of {} of {} tokens changed, worst recall {:.3g}", effect.changed,
            effect.tokens, effect.recall);
      }
      say("\n");
    }
    rows.push_back({{"switch", variant.name}, {"sentence", variant.sentence}, {"layers", layers}});
    // A run is short; what frequencies do grows with the position.
    const auto rotary = rotary_effect(scenario->model, variant.switches);
    if (std::ranges::all_of(rotary, [](const auto& at) { return at.second == 0; })) continue;
    json positions = json::array();
    if (!command.json) say("  cos and sin of the rotary tables differ by up to\n");
    for (const auto& [position, difference] : rotary) {
      positions.push_back({{"position", position}, {"difference", difference}});
      if (!command.json) say("    {:<10.2g} at position {}\n", difference, position);
    }
    rows.back()["rotary"] = positions;
  }
  if (command.json) {
    say_json(json{{"format", "attnscope-profiles"},
                  {"version", 1},
                  {"scenario", scenario->name},
                  {"profile", scenario->model.switches.profile},
                  {"variants", rows}});
  }
  return AS_OK;
}

}  // namespace attnscope
