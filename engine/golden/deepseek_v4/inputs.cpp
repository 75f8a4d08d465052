#include "engine/golden/deepseek_v4/inputs.h"

#include <algorithm>

#include "engine/model/numbers.h"
#include "kernels/layout/records.h"
#include "kernels/params/offload_params.h"

namespace attnscope {
namespace {

class InputsOfV4 : public InputMaker {
 public:
  using InputMaker::InputMaker;

  // False where the op is none of these.
  bool fill();

 private:
  static constexpr std::int64_t kQLora = 128, kOLora = 64, kGroups = 2;
  static constexpr std::int64_t kIndexHeads = 8, kTopK = 64, kIndexDim = AS_INDEX_DIM;
  static constexpr std::int64_t kBlockTokens = 64;       // of a window block
  static constexpr std::int64_t kFullBlockTokens = 256;  // of a block of compressed rows
  static constexpr std::int64_t kRatio = 4, kWideRatio = 128, kStateBlockRows = 4;

  void slot_mapping() {
    auto& p = init<as_slot_mapping_params>();
    const std::vector<std::int32_t> groups = {kFullBlockTokens, 0,      kBlockTokens, kWindow,
                                              kBlockTokens,     kWindow};
    const InputTable full = make_table(shape.lengths, kFullBlockTokens);
    const InputTable window = make_table(shape.lengths, kBlockTokens);
    const InputTable second = make_table(shape.lengths, kBlockTokens);
    const std::int64_t columns = std::max(full.columns, window.columns);
    std::vector<std::int32_t> ids;
    for (const InputTable* table : {&full, &window, &second}) {
      for (std::int64_t r = 0; r < requests; ++r) {
        for (std::int64_t c = 0; c < columns; ++c) {
          ids.push_back(c < table->columns ? table->ids[to_size(r * table->columns + c)] : 0);
        }
      }
    }
    p.groups = keep(groups, {3, 2});
    p.tables = keep(ids, {3, requests, columns});
    p.positions = positions_tensor();
    p.token_to_req = request_tensor();
    p.slots = make(AS_I64, {3, tokens});
    p.c4_slots = make(AS_I64, {tokens});
    p.c128_slots = make(AS_I64, {tokens});
    p.c4_lens = make(AS_I32, {tokens});
    p.mla_group = 0;
  }

  void swa_index() {
    auto& p = init<as_swa_index_params>();
    const InputTable table = make_table(shape.lengths, kBlockTokens);
    p.tables = keep(table.ids, {1, requests, table.columns});
    p.query_start_loc = keep(starts, {requests + 1});
    p.seq_lens = keep(seq_lens, {requests});
    p.token_to_req = request_tensor();
    p.indices = make(AS_I32, {1, tokens, kWindow});
    p.lens = make(AS_I32, {tokens});
    p.block_size = kBlockTokens;
    p.window = kWindow;
  }

  void c128_index() {
    auto& p = init<as_c128_index_params>();
    p.table = table_tensor(make_table(shape.lengths, kFullBlockTokens));
    p.positions = positions_tensor();
    p.token_to_req = request_tensor();
    p.indices = make(AS_I32, {tokens, as_c128_index_width(longest, longest)});
    p.lens = make(AS_I32, {tokens});
    p.ratio = kWideRatio;
    p.rows_per_block = kFullBlockTokens / kWideRatio;
  }

  // By FlashMLA's rule, where the seed is even by the own.
  void attention_plan() {
    constexpr std::int32_t kMultiprocessors = 24;
    auto& p = init<as_attention_plan_params>();
    std::vector<std::int32_t> window;
    window.reserve(positions.size());
    for (const std::int64_t position : positions) {
      window.push_back(static_cast<std::int32_t>(std::min<std::int64_t>(position + 1, kWindow)));
    }
    p.window_lens = keep(window, {tokens});
    p.c4_lens = keep(visible(kRatio), {tokens});
    p.c128_lens = keep(visible(kWideRatio), {tokens});
    p.rows = make(AS_I32, {AS_PLAN_TYPES, tokens, 2});
    p.splits = make(AS_I32, {AS_PLAN_TYPES, tokens + kMultiprocessors, AS_PLAN_COLUMNS});
    p.counts = make(AS_I32, {AS_PLAN_TYPES, 2});
    p.top_k = static_cast<std::int32_t>(kTopK);
    p.heads = AS_PLAN_HEADS;
    p.multiprocessors = kMultiprocessors;
    p.rule = shape.seed % 2 == 0 ? AS_PLAN_OWN : AS_PLAN_FLASHMLA;
  }

