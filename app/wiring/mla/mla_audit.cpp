#include "app/wiring/mla/mla_audit.h"

#include <fmt/format.h>

#include <algorithm>

#include "engine/family/op_graph.h"
#include "engine/model/numbers.h"
#include "kernels/params/dtype.h"
#include "kernels/params/indexer_params.h"
#include "kernels/params/mla_params.h"
#include "kernels/params/tensor_view.h"

namespace attnscope {
namespace {

using MlaWire = MlaAudit::Wire;

// Of a number that is computed in two ways.
constexpr double kLastBits = 1e-14;

constexpr MlaWire kMlaWires[] = {
    {AS_OP_ATTN_NORM, "x", AS_OP_RESIDUAL, "out"},  // of the layer before
    {AS_OP_Q_KV_A_PROJ, "x", AS_OP_ATTN_NORM, "y"},
    {AS_OP_Q_KV_NORM, "qkv", AS_OP_Q_KV_A_PROJ, "y"},
    {AS_OP_Q_B_PROJ, "x", AS_OP_Q_KV_NORM, "qr"},
    {AS_OP_MLA_KV_INSERT, "kv", AS_OP_Q_KV_NORM, "kv"},
    {AS_OP_MLA_KV_INSERT, "qkv", AS_OP_Q_KV_A_PROJ, "y"},
    {AS_OP_MLA_KV_INSERT, "positions", AS_OP_SLOT_MAPPING, "positions"},
    {AS_OP_MLA_Q_ABSORB, "q_raw", AS_OP_Q_B_PROJ, "y"},
    {AS_OP_MLA_Q_ABSORB, "positions", AS_OP_SLOT_MAPPING, "positions"},
    {AS_OP_INDEX_K_PROJ, "x", AS_OP_ATTN_NORM, "y"},
    {AS_OP_INDEX_WEIGHTS_PROJ, "x", AS_OP_ATTN_NORM, "y"},
    {AS_OP_INDEXER_Q_PROJ, "x", AS_OP_Q_KV_NORM, "qr"},
    {AS_OP_INDEX_KEY_INSERT, "k", AS_OP_INDEX_K_PROJ, "y"},
    {AS_OP_INDEX_KEY_INSERT, "positions", AS_OP_SLOT_MAPPING, "positions"},
    {AS_OP_INDEX_QUERY, "q_raw", AS_OP_INDEXER_Q_PROJ, "y"},
    {AS_OP_INDEX_QUERY, "weights_raw", AS_OP_INDEX_WEIGHTS_PROJ, "y"},
    {AS_OP_INDEX_QUERY, "positions", AS_OP_SLOT_MAPPING, "positions"},
    {AS_OP_MLA_ATTENTION, "q", AS_OP_MLA_Q_ABSORB, "q"},
    {AS_OP_MLA_ATTENTION, "cache", AS_OP_MLA_KV_INSERT, "cache"},
    {AS_OP_MLA_ATTENTION, "token_to_req", AS_OP_SLOT_MAPPING, "token_to_req"},
    {AS_OP_MLA_ATTENTION, "positions", AS_OP_SLOT_MAPPING, "positions"},
    {AS_OP_SPARSE_MLA_ATTENTION, "q", AS_OP_MLA_Q_ABSORB, "q"},
    {AS_OP_SPARSE_MLA_ATTENTION, "cache", AS_OP_MLA_KV_INSERT, "cache"},
    {AS_OP_O_PROJ, "x", AS_OP_MLA_V_UP, "y"},
    {AS_OP_RESIDUAL, "y", AS_OP_O_PROJ, "y"},
    {AS_OP_RESIDUAL, "h", AS_OP_ATTN_NORM, "x"},
    {AS_OP_LM_HEAD, "x", AS_OP_FINAL_NORM, "y"},
    {AS_OP_SAMPLE, "logits", AS_OP_LM_HEAD, "y"},
};

// Of layers that see all, and of those that select.
constexpr MlaWire kAllRowsWires[] = {{AS_OP_MLA_V_UP, "o", AS_OP_MLA_ATTENTION, "o"}};
constexpr MlaWire kSelectedWires[] = {{AS_OP_MLA_V_UP, "o", AS_OP_SPARSE_MLA_ATTENTION, "o"}};

// By what an op is for: scores, selection and its slots are of whichever family has them.
struct RoleWire {
  as_role role;
  const char* tap;
  as_role from_role;
  as_op_id from;  // where the role says too little
  const char* output;
};
constexpr RoleWire kSelectionWires[] = {
    {AS_ROLE_SCORE, "q", AS_ROLE_UNKNOWN, AS_OP_INDEX_QUERY, "q"},
    {AS_ROLE_SCORE, "weights", AS_ROLE_UNKNOWN, AS_OP_INDEX_QUERY, "weights"},
    {AS_ROLE_SCORE, "cache", AS_ROLE_UNKNOWN, AS_OP_INDEX_KEY_INSERT, "cache"},
    {AS_ROLE_SCORE, "token_to_req", AS_ROLE_UNKNOWN, AS_OP_SLOT_MAPPING, "token_to_req"},
    {AS_ROLE_SCORE, "lens", AS_ROLE_UNKNOWN, AS_OP_SLOT_MAPPING, "seen_lens"},
    {AS_ROLE_SELECT, "logits", AS_ROLE_SCORE, AS_OP_COUNT, "logits"},
    {AS_ROLE_SELECT, "lens", AS_ROLE_UNKNOWN, AS_OP_SLOT_MAPPING, "seen_lens"},
    {AS_ROLE_INDEX_LIST, "indices", AS_ROLE_SELECT, AS_OP_COUNT, "indices"},
    {AS_ROLE_INDEX_LIST, "token_to_req", AS_ROLE_UNKNOWN, AS_OP_SLOT_MAPPING, "token_to_req"},
    {AS_ROLE_COPY, "selected", AS_ROLE_INDEX_LIST, AS_OP_COUNT, "slots"},
    {AS_ROLE_ATTENTION, "indices", AS_ROLE_INDEX_LIST, AS_OP_COUNT, "slots"},
    {AS_ROLE_ATTENTION, "topk_length", AS_ROLE_INDEX_LIST, AS_OP_COUNT, "lens"},
};

}  // namespace

void MlaAudit::check_sources(const OpParams& params, int layer) {
  check_wires(kMlaWires, params, layer);
  const bool selects = layer >= 0 && n_.selects[to_size(layer)];
  check_wires(selects ? kSelectedWires : kAllRowsWires, params, layer);
  for (const RoleWire& wire : kSelectionWires) {
    if (params.info().role != wire.role || params.info().phase != AS_PHASE_LAYER) continue;
    if (audited_tap(params, wire.tap) == nullptr) continue;
    as_op_id from = wire.from;
    for (int i = 0; from == AS_OP_COUNT && as_op_at(i) != nullptr; ++i) {
      const as_op_info& info = *as_op_at(i);
      const bool has = outputs_.contains({info.id, wire.output});
      if (info.role == wire.from_role && info.phase == AS_PHASE_LAYER && has) from = info.id;
    }
    // Where rows lie in host memory, attention reads slots that are looked up once more.
    if (host_rows_ && wire.role == AS_ROLE_ATTENTION && wire.from_role == AS_ROLE_INDEX_LIST &&
        std::string_view(wire.output) == "slots") {
      from = AS_OP_EXCHANGE_ROWS;
    }
    if (from != AS_OP_COUNT)
      check_source({params.op(), wire.tap, from, wire.output}, params, layer);
  }
}

// Heads are dealt out: rows of these, columns of what they feed.
void MlaAudit::check_weights(const OpParams& params, int layer) {
  const std::string l = layer < 0 ? "" : fmt::format("model.layers.{}.", layers_[to_size(layer)]);
  const std::string p = l + "self_attn.", x = p + "indexer.";
  const std::int64_t first_head = n_.heads / parallel_.size * parallel_.rank;
  switch (params.op()) {
    case AS_OP_ATTN_NORM:
      return check_weight(params, layer, "weight", l + "input_layernorm.weight");
    case AS_OP_Q_KV_A_PROJ:
      check_weight(params, layer, "weight", p + "q_a_proj.weight", 0, n_.q_lora);
      return check_weight(params, layer, "weight", p + "kv_a_proj_with_mqa.weight", n_.q_lora,
                          n_.kv_lora + n_.rope_dim);
    case AS_OP_Q_KV_NORM:
      check_weight(params, layer, "q_weight", p + "q_a_layernorm.weight");
      return check_weight(params, layer, "kv_weight", p + "kv_a_layernorm.weight");
    case AS_OP_Q_B_PROJ:
      return check_weight(params, layer, "weight", p + "q_b_proj.weight", 0, -1,
                          first_head * (n_.nope_dim + n_.rope_dim));
    case AS_OP_MLA_Q_ABSORB:
    case AS_OP_MLA_V_UP:
      return check_weight(params, layer, "kv_b", p + "kv_b_proj.weight", 0, -1,
                          first_head * (n_.nope_dim + n_.value_dim));
    case AS_OP_O_PROJ:
      return check_weight(params, layer, "weight", p + "o_proj.weight", 0, -1, 0,
                          first_head * n_.value_dim);
    case AS_OP_INDEX_K_PROJ:
      return check_weight(params, layer, "weight", x + "wk.weight");
    case AS_OP_INDEX_WEIGHTS_PROJ:
      return check_weight(params, layer, "weight", x + "weights_proj.weight");
    case AS_OP_INDEXER_Q_PROJ:
      return check_weight(params, layer, "weight", x + "wq_b.weight");
    case AS_OP_INDEX_KEY_INSERT:
      check_weight(params, layer, "weight", x + "k_norm.weight");
      return check_weight(params, layer, "bias", x + "k_norm.bias");
    case AS_OP_FINAL_NORM:
      return check_weight(params, layer, "weight", "model.norm.weight");
    case AS_OP_LM_HEAD:
      return check_weight(params, layer, "weight",
                          n_.tied ? "model.embed_tokens.weight" : "lm_head.weight");
    default:
      return;
  }
}

void MlaAudit::check_weight(const OpParams& params, int layer, const char* tap,
                            const std::string& name, std::int64_t first, std::int64_t rows,
                            std::int64_t from, std::int64_t column) {
  const as_tensor& weight = params.tensor(audited_tap(params, tap)->offset);
  if (!present(weight)) return wrong(params, layer, tap, fmt::format("it has no {}", name));
  const std::pair<const void*, std::string> as_read = {
      weight.data, fmt::format("{} of rank {}", name, parallel_.rank)};
  if (!known_.insert(as_read).second) return;
  std::int64_t all = 1;
  for (std::int32_t i = 0; i + 1 < std::max(weight.rank, 2); ++i) all *= weight.shape[i];
  if (rows < 0) rows = all;
  std::int64_t others = -1;
  TensorEntry given;
  if (first + rows <= all) {
    given = audited_entry(weight, ElementType::kBf16, first, rows);
    others = model_.others(name, from, column, given, nullptr);
  }
  judge_weight(params, layer, tap, name, others, given, as_read);
}

void MlaAudit::check_numbers(const OpParams& params, int layer) {
  const auto group_of = [&](const char* tap) {
    return layout_.of_tap(layer, params.op(), tap)->group;
  };
  switch (params.op()) {
    case AS_OP_ATTN_NORM:
    case AS_OP_FINAL_NORM: {
      const auto& p = params.get<as_rms_norm_params>();
      number(params, layer, "eps", p.eps, n_.norm_eps);
      return number(params, layer, "weight_plus_one", p.weight_plus_one, 0);
    }
    case AS_OP_Q_KV_NORM:
      return number(params, layer, "eps", params.get<as_q_kv_norm_params>().eps, n_.norm_eps);
    case AS_OP_MLA_Q_ABSORB:
      return check_rope(params, layer, params.get<as_mla_q_absorb_params>().rope);
    case AS_OP_MLA_KV_INSERT: {
      const auto& p = params.get<as_mla_kv_insert_params>();
      number(params, layer, "rows_given", p.rows_given, 0);
      number(params, layer, "scale_rule", p.scale_rule, mla_.latent_scale);
      check_rope(params, layer, p.rope);
      check_cache(params, layer, "cache");
      if (!host_rows_ || !n_.selects[to_size(layer)]) {
        return check_pages(params, layer, "slots", slots_, group_of("cache"));
      }
      if (!present(slots_)) return;
      as_tensor pages = slots_;  // of [G,T]
      pages.data = at<std::int64_t>(slots_, group_of("cache"));
      pages.rank = 1;
      pages.shape[0] = slots_.shape[1];
      pages.stride[0] = slots_.stride[1];
      return exchange_.wrote(p.slots, pages);
    }
    case AS_OP_EXCHANGE_ROWS: {
      const auto& p = params.get<as_exchange_rows_params>();
      for (const char* cache : {"fresh", "pages", "missed", "pool"}) {
        check_cache(params, layer, cache);
      }
      if (std::string note = exchange_.exchanged(p); !note.empty()) {
        wrong(params, layer, "pages_to", std::move(note));
      }
      return;
    }
    case AS_OP_INDEX_QUERY: {
      const auto& p = params.get<as_index_query_params>();
      number(params, layer, "rows_given", p.rows_given, 0);
      number(params, layer, "hadamard", p.hadamard, mla_.hadamard ? 1 : 0);
      number(params, layer, "scale_rule", p.scale_rule, mla_.index_scale);
      return check_rope(params, layer, p.rope);
    }
    case AS_OP_INDEX_KEY_INSERT: {
      const auto& p = params.get<as_index_key_insert_params>();
      number(params, layer, "rows_given", p.rows_given, 0);
      number(params, layer, "hadamard", p.hadamard, mla_.hadamard ? 1 : 0);
      number(params, layer, "scale_rule", p.scale_rule, mla_.index_scale);
      number(params, layer, "eps", p.eps, n_.index_norm_eps);
      check_rope(params, layer, p.rope);
      check_cache(params, layer, "cache");
      return check_pages(params, layer, "slots", slots_, group_of("cache"));
    }
    case AS_OP_MLA_ATTENTION:
      number(params, layer, "scale", params.get<as_mla_attention_params>().scale, n_.scale,
             kLastBits);
      check_cache(params, layer, "cache");
      return check_pages(params, layer, "table", tables_, group_of("cache"));
    case AS_OP_SPARSE_MLA_ATTENTION:
      number(params, layer, "scale", params.get<as_sparse_mla_attention_params>().scale, n_.scale,
             kLastBits);
      return check_cache(params, layer, "cache");
    default:
      break;
  }
  if (params.info().phase != AS_PHASE_LAYER) return;
  if (params.info().role == AS_ROLE_SCORE) {
    number(params, layer, "index_scores", params.get<as_indexer_logits_params>().weights.reserved,
           scores_);
    check_cache(params, layer, "cache");
    check_pages(params, layer, "table", tables_, group_of("cache"));
  } else if (params.info().role == AS_ROLE_SELECT) {
    const as_tensor& chosen = params.tensor(audited_tap(params, "indices")->offset);
    number(params, layer, "top-k", static_cast<double>(chosen.shape[1]),
           static_cast<double>(n_.index_topk));
  } else if (lists_selected(params.op())) {
    const CacheSpec& latent = *layout_.of_tap(layer, AS_OP_MLA_KV_INSERT, "cache");
    check_pages(params, layer, "table", tables_, latent.group);
    number(params, layer, "rows_per_block", params.get<as_topk_to_slots_params>().rows_per_block,
           latent.rows_per_block);
  }
}

void MlaAudit::check_cache(const OpParams& params, int layer, const char* tap) {
  const as_cache& given = params.cache(audited_tap(params, tap)->offset);
  const CacheSpec& spec = *layout_.of_tap(layer, params.op(), tap);
  if (given.record == spec.record && given.rows_per_block == spec.rows_per_block &&
      given.width == spec.width) {
    return;
  }
  wrong(
      params, layer, tap,
      fmt::format("its {} has record {} and {} rows a page; that of {} has {} and {}", tap,
                  given.record, given.rows_per_block, spec.name, spec.record, spec.rows_per_block));
}

}  // namespace attnscope
