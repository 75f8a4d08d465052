#include "engine/session/what_if/value_history.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <optional>

#include "engine/family/models.h"
#include "engine/model/numbers.h"
#include "engine/session/place.h"
#include "engine/session/step/attention_copy.h"
#include "engine/session/step/listed_attention.h"
#include "engine/trace/compare.h"
#include "kernels/cpu/codec.h"
#include "kernels/cpu/kv_codes.h"
#include "kernels/params/paged_params.h"
#include "kernels/params/row_access.h"
#include "kernels/params/row_format.h"
#include "kernels/params/tensor_view.h"

namespace attnscope {
namespace {

// Codes of heads: "5c*0.0123", of int8 with its zero point "(5c-3)*0.0123".
void decode_code(const as_cache& cache, const as_tensor& beside, const as_element_place& e,
                 const std::vector<std::uint8_t>& row, std::int64_t dim, Contribution& c) {
  std::vector<float> values(to_size(cache.width));
  cpu::decode_kv_row(cache, beside, row.data(), values.data());
  c.value = static_cast<double>(values[to_size(dim)]);
  float scale = 0, zero = 0;
  if (e.scale >= 0) std::memcpy(&scale, row.data() + e.scale, sizeof(scale));
  if (e.scale < 0) scale = *at<float>(beside, e.scale_index);
  if (e.zero >= 0) std::memcpy(&zero, row.data() + e.zero, sizeof(zero));
  const std::string code = fmt::format("{:02x}", row[to_size(e.at)]);
  c.bytes =
      fmt::format("{}*{:.6g}", e.zero < 0 ? code : fmt::format("({}{:+g})", code, -zero), scale);
}

// beside: its scales that are not in the rows, where it has such.
void decode_element(const as_cache& cache, const as_tensor& beside, std::int64_t slot,
                    std::int64_t dim, Contribution& c) {
  const as_row_layout layout =
      as_row_layout_of(cache.record, cache.width, as_cache_heads(&cache), 1);
  std::vector<std::uint8_t> row(to_size(layout.row));
  as_row_get(&cache, slot, row.data());
  const as_element_place e = as_element_at(&layout, 0, dim / layout.width, dim % layout.width);
  if (cpu::is_coded(cache.record)) return decode_code(cache, beside, e, row, dim, c);
  if (e.code == AS_CODE_BF16 && e.scale < 0) {
    std::uint16_t bits;
    std::memcpy(&bits, row.data() + e.at, sizeof(bits));
    c.value = static_cast<double>(cpu::bf16_to_float(bits));
  } else if (e.code == AS_CODE_E4M3 && e.scale_kind == AS_CODE_F32 && e.scale >= 0) {
    float scale = 0;
    std::memcpy(&scale, row.data() + e.scale, sizeof(scale));
    c.value = static_cast<double>(cpu::e4m3_to_float(row[to_size(e.at)]) * scale);
    c.bytes = fmt::format("{:02x}*{:.6g}", row[to_size(e.at)], scale);
    return;
  } else {
    std::vector<float> values(to_size(cache.width));
    cpu::decode_row(cache.record, cache.width, row.data(), row.data() + layout.payload,
                    values.data());
    c.value = static_cast<double>(values[to_size(dim)]);
  }
  for (std::int64_t i = as_code_bits(e.code) / 8; i-- > 0;) {
    c.bytes += fmt::format("{:02x}", row[to_size(e.at + i)]);
  }
  if (e.scale >= 0) c.bytes += fmt::format("*2^{}", int{row[to_size(e.scale)]} - 127);
}

const as_tensor& attention_output(const OpParams& params) {
  for (std::uint32_t i = 0; i < params.info().num_taps; ++i) {
    if (std::strcmp(params.info().taps[i].name, "o") == 0) {
      return params.tensor(params.info().taps[i].offset);
    }
  }
  return params.get<as_paged_attention_params>().o;
}

class HistoryBuilder {
 public:
  HistoryBuilder(const Session& session, std::int64_t token, std::int64_t head, std::int64_t dim)
      : session_(session), params_(session.last_params()), layer_(session.cursor().layer) {
    h_.token = token;
    h_.head = head;
    h_.dim = dim;
    const StepMetadata& m = session.metadata();
    h_.request = m.live[to_size(m.token_to_req[to_size(token)])];
    h_.position = m.positions[to_size(token)];
    const std::vector<std::int32_t> row = {static_cast<std::int32_t>(token)};
    if (!paged()) listed_.emplace(params_, row);
    copy_ = paged() ? copy_attention(params_.get<as_paged_attention_params>(), row, nullptr)
                    : copy_attention(listed_->params(), row, nullptr);
  }

