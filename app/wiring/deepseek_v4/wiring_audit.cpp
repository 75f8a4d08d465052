#include "app/wiring/deepseek_v4/wiring_audit.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "engine/model/numbers.h"
#include "engine/session/session.h"
#include "kernels/params/dtype.h"
#include "kernels/params/tensor_view.h"

namespace attnscope {
namespace {

// Which tap of an earlier op of the step lies in an input. Stated apart from the graph that makes
// the wiring (engine/family/), so that a mistake there is seen.
struct Wire {
  as_op_id op;
  const char* tap;
  as_op_id from;
  const char* output;
  int ratio = -1;   // in layers of this one alone
  int codes = -1;   // 1 where wo_a is in FP8 alone, 0 where it is not
  int drafts = -1;  // 1 in the draft layer alone, 0 in others alone
  int pooled = -1;  // 1 where rows lie in host memory alone, 0 where they do not
};

constexpr Wire kWires[] = {
    {AS_OP_ATTN_NORM, "x", AS_OP_RESIDUAL, "out", -1, -1, 0},  // of the layer before
    {AS_OP_ATTN_NORM, "x", AS_OP_DRAFT_SUM, "out", -1, -1, 1},
    {AS_OP_DRAFT_NORM, "hidden", AS_OP_RESIDUAL, "out"},  // of the layer before
    {AS_OP_DRAFT_NORM, "positions", AS_OP_SLOT_MAPPING, "positions"},
    {AS_OP_DRAFT_H_PROJ, "x", AS_OP_DRAFT_NORM, "h"},
    {AS_OP_DRAFT_E_PROJ, "x", AS_OP_DRAFT_NORM, "e"},
    {AS_OP_DRAFT_SUM, "h", AS_OP_DRAFT_H_PROJ, "y"},
    {AS_OP_DRAFT_SUM, "y", AS_OP_DRAFT_E_PROJ, "y"},
    {AS_OP_Q_KV_A_PROJ, "x", AS_OP_ATTN_NORM, "y"},
    {AS_OP_Q_KV_NORM, "qkv", AS_OP_Q_KV_A_PROJ, "y"},
    {AS_OP_Q_B_PROJ, "x", AS_OP_Q_KV_NORM, "qr"},
    {AS_OP_Q_ROPE_KV_INSERT, "q_raw", AS_OP_Q_B_PROJ, "y"},
    {AS_OP_Q_ROPE_KV_INSERT, "kv", AS_OP_Q_KV_NORM, "kv"},
    {AS_OP_Q_ROPE_KV_INSERT, "positions", AS_OP_SLOT_MAPPING, "positions"},
    {AS_OP_COMPRESSOR_PROJ, "x", AS_OP_ATTN_NORM, "y"},
    {AS_OP_COMPRESSOR_STATE, "proj", AS_OP_COMPRESSOR_PROJ, "y"},
    {AS_OP_COMPRESSOR_STATE, "positions", AS_OP_SLOT_MAPPING, "positions"},
    {AS_OP_COMPRESS_INSERT, "state", AS_OP_COMPRESSOR_STATE, "state"},
    {AS_OP_COMPRESS_INSERT, "positions", AS_OP_SLOT_MAPPING, "positions"},
    {AS_OP_COMPRESS_INSERT, "token_to_req", AS_OP_SLOT_MAPPING, "token_to_req"},
    {AS_OP_INDEXER_COMPRESSOR_PROJ, "x", AS_OP_ATTN_NORM, "y"},
    {AS_OP_INDEXER_COMPRESSOR_STATE, "proj", AS_OP_INDEXER_COMPRESSOR_PROJ, "y"},
    {AS_OP_INDEXER_COMPRESSOR_STATE, "positions", AS_OP_SLOT_MAPPING, "positions"},
    {AS_OP_INDEXER_COMPRESS_INSERT, "state", AS_OP_INDEXER_COMPRESSOR_STATE, "state"},
    {AS_OP_INDEXER_COMPRESS_INSERT, "positions", AS_OP_SLOT_MAPPING, "positions"},
    {AS_OP_INDEXER_COMPRESS_INSERT, "token_to_req", AS_OP_SLOT_MAPPING, "token_to_req"},
    {AS_OP_INDEXER_Q_PROJ, "x", AS_OP_Q_KV_NORM, "qr"},
    {AS_OP_INDEXER_WEIGHTS_PROJ, "x", AS_OP_ATTN_NORM, "y"},
    {AS_OP_INDEXER_Q, "q_raw", AS_OP_INDEXER_Q_PROJ, "y"},
    {AS_OP_INDEXER_Q, "weights_raw", AS_OP_INDEXER_WEIGHTS_PROJ, "y"},
    {AS_OP_INDEXER_Q, "positions", AS_OP_SLOT_MAPPING, "positions"},
    {AS_OP_INDEXER_LOGITS, "q", AS_OP_INDEXER_Q, "q"},
    {AS_OP_INDEXER_LOGITS, "q_scale", AS_OP_INDEXER_Q, "q_scale"},
    {AS_OP_INDEXER_LOGITS, "weights", AS_OP_INDEXER_Q, "weights"},
    {AS_OP_INDEXER_LOGITS, "cache", AS_OP_INDEXER_COMPRESS_INSERT, "cache"},
    {AS_OP_INDEXER_LOGITS, "token_to_req", AS_OP_SLOT_MAPPING, "token_to_req"},
    {AS_OP_INDEXER_LOGITS, "lens", AS_OP_SLOT_MAPPING, "c4_lens"},
    {AS_OP_INDEXER_TOPK, "logits", AS_OP_INDEXER_LOGITS, "logits"},
    {AS_OP_INDEXER_TOPK, "lens", AS_OP_SLOT_MAPPING, "c4_lens"},
    {AS_OP_TOPK_TO_SLOTS, "indices", AS_OP_INDEXER_TOPK, "indices"},
    {AS_OP_TOPK_TO_SLOTS, "token_to_req", AS_OP_SLOT_MAPPING, "token_to_req"},
    {AS_OP_ATTENTION_PLAN, "window_lens", AS_OP_SWA_INDEX, "lens"},
    {AS_OP_ATTENTION_PLAN, "c4_lens", AS_OP_SLOT_MAPPING, "c4_lens"},
    {AS_OP_ATTENTION_PLAN, "c128_lens", AS_OP_C128_INDEX, "lens"},
    {AS_OP_SPARSE_ATTENTION, "q", AS_OP_Q_ROPE_KV_INSERT, "q"},
    {AS_OP_SPARSE_ATTENTION, "cache", AS_OP_Q_ROPE_KV_INSERT, "cache"},
    {AS_OP_SPARSE_ATTENTION, "topk_length", AS_OP_SWA_INDEX, "lens"},
    {AS_OP_SPARSE_ATTENTION, "extra_cache", AS_OP_COMPRESS_INSERT, "cache"},
    {AS_OP_EXCHANGE_ROWS, "selected", AS_OP_TOPK_TO_SLOTS, "slots"},
    {AS_OP_SPARSE_ATTENTION, "extra_indices", AS_OP_TOPK_TO_SLOTS, "slots", 4, -1, -1, 0},
    {AS_OP_SPARSE_ATTENTION, "extra_indices", AS_OP_EXCHANGE_ROWS, "slots", 4, -1, -1, 1},
    {AS_OP_SPARSE_ATTENTION, "extra_topk_length", AS_OP_TOPK_TO_SLOTS, "lens", 4},
    {AS_OP_SPARSE_ATTENTION, "extra_indices", AS_OP_C128_INDEX, "indices", 128},
    {AS_OP_SPARSE_ATTENTION, "extra_topk_length", AS_OP_C128_INDEX, "lens", 128},
    {AS_OP_INVERSE_ROPE, "o", AS_OP_SPARSE_ATTENTION, "o"},
    {AS_OP_INVERSE_ROPE, "positions", AS_OP_SLOT_MAPPING, "positions"},
    {AS_OP_WO_A, "x", AS_OP_INVERSE_ROPE, "out", -1, 0},
    {AS_OP_WO_A, "x", AS_OP_INVERSE_ROPE, "codes", -1, 1},
    {AS_OP_WO_A, "x_scale", AS_OP_INVERSE_ROPE, "scales", -1, 1},
    {AS_OP_WO_B, "x", AS_OP_WO_A, "y"},
    {AS_OP_RESIDUAL, "y", AS_OP_WO_B, "y"},
    {AS_OP_RESIDUAL, "h", AS_OP_ATTN_NORM, "x"},
    {AS_OP_LM_HEAD, "x", AS_OP_FINAL_NORM, "y"},
    {AS_OP_SAMPLE, "logits", AS_OP_LM_HEAD, "y"},
};

// Inputs that nobody's output lies in, and which others must share.
constexpr std::pair<as_op_id, const char*> kShared[] = {{AS_OP_SLOT_MAPPING, "positions"},
                                                        {AS_OP_SLOT_MAPPING, "token_to_req"},
                                                        {AS_OP_ATTN_NORM, "x"}};

const char* name_of_op(as_op_id op) { return as_op_find(op)->name; }

std::int64_t rows_of(const as_tensor& t) {
  return t.rank > 1 ? as_tensor_numel(&t) / t.shape[t.rank - 1] : t.shape[0];
}

constexpr std::int64_t kScaleRows = 128;

}  // namespace

void WiringAudit::op_done(const Session& session) {
  // On a device the copy of rows may lie there alone.
  const bool here = session.references() != References::kNone ||
                    session.lanes().lane(AS_OP_FINAL_NORM) != DeviceRun::kLane;
  std::span<const std::int64_t> rows;
  if (here) rows = session.metadata().sample_rows;
  op_done(session.last_params(), session.cursor().layer, session.parts().config.parallel, rows);
  if (session.last_params().op() == AS_OP_SCHEDULE) {
    check_flags(session.last_params(), session.serving().options().kv.groups);
  }
}

// Hits of the group with the draft layer end a block early.
void WiringAudit::check_flags(const OpParams& params, std::span<const GroupSpec> groups) {
  const std::size_t main = n_.layers.size() - to_size(n_.draft_layers);
  for (std::size_t g = 0; g < groups.size(); ++g) {
    const bool drafts = pages_.has_layer_from(static_cast<int>(g), static_cast<int>(main));
    if (groups[g].flagged == drafts) continue;
    wrong(params, -1, "groups",
          fmt::format("group {} is {} as that of the draft layer, which {} in it", g,
                      drafts ? "not flagged" : "flagged", drafts ? "is" : "is not"));
  }
}

bool WiringAudit::in_draft(int layer) const {
  return layer >= 0 && to_size(layer) + to_size(n_.draft_layers) >= n_.layers.size();
}

void WiringAudit::op_done(const OpParams& params, int layer, const TensorParallel& parallel,
                          std::span<const std::int64_t> sample_rows) {
  if (params.op() == AS_OP_SCHEDULE) {
    outputs_.clear();
    found_.clear();
  }
  due_.clear();
  check_sources(params, layer, parallel.size);
  if (params.op() == AS_OP_FINAL_NORM) check_gathered(params, sample_rows);
  check_numbers(params, layer, parallel.size);
  if (peer_ < 0) {  // a peer reads the pages of the own rank
    for (PageAudit::Fault& f : pages_.op_done(params, layer)) {
      wrong(params, layer, f.what, std::move(f.note));
    }
  }
  check_weights(params, layer, parallel.rank);
  const as_op_info& info = params.info();
  for (std::uint32_t i = 0; i < info.num_taps; ++i) {
    const as_tap_info& tap = info.taps[i];
    const bool shared = std::ranges::any_of(kShared, [&](const auto& s) {
      return s.first == params.op() && std::string_view(tap.name) == s.second;
    });
    if (tap.direction == AS_TAP_OUT || shared) {
      // Others must share what this op was to be given.
      const auto due = due_.find(tap.name);
      outputs_[{params.op(), tap.name}] = {
          due == due_.end() ? audited_data(params, tap) : due->second, layer};
    }
  }
  // Of the last main layer, and of the draft layer behind it: a head reads rows of it.
  if (params.op() == AS_OP_RESIDUAL &&
      to_size(layer) + to_size(n_.draft_layers) + 1 >= n_.layers.size()) {
    const as_tensor& out = params.get<as_residual_params>().out;
    row_bytes_ = to_size(out.shape[1] * as_dtype_size(out.dtype));
    const auto* data = static_cast<const std::uint8_t*>(out.data);
    last_hidden_.assign(data, data + to_size(out.shape[0]) * row_bytes_);
  }
}

// What heads do not divide is the same on every rank, so that the ops before stand for the peer's.
void WiringAudit::rank_op_done(const OpParams& params, int layer, const TensorParallel& peer) {
  if (params.op() == AS_OP_Q_B_PROJ) peer_outputs_ = outputs_;
  peer_ = peer.rank;
  std::swap(outputs_, peer_outputs_);
  op_done(params, layer, peer, {});
  std::swap(outputs_, peer_outputs_);
  peer_ = -1;
}

void WiringAudit::wrong(const OpParams& params, int layer, const std::string& what,
                        std::string note) {
  if (peer_ >= 0) note = fmt::format("on rank {} {}", peer_, note);
  found_.push_back({params.op(), layer, what, std::move(note)});
}

void WiringAudit::check_sources(const OpParams& params, int layer, int ranks) {
  for (const Wire& wire : kWires) {
    if (wire.op != params.op()) continue;
    // Summed over ranks in between.
    if (ranks > 1 && wire.op == AS_OP_RESIDUAL && wire.from == AS_OP_WO_B) continue;
    if (wire.ratio >= 0 && wire.ratio != n_.compress_ratios[to_size(n_.layers[to_size(layer)])]) {
      continue;
    }
    if (wire.drafts >= 0 && (wire.drafts != 0) != in_draft(layer)) continue;
    if (wire.pooled >= 0 && (wire.pooled != 0) != host_rows_) continue;
    if (wire.codes >= 0 && (wire.codes != 0) != output_in_codes()) continue;
    const auto from = outputs_.find({wire.from, wire.output});
    if (from == outputs_.end()) continue;  // beside a session that stands in the middle of a step
    const bool in_layer = as_op_find(wire.from)->phase == AS_PHASE_LAYER;
    const int due = wire.from == AS_OP_RESIDUAL ? layer - 1 : layer;
    const as_tap_info& tap = *audited_tap(params, wire.tap);
    const void* data = audited_data(params, tap);
    if (in_layer && from->second.layer != due) {
      if (data == nullptr) continue;  // a layer without such a cache
      wrong(params, layer, wire.tap,
            fmt::format("its input {} is {} of {}, which has not run in this layer yet", wire.tap,
                        wire.output, name_of_op(wire.from)));
      continue;
    }
    if (tap.kind == AS_TAP_TENSOR && !is_gapless(params.tensor(tap.offset))) {
      wrong(params, layer, wire.tap,
            fmt::format("its input {} is read with other strides than {} of {} was written with",
                        wire.tap, wire.output, name_of_op(wire.from)));
    }
    if (data == from->second.data) continue;
    due_[wire.tap] = from->second.data;
    const std::string other = output_at(data);
    wrong(
        params, layer, wire.tap,
        fmt::format("its input {} is {}, not {} of {}", wire.tap,
                    other.empty() ? "another tensor" : other, wire.output, name_of_op(wire.from)));
  }
}

// Whether attention's output goes to wo_a as codes: the groups' shapes have to allow it.
bool WiringAudit::output_in_codes() const {
  const bool in_blocks = n_.o_lora % kScaleRows == 0 || kScaleRows % n_.o_lora == 0;
  return switches_.fp8_projections && !switches_.bf16_wo_a && in_blocks &&
         n_.heads / n_.o_groups * n_.head_dim % kScaleRows == 0;
}

std::string WiringAudit::output_at(const void* data) const {
  for (const auto& [name, output] : outputs_) {
    if (data != nullptr && output.data == data) {
      return fmt::format("{} of {}", name.second, name_of_op(name.first));
    }
  }
  return {};
}

// final_norm reads copies of rows.
void WiringAudit::check_gathered(const OpParams& params, std::span<const std::int64_t> rows) {
  const as_tensor& x = params.get<as_rms_norm_params>().x;
  const auto* data = static_cast<const std::uint8_t*>(x.data);
  const auto row_at = [&](std::size_t row) { return last_hidden_.data() + row * row_bytes_; };
  const std::size_t all = row_bytes_ > 0 ? last_hidden_.size() / row_bytes_ : 0;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const std::uint8_t* given = data + i * row_bytes_;
    const auto is = [&](std::size_t row) {
      return row < all && std::memcmp(given, row_at(row), row_bytes_) == 0;
    };
    if (is(to_size(rows[i]))) continue;
    std::size_t other = 0;
    while (other < all && !is(other)) ++other;
    wrong(params, -1, "x",
          fmt::format("row {} of its input x is {}, not row {} of what the last layer gave", i,
                      other < all ? fmt::format("row {}", other) : "no row", rows[i]));
    return;
  }
}