  // Of every third token nothing is known behind it.
  void draft_norm() {
    auto& p = init<as_draft_norm_params>();
    std::vector<std::int32_t> next;
    for (std::int64_t t = 0; t < tokens; ++t) {
      next.push_back(t % 3 == 2 ? -1 : static_cast<std::int32_t>(random.below(kVocab)));
    }
    p.hidden = normals(AS_BF16, {tokens, kHidden});
    p.embedding = normals(AS_BF16, {kVocab, kHidden}, 0x1p-5f);
    p.tokens = keep(next, {tokens});
    p.positions = positions_tensor();
    p.h_weight = normals(AS_BF16, {kHidden}, 0x1p-3f, 1);
    p.e_weight = normals(AS_BF16, {kHidden}, 0x1p-3f, 1);
    p.h = make(AS_BF16, {tokens, kHidden});
    p.e = make(AS_BF16, {tokens, kHidden});
    p.eps = kEps;
  }

  void q_rope_kv_insert() {
    auto& p = init<as_q_rope_kv_insert_params>();
    const InputTable table = make_table(shape.lengths, kBlockTokens);
    p.q_raw = normals(AS_BF16, {tokens, kHeads, AS_HEAD_DIM});
    p.kv = normals(AS_BF16, {tokens, AS_HEAD_DIM});
    p.positions = positions_tensor();
    p.rope = make_rope();
    p.slots = slots_of(table, kBlockTokens);
    p.q = make(AS_BF16, {tokens, kHeads, AS_HEAD_DIM});
    p.kv_row = make(AS_BF16, {tokens, AS_HEAD_DIM});
    p.cache = make_cache(table, AS_RECORD_LATENT, AS_HEAD_DIM, kBlockTokens, false);
    p.eps = kEps;
  }

  void state_row(std::int64_t dim) {
    auto& p = init<as_compressor_state_params>();
    const std::int64_t half = 2 * dim;  // ratio 4 keeps two rows' worth
    const InputTable table = make_table(shape.lengths, kStateBlockRows);
    p.proj = normals(AS_F32, {tokens, 2 * half});
    p.ape = normals(AS_F32, {kRatio, half});
    p.positions = positions_tensor();
    p.slots = slots_of(table, kStateBlockRows);
    p.state = make_cache(table, AS_RECORD_STATE, 2 * half, kStateBlockRows, false);
    p.ratio = kRatio;
  }

  void compress(std::int64_t dim, std::int32_t record) {
    auto& p = init<as_compress_insert_params>();
    const InputTable states = make_table(shape.lengths, kStateBlockRows);
    p.state = make_cache(states, AS_RECORD_STATE, 4 * dim, kStateBlockRows, true);
    p.table = table_tensor(states);
    p.token_to_req = request_tensor();
    p.positions = positions_tensor();
    const std::int64_t rows = kFullBlockTokens / kRatio;
    const InputTable entries = make_table(rows_at(kRatio), rows);
    p.slots = slots_of(entries, rows, kRatio);
    p.weight = normals(AS_BF16, {dim}, 0x1p-3f, 1);
    p.rope = make_rope();
    p.row = make(AS_BF16, {tokens, dim});
    p.cache = make_cache(entries, record, dim, rows, false);
    p.eps = kEps;
    p.ratio = kRatio;
  }