  ValueHistory build(const KeptScores& scores) {
    if (paged()) {
      pages();
    } else {
      lists(scores);
    }
    if (copy_.has_sinks()) {
      Contribution sink;
      sink.kind = "sink";
      sink.status = "contributed";
      sink.logit = static_cast<double>(copy_.sinks[to_size(h_.head)]);
      sink.weight = static_cast<double>(copy_.sink_mass[to_size(h_.head)]);
      h_.contributions.push_back(sink);
    }
    for (const Contribution& c : h_.contributions) h_.sum += c.partial;
    const as_tensor& o = attention_output(params_);
    h_.output = element(o, h_.token * o.shape[1] + h_.head, h_.dim);
    h_.reference = std::numeric_limits<double>::quiet_NaN();
    if (session_.references() != References::kNone) {
      h_.reference = element(attention_output(session_.last_forced()),
                             h_.token * o.shape[1] + h_.head, h_.dim);
    }
    return std::move(h_);
  }

 private:
  bool paged() const { return params_.op() == AS_OP_PAGED_ATTENTION; }

  void lists(const KeptScores& scores) {
    const as_sparse_attention_params& p = listed_->params();
    const CacheLayout& layout = session_.parts().layout;
    const CacheSpec& rows = *token_rows(layout, layer_);
    const char* kind = rows.retention.window > 0 ? "window" : "row";
    list(p.indices, copy_.window_len[0], p.cache, rows, kind, 0);
    if (copy_.extra == 0) {
      if (layer_selects(session_.parts().config, layer_)) not_selected(scores);
      return;
    }
    list(p.extra_indices, copy_.extra_len[0], p.extra_cache, *entries_of(layout, layer_), "entry",
         copy_.window);
    not_selected(scores);
  }

  // Place of a slot among the rows of the request, by its table: rows of a prefix that it shares
  // were written for somebody else. -1 = no block of its table.
  std::int64_t row_in_request(const CacheSpec& spec, std::int64_t slot) const {
    if (slot < 0) return -1;
    const StepMetadata& m = session_.metadata();
    const as_tensor table = m.group_table(spec.group);
    const std::int64_t row = m.token_to_req[to_size(h_.token)];
    for (std::int64_t c = 0; c < table.shape[1]; ++c) {
      if (*at<std::int32_t>(table, row, c) != slot / spec.rows_per_block) continue;
      return c * spec.rows_per_block + slot % spec.rows_per_block;
    }
    // It may lie in a pool of rows: whose it is then was noted when it came there.
    const Verifier& verifier = session_.verifier();
    const std::int64_t held = verifier.shadow().row_of(spec, slot, h_.request);
    if (held >= 0) return held - verifier.space().base(h_.request, row_ratio(spec));
    return -1;
  }

  // Rows of V behind the table, of the head that this one shares.
  void pages() {
    const auto& p = params_.get<as_paged_attention_params>();
    const CacheSpec& spec = *value_rows(session_.parts().layout, layer_);
    const Shadow& shadow = session_.verifier().shadow();
    const std::int64_t kv_head = h_.head / (p.q.shape[1] / as_cache_heads(&p.v_cache));
    for (std::int64_t k = 0; k < copy_.window_len[0]; ++k) {
      Contribution c;
      c.kind = spec.retention.window > 0 ? "window" : "row";
      c.slot = static_cast<std::int32_t>(copy_.slots[to_size(k)]);
      c.block = c.slot < 0 ? -1 : c.slot / spec.rows_per_block;
      c.row = row_in_request(spec, c.slot);
      c.status = c.slot < 0                        ? "null"
                 : shadow.row_of(spec, c.slot) < 0 ? "never written"
                                                   : "contributed";
      // Of first tokens another row is read than that in the table's slot.
      const as_cache* cache = &p.v_cache;
      const std::int32_t request = *at<std::int32_t>(p.token_to_req, h_.token);
      const WideRow wide = c.row < 0 ? WideRow{} : wide_row(p, p.v_wide, request, c.row);
      if (wide.slot >= 0) {
        const CacheSpec& first = *wide_rows(session_.parts().layout, layer_, AS_CACHE_V, c.row);
        cache = &p.v_wide;
        c.slot = static_cast<std::int32_t>(wide.slot);
        c.block = c.slot / first.rows_per_block;
        c.status = shadow.row_of(first, c.slot) < 0 ? "never written" : "contributed";
      }
      if (c.slot >= 0) {
        decode_element(*cache, p.v_scale, c.slot, kv_head * p.o.shape[2] + h_.dim, c);
        const std::size_t i = to_size(h_.head * copy_.window + k);
        c.logit = static_cast<double>(copy_.logits[i]);
        c.weight = static_cast<double>(copy_.weights[i]);
        c.partial = c.weight * c.value;
        if (c.logit == -std::numeric_limits<double>::infinity()) c.status = "masked";
      }
      h_.contributions.push_back(c);
    }
  }