void WiringAudit::check_weights(const OpParams& params, int layer, int rank) {
  const reference::ModelNumbers& n = n_;
  const std::string p = layer < 0         ? ""
                        : in_draft(layer) ? "mtp.0."
                                          : fmt::format("layers.{}.", n.layers[to_size(layer)]);
  const auto check = [&](const char* tap, const std::vector<std::string>& names) {
    check_weight(params, layer, tap, names, rank);
  };
  const auto compressor = [&](const char* tap, const std::string& of) {
    if (std::string_view(tap) == "ape") return check(tap, {of + "ape"});
    if (params.op() == AS_OP_COMPRESS_INSERT || params.op() == AS_OP_INDEXER_COMPRESS_INSERT) {
      return check(tap, {of + "norm.weight"});
    }
    check(tap, {of + "wkv.weight", of + "wgate.weight"});
  };
  const std::string main = p + "attn.compressor.", index = p + "attn.indexer.compressor.";
  switch (params.op()) {
    case AS_OP_ATTN_NORM:
      return check("weight", {p + "attn_norm.weight"});
    case AS_OP_Q_KV_A_PROJ:
      return check("weight", {p + "attn.wq_a.weight", p + "attn.wkv.weight"});
    case AS_OP_Q_KV_NORM:
      check("q_weight", {p + "attn.q_norm.weight"});
      return check("kv_weight", {p + "attn.kv_norm.weight"});
    case AS_OP_Q_B_PROJ:
      return check("weight", {p + "attn.wq_b.weight"});
    case AS_OP_COMPRESSOR_PROJ:
    case AS_OP_COMPRESS_INSERT:
      return compressor("weight", main);
    case AS_OP_COMPRESSOR_STATE:
      return compressor("ape", main);
    case AS_OP_INDEXER_COMPRESSOR_PROJ:
    case AS_OP_INDEXER_COMPRESS_INSERT:
      return compressor("weight", index);
    case AS_OP_INDEXER_COMPRESSOR_STATE:
      return compressor("ape", index);
    case AS_OP_INDEXER_Q_PROJ:
      return check("weight", {p + "attn.indexer.wq_b.weight"});
    case AS_OP_INDEXER_WEIGHTS_PROJ:
      return check("weight", {p + "attn.indexer.weights_proj.weight"});
    case AS_OP_SPARSE_ATTENTION:
      return check("sinks", {p + "attn.attn_sink"});
    case AS_OP_WO_A:
      return check("weight", {p + "attn.wo_a.weight"});
    case AS_OP_WO_B:
      return check("weight", {p + "attn.wo_b.weight"});
    case AS_OP_DRAFT_NORM:
      check("embedding", {"embed.weight"});
      check("h_weight", {p + "hnorm.weight"});
      return check("e_weight", {p + "enorm.weight"});
    case AS_OP_DRAFT_H_PROJ:
      return check("weight", {p + "h_proj.weight"});
    case AS_OP_DRAFT_E_PROJ:
      return check("weight", {p + "e_proj.weight"});
    case AS_OP_FINAL_NORM:
      return check("weight", {p + "norm.weight"});
    case AS_OP_LM_HEAD:
      return check("weight", {"embed.weight"});
    default:
      return;
  }
}

