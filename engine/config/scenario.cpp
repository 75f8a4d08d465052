#include "engine/config/scenario.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <charconv>
#include <filesystem>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "engine/family/context_check.h"
#include "engine/family/dense/dense.h"
#include "engine/family/family.h"
#include "engine/family/model_weights.h"
#include "engine/family/models.h"
#include "engine/family/preset_name.h"
#include "engine/family/tensor_parallel.h"
#include "engine/io/assets_folder.h"
#include "engine/io/json_file.h"
#include "engine/io/json_object.h"
#include "engine/io/nearest.h"
#include "engine/io/printable.h"
#include "engine/sched/workload_file.h"

namespace attnscope {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kScenarioVersion = 1;
constexpr std::size_t kMostStops = 64;
constexpr std::int64_t kDefaultDecodeSteps = 20;
constexpr std::int64_t kMostSteps = 1000000;
constexpr std::int64_t kLargestBudget = 65536;  // activations of a step stay in memory
constexpr std::int64_t kMostInScenario = 4096;
// Slots of index lists are 32 bits, and an SWA or C4A block has 64 rows.
constexpr std::int64_t kMostPoolBlocks = (std::int64_t{1} << 31) / 64;
// Lists by id are as long as the highest one.
constexpr std::int64_t kMostFirstBlock = std::int64_t{1} << 20;
constexpr double kMaxSinkShift = 1e4;  // beyond it a sink is all or nothing anyway
constexpr double kLeastGain = 1.0 / 1024;
constexpr double kLeastRatio = 1e-6;
constexpr std::int64_t kMostWarm = 4096;
constexpr std::size_t kLargestText = std::size_t{1} << 30;

std::atomic<bool> anywhere{false};

// Whether a file lies in a folder or below it, both without links.
bool lies_in(const fs::path& file, const fs::path& folder) {
  const auto [end, rest] = std::mismatch(folder.begin(), folder.end(), file.begin(), file.end());
  return end == folder.end() && rest != file.end();
}

Result<void> check_text_file(const std::string& file, const Scenario& scenario) {
  if (anywhere) return {};
  std::error_code code;
  const fs::path real = fs::weakly_canonical(file, code);
  std::vector<fs::path> folders = {fs::absolute(scenario.path, code).parent_path()};
  if (auto assets = assets_folder()) folders.emplace_back(*assets);
  for (const fs::path& folder : folders) {
    if (lies_in(real, fs::weakly_canonical(folder, code))) return {};
  }
  return bad_input(
      fmt::format("{} lies outside of the scenario's folder and of the program's assets",
                  shown_name(file)),
      "copy it beside the scenario, or, if you trust who wrote that, allow it: --any-text-file");
}

std::vector<int> read_layers(JsonObject& model) {
  std::vector<int> layers;
  if (!model.has("layers")) return layers;
  const auto list = model.integers("layers", 0, std::numeric_limits<int>::max());
  if (list.empty())
    model.fail("layers", "is an empty list",
               "name at least one layer, or leave the key out for all");
  for (std::int64_t n : list) layers.push_back(static_cast<int>(n));
  return layers;
}

// By head; whether the model has these heads is seen once it is known.
std::map<int, float> read_sinks(JsonObject& model) {
  std::map<int, float> sinks;
  if (!model.has("sinks")) return sinks;
  JsonObject object = model.object("sinks");
  for (const std::string& key : object.keys()) {
    const double value = object.number_or_infinity(key, -kMaxSinkShift, kMaxSinkShift);
    int head = -1;
    const auto [end, error] = std::from_chars(key.data(), key.data() + key.size(), head);
    if (error != std::errc() || end != key.data() + key.size() || head < 0) {
      object.fail(key, "is no head", "keys are numbers of heads, from 0, in quotes");
    }
    sinks[head] = static_cast<float>(value);
  }
  return sinks;
}

// Fewer entries to select than the model has, so that a short prompt is enough to leave some out.
void set_index_topk(JsonObject& model, std::int64_t index_topk, ModelConfig& config) {
  bool selects = false;
  for (int i = 0; i < config.num_layers(); ++i) selects = selects || layer_selects(config, i);
  if (!selects) {
    return model.fail("index_topk", "no layer that runs selects",
                      "leave it out, or run a layer with an indexer");
  }
  config.index_topk = static_cast<int>(index_topk);
  if (auto ok = validate(config); !ok) {
    model.fail("index_topk", ok.error().message, ok.error().hint);
  }
}

void read_model(JsonObject& root, Scenario& scenario) {
  JsonObject model = root.object("model");
  const bool has_preset = model.has("preset");
  const bool has_config = model.has("config");
  const std::string preset_name = model.text("preset", "");
  const std::string config_name = model.text("config", "");
  const std::vector<int> layers = read_layers(model);
  scenario.seed = model.unsigned_integer("seed", scenario.seed);
  const double sink_shift = model.number("sink_shift", -kMaxSinkShift, kMaxSinkShift, 0.0);
  const std::map<int, float> sinks = read_sinks(model);
  const double logit_gain = model.number("logit_gain", kLeastGain, 1 / kLeastGain, 1.0);
  const bool twin_tokens = model.boolean("twin_tokens", false);
  const std::string mask = model.text("mask", ""), score = model.text("score", "");
  const std::string cache_dtype = model.text("cache_dtype", "");
  const std::string cache_layout = model.text("cache_layout", "");
  const std::int64_t first_tokens = model.integer("first_tokens_16bit", 0, 1 << 24, 0);
  const bool drafts = model.integer("mtp", 0, 1, 0) != 0;
  const std::int64_t index_topk = model.integer("index_topk", 1, 1 << 20, 0);
  model.finish();
  if (has_preset == has_config) {
    model.fail(
        "preset", has_preset ? "\"preset\" and \"config\" exclude each other" : "no model is named",
        fmt::format("give \"preset\" (one of {}) or \"config\" (a config.json, or the folder "
                    "of a checkpoint)",
                    join(preset_names())));
    return;
  }
  Result<ModelConfig> config = Error{};
  if (has_preset) {
    config = preset(preset_name);
    if (config && !trained_base(preset_name).empty()) {
      scenario.checkpoint = *trained_checkpoint(preset_name);
    }
  } else {
    Result<std::string> path = find_scenario_file(config_name, scenario.path);
    config = path ? read_hf_config(*path) : Result<ModelConfig>(path.error());
    std::error_code code;
    if (path && fs::is_directory(*path, code)) scenario.checkpoint = *path;
  }
  if (!config) {
    model.fail(has_preset ? "preset" : "config", config.error().message, config.error().hint);
    return;
  }
  if (!layers.empty()) {
    if (Result<void> chosen = select_layers(*config, layers); !chosen) {
      model.fail("layers", chosen.error().message, chosen.error().hint);
      return;
    }
  }
  if (drafts) {
    if (Result<void> added = add_draft_layer(*config); !added) {
      model.fail("mtp", added.error().message, added.error().hint);
      return;
    }
  }
  if (index_topk != 0) set_index_topk(model, index_topk, *config);
  if (!cache_dtype.empty()) {
    if (const Result<void> set = set_cache_dtype(*config, cache_dtype); !set) {
      return model.fail("cache_dtype", set.error().message, set.error().hint);
    }
  }
  if (!cache_layout.empty()) {
    if (const Result<void> set = set_cache_layout(*config, cache_layout); !set) {
      return model.fail("cache_layout", set.error().message, set.error().hint);
    }
  }
  if (model.has("first_tokens_16bit")) {
    if (const Result<void> set = set_first_tokens(*config, first_tokens); !set) {
      return model.fail("first_tokens_16bit", set.error().message, set.error().hint);
    }
  }
  if (!mask.empty() || !score.empty()) {
    if (!mask.empty()) config->dense.mask = mask;
    if (!score.empty()) config->dense.score = score;
    const Result<void> valid =
        config->family == "dense"
            ? validate(*config)
            : bad_input(fmt::format("{} attends over what it selects, not by a mask", config->name),
                        "choose a model of dense attention, such as tiny-llama");
    if (!valid) {
      model.fail(mask.empty() ? "score" : "mask", valid.error().message, valid.error().hint);
      return;
    }
  }
  scenario.model = std::move(*config);
  const std::string profile = root.has("profile") ? root.text("profile") : "vllm";
  if (Result<void> set = set_profile(scenario.model, profile); !set) {
    root.fail("profile", set.error().message, set.error().hint);
    return;
  }
  scenario.model.sink_shift = sink_shift;
  scenario.model.sinks = sinks;
  if (!sinks.empty() && sinks.rbegin()->first >= scenario.model.heads) {
    model.fail("sinks", fmt::format("there is no head {}", sinks.rbegin()->first),
               fmt::format("the model has heads 0 to {}", scenario.model.heads - 1));
  }
  if ((!sinks.empty() || sink_shift != 0) && !has_weight(scenario.model, "sinks")) {
    model.fail(sinks.empty() ? "sink_shift" : "sinks", "the model has no sinks",
               "leave it out, or choose a model that has");
  }
  scenario.model.logit_gain = logit_gain;
  scenario.model.twin_tokens = twin_tokens;
  if (!scenario.checkpoint.empty() && (logit_gain != 1 || twin_tokens)) {
    model.fail(twin_tokens ? "twin_tokens" : "logit_gain", "the weights are read from a checkpoint",
               "only weights that are made can be made so");
  }
}

void read_parallel(JsonObject& root, Scenario& scenario) {
  if (!root.has("tensor_parallel")) return;
  JsonObject object = root.object("tensor_parallel");
  TensorParallel parallel;
  constexpr std::int64_t kMostRanks = 128;  // as heads
  parallel.size = static_cast<int>(object.integer("size", 1, kMostRanks));
  parallel.rank = static_cast<int>(object.integer("rank", 0, kMostRanks - 1, 0));
  object.finish();
  if (auto good = check_parallel(scenario.model, parallel); !good) {
    object.fail(parallel.rank < parallel.size ? "size" : "rank", good.error().message,
                good.error().hint);
  }
  scenario.parallel = parallel;
}

void read_context(JsonObject& root, Scenario& scenario) {
  if (!root.has("context_parallel")) return;
  JsonObject object = root.object("context_parallel");
  ContextSplit split;
  constexpr std::int64_t kLongestRun = 1024;  // tokens, as of the largest blocks
  split.ranks = static_cast<int>(object.integer("ranks", 1, kMostContextRanks));
  split.interleave = static_cast<int>(object.integer("interleave", 1, kLongestRun, 1));
  object.finish();
  if (auto good = check_context(scenario.model, split); !good) {
    object.fail("ranks", good.error().message, good.error().hint);
  }
  scenario.context = split;
  scenario.model = shared_config(std::move(scenario.model), split);
}

void read_ess(JsonObject& root, Scenario& scenario) {
  if (!root.has("ess")) return;
  JsonObject object = root.object("ess");
  EssOptions& ess = scenario.ess;
  ess.ratio = object.number("ratio", kLeastRatio, 1.0);
  ess.policy = object.choice("policy", {"lru", "fifo"}, "lru") == "fifo" ? PoolPolicy::kFifo
                                                                         : PoolPolicy::kLru;
  ess.warm = static_cast<int>(object.integer("warm", 0, kMostWarm, kWarmWindows));
  const std::string attend = object.text("attend", "none");
  object.finish();
  const ModelConfig& model = scenario.model;
  const Family& family = family_of(model);
  std::vector<int> selecting;
  for (int i = 0; i < model.num_layers(); ++i) {
    if (family.selects(model, i)) selecting.push_back(model.layers[static_cast<std::size_t>(i)]);
  }
  if (selecting.empty()) {
    root.fail("ess", fmt::format("no layer of {} that runs selects rows", model.name),
              "leave it out, or choose a model whose layers select, such as tiny or tiny-v3.2");
  } else if (auto choice = overlap_choice(attend, selecting); !choice) {
    object.fail("attend", choice.error().message, choice.error().hint);
  } else {
    ess.attend = std::move(*choice);
  }
  if (ess.attend.any(Overlap::kDba) && model.switches.attention_plan != AS_PLAN_NONE) {
    object.fail("attend", "dba takes a batch half by half, a plan of attention all of it",
                "leave out dba, or the switch attention_plan");
  }
  const bool overlaps = ess.attend.any(Overlap::kDa) || ess.attend.any(Overlap::kDba);
  if (overlaps && scenario.adversarial_lists) {
    object.fail("attend",
                "adversarial lists are made for whole calls, da and dba make parts of them",
                "leave it out, or \"lists\"");
  }
  if (scenario.parallel.size > 1 || scenario.context.splits()) {
    root.fail("ess", "rows in host memory are those of a model on one rank",
              scenario.context.splits() ? "leave it out, or context_parallel"
                                        : "leave it out, or tensor_parallel");
  }
  scenario.model.host_rows = true;
}

void read_hidden_states(JsonObject& root, Scenario& scenario) {
  if (!root.has("hidden_states")) return;
  Result<std::string> path = find_scenario_file(root.text("hidden_states"), scenario.path);
  if (path) {
    scenario.hidden_states = *path;
  } else {
    root.fail("hidden_states", path.error().message, path.error().hint);
  }
}

// The prompt's bytes, one token each.
void read_prompt(JsonObject& item, const Scenario& scenario, ScenarioRequest& request) {
  const bool is_file = item.has("text_file");
  if (is_file == item.has("text")) {
    item.fail("text",
              is_file ? "\"text\" and \"text_file\" exclude each other" : "no prompt is given",
              "give \"text\" (the prompt itself) or \"text_file\" (a file to read it from)");
    return;
  }
  std::string text = item.text("text", "");
  const std::string file = item.text("text_file", "");
  if (is_file) {
    Result<std::string> path = find_scenario_file(file, scenario.path);
    if (!path) {
      item.fail("text_file", path.error().message, path.error().hint);
      return;
    }
    if (auto good = check_text_file(*path, scenario); !good) {
      item.fail("text_file", good.error().message, good.error().hint);
      return;
    }
    Result<std::string> read = read_text_file(*path, kLargestText);
    if (!read) {
      item.fail("text_file", read.error().message, read.error().hint);
      return;
    }
    text = std::move(*read);
  }
  const auto size = static_cast<std::int64_t>(text.size());
  const std::string source = is_file ? "\"" + file + "\"" : "the text";
  if (size == 0) {
    item.fail(is_file ? "text_file" : "text", source + " is empty",
              "a prompt has at least one byte");
    return;
  }
  constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();
  const std::int64_t offset = item.integer("offset", 0, kMost, 0);
  if (offset >= size) {
    item.fail("offset", fmt::format("{} is beyond the end of {} of {} bytes", offset, source, size),
              fmt::format("allowed: 0 to {}", size - 1));
    return;
  }
  const std::int64_t count = item.integer("tokens", 1, kMost, size - offset);
  if (count > size - offset) {
    item.fail("tokens",
              fmt::format("{} is more than the {} bytes of {} after offset {}", count,
                          size - offset, source, offset),
              fmt::format("allowed: 1 to {}", size - offset));
    return;
  }
  request.tokens.reserve(static_cast<std::size_t>(count));
  for (std::int64_t i = offset; i < offset + count; ++i) {
    request.tokens.push_back(static_cast<unsigned char>(text[static_cast<std::size_t>(i)]));
  }
}

void read_requests(JsonObject& root, const JsonReader& reader, Scenario& scenario) {
  std::vector<JsonObject> items = root.objects("requests");
  if (items.empty()) root.fail("requests", "there is no request", "list at least one");
  if (static_cast<std::int64_t>(items.size()) > kMostInScenario) {
    root.fail("requests", fmt::format("{} requests", items.size()),
              fmt::format("allowed: 1 to {}", kMostInScenario));
  }
  const CacheLayout layout = build_cache_layout(scenario.model);
  std::set<std::string> names;
  for (JsonObject& item : items) {
    if (!reader.ok()) return;  // the first error is the one that is told
    ScenarioRequest request;
    request.name = item.text("name", fmt::format("request{}", names.size()));
    if (request.name.empty()) item.fail("name", "is empty", "give the request a name");
    if (!names.insert(request.name).second) {
      item.fail("name", shown_name(request.name) + " is already the name of another request",
                "names of requests differ");
    }
    request.max_new_tokens = item.integer("max_new_tokens", 1, scenario.model.max_position);
    request.arrival_step = item.integer("arrival_step", 0, kMostSteps, 0);
    request.abort_step = item.integer("abort_step", 1, kMostSteps, -1);
    request.priority = item.integer("priority", -kMostSteps, kMostSteps, 0);
    read_prompt(item, scenario, request);
    item.finish();
    if (!reader.ok()) return;

    const auto prompt = static_cast<std::int64_t>(request.tokens.size());
    const std::int64_t max_len = prompt + request.max_new_tokens;
    if (max_len > scenario.model.max_position) {
      item.fail("max_new_tokens",
                fmt::format("request \"{}\" would reach {} tokens, {} of prompt and {} new, but {} "
                            "has positions for {}",
                            request.name, max_len, prompt, request.max_new_tokens,
                            scenario.model.name, scenario.model.max_position),
                "lower tokens or max_new_tokens");
      return;
    }
    auto fits = fits_pool(request.name, prompt, request.max_new_tokens, layout, scenario);
    if (!fits) {
      item.fail("tokens", fits.error().message, fits.error().hint);
      return;
    }
    scenario.requests.push_back(std::move(request));
  }
}

void read_serving_part(JsonObject& root, const nlohmann::json& parsed, Scenario& scenario) {
  if (!root.has("serving")) return;
  JsonObject object = root.object("serving");
  read_serving(object, parsed.at("serving"), scenario.serving);
  const CacheLayout layout = build_cache_layout(scenario.model);
  if (auto good = check_options(serving_options(scenario, layout)); !good) {
    root.fail("serving", good.error().message, good.error().hint);
  }
  const auto asks = [&](const char* key) { return parsed.at("serving").contains(key); };
  if (asks("prefix_caching") && scenario.serving.kv.caching &&
      !serving_options(scenario, layout).kv.caching) {
    root.fail("serving.prefix_caching",
              fmt::format("{} has no prefixes to find: it sees ahead, or "
                          "keeps no rows",
                          scenario.model.name),
              "set it to false, or leave it out");
  }
  if (scenario.serving.drafts.tokens > 0 && layout.groups.empty()) {
    root.fail("serving.draft_tokens",
              fmt::format("{} decodes nothing: there is nothing to draft", scenario.model.name),
              "leave it out");
  }
  if (scenario.serving.swap_blocks > 0 && scenario.ess.ratio > 0) {
    root.fail("serving.preemption", "\"swap\" beside \"ess\": both move rows to host memory",
              "give one of them");
  }
}

void read_stops(JsonObject& root, Scenario& scenario) {
  if (!root.has("stops")) return;
  std::vector<JsonObject> items = root.objects("stops");
  if (items.size() > kMostStops) {
    return root.fail("stops", fmt::format("{} of them", items.size()),
                     fmt::format("at most {}", kMostStops));
  }
  for (JsonObject& item : items) {
    ScenarioStop stop;
    stop.when = item.text("when");
    stop.on = item.boolean("on", true);
    if (stop.when.empty()) item.fail("when", "is empty", "such as \"wrong\"");
    item.finish();
    scenario.stops.push_back(std::move(stop));
  }
}

void read_scenario(JsonObject& root, const nlohmann::json& parsed, const JsonReader& reader,
                   Scenario& scenario) {
  const std::int64_t version = root.integer("version", 1, std::numeric_limits<std::int64_t>::max());
  if (version > kScenarioVersion) {
    root.fail("version", fmt::format("{} is newer than this program", version),
              fmt::format("allowed: {}", kScenarioVersion));
  }
  scenario.name = root.text("name", fs::path(scenario.path).stem().string());
  scenario.pool_blocks = root.integer("pool_blocks", 2, kMostPoolBlocks);
  scenario.first_block = root.integer(
      "first_block", 1, std::min(kMostFirstBlock, kMostPoolBlocks - scenario.pool_blocks + 1), 1);
  scenario.adversarial_lists =
      root.choice("lists", {"plain", "adversarial"}, "plain") == "adversarial";
  scenario.limits.token_budget =
      root.integer("token_budget", 1, kLargestBudget, scenario.limits.token_budget);
  scenario.limits.max_requests =
      root.integer("max_requests", 1, kMostInScenario, scenario.limits.max_requests);
  scenario.decode_steps = root.integer("decode_steps", 0, kMostSteps, kDefaultDecodeSteps);
  read_stops(root, scenario);
  read_model(root, scenario);
  if (reader.ok()) read_parallel(root, scenario);
  if (reader.ok()) read_context(root, scenario);
  if (reader.ok()) read_ess(root, scenario);
  read_hidden_states(root, scenario);
  if (!reader.ok()) return;  // requests are checked against the model
  read_serving_part(root, parsed, scenario);
  if (!reader.ok()) return;
  // The same tokens need not mean the same rows where these come from a file.
  if (!scenario.hidden_states.empty()) {
    scenario.serving.kv.caching = false;
    if (scenario.serving.drafts.tokens > 0 || scenario.model.draft_layers > 0) {
      root.fail(scenario.model.draft_layers > 0 ? "model.mtp" : "serving.draft_tokens",
                "layers that are fed recorded inputs take no drafts",
                "leave out draft_tokens and mtp, or hidden_states");
    }
  }
  if (scenario.model.draft_layers > 0) {
    if (scenario.serving.drafts.tokens > 0) {
      root.fail("serving.draft_tokens", "the model drafts by itself (model.mtp)",
                "leave out draft_tokens, or mtp");
    }
    scenario.serving.drafts.tokens = scenario.model.draft_layers;
    scenario.serving.drafts.by_model = true;
  }
  read_requests(root, reader, scenario);
}

// The scenario's text with the choice in it: whoever keeps the text keeps the choice.
Result<std::string> with_choice(const std::string& text, const std::string& path,
                                const ModelChoice& choice, std::vector<std::string>& left_out) {
  Result<nlohmann::json> parsed = parse_json(text, path);
  if (!parsed) return parsed.error();
  if (!parsed->is_object()) return text;  // the reader of the scenario says what is wrong
  std::error_code code;
  for (const auto& [option, name] :
       {std::pair{"--model", &choice.model}, {"--hidden-states", &choice.hidden_states}}) {
    if (is_utf8(*name)) continue;
    return bad_input(fmt::format("{} {}: its name is no UTF-8", option, *name),
                     "rename it: the scenario's text, which keeps its name, is JSON");
  }
  if (!choice.model.empty()) {
    nlohmann::json model = nlohmann::json::object();
    const nlohmann::json* own = parsed->contains("model") ? &parsed->at("model") : nullptr;
    // What is the scenario's and not its model's.
    constexpr std::array kKept = {"seed", "mask", "score"};
    constexpr std::array kNaming = {"preset", "config", "layers"};
    if (own != nullptr && own->is_object()) {
      for (const auto& [key, value] : own->items()) {
        const auto is_key = [&](std::string_view one) { return one == key; };
        if (std::ranges::any_of(kKept, is_key)) {
          model[key] = value;
        } else if (std::ranges::none_of(kNaming, is_key)) {
          left_out.push_back(key);
        }
      }
    }
    if (is_preset_name(choice.model)) {
      model["preset"] = choice.model;
    } else if (!fs::exists(choice.model, code)) {
      return bad_input(fmt::format("--model {}: there is no such folder or file", choice.model),
                       fmt::format("name a checkpoint's folder, a config.json or one of {}",
                                   join(preset_names())));
    } else {
      model["config"] = fs::absolute(choice.model, code).lexically_normal().string();
    }
    (*parsed)["model"] = std::move(model);
  }
  if (!choice.layers.empty() && (*parsed)["model"].is_object()) {
    (*parsed)["model"]["layers"] = choice.layers;
  }
  if (choice.cache_dtype) {
    if (const auto record = dense_cache_record(*choice.cache_dtype); !record) {
      const Error& wrong = record.error();
      return bad_input(fmt::format("--cache-dtype: {}", wrong.message), wrong.hint);
    }
  }
  if (choice.cache_layout) {
    if (const auto placed = dense_layout_bit(*choice.cache_layout); !placed) {
      const Error& wrong = placed.error();
      return bad_input(fmt::format("--cache-layout: {}", wrong.message), wrong.hint);
    }
  }
  for (const auto& [key, own] :
       {std::pair{"cache_dtype", &choice.cache_dtype}, {"cache_layout", &choice.cache_layout}}) {
    if (*own && (*parsed)["model"].is_object()) (*parsed)["model"][key] = **own;
  }
  if (choice.first_tokens && (*parsed)["model"].is_object()) {
    (*parsed)["model"]["first_tokens_16bit"] = *choice.first_tokens;
  }
  if (!choice.attend.empty()) {
    if (!parsed->contains("ess") || !(*parsed)["ess"].is_object()) {
      return bad_input(
          fmt::format("--attend {}: all rows of {} lie on the device", choice.attend, path),
          "give the scenario \"ess\": {\"ratio\": 0.2}; scenario ess is one");
    }
    (*parsed)["ess"]["attend"] = choice.attend;
  }
  if (choice.ranks > 0) (*parsed)["tensor_parallel"] = {{"size", choice.ranks}};
  if (choice.rank >= 0) {
    if (!parsed->contains("tensor_parallel")) {
      return bad_input(fmt::format("--rank {}: there is one rank alone", choice.rank),
                       "say of how many: --tp N");
    }
    if ((*parsed)["tensor_parallel"].is_object())
      (*parsed)["tensor_parallel"]["rank"] = choice.rank;
  }
  if (!choice.hidden_states.empty()) {
    if (!fs::exists(choice.hidden_states, code)) {
      return bad_input(
          fmt::format("--hidden-states {}: there is no such file", choice.hidden_states));
    }
    (*parsed)["hidden_states"] =
        fs::absolute(choice.hidden_states, code).lexically_normal().string();
  }
  return parsed->dump(2) + "\n";
}

// A name from the assets, or a path.
Result<std::string> resolve(std::string_view name_or_path) {
  std::string given(name_or_path);
  std::error_code code;
  const bool is_path = given.find('/') != std::string::npos || given.ends_with(".json");
  if (is_path) return given;
  Result<std::string> assets = assets_folder();
  if (!assets) return assets.error();
  const fs::path named = fs::path(*assets) / "scenarios" / (given + ".json");
  if (!given.empty() && fs::is_regular_file(named, code)) return named.string();
  if (fs::is_regular_file(given, code)) return given;
  return bad_input(fmt::format("unknown scenario \"{}\"", given),
                   fmt::format("{}allowed: {}, or the path of a scenario file",
                               did_you_mean(given, scenario_names()), join(scenario_names())));
}

// Of a model that keeps nothing: a request is computed in one step, and ends with it.
Result<void> fits_step(const std::string& name, std::int64_t prompt, std::int64_t fresh,
                       const Scenario& scenario) {
  if (fresh != 1) {
    return bad_input(fmt::format("request \"{}\" is to have {} new tokens; {} keeps no rows, so "
                                 "that it ends with the step of its prompt",
                                 name, fresh, scenario.model.name),
                     "set max_new_tokens to 1: what the head says of its last token");
  }
  if (prompt <= scenario.limits.token_budget) return {};
  return bad_input(fmt::format("request \"{}\" has {} tokens, a step {} (token_budget); {} keeps "
                               "no rows, so that a prompt cannot be cut",
                               name, prompt, scenario.limits.token_budget, scenario.model.name),
                   fmt::format("raise token_budget to at least {}, or lower tokens", prompt));
}

// Of an encoder-decoder, and under a mask, which may show a token what stands behind it: a step for
// all of a request, which is computed anew at once where it lost its blocks; a source that is
// there.
Result<void> fits_whole(const std::string& name, std::int64_t prompt, std::int64_t fresh,
                        const Scenario& scenario) {
  const bool sided = !scenario.model.dense.sides.empty();
  const std::int64_t begins = scenario.model.dense.decoder_prompt;
  if (sided && prompt <= begins) {
    return bad_input(
        fmt::format("request \"{}\" has {} tokens of prompt; the last {} of them begin "
                    "the decoder of {}, and nothing is left for its source",
                    name, prompt, begins, scenario.model.name),
        fmt::format("give it at least {} tokens", begins + 1));
  }
  if (prompt + fresh <= scenario.limits.token_budget) return {};
  return bad_input(
      fmt::format(
          "request \"{}\" has {} tokens and {} new, a step {} (token_budget); {} {}, so that "
          "a request cannot be cut",
          name, prompt, fresh, scenario.limits.token_budget, scenario.model.name,
          sided ? "encodes a source at once" : "has a mask over all of a prompt"),
      fmt::format("raise token_budget to at least {}, or lower tokens", prompt + fresh));
}

}  // namespace

