// Dense attention: MHA, GQA and MQA as in Llama, Mistral, Qwen3, Gemma 3, Llama 4 and gpt-oss.
// Every token sees all tokens before it, or those of a sliding window, or those of its own chunk,
// layer by layer. Positions are turned into rotations, or into ALiBi's bias. K and V are caches of
// their own.
//
// Encoders see all of their request, in both directions; they have no caches, and a request is
// computed in one step.
//
// Of such a model the attention alone runs: h += attention(RMSNorm(h)) per layer, final norm, head,
// greedy sampling. No MLP, no norms behind attention, no scaled embedding.
#pragma once

#include "engine/family/family.h"

namespace attnscope {

const Family& dense();

inline constexpr CacheId kKeyCache{AS_CACHE_K, 0};    // "k"
inline constexpr CacheId kValueCache{AS_CACHE_V, 0};  // "v"
// Of a request's first tokens in 16 bits, beside those: "k_wide", "v_wide". Their group has pages
// of half as many tokens, which are as large, so that blocks of one pool serve both, and tables
// that end with these tokens (GroupKind::kFirst).
inline constexpr CacheId kWideKeyCache{AS_CACHE_K, 1};
inline constexpr CacheId kWideValueCache{AS_CACHE_V, 1};

// Tokens that those of a running layer see; 0 = all.
int dense_window(const ModelConfig& config, int layer);
// Tokens of the chunks that those of a running layer see each other in; 0 = it has none.
int dense_chunk(const ModelConfig& config, int layer);
// The same of whichever layer that runs has chunks; 0 = none has.
int dense_chunk(const ModelConfig& config);

// The running layer whose keys and values a running layer reads, having none of its own: the last
// one before the layers that share (DenseAttention::shared_layers) with the same window or chunk.
// -1 = it has its own.
int dense_shares_with(const ModelConfig& config, int layer);

// Scales that a layer's K and its V have beside the cache each, weights "k_scale" and "v_scale":
// one, one a KV head, or 0 where rows have none or have them inside.
std::int64_t dense_scales_beside(const ModelConfig& config);
// What rows of K and V may hold: those of DenseAttention::cache_record.
std::span<const std::int32_t> dense_cache_records();
// First tokens of which a running layer, or the one that it shares with, has rows of 16 bits too:
// DenseAttention::first_tokens_16bit, none in layers that forget them. 0 = none.
int dense_first_tokens(const ModelConfig& config, int layer);
// One of them by the name of its format: "fp8_tensor".
Result<std::int32_t> dense_cache_record(const std::string& name);
// "NHD" or "HND": in which order axes of a page lie in memory.
const char* dense_page_layout(const ModelConfig& config);
// AS_RECORD_HND or 0 by such a name.
Result<std::int32_t> dense_layout_bit(const std::string& name);

// Whether tokens of a running layer may see what lies behind them: all of a source, or what a
// user's mask shows where it stands in the place of causality. It takes nothing into a window or a
// chunk, and nothing into what a decoder has said.
bool dense_looks_ahead(const ModelConfig& config, int layer);

// In which passes a layer attends (as_paged_form): the model's, but no cascade where tokens do not
// see the whole prefix of their request.
std::int32_t dense_form(const ModelConfig& config, int layer);

// The code of a mask or a score function that dense_validate has passed, f64 [I,2] for as long as
// the program lives; absent for an empty text.
as_tensor dense_mask_code(const std::string& text, bool is_score);
// Those that a model has.
std::vector<as_tensor> dense_constants(const ModelConfig& config);

// ALiBi's slopes of the heads: with n the largest power of two that is at most `heads`, head h < n
// has 2^(-bias_max (h + 1) / n); those behind have every second one of 2n heads, from the first on.
std::vector<float> dense_slopes(int heads, double bias_max);

// As the fields of Family.
std::span<const FamilyPreset> dense_presets();
ModelConfig dense_example();
Result<ModelConfig> dense_read_config(const std::string& path, const nlohmann::json& file);
nlohmann::ordered_json dense_write_config(const ModelConfig& config, bool fp8);
Result<void> dense_validate(const ModelConfig& config, const nlohmann::json* file);
as_rope dense_rope(const ModelConfig& config, int layer);
std::span<const NamedCache> dense_cache_names();
std::vector<CacheSpec> dense_caches(const ModelConfig& config);
// The batch of chunks: local_batch.
std::vector<StepTensor> dense_step_tensors(const ModelConfig& config, const CacheLayout& layout);
void dense_logical_lists(const StepMetadata& step, const ModelConfig& config, LogicalMetadata& out);
ModelGraph dense_graph(const ModelConfig& config);
ModelWeights dense_weights(const ModelConfig& config);
std::string dense_published_name(std::string_view name);
std::vector<SecondTarget> dense_second_targets(
    const ModelConfig& whole, const TensorParallel& parallel,
    const std::vector<std::shared_ptr<const Weights>>& ranks);
void dense_layer_numbers(as_op_id op, int layer, const ModelConfig& config,
                         std::int32_t rows_per_block, void* params);
void dense_step_numbers(as_op_id op, const ModelConfig& config, const CacheLayout& layout,
                        std::int64_t token_budget, std::int64_t alignment, void* params);

}  // namespace attnscope
