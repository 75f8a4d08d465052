// Rules that pages, rotary tables and kernels impose on a model of dense attention.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "engine/family/dense/dense.h"
#include "engine/family/dense/encoder_decoder.h"
#include "engine/model/mask_expression.h"
#include "kernels/params/paged_params.h"
#include "kernels/params/row_format.h"

namespace attnscope {
namespace {

Result<void> not_allowed(const std::string& key, const std::string& value,
                         const std::string& allowed) {
  return bad_input(fmt::format("{}: {} is not supported", key, value), "allowed: " + allowed);
}

struct NumberRange {
  const char* key;
  double value, min, max;
};

// One chunk size, so that one batch serves all layers that have it, and whole blocks.
Result<void> check_chunks(const ModelConfig& c) {
  const DenseAttention& d = c.dense;
  const auto count = static_cast<std::size_t>(c.published_layers());
  for (const auto& [key, list] :
       {std::pair{"attention chunks", &d.chunks}, {"no_rope_layers", &d.unrotated}}) {
    if (list->empty() || list->size() == count) continue;
    return not_allowed(key, fmt::format("{} entries", list->size()),
                       fmt::format("one entry a layer, {}, or none", count));
  }
  int chunk = 0;
  for (std::size_t i = 0; i < d.chunks.size(); ++i) {
    const int own = d.chunks[i];
    if (own == 0) continue;
    if (own < 1 || own > 1 << 20) {
      return not_allowed("attention_chunk_size", fmt::format("{}", own), "1 to 1048576");
    }
    if (chunk == 0) chunk = own;
    if (own != chunk) {
      return not_allowed(fmt::format("chunk of layer {}", i), fmt::format("{}", own),
                         fmt::format("0 (none), {} (as the layers before)", chunk));
    }
    if (d.windows[i] > 0) {
      return not_allowed(fmt::format("layer {}", i), "a window together with a chunk",
                         "one of sliding_attention, chunked_attention, full_attention a layer");
    }
  }
  if (chunk % d.block_tokens == 0) return {};
  return not_allowed(
      "attention_chunk_size", fmt::format("{}", chunk),
      fmt::format("multiples of attnscope_block_size ({}), since a chunk is attended "
                  "through a block table of its own",
                  d.block_tokens));
}

// No op between projections and attention, and no rows that one could leave out.
Result<void> check_encoder(const ModelConfig& c) {
  const DenseAttention& d = c.dense;
  const auto any = [](const std::vector<int>& list) {
    return std::ranges::any_of(list, [](int n) { return n != 0; });
  };
  const struct {
    bool has;
    const char *key, *what;
  } not_here[] = {
      {any(d.windows), "sliding_window", "a window"},
      {any(d.chunks), "attention_chunk_size", "chunks"},
      {d.sinks, "attnscope_sinks", "a sink a head"},
      {d.qk_norm, "model_type", "norms of queries and keys"},
      {d.shared_layers > 0, "num_kv_shared_layers", "shared keys and values"},
      {d.unrotated.size() != d.windows.size() ||
           std::ranges::any_of(d.unrotated, [](int n) { return n == 0; }),
       "no_rope_layers", "a rotary embedding"},
  };
  for (const auto& n : not_here) {
    if (n.has) return not_allowed(n.key, n.what, "none in a model whose is_causal is false");
  }
  return {};
}

// A layer without keys and values of its own reads those of the last layer before all such that
// sees as much, which therefore runs.
Result<void> check_shared(const ModelConfig& c) {
  const DenseAttention& d = c.dense;
  const int first = c.published_layers() - d.shared_layers;
  if (d.shared_layers < 0 || first < 1) {
    return not_allowed("num_kv_shared_layers", fmt::format("{}", d.shared_layers),
                       fmt::format("0 to {}, so that a layer is left that has keys and values",
                                   c.published_layers() - 1));
  }
  const auto sees = [&](int layer) {
    const auto n = static_cast<std::size_t>(layer);
    return std::pair{d.windows[n], d.chunks.empty() ? 0 : d.chunks[n]};
  };
  for (const int layer : c.layers) {
    if (layer < first) continue;
    int from = first - 1;
    while (from >= 0 && sees(from) != sees(layer)) --from;
    if (from < 0) {
      return not_allowed("num_kv_shared_layers", fmt::format("{}", d.shared_layers),
                         fmt::format("a number that leaves layer {} one before it, of its type, "
                                     "whose keys and values it can read",
                                     layer));
    }
    if (std::ranges::find(c.layers, from) == c.layers.end()) {
      return not_allowed("layers", fmt::format("{} without {}", layer, from),
                         fmt::format("layer {} together with layer {}, whose keys and values it "
                                     "reads",
                                     layer, from));
    }
  }
  return {};
}

// Expressions that mean the same in every step.
Result<void> check_masks(const ModelConfig& c) {
  const DenseAttention& d = c.dense;
  for (const auto& [key, text] : {std::pair{"mask", &d.mask}, {"score", &d.score}}) {
    if (text->empty()) continue;
    const auto code = text == &d.mask ? parse_mask(*text) : parse_score(*text);
    if (!code) {
      return bad_input(fmt::format("{} \"{}\": {}", key, *text, code.error().message),
                       code.error().hint);
    }
    if (code->uses(AS_MASK_REQUEST)) {
      return not_allowed(key, "request", "q_idx, kv_idx and head: rows of a step change places");
    }
  }
  return {};
}

// Rows of 16 bits beside those of codes: whole pages of half as many tokens, which are no larger.
Result<void> check_first_tokens(const ModelConfig& c) {
  const DenseAttention& d = c.dense;
  const int tokens = d.first_tokens_16bit;
  if (tokens == 0) return {};
  const char* const key = "first_tokens_16bit";
  const std::string given = fmt::format("{}", tokens);
  const as_row_format& format = *as_row_format_of(d.cache_record);
  if (format.parts[0].scale == AS_CODE_NONE) {
    return not_allowed(key, given,
                       fmt::format("0 where all rows have 16 bits (cache_dtype {}); choose rows of "
                                   "codes, such as fp8_tensor",
                                   format.name));
  }
  if (d.block_tokens % 2 != 0) {
    return not_allowed(key,
                       fmt::format("{} beside attnscope_block_size {}", tokens, d.block_tokens),
                       "even block sizes: a page of first tokens has half as many");
  }
  if (tokens < 0 || tokens > c.max_position || tokens % (d.block_tokens / 2) != 0) {
    return not_allowed(
        key, given,
        fmt::format("multiples of {}, half a page, up to {}", d.block_tokens / 2, c.max_position));
  }
  for (int i = 0; i < c.num_layers(); ++i) {
    if (dense_first_tokens(c, i) > 0) return {};
  }
  return not_allowed(key, given, "0: no layer that runs sees its first tokens to the end");
}

// Rows of codes, where there are rows, of layers that have them for themselves.
Result<void> check_cache_record(const ModelConfig& c) {
  const std::int32_t record = c.dense.cache_record & ~AS_RECORD_HND;
  const std::string key = "attnscope_cache_dtype";
  if (std::ranges::find(dense_cache_records(), record) == dense_cache_records().end()) {
    return not_allowed(key, fmt::format("record {}", record), "formats of rows of K and V");
  }
  if (record != c.dense.cache_record && c.dense.encoder) {
    return not_allowed("attnscope_cache_layout", "HND", "NHD, since an encoder keeps no rows");
  }
  const std::string name = as_row_format_of(record)->name;
  if (record != AS_RECORD_BF16 && c.dense.encoder) {
    return not_allowed(key, name, "bf16, since an encoder keeps no rows");
  }
  if (record != AS_RECORD_BF16 && is_encoder_decoder(c)) {
    return not_allowed(key, name, "bf16 in an encoder-decoder");
  }
  if (dense_scales_beside(c) > 0 && c.dense.shared_layers > 0) {
    return not_allowed(
        key, name + " beside num_kv_shared_layers",
        "bf16, f16, fp8_token_head, e5m2_token_head, int8_token_head: a scale beside "
        "the cache is of the layer that has it");
  }
  return {};
}

Result<void> check_dense_layers(const ModelConfig& c) {
  const auto count = static_cast<std::size_t>(c.published_layers());
  if (c.dense.windows.size() != count) {
    return not_allowed("num_hidden_layers", fmt::format("{}", count),
                       fmt::format("one window a layer; there are {}", c.dense.windows.size()));
  }
  for (std::size_t i = 0; i < count; ++i) {
    const int window = c.dense.windows[i];
    // One window, so that layers that have it are kept alike.
    if (window == 0 || window == c.window) continue;
    return not_allowed(fmt::format("window of layer {}", i), fmt::format("{}", window),
                       fmt::format("0 (all tokens), {} (sliding_window)", c.window));
  }
  if (auto ok = check_chunks(c); !ok) return ok;
  if (c.dense.encoder) {
    if (auto ok = check_encoder(c); !ok) return ok;
  }
  if (is_encoder_decoder(c)) {
    if (auto ok = t5_validate(c); !ok) return ok;
  }
  if (!c.layers.empty()) {
    if (auto ok = check_masks(c); !ok) return ok;
  }
  if (c.layers.empty()) return not_allowed("layers", "an empty list", "at least one layer");
  for (std::size_t k = 0; k < c.layers.size(); ++k) {
    const int first = k > 0 ? c.layers[k - 1] + 1 : 0;
    if (c.layers[k] >= first && c.layers[k] < c.published_layers()) continue;
    return not_allowed("layers", fmt::format("{} at place {}", c.layers[k], k),
                       fmt::format("ascending layers from 0 to {}, each once", count - 1));
  }
  if (auto ok = check_cache_record(c); !ok) return ok;
  if (auto ok = check_first_tokens(c); !ok) return ok;
  return check_shared(c);
}

}  // namespace

Result<void> dense_validate(const ModelConfig& c, const nlohmann::json*) {
  const DenseAttention& d = c.dense;
  // Widths are kept far below where a product of two leaves 64 bits or a row leaves 32.
  const NumberRange ranges[] = {
      {"hidden_size", double(c.hidden), 8, 65536},
      {"num_attention_heads", double(c.heads), 1, 256},
      {"num_key_value_heads", double(c.kv_heads), 1, double(c.heads)},
      {"head_dim", double(c.head_dim), 8, AS_MAX_HEAD_SIZE},
      {"rotated dims", double(c.rope_dim), 2, double(c.head_dim)},
      {"sliding_window", double(c.window), 0, 1 << 20},
      {"rms_norm_eps", c.rms_eps, 1e-12, 1e-2},
      {"rope_theta", c.rope_theta, 2, 1e12},
      {"rope_local_base_freq", d.local_rope_theta, 0, 1e12},
      {"attn_logit_softcapping", d.soft_cap, 0, 1e6},
      {"scale of scores", d.scale, 0, 1e6},
      {"alibi_bias_max", d.alibi_bias_max, 0, 64},
      {"attnscope_block_size", double(d.block_tokens), 1, 1024},
      // fp32(position) is exact up to 2^24.
      {"max_position_embeddings", double(c.max_position), 1, 1 << 24},
      {"num_hidden_layers", double(c.published_layers()), 1, 4096},
      {"draft layers", double(c.draft_layers), 0, 0},
  };
  for (const NumberRange& r : ranges) {
    if (r.value >= r.min && r.value <= r.max) continue;  // NaN fails
    return not_allowed(r.key, fmt::format("{}", r.value), fmt::format("{} to {}", r.min, r.max));
  }
  for (const auto& [key, n] : {std::pair{"hidden_size", c.hidden}, {"head_dim", c.head_dim}}) {
    if (n % 8 != 0) return not_allowed(key, fmt::format("{}", n), "multiples of 8");
  }
  if (c.rope_dim % 2 != 0)
    return not_allowed("rotated dims", fmt::format("{}", c.rope_dim), "even ones");
  if (d.local_rope_theta > 0 && d.local_rope_theta < 2) {
    return not_allowed("rope_local_base_freq", fmt::format("{}", d.local_rope_theta), "2 to 1e12");
  }
  if (c.heads % c.kv_heads != 0) {
    return not_allowed("num_key_value_heads", fmt::format("{}", c.kv_heads),
                       fmt::format("divisors of num_attention_heads ({})", c.heads));
  }
  if (d.rope_style != AS_ROPE_NEOX && d.rope_style != AS_ROPE_GPTJ) {
    return not_allowed("attnscope_rope_style", fmt::format("{}", d.rope_style), "neox, gptj");
  }
  return check_dense_layers(c);
}

}  // namespace attnscope