std::int64_t source_tokens(const ModelConfig& model, std::int64_t prompt) {
  return model.dense.sides.empty() ? 0 : prompt - model.dense.decoder_prompt;
}

Result<void> fits_pool(const std::string& name, std::int64_t prompt, std::int64_t fresh,
                       const CacheLayout& layout, const Scenario& scenario) {
  if (layout.groups.empty()) return fits_step(name, prompt, fresh, scenario);
  if (!scenario.model.dense.sides.empty() || !scenario.model.dense.mask.empty()) {
    if (auto ok = fits_whole(name, prompt, fresh, scenario); !ok) return ok;
  }
  const std::int64_t usable = scenario.pool_blocks - 1;
  const std::int64_t demand = layout.demand(prompt + fresh, scenario.limits.token_budget);
  if (demand <= usable) return {};
  return bad_input(
      fmt::format("request \"{}\" ({} tokens of prompt and {} new) may need {} blocks, but "
                  "the pool has {} without the null block",
                  name, prompt, fresh, demand, usable),
      fmt::format("raise pool_blocks to at least {}, or lower tokens, max_new_tokens or "
                  "token_budget",
                  demand + 1));
}

SchedulerOptions serving_options(const Scenario& scenario, const CacheLayout& layout) {
  SchedulerOptions options = scenario.serving;
  options.token_budget = scenario.limits.token_budget;
  options.max_requests = scenario.limits.max_requests;
  options.kv.groups.clear();
  for (const CacheGroup& group : layout.groups) {
    options.kv.groups.push_back(group);
  }
  options.kv.num_blocks = scenario.pool_blocks;
  options.kv.first_block = scenario.first_block;
  options.kv.max_model_len = scenario.model.max_position;
  // A source is encoded at once, and no prefix of one stands for itself; a mask may see ahead.
  if (layout.groups.empty() || !scenario.model.dense.sides.empty() ||
      !scenario.model.dense.mask.empty()) {
    options.kv.caching = options.chunked_prefill = false;
    options.prefill_threshold = 0;
  }
  return options;
}

