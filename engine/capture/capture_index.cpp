#include "engine/capture/capture_index.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <chrono>
#include <ctime>

#include "engine/family/family.h"
#include "engine/family/models.h"
#include "engine/io/byte_stream.h"
#include "engine/io/json_text.h"
#include "engine/io/printable.h"
#include "engine/trace/tap_stats.h"

namespace attnscope {

template <>
struct EnumText<CaptureLevel> {
  static constexpr int kCount = kCaptureLevels;
  static const char* name(int i) { return capture_level_name(static_cast<CaptureLevel>(i)); }
};
template <>
struct EnumText<References> {
  static constexpr const char* kNames[] = {"none", "sim", "both"};
  static constexpr int kCount = 3;
  static const char* name(int i) { return kNames[i]; }
};

template <class V>
void fields(V& v, CaptureProperty& p) {
  v("name", p.name);
  v("value", p.value);
}
template <class V>
void fields(V& v, CaptureOrigin& o) {
  v("program", o.program);
  v("scenario", o.scenario);
  v("machine", o.machine);
  v.later("scenario_file", o.scenario_file);
  v.later("scenario_text", o.scenario_text);
  v.later("checkpoint", o.checkpoint);
  v.later("hidden_states", o.hidden_states);
}
template <class V>
void fields(V& v, CaptureIndex& i) {
  v("format", i.format);
  v("version", i.version);
  v("complete", i.complete);
  v("created", i.created);
  v("origin", i.origin);
  v("level", i.level);
  v("filter", i.filter);
  v.later("rows", i.rows);
  v("weights", i.weights);
  v("steps", i.steps);
  v.later("bytes", i.bytes);
  v("cache_steps", i.cache_steps);
  v("model", i.model);
  v("num_blocks", i.num_blocks);
  v.later("first_block", i.first_block);
  v("block_stride", i.block_stride);
  v("token_budget", i.token_budget);
  v("max_requests", i.max_requests);
  v.later("draft_tokens", i.draft_tokens);
  v("lanes", i.lanes);
  v("lane_of", i.lane_of);
  v("references", i.references);
  v("request_names", i.request_names);
  v("prompt_tokens", i.prompt_tokens);
  v("drift_limit", i.drift_limit);
}

namespace {

constexpr std::string_view kSum = "{\"sum\":\"";
constexpr std::size_t kSumDigits = 16;
constexpr std::size_t kSumBytes = kSum.size() + kSumDigits + 2;  // with quote and comma

const char* const kDamagedHint = "record it again, or copy it again from where it came";

constexpr const char *kIndexSum = "sum", *kIndexBytes = "bytes";

std::string sum_of(const nlohmann::json& index) { return text_checksum(json_text(index)); }

// The first number that no recording has; empty = none.
std::string odd_number(const CaptureIndex& index) {
  constexpr std::int64_t kMostBlocks = std::int64_t{1} << 31, kMostTokens = std::int64_t{1} << 31;
  constexpr std::int64_t kMostBytes = std::int64_t{1} << 50;  // of the pool
  constexpr std::int64_t kMostSteps = std::int64_t{1} << 40;
  constexpr std::int64_t kMostRequests = 1 << 20;
  constexpr int kMostRanks = 128;
  const auto within = [](auto value, auto low, auto high) { return value >= low && value <= high; };
  const TensorParallel& parallel = index.model.parallel;
  if (!within(parallel.size, 1, kMostRanks)) return "model.parallel.size";
  if (!within(parallel.rank, 0, parallel.size - 1)) return "model.parallel.rank";
  if (!within(index.num_blocks, 1, kMostBlocks)) return "num_blocks";
  if (!within(index.block_stride, 0, kMostBytes / index.num_blocks)) return "block_stride";
  if (!within(index.token_budget, 0, kMostTokens - 1)) return "token_budget";
  if (!within(index.max_requests, 0, kMostRequests)) return "max_requests";
  if (!within(index.draft_tokens, 0, kMostDrafts)) return "draft_tokens";
  if (!within(index.steps, 0, kMostSteps)) return "steps";
  if (!within(index.drift_limit, 0.0, 2.0)) return "drift_limit";
  for (const std::int64_t step : index.cache_steps) {
    if (!within(step, 0, kMostSteps)) return "cache_steps";
  }
  for (const std::int64_t tokens : index.prompt_tokens) {
    if (!within(tokens, 0, kMostTokens)) return "prompt_tokens";
  }
  if (index.request_names.size() > kMostRequests) return "the number of requests";
  return "";
}

}  // namespace

CaptureIndex make_index(const SessionInfo& info, const CaptureOptions& options,
                        const CaptureOrigin& origin) {
  CaptureIndex index;
  const std::time_t now = std::chrono::system_clock::to_time_t(std::chrono::system_clock::now());
  index.created = fmt::format("{:%Y-%m-%dT%H:%M:%SZ}", fmt::gmtime(now));
  index.origin = origin;
  index.level = options.level;
  index.filter = options.filter.text();
  index.rows = options.rows;
  index.model = info.config;
  index.num_blocks = info.num_blocks;
  index.first_block = info.first_block;
  index.block_stride = info.block_stride;
  index.token_budget = info.limits.token_budget;
  index.max_requests = info.limits.max_requests;
  index.draft_tokens = info.draft_tokens;
  index.lanes = info.lanes;
  index.lane_of = info.lane_of;
  index.references = info.references;
  index.request_names = info.request_names;
  index.prompt_tokens = info.prompt_tokens;
  index.drift_limit = info.drift_limit;
  return index;
}

std::string index_text(const CaptureIndex& index) {
  nlohmann::json json = to_json_fields(index);
  json[kIndexSum] = sum_of(json);
  return json_text(json, 1) + "\n";
}

bool check_index(const std::string& text) {
  nlohmann::json json = nlohmann::json::parse(text, nullptr, false);
  if (!json.is_object()) return false;
  const auto at = json.find(kIndexSum);
  if (at == json.end()) return !json.contains(kIndexBytes);  // which came with the checksum
  const nlohmann::json sum = *at;
  json.erase(at);
  return sum == sum_of(json);
}

Result<CaptureIndex> parse_index(const std::string& text, const std::string& path) {
  const nlohmann::json json = nlohmann::json::parse(text, nullptr, false);
  const auto damaged = [&](const std::string& what) {
    return bad_input(fmt::format("{}: damaged: index.json {}", path, what), kDamagedHint);
  };
  if (json.is_discarded()) return damaged("is no JSON");
  if (!json.is_object() || json.value("format", nlohmann::json()) != kCaptureFormat) {
    return bad_input(
        fmt::format("{}: is no capture: index.json does not say {}", path, kCaptureFormat),
        "captures are made with 'attnscope record'");
  }
  const nlohmann::json version = json.value("version", nlohmann::json());
  if (!version.is_number_integer() || version < 1) return damaged("has no version");
  if (version > kCaptureVersion) {
    return bad_input(
        fmt::format("{}: too new: its format is version {}, this program reads up to {}", path,
                    version.dump(), kCaptureVersion),
        "open it with a newer attnscope");
  }
  CaptureIndex index;
  if (const std::string wrong = from_json_fields(json, index); !wrong.empty()) {
    return damaged(fmt::format("lacks '{}' or has another kind of value there", wrong));
  }
  return index;
}

Result<std::shared_ptr<const SessionInfo>> info_of(const CaptureIndex& index,
                                                   const std::string& path) {
  constexpr std::size_t kMostLayers = 4096;
  const auto damaged = [&](const std::string& what) {
    return bad_input(fmt::format("{}: damaged: index.json: {}", path, what), kDamagedHint);
  };
  const ModelConfig& m = index.model;
  if (m.compress_ratios.size() > kMostLayers) return damaged("too many layers");
  if (auto ok = validate(m); !ok) return damaged(ok.error().message);
  if (const std::string odd = odd_number(index); !odd.empty()) {
    return damaged(odd + " is none that a recording has");
  }
  if (index.first_block < 1 || index.first_block > index.num_blocks) return damaged("first_block");
  if (index.lane_of.empty()) return damaged("lane_of names no lane");
  if (index.request_names.size() != index.prompt_tokens.size()) {
    return damaged("request_names and prompt_tokens do not fit each other");
  }
  auto info = std::make_shared<SessionInfo>();
  info->config = m;
  info->layout = build_cache_layout(m);
  info->num_blocks = index.num_blocks;
  info->first_block = index.first_block;
  info->block_stride = index.block_stride;
  if (index.block_stride < info->layout.block_stride) {
    return damaged(fmt::format("block_stride is {}, the model needs {}", index.block_stride,
                               info->layout.block_stride));
  }
  info->limits = {index.token_budget, index.max_requests};
  info->draft_tokens = index.draft_tokens;
  info->lanes = index.lanes;
  // By op id. Ops that came after the recording have no lane; a newer program's are left out.
  info->lane_of = index.lane_of;
  info->lane_of.resize(AS_OP_COUNT);
  info->references = index.references;
  info->request_names = index.request_names;
  info->prompt_tokens = index.prompt_tokens;
  info->drift_limit = index.drift_limit;
  const auto graph = model_graph(m);
  for (const LayerGraph& layer : graph->layers) info->ops.push_back(layer.ops());
  info->ops_before = graph->before.ops();
  info->ops_after = graph->after.ops();
  return std::shared_ptr<const SessionInfo>(std::move(info));
}

std::string step_file(const char* folder, std::int64_t step) {
  return fmt::format("{}/{:06}.safetensors", folder, step);
}

std::string checked_line(const std::string& object) {
  const std::string rest = object.substr(1);
  return fmt::format("{}{}\",{}\n", kSum, text_checksum(rest), rest);
}

bool check_line(std::string_view line) {
  return line.size() > kSumBytes && line.starts_with(kSum) &&
         line.substr(kSum.size() + kSumDigits, 2) == "\"," &&
         line.substr(kSum.size(), kSumDigits) == text_checksum(line.substr(kSumBytes));
}

}  // namespace attnscope