  void list(const as_tensor& indices, std::int64_t len, const as_cache& cache,
            const CacheSpec& spec, const char* name, std::int64_t first_column) {
    const Shadow& shadow = session_.verifier().shadow();
    const std::int64_t columns = copy_.window + copy_.extra;
    for (std::int64_t k = 0; k < indices.shape[1]; ++k) {
      const std::int32_t slot = *at<std::int32_t>(indices, h_.token, k);
      if (k >= len && slot < 0) continue;  // padding
      Contribution c;
      c.kind = name;
      c.slot = slot;
      c.block = slot < 0 ? -1 : slot / cache.rows_per_block;
      c.row = row_in_request(spec, slot);
      const bool read = k < len && slot >= 0;
      c.status = slot < 0                        ? "null"
                 : k >= len                      ? "masked"
                 : shadow.row_of(spec, slot) < 0 ? "never written"
                 : c.block == AS_NULL_BLOCK      ? "null"
                                                 : "contributed";
      if (slot >= 0 && slot < cache.data.shape[0] * cache.rows_per_block) {
        decode_element(cache, no_tensor(), slot, h_.dim, c);
      }
      if (read) {
        const std::size_t i = to_size(h_.head * columns + first_column + k);
        c.logit = static_cast<double>(copy_.logits[i]);
        c.weight = static_cast<double>(copy_.weights[i]);
        c.partial = c.weight * c.value;
        if (first_column > 0 || copy_.extra == 0) selected_.push_back(c.row);
      }
      h_.contributions.push_back(c);
    }
  }

  void not_selected(const KeptScores& kept) {
    if (kept.scores.size() <= to_size(h_.token)) return;
    const std::vector<float>& scores = kept.scores[to_size(h_.token)];
    float worst_taken = std::numeric_limits<float>::infinity();
    for (const std::int64_t entry : selected_) {
      if (entry >= 0 && entry < static_cast<std::int64_t>(scores.size())) {
        worst_taken = std::min(worst_taken, scores[to_size(entry)]);
      }
    }
    for (std::size_t entry = 0; entry < scores.size(); ++entry) {
      if (std::find(selected_.begin(), selected_.end(), static_cast<std::int64_t>(entry)) !=
          selected_.end()) {
        continue;
      }
      Contribution c;
      c.kind = "entry";
      c.status = "not selected";
      c.row = static_cast<std::int64_t>(entry);
      c.rank =
          std::count_if(scores.begin(), scores.end(), [&](float s) { return s > scores[entry]; });
      c.margin = static_cast<double>(worst_taken) - static_cast<double>(scores[entry]);
      h_.contributions.push_back(c);
    }
  }

  const Session& session_;
  const OpParams& params_;
  int layer_;
  std::optional<ListedAttention> listed_;  // of ops that list rows
  AttentionCopy copy_;
  std::vector<std::int64_t> selected_;
  ValueHistory h_;
};

}  // namespace

bool keep_scores(const Session& session, KeptScores* kept) {
  if (!session.ran_any() || as_op_role(session.last_params().op()) != AS_ROLE_SCORE) return false;
  const auto& p = session.last_params().get<as_indexer_logits_params>();
  kept->layer = last_place(session).layer;
  kept->scores.clear();
  for (std::int64_t t = 0; t < p.lens.shape[0]; ++t) {
    const float* row = at<float>(p.logits, t);
    kept->scores.emplace_back(row, row + *at<std::int32_t>(p.lens, t));
  }
  return true;
}

Result<ValueHistory> value_history(const Session& session, std::int64_t token, std::int64_t head,
                                   std::int64_t dim, const KeptScores& scores) {
  if (!session.ran_any() || as_op_role(session.last_params().op()) != AS_ROLE_ATTENTION) {
    std::string own = "sparse_attention";
    for (const as_op_id op : session.parts().graph->layer(0).ops()) {
      if (as_op_role(op) == AS_ROLE_ATTENTION) own = as_op_find(op)->name;
    }
    return bad_input(fmt::format("only elements of {} have contributions", own),
                     fmt::format("name an op STEP/LAYER/{}", own));
  }
  if (session.last_params().op() == AS_OP_VARLEN_ATTENTION) {
    return bad_input("the rows that varlen_attention reads lie in no cache and have no history",
                     "ask for a model that keeps rows");
  }
  const as_tensor& o = attention_output(session.last_params());
  const struct {
    const char* name;
    std::int64_t value, count;
  } axes[] = {{"token", token, o.shape[0]}, {"head", head, o.shape[1]}, {"dim", dim, o.shape[2]}};
  for (const auto& axis : axes) {
    if (axis.value < 0 || axis.value >= axis.count) {
      return bad_input(fmt::format("{} {} is not there", axis.name, axis.value),
                       fmt::format("{}s of this op: 0 to {}", axis.name, axis.count - 1));
    }
  }
  const bool same_layer = scores.layer == last_place(session).layer;
  return HistoryBuilder(session, token, head, dim).build(same_layer ? scores : KeptScores{});
}

}  // namespace attnscope