// names: of the parts that lie one below the other.
void WiringAudit::check_weight(const OpParams& params, int layer, const char* tap,
                               const std::vector<std::string>& names, int rank) {
  const as_tensor& weight = params.tensor(audited_tap(params, tap)->offset);
  const std::pair<const void*, std::string> as_read = {
      weight.data, fmt::format("{} of rank {}", names.front(), rank)};
  if (!known_.insert(as_read).second) return;
  const as_tap_info* scales = audited_tap(params, "weight_scale");
  const bool in_codes = weight.dtype == AS_U8;
  const ElementType type = in_codes ? ElementType::kF8E4m3 : element_of(weight.dtype);
  // The latent row is the smaller part of its projection; of others both are as large.
  const std::int64_t all = rows_of(weight), named = to_count(names.size());
  const std::int64_t upper = params.op() == AS_OP_Q_KV_A_PROJ ? n_.q_lora : all / named;
  // Groups in codes have scales of their own.
  const bool by_group = in_codes && weight.rank == 3;
  const std::int64_t parts = by_group ? weight.shape[0] : named;
  std::int64_t first = 0;
  for (std::int64_t part = 0; part < parts; ++part) {
    const std::string& name = names[by_group ? 0 : to_size(part)];
    const std::int64_t rows = by_group     ? weight.shape[1]
                              : first == 0 ? std::min(upper, all)
                                           : all - first;
    const TensorEntry given = audited_entry(weight, type, first, rows);
    TensorEntry scale;
    if (in_codes) {
      const std::int64_t bands = (rows + kScaleRows - 1) / kScaleRows;
      scale = audited_entry(params.tensor(scales->offset), ElementType::kF32,
                            by_group ? part * bands : first / kScaleRows, bands);
    }
    const TensorEntry* codes_scale = in_codes ? &scale : nullptr;
    // Heads and groups are dealt out to ranks: rows of these, columns of what they feed.
    const bool columns = params.op() == AS_OP_WO_B;
    const bool dealt = columns || params.op() == AS_OP_Q_B_PROJ || params.op() == AS_OP_WO_A ||
                       params.op() == AS_OP_SPARSE_ATTENTION;
    const std::int64_t own_row = by_group ? rank * all + first : rank * rows;
    const std::int64_t row = dealt && !columns ? own_row : 0;
    const std::int64_t column = columns ? rank * given.shape[1] : 0;
    const std::int64_t others = model_.others(name, row, column, given, codes_scale);
    if (others != 0) {
      known_.erase(as_read);
      const std::string other = name_of(given, codes_scale);
      wrong(params, layer, tap,
            other.empty() ? fmt::format("its {} is not {}: {} of {} values are others", tap, name,
                                        others, given.elements)
                          : fmt::format("its {} is {}, not {}", tap, other, name));
      return;
    }
    first += rows;
  }
}

