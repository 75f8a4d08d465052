// Rules that pages, rotary tables and kernels impose on a model of absorbed MLA.
#include <fmt/format.h>

#include "engine/family/mla/mla.h"
#include "kernels/params/mla_params.h"

namespace attnscope {
namespace {

Result<void> mla_refuses(const std::string& key, const std::string& value,
                         const std::string& allowed) {
  return bad_input(fmt::format("{}: {} is not supported", key, value), "allowed: " + allowed);
}

struct MlaRange {
  const char* key;
  double value, min, max;
};

Result<void> check_mla_layers(const ModelConfig& c) {
  for (const int tokens : c.compress_ratios) {
    if (tokens == 0 || (tokens == 1 && c.mla.indexer)) continue;
    return mla_refuses("tokens of an entry", fmt::format("{}", tokens),
                       "1 of layers that select, in models with an indexer; else 0");
  }
  if (c.layers.empty()) return mla_refuses("layers", "an empty list", "at least one layer");
  for (std::size_t k = 0; k < c.layers.size(); ++k) {
    const int first = k > 0 ? c.layers[k - 1] + 1 : 0;
    if (c.layers[k] >= first && c.layers[k] < c.published_layers()) continue;
    return mla_refuses(
        "layers", fmt::format("{} at place {}", c.layers[k], k),
        fmt::format("ascending layers from 0 to {}, each once", c.published_layers() - 1));
  }
  return {};
}

}  // namespace

Result<void> mla_validate(const ModelConfig& c, const nlohmann::json*) {
  const MlaAttention& m = c.mla;
  // Widths are kept far below where a product of two leaves 64 bits or a row leaves 32.
  const MlaRange ranges[] = {
      {"hidden_size", double(c.hidden), 8, 65536},
      {"num_attention_heads", double(c.heads), 1, 256},
      {"q_lora_rank", double(c.q_lora), 8, 65536},
      {"kv_lora_rank + qk_rope_head_dim", double(c.head_dim), AS_MLA_WIDTH, AS_MLA_WIDTH},
      {"qk_rope_head_dim", double(c.rope_dim), AS_MLA_ROPE, AS_MLA_ROPE},
      {"qk_nope_head_dim", double(m.nope_dim), 8, AS_MLA_MAX_DIM},
      {"v_head_dim", double(m.value_dim), 8, AS_MLA_MAX_DIM},
      {"rms_norm_eps", c.rms_eps, 1e-12, 1e-2},
      {"rope_theta", c.rope_theta, 2, 1e12},
      {"rope_scaling.factor", c.yarn_factor, 1, 1e6},
      {"rope_scaling.original_max_position_embeddings", c.yarn_original_max, 1, 1 << 24},
      {"rope_scaling.beta_fast", c.yarn_beta_fast, 1e-6, 1e6},
      {"rope_scaling.beta_slow", c.yarn_beta_slow, 1e-6, 1e6},
      {"rope_scaling.mscale_all_dim", m.mscale, 0, 100},
      {"attnscope_block_size", double(m.block_tokens), 1, 1024},
      // fp32(position) is exact up to 2^24.
      {"max_position_embeddings", double(c.max_position), 1, 1 << 24},
      {"num_hidden_layers", double(c.published_layers()), 1, 4096},
      {"index_n_heads", double(c.index_heads), 1, 512},
      {"index_head_dim", double(c.index_dim), 128, 128},
      {"index_topk", double(c.index_topk), 1, 65536},
      {"eps of index keys", m.index_norm_eps, 1e-12, 1e-2},
      {"scale of latent rows", double(m.latent_scale), AS_SCALE_FLOAT, AS_SCALE_POWER_OF_TWO},
      {"scale of index keys", double(m.index_scale), AS_SCALE_FLOAT, AS_SCALE_POWER_OF_TWO},
  };
  for (const MlaRange& r : ranges) {
    if (r.value >= r.min && r.value <= r.max) continue;  // NaN fails
    return mla_refuses(
        r.key, fmt::format("{}", r.value),
        r.min == r.max ? fmt::format("{}", r.min) : fmt::format("{} to {}", r.min, r.max));
  }
  for (const auto& [key, n] : {std::pair{"hidden_size", c.hidden},
                               {"q_lora_rank", c.q_lora},
                               {"qk_nope_head_dim", m.nope_dim},
                               {"v_head_dim", m.value_dim}}) {
    if (n % 8 != 0) return mla_refuses(key, fmt::format("{}", n), "multiples of 8");
  }
  if (m.latent_record != AS_RECORD_LATENT_656 && m.latent_record != AS_RECORD_BF16) {
    return mla_refuses("attnscope_latent_rows", fmt::format("{}", m.latent_record), "fp8, bf16");
  }
  return check_mla_layers(c);
}

}  // namespace attnscope
