#include "app/views/backends_ask.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <iterator>
#include <utility>

#include "engine/io/json_object.h"
#include "engine/io/nearest.h"

namespace attnscope {
namespace {

constexpr const char* kFeatureNames[] = {
    "sinks", "alibi", "mm_prefix", "non_causal", "head_scales", "batch_invariant", "kv_connector"};
constexpr bool AttentionRequest::*kFeatureFields[] = {
    &AttentionRequest::sinks,       &AttentionRequest::alibi,
    &AttentionRequest::mm_prefix,   &AttentionRequest::non_causal,
    &AttentionRequest::head_scales, &AttentionRequest::batch_invariant,
    &AttentionRequest::kv_connector};
static_assert(std::size(kFeatureNames) == std::size(kFeatureFields));

constexpr const char* kTypeNames[] = {"decoder", "encoder", "encoder_only", "encoder_decoder"};

constexpr int kMostBlockTokens = 1 << 20;

// Its place among them. AS_USAGE where it is none.
Result<std::ptrdiff_t> place_among(const char* what, std::string_view name,
                                   std::span<const char* const> names) {
  const auto found = std::ranges::find(names, name);
  if (found != names.end()) return found - names.begin();
  const std::vector<std::string> all(names.begin(), names.end());
  return usage_error(fmt::format("{} {} is not known", what, shown_name(name)),
                     did_you_mean(name, all) + "allowed: " + join(all));
}

Result<std::vector<std::string>> asked_features(std::string_view value) {
  std::vector<std::string> features;
  while (!value.empty()) {
    const std::size_t end = std::min(value.find_first_of(",+"), value.size());
    const std::string_view name = value.substr(0, end);
    value.remove_prefix(std::min(end + 1, value.size()));
    auto place = place_among("feature", name, kFeatureNames);
    if (!place) return place.error();
    if (std::ranges::find(features, name) == features.end()) features.emplace_back(name);
  }
  return features;
}

Result<int> asked_block_size(std::string_view value) {
  if (value.empty()) return 0;
  int tokens = 0;
  const char* end = value.data() + value.size();
  const auto read = std::from_chars(value.data(), end, tokens);
  if (read.ec == std::errc() && read.ptr == end && tokens >= 1 && tokens <= kMostBlockTokens) {
    return tokens;
  }
  return usage_error(fmt::format("block size {} is no number of tokens", shown_name(value)),
                     fmt::format("allowed: 1 to {}", kMostBlockTokens));
}

}  // namespace

std::span<const char* const> backend_features() { return kFeatureNames; }
std::span<const char* const> attention_types() { return kTypeNames; }

Result<void> set_option(BackendsAsk& ask, std::string_view option, std::string_view value) {
  static constexpr const char* kOptions[] = {"gpu",  "dtype", "cache-dtype", "block-size",
                                             "type", "with",  "backend"};
  auto which = place_among("option", option, kOptions);
  if (!which) return which.error();
  if (value == "model" || value == "none") value = {};
  if (option == "block-size") {
    auto tokens = asked_block_size(value);
    if (!tokens) return tokens.error();
    ask.block_size = *tokens;
    return {};
  }
  if (option == "with") {
    auto features = asked_features(value);
    if (!features) return features.error();
    ask.with = std::move(*features);
    return {};
  }
  if (option == "type" && !value.empty()) {
    auto place = place_among("type", value, kTypeNames);
    if (!place) return place.error();
  }
  std::string BackendsAsk::*const fields[] = {&BackendsAsk::gpu,         &BackendsAsk::dtype,
                                              &BackendsAsk::cache_dtype, nullptr,
                                              &BackendsAsk::type,        nullptr,
                                              &BackendsAsk::backend};
  std::string& field = ask.*fields[*which];
  field = value;
  if (option == "gpu" && value.empty()) field = BackendsAsk().gpu;
  return {};
}

Result<AttentionRequest> with_asked(const BackendsAsk& ask, AttentionRequest request) {
  if (auto ok = set_platform(request, ask.gpu); !ok) return ok.error();
  if (!ask.dtype.empty()) request.dtype = ask.dtype;
  if (!ask.cache_dtype.empty()) request.cache_dtype = ask.cache_dtype;
  if (!ask.type.empty()) {
    auto type = place_among("type", ask.type, kTypeNames);
    if (!type) return type.error();
    request.type = static_cast<AttentionType>(*type);
  }
  for (const std::string& name : ask.with) {
    auto feature = place_among("feature", name, kFeatureNames);
    if (!feature) return feature.error();
    request.*kFeatureFields[*feature] = true;
  }
  if (ask.block_size > 0) request.block_size = ask.block_size;
  request.backend = ask.backend;
  return request;
}

}  // namespace attnscope