std::string WiringAudit::name_of(const TensorEntry& given, const TensorEntry* scale) const {
  for (const std::string& name : model_.weights()) {
    if (model_.others(name, 0, 0, given, scale) == 0) return name;
  }
  return {};
}

void WiringAudit::number(const OpParams& params, int layer, const char* what, double given,
                         double right) {
  if (given == right) return;
  wrong(params, layer, what,
        fmt::format("its {} is {:.6g}; the model's is {:.6g}", what, given, right));
}

void WiringAudit::check_numbers(const OpParams& params, int layer, int ranks) {
  const reference::ModelNumbers& n = n_;
  const int ratio = layer < 0 ? 0 : n.compress_ratios[to_size(n.layers[to_size(layer)])];
  const auto is = [&](const char* what, auto given, auto right) {
    number(params, layer, what, static_cast<double>(given), static_cast<double>(right));
  };
  const int hadamard = !switches_.hadamard       ? AS_HADAMARD_OFF
                       : switches_.round_rotated ? AS_HADAMARD_ROUNDED
                                                 : AS_HADAMARD_ON;
  switch (params.op()) {
    case AS_OP_SWA_INDEX:
      return is("window", params.get<as_swa_index_params>().window, n.window);
    case AS_OP_C128_INDEX:
      return is("ratio", params.get<as_c128_index_params>().ratio, 128);
    case AS_OP_ATTENTION_PLAN: {
      const auto& p = params.get<as_attention_plan_params>();
      is("top_k", p.top_k, n.index_topk);
      is("heads", p.heads * ranks, n.heads);
      is("multiprocessors", p.multiprocessors, switches_.multiprocessors);
      return is("rule", p.rule, switches_.attention_plan);
    }
    case AS_OP_ATTN_NORM:
    case AS_OP_FINAL_NORM:
      return is("eps", params.get<as_rms_norm_params>().eps, n.norm_eps);
    case AS_OP_DRAFT_NORM:
      return is("eps", params.get<as_draft_norm_params>().eps, n.norm_eps);
    case AS_OP_Q_KV_NORM:
      return is("eps", params.get<as_q_kv_norm_params>().eps, n.norm_eps);
    case AS_OP_Q_ROPE_KV_INSERT: {
      const auto& p = params.get<as_q_rope_kv_insert_params>();
      is("eps", p.eps, n.norm_eps);
      is("rows_given", p.rows_given, 0);
      is("q_norm", p.q_norm, switches_.q_norm);
      is("scale_floor", p.scale_floor, switches_.scale_floor);
      return check_rope(params, layer, p.rope);
    }
    case AS_OP_COMPRESSOR_STATE:
    case AS_OP_INDEXER_COMPRESSOR_STATE:
      return is("ratio", params.get<as_compressor_state_params>().ratio, ratio);
    case AS_OP_COMPRESS_INSERT:
    case AS_OP_INDEXER_COMPRESS_INSERT: {
      const auto& p = params.get<as_compress_insert_params>();
      is("eps", p.eps, n.norm_eps);
      is("ratio", p.ratio, ratio);
      is("rows_given", p.rows_given, 0);
      const bool keys = params.op() == AS_OP_INDEXER_COMPRESS_INSERT;
      is("hadamard", p.hadamard, keys ? hadamard : AS_HADAMARD_OFF);
      is("round_pooled", p.round_pooled, switches_.round_pooled);
      is("scale_floor", p.scale_floor, switches_.scale_floor);
      is("fp4_rule", p.fp4_rule, switches_.fp4_rule);
      is("cache.record", p.cache.record,
         keys ? switches_.index_format : std::int32_t{AS_RECORD_LATENT});
      return check_rope(params, layer, p.rope);
    }
    case AS_OP_INDEXER_Q: {
      const auto& p = params.get<as_indexer_q_params>();
      is("rows_given", p.rows_given, 0);
      is("format", p.format, switches_.index_format);
      is("hadamard", p.hadamard, hadamard);
      is("scale_floor", p.scale_floor, switches_.scale_floor);
      is("fp4_rule", p.fp4_rule, switches_.fp4_rule);
      return check_rope(params, layer, p.rope);
    }
    case AS_OP_INDEXER_LOGITS:
      return is("index_scores", params.get<as_indexer_logits_params>().weights.reserved,
                switches_.index_scores);
    case AS_OP_INDEXER_TOPK:
      return is("K", params.get<as_indexer_topk_params>().indices.shape[1], n.index_topk);
    case AS_OP_SPARSE_ATTENTION: {
      const auto& p = params.get<as_sparse_attention_params>();
      is("scale", p.scale, 1 / std::sqrt(static_cast<double>(n.head_dim)));
      is("prefill", p.prefill.data != nullptr, switches_.gathered_prefill);
      return is("extra_cache", p.extra_cache.record != AS_RECORD_NONE, ratio > 0);
    }
    case AS_OP_INVERSE_ROPE: {
      const auto& p = params.get<as_inverse_rope_params>();
      is("rows_given", p.rows_given, 0);
      is("scale_floor", p.scale_floor,
         output_in_codes() ? AS_SCALE_FLOOR_1E10 : AS_SCALE_FLOOR_1E4);
      return check_rope(params, layer, p.rope);
    }
    default:
      return;
  }
}

