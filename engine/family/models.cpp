#include "engine/family/models.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cassert>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "engine/family/dense/dense.h"
#include "engine/family/family.h"
#include "engine/family/preset_name.h"
#include "engine/family/rank_split.h"
#include "engine/io/json_file.h"
#include "engine/io/json_object.h"
#include "engine/io/nearest.h"
#include "engine/io/trained_models.h"
#include "engine/model/profile_switches.h"

namespace attnscope {
namespace {

constexpr std::int64_t kMostChosenLayers = 4096;

std::vector<std::string> names_of(const Family& family, const char* PublishedModel::*name) {
  std::vector<std::string> all;
  for (const PublishedModel& p : family.published) all.emplace_back(p.*name);
  return all;
}

std::vector<std::string> names_of(const char* PublishedModel::*name) {
  std::vector<std::string> all;
  for (const Family* family : families()) {
    for (std::string& one : names_of(*family, name)) all.push_back(std::move(one));
  }
  return all;
}

const Family* family_with(const char* PublishedModel::*name, const std::string& text) {
  for (const Family* family : families()) {
    if (std::ranges::count(names_of(*family, name), text) > 0) return family;
  }
  return nullptr;
}

// By what the file says of itself; the first family where it says nothing. nullptr: said to the
// reader.
const Family* family_of_file(JsonObject& root) {
  const Family* found = nullptr;
  if (root.has("architectures")) {
    const auto names = root.texts("architectures");
    for (const std::string& name : names) {
      if (found == nullptr) found = family_with(&PublishedModel::architecture, name);
    }
    if (found == nullptr) {
      root.fail("architectures", fmt::format("[{}] is not supported", join(names)),
                fmt::format("allowed: {}", join(names_of(&PublishedModel::architecture))));
      return nullptr;
    }
  }
  if (root.has("model_type")) {
    const std::string type = root.text("model_type");
    const Family* typed = family_with(&PublishedModel::model_type, type);
    if (typed == nullptr || (found != nullptr && found != typed)) {
      const auto names = found != nullptr ? names_of(*found, &PublishedModel::model_type)
                                          : names_of(&PublishedModel::model_type);
      root.fail("model_type", shown_name(type) + " is not supported",
                fmt::format("allowed: {}", join(names)));
      return nullptr;
    }
    found = typed;
  }
  return found != nullptr ? found : families().front();
}

// why: with the model's name in it.
Result<void> has_dense_rows(const ModelConfig& config, fmt::format_string<const std::string&> why,
                            const char* example = "tiny-llama") {
  if (config.family == "dense") return {};
  return bad_input(fmt::format(why, config.name),
                   fmt::format("choose a model of dense attention, such as {}", example));
}

// Where the model is none then it stays as it is.
template <class Change>
Result<void> change_dense(ModelConfig& config, const Change& change) {
  ModelConfig changed = config;
  change(changed.dense);
  if (auto ok = validate(changed); !ok) return ok;
  config = std::move(changed);
  return {};
}

}  // namespace

std::vector<std::string> preset_names() {
  std::vector<std::string> names;
  for (const Family* family : families()) {
    for (const FamilyPreset& p : family->presets()) names.emplace_back(p.name);
  }
  return names;
}

Result<ModelConfig> preset(std::string_view name, const std::vector<int>& layers) {
  if (!trained_base(name).empty() && is_preset_name(name)) {
    const auto folder = trained_checkpoint(name);
    if (!folder) return folder.error();
    auto config = read_hf_config(*folder, layers);
    if (config) config->name = name;
    return config;
  }
  for (const Family* family : families()) {
    for (const FamilyPreset& p : family->presets()) {
      if (name != p.name) continue;
      ModelConfig config = p.make();
      if (Result<void> chosen = select_layers(config, layers); !chosen) return chosen.error();
      return config;
    }
  }
  return bad_input(fmt::format("unknown preset \"{}\"", name),
                   fmt::format("{}allowed: {}", did_you_mean(name, preset_names()),
                               fmt::join(preset_names(), ", ")));
}

Result<ModelConfig> read_hf_config(const std::string& given, const std::vector<int>& layers) {
  std::error_code code;
  const bool folder = std::filesystem::is_directory(given, code);
  const std::string path = folder ? (std::filesystem::path(given) / "config.json").string() : given;
  Result<std::string> text = read_text_file(path);
  if (!text) return text.error();
  Result<nlohmann::json> json = parse_json(*text, path);
  if (!json) return json.error();
  JsonReader reader(path);
  JsonObject root(reader, *json);
  const Family* family = family_of_file(root);
  if (family == nullptr || !reader.ok()) return reader.error();
  Result<ModelConfig> config = family->read_config(path, *json);
  if (!config) return config.error();
  config->name = given;
  std::vector<int> chosen = layers;
  if (chosen.empty() && root.has("attnscope_layers")) {
    for (const std::int64_t n : root.integers("attnscope_layers", 0, kMostChosenLayers)) {
      chosen.push_back(static_cast<int>(n));
    }
    if (!reader.ok()) return reader.error();
  }
  Result<void> checked = select_layers(*config, chosen);
  if (checked) checked = family->validate(*config, &*json);
  if (!checked) {
    Error error = checked.error();
    error.message = path + ": " + error.message;
    return error;
  }
  return config;
}

Result<void> validate(const ModelConfig& config) {
  std::vector<std::string> names;
  for (const Family* family : families()) names.emplace_back(family->name);
  if (std::ranges::find(names, config.family) == names.end()) {
    return bad_input(fmt::format("family: {} is not supported", shown_name(config.family)),
                     fmt::format("allowed: {}", join(names)));
  }
  return family_of(config).validate(config, nullptr);
}

Result<void> select_layers(ModelConfig& config, const std::vector<int>& layers) {
  const int count = config.published_layers();
  std::vector<int> chosen = layers;
  if (chosen.empty()) {
    for (int i = 0; i < count; ++i) chosen.push_back(i);
  }
  std::sort(chosen.begin(), chosen.end());
  for (std::size_t k = 0; k < chosen.size(); ++k) {
    if (chosen[k] < 0 || chosen[k] >= count) {
      return bad_input(fmt::format("{} has no layer {}", config.name, chosen[k]),
                       fmt::format("allowed: 0 to {}", count - 1));
    }
    if (k > 0 && chosen[k] == chosen[k - 1]) {
      return bad_input(
          fmt::format("layer {} is listed twice", chosen[k]),
          fmt::format("list each layer of {} once, from 0 to {}", config.name, count - 1));
    }
  }
  config.layers = std::move(chosen);
  return {};
}

Result<void> add_draft_layer(ModelConfig& config) {
  if (config.draft_ratios.empty()) {
    return bad_input(fmt::format("{} has no draft layer", config.name),
                     "only models with one (num_nextn_predict_layers, n_mtp_layers) draft");
  }
  if (config.draft_ratios.front() != 0) {
    return bad_input(fmt::format("the draft layer of {} has compress ratio {}, which is not "
                                 "supported",
                                 config.name, config.draft_ratios.front()),
                     "allowed: 0, a window only");
  }
  config.layers.push_back(config.published_layers());
  config.compress_ratios.push_back(config.draft_ratios.front());
  config.draft_layers = 1;
  return {};
}

Result<void> set_profile(ModelConfig& config, std::string_view text) {
  auto switches = profile_switches(text);
  if (!switches) return switches.error();
  const auto own = family_of(config).switches(config);
  std::vector<std::string> without;
  for (const SwitchInfo& info : all_switches()) {
    const bool has = std::ranges::find(own, std::string_view(info.name)) != own.end();
    if (!has && info.get(*switches) != info.get({})) without.emplace_back(info.name);
  }
  if (!without.empty()) {
    return bad_input(fmt::format("profile {}: model {} of family {} has no switch {}",
                                 shown_name(text), config.name, config.family, join(without)),
                     fmt::format("switches of this family: {}", switches_of_model(config)));
  }
  config.switches = std::move(*switches);
  return {};
}

Result<void> set_cache_dtype(ModelConfig& config, const std::string& name) {
  if (auto ok = has_dense_rows(config, "rows of {} have a format of their own"); !ok) return ok;
  const Result<std::int32_t> record = dense_cache_record(name);
  if (!record) return record.error();
  return change_dense(config, [&](DenseAttention& d) {
    d.cache_record = *record | (d.cache_record & AS_RECORD_HND);
  });
}

Result<void> set_cache_layout(ModelConfig& config, const std::string& name) {
  if (auto ok = has_dense_rows(config, "pages of {} have a layout of their own"); !ok) return ok;
  const Result<std::int32_t> placed = dense_layout_bit(name);
  if (!placed) return placed.error();
  return change_dense(config, [&](DenseAttention& d) {
    d.cache_record = (d.cache_record & ~AS_RECORD_HND) | *placed;
  });
}

Result<void> set_first_tokens(ModelConfig& config, std::int64_t tokens) {
  auto ok = has_dense_rows(config, "rows of {} have a format of their own", "tiny-llama-fp8");
  if (!ok) return ok;
  return change_dense(config,
                      [&](DenseAttention& d) { d.first_tokens_16bit = static_cast<int>(tokens); });
}

std::string switches_of_model(const ModelConfig& config) {
  const auto own = family_of(config).switches(config);
  return own.empty() ? "none" : switch_list(own);
}

CacheLayout build_cache_layout(const ModelConfig& config) {
  const Family& family = family_of(config);
  std::vector<CacheSpec> specs = family.caches(config);
  const auto twice = family.caches(with_twice_dealt(config));
  [[maybe_unused]] const auto dealt = deal_caches(*model_graph(config), specs, twice);
  assert(dealt);
  CacheLayout layout = group_caches(std::move(specs));
  for (int i = 0; family.shares_with != nullptr && i < config.num_layers(); ++i) {
    const int from = family.shares_with(config, i);
    if (from >= 0) layout.shared.emplace(i, from);
  }
  return layout;
}

const char* layer_type_name(const ModelConfig& config, int layer) {
  return family_of(config).layer_type(config, layer);
}

as_rope layer_rope(const ModelConfig& config, int layer) {
  return family_of(config).rope(config, layer);
}

bool layer_selects(const ModelConfig& config, int layer) {
  return family_of(config).selects(config, layer);
}

}  // namespace attnscope