  void indexer_q() {
    auto& p = init<as_indexer_q_params>();
    p.q_raw = normals(AS_BF16, {tokens, kIndexHeads, kIndexDim});
    p.weights_raw = normals(AS_BF16, {tokens, kIndexHeads});
    p.positions = positions_tensor();
    p.rope = make_rope();
    p.q_row = make(AS_BF16, {tokens, kIndexHeads, kIndexDim});
    p.q = make(AS_U8, {tokens, kIndexHeads, kIndexDim});
    p.weights = make(AS_F32, {tokens, kIndexHeads});
    p.format = AS_RECORD_INDEX_FP8;
  }

  void indexer_logits() {
    auto& p = init<as_indexer_logits_params>();
    const std::int64_t rows = kFullBlockTokens / kRatio;
    const InputTable table = make_table(rows_at(kRatio), rows);
    p.q = make(AS_U8, {tokens, kIndexHeads, kIndexDim});
    auto* codes = static_cast<std::uint8_t*>(p.q.data);
    for (std::int64_t i = 0; i < as_tensor_numel(&p.q); ++i) {
      codes[i] = static_cast<std::uint8_t>(random.next() >> 40) & 0xbf;  // magnitudes below 2
    }
    p.weights = normals(AS_F32, {tokens, kIndexHeads}, 0x1p-5f);
    p.cache = make_cache(table, AS_RECORD_INDEX_FP8, kIndexDim, rows, true);
    p.table = table_tensor(table);
    p.token_to_req = request_tensor();
    const auto lens = visible(kRatio);
    p.lens = keep(lens, {tokens});
    p.logits = make(AS_F32, {tokens, std::max(1, *std::ranges::max_element(lens))});
  }

  void indexer_topk() {
    auto& p = init<as_indexer_topk_params>();
    const auto lens = visible(kRatio);
    p.logits = normals(AS_F32, {tokens, std::max(1, *std::ranges::max_element(lens))});
    p.lens = keep(lens, {tokens});
    p.indices = make(AS_I32, {tokens, kTopK});
  }

  // Ascending entries out of the first `len`, then -1.
  std::vector<std::int32_t> choose(std::int64_t len, std::int64_t most) {
    std::vector<std::int32_t> out;
    for (std::int64_t e = 0; e < len; ++e) {
      const std::int64_t left = len - e, wanted = std::min(most, len) - std::ssize(out);
      if (random.below(left) < wanted) out.push_back(static_cast<std::int32_t>(e));
    }
    out.resize(to_size(most), -1);
    return out;
  }

  void topk_to_slots() {
    auto& p = init<as_topk_to_slots_params>();
    const std::int64_t rows = kFullBlockTokens / kRatio;
    std::vector<std::int32_t> indices;
    for (const std::int32_t len : visible(kRatio)) {
      const auto chosen = choose(len, kTopK);
      indices.insert(indices.end(), chosen.begin(), chosen.end());
    }
    p.indices = keep(indices, {tokens, kTopK});
    p.table = table_tensor(make_table(rows_at(kRatio), rows));
    p.token_to_req = request_tensor();
    p.slots = make(AS_I32, {tokens, kTopK});
    p.lens = make(AS_I32, {tokens});
    p.rows_per_block = static_cast<std::int32_t>(rows);
  }