void allow_text_files_anywhere(bool allowed) { anywhere = allowed; }

std::vector<std::string> scenario_names() {
  std::vector<std::string> names;
  Result<std::string> assets = assets_folder();
  if (!assets) return names;
  std::error_code code;
  for (const auto& entry : fs::directory_iterator(fs::path(*assets) / "scenarios", code)) {
    if (entry.path().extension() == ".json") names.push_back(entry.path().stem().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

Result<std::string> find_scenario_file(const std::string& name, const std::string& scenario_path) {
  std::error_code code;
  const fs::path given(name);
  if (given.is_absolute()) {
    // A pipe or a terminal may never end, and who names it may be a capture of somebody else.
    if (fs::exists(given, code) && fs::is_other(given, code)) {
      return bad_input(name + ": is neither a file nor a folder");
    }
    return name;
  }
  const fs::path beside = fs::path(scenario_path).parent_path() / given;
  if (fs::exists(beside, code)) return beside.string();
  Result<std::string> assets = assets_folder();
  if (assets) {
    const fs::path in_assets = fs::path(*assets) / given;
    if (fs::exists(in_assets, code)) return in_assets.string();
  }
  return bad_input(fmt::format("there is no file \"{}\"", name),
                   fmt::format("looked for {} and {}", beside.string(),
                               assets ? (fs::path(*assets) / given).string()
                                      : "an assets folder, which was not found"));
}

Result<Scenario> load_scenario(std::string_view name_or_path, const ModelChoice& choice) {
  Result<std::string> path = resolve(name_or_path);
  if (!path) return path.error();
  Result<std::string> text = read_text_file(*path);
  if (!text) return text.error();
  std::vector<std::string> left_out;
  if (choice.any()) {
    if (text = with_choice(*text, *path, choice, left_out); !text) return text.error();
  }
  auto scenario = parse_scenario(std::move(*text), *path);
  if (scenario) scenario->left_out = std::move(left_out);
  return scenario;
}

Result<Scenario> parse_scenario(std::string text, const std::string& path) {
  Scenario scenario;
  scenario.path = path;
  scenario.text = std::move(text);
  Result<nlohmann::json> parsed = parse_json(scenario.text, path);
  if (!parsed) return parsed.error();

  JsonReader reader(path);
  JsonObject root(reader, *parsed);
  read_scenario(root, *parsed, reader, scenario);
  // Every key has been asked for by now, unless an error came first.
  if (reader.ok()) root.finish();
  if (!reader.ok()) return reader.error();
  return scenario;
}

}  // namespace attnscope
