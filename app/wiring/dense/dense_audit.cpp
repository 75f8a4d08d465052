#include "app/wiring/dense/dense_audit.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <tuple>

#include "engine/model/numbers.h"
#include "kernels/params/dtype.h"
#include "kernels/params/paged_params.h"
#include "kernels/params/tensor_view.h"

namespace attnscope {
namespace {

using DenseWire = DenseAudit::Wire;
using Numbers = reference::DenseNumbers;

std::string bias_name(const char* stack) {
  return fmt::format("{}.block.0.layer.0.SelfAttention.relative_attention_bias.weight", stack);
}

constexpr DenseWire kDenseWires[] = {
    {AS_OP_ATTN_NORM, "x", AS_OP_RESIDUAL, "out"},  // of the layer before
    {AS_OP_Q_PROJ, "x", AS_OP_ATTN_NORM, "y"},
    {AS_OP_MEMORY_NORM, "x", AS_OP_ATTN_NORM, "x"},
    {AS_OP_ROPE_KV_INSERT, "q", AS_OP_Q_PROJ, "y"},
    {AS_OP_ROPE_KV_INSERT, "positions", AS_OP_SLOT_MAPPING, "positions"},
    {AS_OP_PAGED_ATTENTION, "q", AS_OP_ROPE_KV_INSERT, "q_out"},
    {AS_OP_LOCAL_BATCH, "token_to_req", AS_OP_SLOT_MAPPING, "token_to_req"},
    {AS_OP_CROSS_BATCH, "token_to_req", AS_OP_SLOT_MAPPING, "token_to_req"},
    {AS_OP_CROSS_BATCH, "positions", AS_OP_SLOT_MAPPING, "positions"},
    {AS_OP_CROSS_BATCH, "slots", AS_OP_SLOT_MAPPING, "slots"},
    {AS_OP_VARLEN_ATTENTION, "q", AS_OP_Q_PROJ, "y"},
    {AS_OP_VARLEN_ATTENTION, "k", AS_OP_K_PROJ, "y"},
    {AS_OP_VARLEN_ATTENTION, "v", AS_OP_V_PROJ, "y"},
    {AS_OP_RESIDUAL, "y", AS_OP_O_PROJ, "y"},
    {AS_OP_RESIDUAL, "h", AS_OP_ATTN_NORM, "x"},
    {AS_OP_LM_HEAD, "x", AS_OP_FINAL_NORM, "y"},
    {AS_OP_SAMPLE, "logits", AS_OP_LM_HEAD, "y"},
};

// Of layers with rows of their own.
constexpr DenseWire kRowWires[] = {
    {AS_OP_ROPE_KV_INSERT, "k", AS_OP_K_PROJ, "y"},
    {AS_OP_ROPE_KV_INSERT, "v", AS_OP_V_PROJ, "y"},
    {AS_OP_PAGED_ATTENTION, "k_cache", AS_OP_ROPE_KV_INSERT, "k_cache"},
    {AS_OP_PAGED_ATTENTION, "v_cache", AS_OP_ROPE_KV_INSERT, "v_cache"},
};

// Of layers with rows of first tokens besides.
constexpr DenseWire kWideWires[] = {
    {AS_OP_PAGED_ATTENTION, "k_wide", AS_OP_ROPE_KV_INSERT, "k_wide"},
    {AS_OP_PAGED_ATTENTION, "v_wide", AS_OP_ROPE_KV_INSERT, "v_wide"},
};

// What attention gave: of layers with caches, and of those without.
constexpr DenseWire kPagedOutput[] = {{AS_OP_O_PROJ, "x", AS_OP_PAGED_ATTENTION, "o"}};
constexpr DenseWire kPackedOutput[] = {{AS_OP_O_PROJ, "x", AS_OP_VARLEN_ATTENTION, "o"}};

// Keys and values are made of the layer's input, or of the source.
constexpr DenseWire kOwnWires[] = {
    {AS_OP_K_PROJ, "x", AS_OP_ATTN_NORM, "y"},
    {AS_OP_V_PROJ, "x", AS_OP_ATTN_NORM, "y"},
};
constexpr DenseWire kMemoryWires[] = {
    {AS_OP_K_PROJ, "x", AS_OP_MEMORY_NORM, "y"},
    {AS_OP_V_PROJ, "x", AS_OP_MEMORY_NORM, "y"},
};

// Of encoder-decoders, by the layer's side.
constexpr DenseWire kSourceWires[] = {
    {AS_OP_VARLEN_ATTENTION, "token_to_req", AS_OP_CROSS_BATCH, "source_to_req"},
};
constexpr DenseWire kTargetWires[] = {
    {AS_OP_ROPE_KV_INSERT, "slots", AS_OP_CROSS_BATCH, "target_slots"},
    {AS_OP_PAGED_ATTENTION, "token_to_req", AS_OP_CROSS_BATCH, "target_to_req"},
    {AS_OP_PAGED_ATTENTION, "positions", AS_OP_SLOT_MAPPING, "positions"},
    {AS_OP_PAGED_ATTENTION, "first_rows", AS_OP_CROSS_BATCH, "source_lens"},
};
constexpr DenseWire kCrossWires[] = {
    {AS_OP_ROPE_KV_INSERT, "slots", AS_OP_CROSS_BATCH, "source_slots"},
    {AS_OP_PAGED_ATTENTION, "token_to_req", AS_OP_CROSS_BATCH, "target_to_req"},
    {AS_OP_PAGED_ATTENTION, "positions", AS_OP_SLOT_MAPPING, "positions"},
    {AS_OP_PAGED_ATTENTION, "seq_lens", AS_OP_CROSS_BATCH, "source_lens"},
};

// Of attention: in layers that see all or a window, and in those with chunks.
constexpr DenseWire kWholeWires[] = {
    {AS_OP_PAGED_ATTENTION, "token_to_req", AS_OP_SLOT_MAPPING, "token_to_req"},
    {AS_OP_PAGED_ATTENTION, "positions", AS_OP_SLOT_MAPPING, "positions"},
};
constexpr DenseWire kChunkWires[] = {
    {AS_OP_PAGED_ATTENTION, "token_to_req", AS_OP_LOCAL_BATCH, "token_to_seq"},
    {AS_OP_PAGED_ATTENTION, "positions", AS_OP_LOCAL_BATCH, "local_positions"},
    {AS_OP_PAGED_ATTENTION, "seq_lens", AS_OP_LOCAL_BATCH, "local_seq_lens"},
};

// Where a user's mask or score function finds places: in chunks, in a decoder, across.
constexpr DenseWire kChunkPlaces[] = {
    {AS_OP_PAGED_ATTENTION, "places", AS_OP_SLOT_MAPPING, "positions"},
};
constexpr DenseWire kTargetPlaces[] = {
    {AS_OP_PAGED_ATTENTION, "query_starts", AS_OP_CROSS_BATCH, "source_lens"},
    {AS_OP_PAGED_ATTENTION, "row_starts", AS_OP_CROSS_BATCH, "source_lens"},
};
constexpr DenseWire kCrossPlaces[] = {
    {AS_OP_PAGED_ATTENTION, "query_starts", AS_OP_CROSS_BATCH, "source_lens"},
};

}  // namespace

void DenseAudit::check_numbers(const OpParams& params, int layer) {
  switch (params.op()) {
    case AS_OP_SCHEDULE:
      row_outputs_.clear();
      local_tables_ = no_tensor();
      break;
    case AS_OP_LOCAL_BATCH:
      check_local_batch(params);
      break;
    case AS_OP_FINAL_NORM:
    case AS_OP_MEMORY_NORM:
    case AS_OP_ATTN_NORM: {
      const auto& p = params.get<as_rms_norm_params>();
      number(params, layer, "eps", p.eps, n_.norm_eps);
      number(params, layer, "weight_plus_one", p.weight_plus_one, n_.weight_plus_one ? 1 : 0);
      break;
    }
    case AS_OP_ROPE_KV_INSERT:
      check_insertion(params, layer);
      break;
    case AS_OP_PAGED_ATTENTION:
      check_attention(params, layer);
      break;
    case AS_OP_VARLEN_ATTENTION:
      check_packed(params, layer);
      break;
    default:
      break;
  }
}

void DenseAudit::check_sources(const OpParams& params, int layer) {
  check_wires(kDenseWires, params, layer);
  const bool sided = layer >= 0 && !n_.sides.empty();
  const int side = sided ? n_.sides[to_size(layer)] : 0;
  check_wires(
      sided && side == Numbers::kCross ? std::span<const DenseWire>(kMemoryWires) : kOwnWires,
      params, layer);
  const bool packed = sided ? side == Numbers::kSource : n_.encoder;
  check_wires(packed ? std::span<const DenseWire>(kPackedOutput) : kPagedOutput, params, layer);
  if (rows_of(layer) == layer) {
    check_wires(kRowWires, params, layer);
    if (first_tokens_of(layer) > 0) check_wires(kWideWires, params, layer);
  } else {
    check_shared(params, layer);
  }
  if (sided && side == Numbers::kSource) return check_wires(kSourceWires, params, layer);
  const bool cross = sided && side == Numbers::kCross;
  if (n_.shows || n_.score) {
    if (sided) {
      check_wires(cross ? std::span<const DenseWire>(kCrossPlaces) : kTargetPlaces, params, layer);
    } else if (chunk_of(layer) > 0) {
      check_wires(kChunkPlaces, params, layer);
    }
  }
  if (sided) {
    return check_wires(cross ? std::span<const DenseWire>(kCrossWires) : kTargetWires, params,
                       layer);
  }
  check_wires(chunk_of(layer) > 0 ? std::span<const DenseWire>(kChunkWires) : kWholeWires, params,
              layer);
}

void DenseAudit::check_weights(const OpParams& params, int layer) {
  const std::string p = layer < 0 ? "" : fmt::format("model.layers.{}.", layers_[to_size(layer)]);
  const auto check = [&](const char* tap, const std::string& name) {
    check_weight(params, layer, tap, name);
  };
  if (!n_.sides.empty()) return check_sided_weights(params, layer);
  switch (params.op()) {
    case AS_OP_ATTN_NORM:
      return check("weight", p + "input_layernorm.weight");
    case AS_OP_Q_PROJ:
      return check("weight", p + "self_attn.q_proj.weight");
    case AS_OP_K_PROJ:
      return check("weight", p + "self_attn.k_proj.weight");
    case AS_OP_V_PROJ:
      return check("weight", p + "self_attn.v_proj.weight");
    case AS_OP_O_PROJ:
      return check("weight", p + "self_attn.o_proj.weight");
    case AS_OP_ROPE_KV_INSERT:
      check("q_weight", n_.qk_norm ? p + "self_attn.q_norm.weight" : "");
      check("k_scale", n_.cache_scales > 0 ? p + "self_attn.k_scale" : "");
      check("v_scale", n_.cache_scales > 0 ? p + "self_attn.v_scale" : "");
      return check("k_weight",
                   n_.qk_norm && rows_of(layer) == layer ? p + "self_attn.k_norm.weight" : "");
    case AS_OP_VARLEN_ATTENTION:
      return check("alibi_slopes", n_.alibi_bias_max > 0 ? "alibi_slopes" : "");
    case AS_OP_PAGED_ATTENTION:
      check("alibi_slopes", n_.alibi_bias_max > 0 ? "alibi_slopes" : "");
      check("k_scale", n_.cache_scales > 0 ? p + "self_attn.k_scale" : "");
      check("v_scale", n_.cache_scales > 0 ? p + "self_attn.v_scale" : "");
      return check("sinks", n_.sinks ? p + "self_attn.sinks" : "");
    case AS_OP_FINAL_NORM:
      return check("weight", "model.norm.weight");
    case AS_OP_LM_HEAD:
      return check("weight", n_.tied ? "model.embed_tokens.weight" : "lm_head.weight");
    default:
      return;
  }
}

void DenseAudit::check_sided_weights(const OpParams& params, int layer) {
  const auto check = [&](const char* tap, const std::string& name) {
    check_weight(params, layer, tap, name);
  };
  std::string p, attention;
  const bool source = layer >= 0 && n_.sides[to_size(layer)] == Numbers::kSource;
  const bool cross = layer >= 0 && n_.sides[to_size(layer)] == Numbers::kCross;
  if (layer >= 0) {
    const std::int64_t behind = layers_[to_size(layer)] - n_.encoder_layers;
    p = source ? fmt::format("encoder.block.{}.layer.0.", layers_[to_size(layer)])
               : fmt::format("decoder.block.{}.layer.{}.", behind / 2, cross ? 1 : 0);
    attention = p + (cross ? "EncDecAttention." : "SelfAttention.");
  }
  switch (params.op()) {
    case AS_OP_ATTN_NORM:
      return check("weight", p + "layer_norm.weight");
    case AS_OP_MEMORY_NORM:
      return check("weight", "encoder.final_layer_norm.weight");
    case AS_OP_Q_PROJ:
      return check("weight", attention + "q.weight");
    case AS_OP_K_PROJ:
      return check("weight", attention + "k.weight");
    case AS_OP_V_PROJ:
      return check("weight", attention + "v.weight");
    case AS_OP_O_PROJ:
      return check("weight", attention + "o.weight");
    case AS_OP_ROPE_KV_INSERT:
      check("q_weight", "");
      return check("k_weight", "");
    case AS_OP_VARLEN_ATTENTION:
      return check("position_bias", bias_name("encoder"));
    case AS_OP_PAGED_ATTENTION:
      check("sinks", "");
      return check("position_bias", cross ? std::string() : bias_name("decoder"));
    case AS_OP_FINAL_NORM:
      return check("weight", "decoder.final_layer_norm.weight");
    case AS_OP_LM_HEAD:
      return check("weight", n_.tied ? "shared.weight" : "lm_head.weight");
    default:
      return;
  }
}

// Where the part of a rank begins in a weight. Heads are dealt out: rows of these, columns of what
// they feed. A rank's query heads share the KV head of the first of them.
std::pair<std::int64_t, std::int64_t> DenseAudit::first_of_rank(as_op_id op,
                                                                const TensorEntry& given) const {
  const std::int64_t first_head = n_.heads / parallel_.size * parallel_.rank;
  switch (op) {
    case AS_OP_Q_PROJ:
      return {first_head * n_.head_dim, 0};
    case AS_OP_K_PROJ:
    case AS_OP_V_PROJ:
      return {first_head * n_.kv_heads / n_.heads * n_.head_dim, 0};
    case AS_OP_PAGED_ATTENTION:
    case AS_OP_VARLEN_ATTENTION:
      return {first_head, 0};
    case AS_OP_O_PROJ:
      return {0, parallel_.rank * given.shape[1]};
    default:
      return {0, 0};
  }
}

// name: empty = it must have none.
void DenseAudit::check_weight(const OpParams& params, int layer, const char* tap,
                              const std::string& name) {
  const as_tensor& weight = params.tensor(audited_tap(params, tap)->offset);
  if (present(weight) == name.empty()) {
    return wrong(params, layer, tap,
                 name.empty() ? fmt::format("it has {}, which the model has not", tap)
                              : fmt::format("it has no {}; the model's is {}", tap, name));
  }
  const std::pair<const void*, std::string> as_read = {
      weight.data, fmt::format("{} of rank {}", name, parallel_.rank)};
  if (name.empty() || !known_.insert(as_read).second) return;
  const ElementType type = weight.dtype == AS_F32 ? ElementType::kF32 : ElementType::kBf16;
  const TensorEntry given = audited_entry(weight, type, 0, weight.shape[0]);
  // Scales beside caches are one of all ranks.
  const bool dealt = std::strcmp(tap, "k_scale") != 0 && std::strcmp(tap, "v_scale") != 0;
  const auto [row, column] =
      dealt ? first_of_rank(params.op(), given) : std::pair<std::int64_t, std::int64_t>();
  judge_weight(params, layer, tap, name, model_.others(name, row, column, given, nullptr), given,
               as_read);
}

void DenseAudit::check_insertion(const OpParams& params, int layer) {
  const auto& p = params.get<as_rope_kv_insert_params>();
  number(params, layer, "eps", p.eps, n_.norm_eps);
  number(params, layer, "style", p.style, n_.pairs ? AS_ROPE_GPTJ : AS_ROPE_NEOX);
  number(params, layer, "weight_plus_one", p.weight_plus_one, n_.weight_plus_one ? 1 : 0);
  number(params, layer, "rows_given", p.rows_given, 0);
  number(params, layer, "rope.base", p.rope.base, n_.rope_thetas[to_size(layer)]);
  check_rope(params, layer, p.rope);
  if (rows_of(layer) != layer) {
    for (const char* tap : {"k", "v", "slots", "k_cache", "v_cache", "k_wide", "v_wide"}) {
      if (audited_data(params, *audited_tap(params, tap)) == nullptr) continue;
      wrong(params, layer, tap,
            fmt::format("it has {}, and its layer reads the rows of layer {}", tap,
                        layers_[to_size(rows_of(layer))]));
    }
    return;
  }
  check_cache(params, layer, "k_cache");
  check_cache(params, layer, "v_cache");
  // Those of an encoder-decoder are held to cross_batch.
  if (n_.sides.empty()) {
    check_pages(params, layer, "slots", slots_,
                layout_.of_tap(layer, params.op(), "k_cache")->group);
  }
  check_wide(params, layer, "wide_slots", slots_);
  for (const char* tap : {"k_cache", "v_cache", "k_wide", "v_wide"}) {
    row_outputs_[{layer, parallel_.rank, tap}] = audited_data(params, *audited_tap(params, tap));
  }
}

void DenseAudit::check_peer(const OpParams& params, int layer) {
  if (params.op() != AS_OP_ROPE_KV_INSERT || rows_of(layer) != layer) return;
  for (const char* tap : {"k_cache", "v_cache", "k_wide", "v_wide"}) {
    if (audited_data(params, *audited_tap(params, tap)) == nullptr) continue;
    const auto own = outputs_.find({params.op(), tap});
    if (own == outputs_.end() || own->second.layer != layer) continue;
    if (audited_data(params, *audited_tap(params, tap)) != own->second.data) continue;
    wrong(params, layer, tap, fmt::format("its {} is that of the rank that is seen", tap));
  }
}

// Attention reads where the insertion of the layer that it shares with wrote in this step.
void DenseAudit::check_shared(const OpParams& params, int layer) {
  if (params.op() != AS_OP_PAGED_ATTENTION) return;
  const int from = rows_of(layer);
  for (const char* tap : {"k_cache", "v_cache", "k_wide", "v_wide"}) {
    const auto written = row_outputs_.find({from, parallel_.rank, tap});
    if (written == row_outputs_.end()) continue;  // beside a session in the middle of a step
    if (audited_data(params, *audited_tap(params, tap)) == written->second) continue;
    wrong(params, layer, tap,
          fmt::format("its {} is not that of layer {}, whose rows it shares", tap,
                      layers_[to_size(from)]));
  }
}

int DenseAudit::rows_of(int layer) const {
  const bool shared =
      layer >= 0 && to_size(layer) < n_.rows_of.size() && n_.rows_of[to_size(layer)] >= 0;
  return shared ? n_.rows_of[to_size(layer)] : layer;
}

void DenseAudit::check_attention(const OpParams& params, int layer) {
  const auto& p = params.get<as_paged_attention_params>();
  number(params, layer, "scale", p.scale, n_.scale);
  number(params, layer, "soft_cap", p.soft_cap, n_.soft_cap);
  const bool cross = !n_.sides.empty() && n_.sides[to_size(layer)] == Numbers::kCross;
  const bool windowed = n_.windows[to_size(layer)] > 0;
  // A mask shows what lies ahead where a layer sees all of a request.
  const bool all = !windowed && chunk_of(layer) == 0 && n_.sides.empty();
  number(params, layer, "causal", p.causal, cross || (n_.shows && all) ? 0 : 1);
  check_masks(params, layer, p.mask_code, p.score_code);
  check_places(params, layer, cross);
  number(params, layer, "bias_distance", p.bias_distance,
         cross ? 0 : static_cast<double>(n_.bias_distance));
  if (present(p.first_rows) != (!n_.sides.empty() && !cross)) {
    wrong(params, layer, "first_rows",
          cross ? "it has first_rows, and cross attention sees the source"
                : "whether it has first_rows is not as its tokens stand behind a source");
  }
  number(params, layer, "window", p.window, static_cast<double>(n_.windows[to_size(layer)]));
  // A prefix that tokens do not see whole is none that they share.
  const bool hides = windowed || chunk_of(layer) > 0 || n_.shows != nullptr || !n_.sides.empty();
  number(params, layer, "form", p.form, n_.form == AS_PAGED_CASCADE && hides ? 0 : n_.form);
  // Rows of chunks are found by a table that ends with them.
  number(params, layer, "chunk", p.chunk, 0);
  number(params, layer, "wide_tokens", p.wide_tokens, static_cast<double>(first_tokens_of(layer)));
  check_wide(params, layer, "wide_table", tables_);
  check_cache(params, layer, "k_cache");
  check_cache(params, layer, "v_cache");
  const int group = layout_.of_tap(layer, params.op(), "k_cache")->group;
  if (chunk_of(layer) == 0) return check_pages(params, layer, "table", tables_, group);
  check_pages(params, layer, "table", local_tables_, group, layout_.chunk_groups.front());
}

// Caches of first tokens, and the tensor that finds their rows.
void DenseAudit::check_wide(const OpParams& params, int layer, const char* rows,
                            const as_tensor& all) {
  if (first_tokens_of(layer) == 0) {
    for (const char* tap : {rows, "k_wide", "v_wide"}) {
      if (audited_data(params, *audited_tap(params, tap)) == nullptr) continue;
      wrong(params, layer, tap,
            fmt::format("it has {}, and no row of its layer has 16 bits besides", tap));
    }
    return;
  }
  check_cache(params, layer, "k_wide");
  check_cache(params, layer, "v_wide");
  check_pages(params, layer, rows, all, layout_.of_tap(layer, params.op(), "k_wide")->group);
}

std::int64_t DenseAudit::first_tokens_of(int layer) const {
  const bool known = layer >= 0 && to_size(layer) < n_.first_tokens.size();
  return known ? n_.first_tokens[to_size(layer)] : 0;
}

// What the code says is held to ref.model's scores.
void DenseAudit::check_masks(const OpParams& params, int layer, const as_tensor& mask,
                             const as_tensor& score) {
  const auto check = [&](const char* tap, const as_tensor& code, bool due) {
    if (present(code) == due) return;
    wrong(params, layer, tap,
          due ? fmt::format("it has no {}, which the model has", tap)
              : fmt::format("it has {}, which the model has not", tap));
  };
  check("mask_code", mask, n_.shows != nullptr);
  check("score_code", score, n_.score != nullptr);
}

// Whether it has them; check_sources holds them to what they are.
void DenseAudit::check_places(const OpParams& params, int layer, bool cross) {
  const auto& p = params.get<as_paged_attention_params>();
  const bool asks = n_.shows || n_.score;
  const std::tuple<const char*, const as_tensor&, bool> all[] = {
      {"places", p.places, asks && chunk_of(layer) > 0},
      {"query_starts", p.query_starts, asks && !n_.sides.empty()},
      {"row_starts", p.row_starts, asks && !n_.sides.empty() && !cross}};
  for (const auto& [tap, tensor, due] : all) {
    if (present(tensor) == due) continue;
    wrong(params, layer, tap,
          due ? fmt::format("it has no {}, which a mask or score asks for here", tap)
              : fmt::format("it has {}, where places begin with its rows", tap));
  }
}

// The starts that it is given are those that the step was planned with, which are held against
// the requests (check_tokens).
void DenseAudit::check_packed(const OpParams& params, int layer) {
  const auto& p = params.get<as_varlen_attention_params>();
  number(params, layer, "scale", p.scale, n_.scale);
  number(params, layer, "soft_cap", p.soft_cap, n_.soft_cap);
  number(params, layer, "causal", p.causal, n_.encoder || !n_.sides.empty() ? 0 : 1);
  number(params, layer, "bias_distance", p.bias_distance, static_cast<double>(n_.bias_distance));
  check_masks(params, layer, p.mask_code, p.score_code);
  number(params, layer, "window_left", p.window_left, -1);
  number(params, layer, "window_right", p.window_right, -1);
  if (present(p.cu_seqlens_k)) {
    wrong(params, layer, "cu_seqlens_k", "it has cu_seqlens_k, and its keys are its queries' own");
  }
}

std::int64_t DenseAudit::chunk_of(int layer) const {
  return layer >= 0 && to_size(layer) < n_.chunks.size() ? n_.chunks[to_size(layer)] : 0;
}

// Its tables are those of the groups with chunks, one behind the other.
void DenseAudit::check_local_batch(const OpParams& params) {
  const auto& p = params.get<as_local_batch_params>();
  std::int64_t chunk = 0;
  for (const std::int64_t n : n_.chunks) chunk = std::max(chunk, n);
  number(params, -1, "chunk", p.chunk, static_cast<double>(chunk));
  number(params, -1, "block_size", p.block_size,
         layout_.groups[to_size(layout_.chunk_groups.front())].block_tokens);
  check_pages(params, -1, "tables", tables_, layout_.chunk_groups.front());
  local_tables_ = p.local_tables;
}

void DenseAudit::check_cache(const OpParams& params, int layer, const char* tap) {
  const as_cache& given = params.cache(audited_tap(params, tap)->offset);
  const CacheSpec& spec = *layout_.of_tap(layer, params.op(), tap);
  if (given.record == spec.record && given.rows_per_block == spec.rows_per_block &&
      given.width == spec.width && as_cache_heads(&given) == spec.num_kv_heads) {
    return;
  }
  wrong(
      params, layer, tap,
      fmt::format("its {} has record {}, {} rows a page and {} heads; that of {} has {}, {} and {}",
                  tap, given.record, given.rows_per_block, as_cache_heads(&given), spec.name,
                  spec.record, spec.rows_per_block, spec.num_kv_heads));
}

}  // namespace attnscope