  // The pool is what one request more would have: a place for each new row, then for each that is
  // missed, one a token.
  void exchange_rows() {
    auto& p = init<as_exchange_rows_params>();
    const std::int64_t rows = kFullBlockTokens / kRatio;
    std::vector<std::int64_t> entries = rows_at(kRatio);
    entries.push_back(2 * tokens + kTopK);
    const InputTable table = make_table(entries, rows);
    const auto slot = [&](std::int64_t request, std::int64_t entry) {
      return table.slot(request, entry, rows);
    };
    std::vector<std::int32_t> selected, places;
    std::vector<std::int64_t> fresh_from, pages_to, missed_from, pool_to;
    for (std::int64_t t = 0; t < tokens; ++t) {
      const std::int64_t seen = positions[to_size(t)] + 1, request = token_to_req[to_size(t)];
      for (const std::int32_t e : choose(seen / kRatio, kTopK)) {
        const bool pooled = e >= 0 && random.below(4) != 0;
        selected.push_back(e < 0 ? -1 : static_cast<std::int32_t>(slot(request, e)));
        places.push_back(pooled ? static_cast<std::int32_t>(slot(requests, 2 * tokens + e % kTopK))
                                : -1);
      }
      const bool made = seen % kRatio == 0;
      fresh_from.push_back(made ? slot(requests, t) : -1);
      pages_to.push_back(made ? slot(request, seen / kRatio - 1) : -1);
      const bool missed = seen / kRatio > 1 && !made;
      missed_from.push_back(missed ? slot(request, 0) : -1);
      pool_to.push_back(missed ? slot(requests, tokens + t) : -1);
    }
    p.selected = keep(selected, {tokens, kTopK});
    p.places = keep(places, {tokens, kTopK});
    p.slots = make(AS_I32, {tokens, kTopK});
    p.fresh = make_cache(table, AS_RECORD_LATENT, AS_HEAD_DIM, rows, true);
    p.pages = p.missed = p.pool = p.fresh;
    p.fresh_from = keep(fresh_from, {tokens});
    p.pages_to = keep(pages_to, {tokens});
    p.missed_from = keep(missed_from, {tokens});
    p.pool_to = keep(pool_to, {tokens});
  }