void WiringAudit::check_rope(const OpParams& params, int layer, const as_rope& rope) {
  const reference::ModelNumbers& n = n_;
  const bool compressed = n.compress_ratios[to_size(n.layers[to_size(layer)])] > 0;
  const auto is = [&](const char* what, double given, double right) {
    number(params, layer, what, given, right);
  };
  is("rope.base", rope.base, compressed ? n.compress_rope_theta : n.rope_theta);
  is("rope.factor", rope.factor, compressed || n.yarn_in_every_layer ? n.yarn_factor : 1);
  is("rope.original_max_pos", rope.original_max_pos, n.yarn_original_max);
  is("rope.beta_fast", rope.beta_fast, n.yarn_beta_fast);
  is("rope.beta_slow", rope.beta_slow, n.yarn_beta_slow);
  is("rope.frequencies", rope.table.reserved, n.fp32_frequencies ? AS_ROPE_FP32 : AS_ROPE_FP64);
  if (!known_.insert({rope.table.data, fmt::format("rope {}", layer)}).second) return;
  if (turns_by(rope.table, model_.frequencies(to_size(layer)))) return;
  known_.erase({rope.table.data, fmt::format("rope {}", layer)});
  std::string other = "none of the model's";
  for (std::size_t i = 0; i < n.layers.size(); ++i) {
    if (!turns_by(rope.table, model_.frequencies(i))) continue;
    other = fmt::format("that of layer {}", n.layers[i]);
    break;
  }
  wrong(
      params, layer, "rope.table",
      fmt::format("its rotary table is {}, not that of layer {}", other, n.layers[to_size(layer)]));
}

}  // namespace attnscope
