// The rules by which a backend is accepted or refused, one function a rule: what was asked and what
// is allowed where it does not hold.
#include "engine/backend/attention_rules.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

namespace attnscope {
namespace {

template <class Names>
std::string rule_list(const Names& names) {
  return fmt::format("{}", fmt::join(names, ", "));
}

template <class Value>
bool rule_has(const std::vector<Value>& all, const Value& one) {
  return std::ranges::find(all, one) != all.end();
}

std::optional<RuleBreak> broken_unless(bool holds, std::string asked, std::string allowed) {
  if (holds) return std::nullopt;
  return RuleBreak{std::move(asked), std::move(allowed)};
}

// A feature that a backend has or has not.
std::optional<RuleBreak> lacks_feature(bool asked, bool has, const char* what) {
  return broken_unless(!asked || has, what, fmt::format("no {}", what));
}

std::optional<RuleBreak> kind_rule(const AttentionBackend& b, const AttentionRequest& r) {
  return broken_unless(b.kind == r.kind, layer_kind_name(r.kind), layer_kind_name(b.kind));
}

std::optional<RuleBreak> platform_rule(const AttentionBackend& b, const AttentionRequest& r) {
  std::vector<std::string> names;
  names.reserve(b.platforms.size());
  for (const AttentionPlatform platform : b.platforms) names.emplace_back(platform_name(platform));
  return broken_unless(rule_has(b.platforms, r.platform), platform_name(r.platform),
                       rule_list(names));
}

std::optional<RuleBreak> model_rule(const AttentionBackend& b, const AttentionRequest& r) {
  return broken_unless(b.only_model.empty() || b.only_model == r.model_type,
                       r.model_type.empty() ? "another model" : r.model_type,
                       "layers of " + b.only_model);
}

std::optional<RuleBreak> head_size_rule(const AttentionBackend& b, const AttentionRequest& r) {
  return broken_unless(b.head_sizes.has(r.head_size), std::to_string(r.head_size),
                       describe(b.head_sizes));
}

std::optional<RuleBreak> value_size_rule(const AttentionBackend& b, const AttentionRequest& r) {
  return broken_unless(b.value_sizes || r.value_size == r.head_size, std::to_string(r.value_size),
                       fmt::format("that of keys, {}", r.head_size));
}

std::optional<RuleBreak> dtype_rule(const AttentionBackend& b, const AttentionRequest& r) {
  return broken_unless(rule_has(b.dtypes, r.dtype), r.dtype, rule_list(b.dtypes));
}

std::optional<RuleBreak> cache_dtype_rule(const AttentionBackend& b, const AttentionRequest& r) {
  return broken_unless(rule_has(b.cache_dtypes, r.cache_dtype), r.cache_dtype,
                       rule_list(b.cache_dtypes));
}

std::optional<RuleBreak> block_size_rule(const AttentionBackend& b, const AttentionRequest& r) {
  return broken_unless(r.block_size == 0 || b.block_sizes.has(r.block_size),
                       std::to_string(r.block_size), describe(b.block_sizes));
}

std::optional<RuleBreak> mm_prefix_rule(const AttentionBackend& b, const AttentionRequest& r) {
  return lacks_feature(r.mm_prefix, b.mm_prefix, "bidirectional prefixes");
}

std::optional<RuleBreak> mla_rule(const AttentionBackend& b, const AttentionRequest& r) {
  return broken_unless(b.mla == r.mla, r.mla ? "MLA" : "keys and values a head",
                       b.mla ? "MLA alone" : "keys and values a head alone");
}

std::optional<RuleBreak> sink_rule(const AttentionBackend& b, const AttentionRequest& r) {
  return lacks_feature(r.sinks, b.sinks, "sinks");
}

std::optional<RuleBreak> sparse_rule(const AttentionBackend& b, const AttentionRequest& r) {
  return broken_unless(b.sparse == r.sparse, r.sparse ? "a selection of rows" : "all rows",
                       b.sparse ? "a selection of rows alone" : "all rows alone");
}

std::optional<RuleBreak> head_scale_rule(const AttentionBackend& b, const AttentionRequest& r) {
  return lacks_feature(r.head_scales, b.head_scales, "scales a head");
}

// Each reads rows of one format through one table.
std::optional<RuleBreak> first_tokens_rule(const AttentionBackend&, const AttentionRequest& r) {
  return broken_unless(r.first_tokens_16bit == 0,
                       fmt::format("the first {} tokens in 16 bits", r.first_tokens_16bit),
                       "one format for all tokens");
}

std::optional<RuleBreak> capability_rule(const AttentionBackend& b, const AttentionRequest& r) {
  return broken_unless(r.platform != AttentionPlatform::kCuda || b.gpus.has(r.gpu),
                       fmt::format("{}.{}", r.gpu.major, r.gpu.minor), describe(b.gpus));
}

std::optional<RuleBreak> type_rule(const AttentionBackend& b, const AttentionRequest& r) {
  std::vector<std::string> names;
  names.reserve(b.types.size());
  for (const AttentionType type : b.types) names.emplace_back(attention_type_name(type));
  return broken_unless(rule_has(b.types, r.type), attention_type_name(r.type), rule_list(names));
}

std::optional<RuleBreak> causal_rule(const AttentionBackend& b, const AttentionRequest& r) {
  return lacks_feature(r.non_causal, b.non_causal, "non-causal decoders");
}

std::optional<RuleBreak> invariance_rule(const AttentionBackend& b, const AttentionRequest& r) {
  return lacks_feature(r.batch_invariant, b.batch_invariant, "batch invariance");
}

std::optional<RuleBreak> connector_rule(const AttentionBackend& b, const AttentionRequest& r) {
  return lacks_feature(r.kv_connector, b.kv_connector, "cache connector");
}

std::optional<RuleBreak> combination_rule(const AttentionBackend& b, const AttentionRequest& r) {
  const std::string reason =
      b.combination == nullptr || r.platform != AttentionPlatform::kCuda ? "" : b.combination(r);
  return broken_unless(reason.empty(), reason, "not together");
}

std::optional<RuleBreak> alibi_rule(const AttentionBackend& b, const AttentionRequest& r) {
  return lacks_feature(r.alibi, b.alibi, "ALiBi");
}

std::optional<RuleBreak> soft_cap_rule(const AttentionBackend& b, const AttentionRequest& r) {
  return broken_unless(r.soft_cap == 0 || b.soft_cap, fmt::format("{}", r.soft_cap), "no soft cap");
}

std::optional<RuleBreak> window_rule(const AttentionBackend& b, const AttentionRequest& r) {
  return broken_unless(r.window == 0 || b.window, fmt::format("{} tokens", r.window), "no window");
}

constexpr BackendRule by_selector(const char* name, const char* what) {
  return {name, RuleStage::kSelector, what};
}
constexpr BackendRule by_layer(const char* name, const char* what) {
  return {name, RuleStage::kLayer, what};
}

constexpr BackendRule kBackendRules[] = {
    by_selector("layer kind", "layers with a state are not attention"),
    by_selector("platform", "kernels are of one vendor's devices"),
    by_selector("model", "some backends are of one model's own layers"),
    by_selector("head size", "dims of a query's head"),
    by_selector("value size", "dims of a value's head, where they are others than a key's"),
    by_selector("dtype", "of queries and outputs"),
    by_selector("cache dtype", "of the rows of the cache"),
    by_selector("block size", "tokens of a block, where somebody said how many"),
    by_selector("prefix", "bidirectional prefixes, as of images"),
    by_selector("MLA", "one latent row for all heads, or keys and values a head"),
    by_selector("sinks", "a logit a head that takes mass and gives nothing"),
    by_selector("sparse", "attention over a selection of rows, or over all"),
    by_selector("head scales", "quantised caches with a scale a head"),
    by_selector("first tokens", "those that keep 16 bits beside codes; lane cpu reads them"),
    by_selector("compute capability", "of the GPU"),
    by_selector("attention type", "decoder, encoder, encoder_only, encoder_decoder"),
    by_selector("non-causal", "decoders that see later tokens too"),
    by_selector("batch invariance", "the same bytes whatever else is in the batch"),
    by_selector("connector", "blocks that are sent to other machines"),
    by_selector("combination", "values that do not go together"),
    by_layer("ALiBi", "a bias by distance"),
    by_layer("soft cap", "of scores, by tanh"),
    by_layer("window", "tokens that a query sees")};

using RuleCheck = std::optional<RuleBreak> (*)(const AttentionBackend&, const AttentionRequest&);
constexpr RuleCheck kRuleChecks[] = {
    kind_rule,  platform_rule,    model_rule,      head_size_rule,    value_size_rule,
    dtype_rule, cache_dtype_rule, block_size_rule, mm_prefix_rule,    mla_rule,
    sink_rule,  sparse_rule,      head_scale_rule, first_tokens_rule, capability_rule,
    type_rule,  causal_rule,      invariance_rule, connector_rule,    combination_rule,
    alibi_rule, soft_cap_rule,    window_rule};
static_assert(std::size(kBackendRules) == std::size(kRuleChecks));
constexpr std::size_t kRulesOfStates = 2;  // kind and platform

}  // namespace

std::span<const BackendRule> backend_rules() { return kBackendRules; }

std::vector<BrokenRule> broken_rules(const AttentionBackend& backend,
                                     const AttentionRequest& request) {
  const AttentionBackend asked = as_asked(backend, request);
  // Layers with a state have no heads that a rule could ask for.
  const bool state = request.kind != AttentionLayerKind::kAttention;
  const std::size_t count = state ? kRulesOfStates : std::size(kBackendRules);
  std::vector<BrokenRule> broken;
  for (std::size_t i = 0; i < count; ++i) {
    std::optional<RuleBreak> found = kRuleChecks[i](asked, request);
    if (!found) continue;
    broken.push_back({kBackendRules[i].name, kBackendRules[i].stage, std::move(found->asked),
                      std::move(found->allowed)});
    if (backend.kind != request.kind) break;  // what else it has or has not is no matter then
  }
  return broken;
}

}  // namespace attnscope