  void sparse_attention() {
    auto& p = init<as_sparse_attention_params>();
    const std::int64_t rows = kFullBlockTokens / kRatio;
    const InputTable window = make_table(shape.lengths, kBlockTokens);
    const InputTable entries = make_table(rows_at(kRatio), rows);
    std::vector<std::int32_t> indices, lens, extra, extra_topk_length;
    for (std::int64_t t = 0; t < tokens; ++t) {
      const std::int64_t last = positions[to_size(t)], request = token_to_req[to_size(t)];
      const std::int64_t first = std::max<std::int64_t>(0, last - kWindow + 1);
      for (std::int64_t k = 0; k < kWindow; ++k) {
        const bool seen = first + k <= last;
        indices.push_back(
            seen ? static_cast<std::int32_t>(window.slot(request, first + k, kBlockTokens)) : -1);
      }
      lens.push_back(static_cast<std::int32_t>(last + 1 - first));
      const std::int64_t len = (last + 1) / kRatio;
      for (const std::int32_t e : choose(len, kTopK)) {
        extra.push_back(e < 0 ? -1 : static_cast<std::int32_t>(entries.slot(request, e, rows)));
      }
      extra_topk_length.push_back(static_cast<std::int32_t>(std::min(len, kTopK)));
    }
    p.q = normals(AS_BF16, {tokens, kHeads, AS_HEAD_DIM});
    p.cache = make_cache(window, AS_RECORD_LATENT, AS_HEAD_DIM, kBlockTokens, true);
    p.indices = keep(indices, {tokens, kWindow});
    p.topk_length = keep(lens, {tokens});
    p.extra_cache = make_cache(entries, AS_RECORD_LATENT, AS_HEAD_DIM, rows, true);
    p.extra_indices = keep(extra, {tokens, kTopK});
    p.extra_topk_length = keep(extra_topk_length, {tokens});
    p.sinks = normals(AS_F32, {kHeads});
    p.o = make(AS_BF16, {tokens, kHeads, AS_HEAD_DIM});
    p.lse = make(AS_F32, {tokens, kHeads});
    p.scale = 0x1p-6;  // deviations of 1 in a row of 512: logits of a few units
  }
};

bool InputsOfV4::fill() {
  switch (op) {
    case AS_OP_SLOT_MAPPING:
      slot_mapping();
      return true;
    case AS_OP_SWA_INDEX:
      swa_index();
      return true;
    case AS_OP_C128_INDEX:
      c128_index();
      return true;
    case AS_OP_ATTENTION_PLAN:
      attention_plan();
      return true;
    case AS_OP_Q_KV_A_PROJ:
      linear(kHidden, kQLora + AS_HEAD_DIM);
      return true;
    case AS_OP_Q_KV_NORM: {
      auto& p = init<as_q_kv_norm_params>();
      p.qkv = normals(AS_BF16, {tokens, kQLora + AS_HEAD_DIM});
      p.q_weight = normals(AS_BF16, {kQLora}, 0x1p-3f, 1);
      p.kv_weight = normals(AS_BF16, {AS_HEAD_DIM}, 0x1p-3f, 1);
      p.qr = make(AS_BF16, {tokens, kQLora});
      p.kv = make(AS_BF16, {tokens, AS_HEAD_DIM});
      p.eps = kEps;
      return true;
    }
    case AS_OP_Q_B_PROJ:
      linear(kQLora, kHeads * AS_HEAD_DIM);
      return true;
    case AS_OP_Q_ROPE_KV_INSERT:
      q_rope_kv_insert();
      return true;
    case AS_OP_COMPRESSOR_PROJ:
      linear(kHidden, 4 * AS_HEAD_DIM, AS_F32);
      return true;
    case AS_OP_COMPRESSOR_STATE:
      state_row(AS_HEAD_DIM);
      return true;
    case AS_OP_COMPRESS_INSERT:
      compress(AS_HEAD_DIM, AS_RECORD_LATENT);
      return true;
    case AS_OP_INDEXER_COMPRESSOR_PROJ:
      linear(kHidden, 4 * kIndexDim, AS_F32);
      return true;
    case AS_OP_INDEXER_COMPRESSOR_STATE:
      state_row(kIndexDim);
      return true;
    case AS_OP_INDEXER_COMPRESS_INSERT:
      compress(kIndexDim, AS_RECORD_INDEX_FP8);
      return true;
    case AS_OP_INDEXER_Q_PROJ:
      linear(kQLora, kIndexHeads * kIndexDim);
      return true;
    case AS_OP_INDEXER_Q:
      indexer_q();
      return true;
    case AS_OP_INDEXER_WEIGHTS_PROJ:
      linear(kHidden, kIndexHeads);
      return true;
    case AS_OP_INDEXER_LOGITS:
      indexer_logits();
      return true;
    case AS_OP_INDEXER_TOPK:
      indexer_topk();
      return true;
    case AS_OP_TOPK_TO_SLOTS:
      topk_to_slots();
      return true;
    case AS_OP_EXCHANGE_ROWS:
      exchange_rows();
      return true;
    case AS_OP_SPARSE_ATTENTION:
      sparse_attention();
      return true;
    case AS_OP_INVERSE_ROPE: {
      auto& p = init<as_inverse_rope_params>();
      p.o = normals(AS_BF16, {tokens, kHeads, AS_HEAD_DIM});
      p.positions = positions_tensor();
      p.rope = make_rope();
      p.out = make(AS_BF16, {tokens, kHeads, AS_HEAD_DIM});
      return true;
    }
    case AS_OP_WO_A: {
      auto& p = init<as_grouped_linear_params>();
      const std::int64_t in = kHeads / kGroups * AS_HEAD_DIM;
      p.x = normals(AS_BF16, {tokens, kGroups, in});
      p.weight = normals(AS_BF16, {kGroups, kOLora, in}, 0x1p-5f);
      p.y = make(AS_BF16, {tokens, kGroups, kOLora});
      return true;
    }
    case AS_OP_WO_B:
      linear(kGroups * kOLora, kHidden);
      return true;
    case AS_OP_DRAFT_NORM:
      draft_norm();
      return true;
    case AS_OP_DRAFT_H_PROJ:
    case AS_OP_DRAFT_E_PROJ:
      linear(kHidden, kHidden);
      return true;
    case AS_OP_DRAFT_SUM: {
      auto& p = init<as_residual_params>();
      p.h = normals(AS_BF16, {tokens, kHidden});
      p.y = normals(AS_BF16, {tokens, kHidden});
      p.out = make(AS_BF16, {tokens, kHidden});
      return true;
    }
    default:
      return false;
  }
}

}  // namespace

std::unique_ptr<InputMaker> deepseek_v4_inputs(as_op_id op, const GoldenCase& shape) {
  auto inputs = std::make_unique<InputsOfV4>(op, shape);
  return inputs->fill() ? std::move(inputs) : nullptr;
}

}  // namespace attnscope
