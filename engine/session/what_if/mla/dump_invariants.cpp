#include "engine/session/what_if/mla/dump_invariants.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <set>

#include "engine/model/numbers.h"
#include "engine/session/session.h"
#include "engine/session/step/attention_copy.h"
#include "engine/session/step/listed_attention.h"
#include "kernels/params/indexer_params.h"
#include "kernels/params/mla_params.h"
#include "kernels/params/row_access.h"
#include "kernels/params/row_format.h"
#include "kernels/params/tensor_view.h"

namespace attnscope {
namespace {

enum MlaInvariant {
  kMlaPositions,
  kMlaOwnSlots,
  kMlaSeenLens,
  kMlaFiniteScores,
  kMlaSelected,
  kMlaOwnBlocks,
  kMlaRowsWritten,
  kMlaQuantised,
  kMlaMass,
  kMlaRowAlone
};

// By MlaInvariant.
constexpr InvariantText kMlaTexts[] = {
    {"positions", "A token's position is seq_len - query_len + its place in its request."},
    {"own_slots",
     "A token's row goes to its place in the block that its request holds there; never to the null "
     "block."},
    {"seen_lens", "A token may select from position + 1 rows."},
    {"finite_scores", "No row that a token sees has the score NaN."},
    {"selected_rows",
     "A token selects min(K, position + 1) different rows, all of them seen, in ascending order, "
     "and -1 only after them."},
    {"own_blocks", "No list names the null block or a block of another request."},
    {"rows_written", "Every row that a token reads was written, for its request."},
    {"quantised_bytes",
     "Scales of FP8 blocks are positive and finite, no code is NaN, and the largest code of a "
     "block is at least 224 unless the scale is the smallest."},
    {"attention_mass", "The LSE recomputed from the rows is the op's, and the masses sum to 1."},
    {"row_alone",
     "A row computed alone differs from the same row in its batch by at most two steps of bf16 or "
     "2^-10 of its largest element (2^-7 where it is merged of parts), its LSE by 2^-18."},
};

void mla_slots(const Session& session, DumpInvariants& to) {
  const StepMetadata& m = session.metadata();
  const auto& p = session.last_params().get<as_slot_mapping_params>();
  const std::vector<CacheGroup>& groups = session.parts().layout.groups;
  for (std::int64_t t = 0; t < m.num_tokens_in_step(); ++t) {
    const std::int64_t position = m.positions[to_size(t)];
    for (std::size_t g = 0; g < groups.size(); ++g) {
      const as_tensor table = m.group_table(static_cast<int>(g));
      const std::int64_t block = groups[g].block_tokens;
      const std::int64_t slot = *at<std::int64_t>(p.slots, to_count(g), t);
      const std::int32_t held =
          *at<std::int32_t>(table, m.token_to_req[to_size(t)], position / block);
      to.check(kMlaOwnSlots, held != AS_NULL_BLOCK && slot == held * block + position % block,
               fmt::format("token {} (position {}), group {}: slot {}, its block is {}", t,
                           position, g, slot, held));
    }
    if (!present(p.seen_lens)) continue;
    const std::int32_t seen = *at<std::int32_t>(p.seen_lens, t);
    to.check(kMlaSeenLens, seen == position + 1,
             fmt::format("token {} (position {}) sees {} rows", t, position, seen));
  }
}

void mla_scores(const Session& session, DumpInvariants& to) {
  const auto& p = session.last_params().get<as_indexer_logits_params>();
  for (std::int64_t t = 0; t < p.logits.shape[0]; ++t) {
    const float* row = at<float>(p.logits, t);
    const std::int32_t len = *at<std::int32_t>(p.lens, t);
    const auto bad = std::find_if(row, row + len, [](float s) { return std::isnan(s); });
    to.check(kMlaFiniteScores, bad == row + len,
             fmt::format("token {}: the score of row {} is NaN", t, bad - row));
  }
}

void mla_selected(const Session& session, DumpInvariants& to) {
  const StepMetadata& m = session.metadata();
  const auto& p = session.last_params().get<as_indexer_topk_params>();
  const std::int64_t width = p.indices.shape[1];
  for (std::int64_t t = 0; t < p.indices.shape[0]; ++t) {
    const std::int64_t seen = m.positions[to_size(t)] + 1, wanted = std::min(seen, width);
    bool good = true;
    std::int64_t before = -1;
    for (std::int64_t k = 0; good && k < width; ++k) {
      const std::int64_t row = *at<std::int32_t>(p.indices, t, k);
      good = k < wanted ? row > before && row < seen : row == -1;
      before = row;
    }
    to.check(kMlaSelected, good,
             fmt::format("token {} (position {}) does not list {} different rows of {}", t,
                         m.positions[to_size(t)], wanted, seen));
  }
}

void mla_blocks(const Session& session, DumpInvariants& to) {
  const StepMetadata& m = session.metadata();
  const auto& p = session.last_params().get<as_topk_to_slots_params>();
  for (std::int64_t t = 0; t < p.slots.shape[0]; ++t) {
    const std::int32_t request = m.token_to_req[to_size(t)];
    const std::int32_t* table = at<std::int32_t>(p.table, request);
    const std::set<std::int32_t> own(table, table + p.table.shape[1]);
    for (std::int64_t k = 0; k < p.slots.shape[1]; ++k) {
      const std::int32_t slot = *at<std::int32_t>(p.slots, t, k);
      if (slot < 0) continue;
      const std::int32_t block = slot / p.rows_per_block;
      to.check(
          kMlaOwnBlocks, block != AS_NULL_BLOCK && own.contains(block),
          fmt::format("token {}, place {}: slot {} lies in block {}, which request {} does not "
                      "hold",
                      t, k, slot, block, m.live[to_size(request)]));
    }
  }
}

void mla_rows_written(const Session& session, DumpInvariants& to) {
  const OpParams& params = session.last_params();
  const StepMetadata& m = session.metadata();
  const Shadow& shadow = session.verifier().shadow();
  for (const as_cache_access& access : RowAccess::of(params.op())) {
    const CacheSpec* spec =
        session.parts().layout.of_tap(session.cursor().layer, params.op(), access.cache);
    if (spec == nullptr) continue;
    std::int64_t missing = 0, seen = 0, first = -1;
    RowAccess::for_each(params.data(), access, [&](const RowVisit& v) {
      ++seen;
      const std::int32_t request = m.live[to_size(m.token_to_req[to_size(v.token)])];
      if (shadow.has(*spec, v.slot) && shadow.row_of(*spec, v.slot, request) >= 0) return;
      if (missing++ == 0) first = v.token;
    });
    to.check(kMlaRowsWritten, missing == 0,
             fmt::format("{}: {} of {} rows that are read were never written for the request that "
                         "reads them, the first of them for token {}",
                         spec->name, missing, seen, first));
  }
}

// FP8 parts with fp32 scales, of the rows that an op has written.
void mla_quantised(const as_cache& cache, const as_tensor& slots, DumpInvariants& to) {
  constexpr std::uint8_t kNanCode = 0x7f, kHalfFull = 0x76;  // code of 224
  constexpr float kSmallest = 1e-4F / 448;
  const as_row_layout layout = as_row_layout_of(cache.record, cache.width, 1, 1);
  const as_row_part& part = layout.format->parts[0];
  if (part.scale != AS_CODE_F32) return;
  const as_part_span span = as_part_in_row(&layout, 0, 0);
  const std::int64_t block = part.block > 0 ? part.block : span.count;
  std::vector<std::uint8_t> row(to_size(layout.row));
  for (std::int64_t t = 0; t < slots.shape[0]; ++t) {
    const std::int64_t slot = *at<std::int64_t>(slots, t);
    if (slot < 0 || slot >= cache.data.shape[0] * cache.rows_per_block) continue;
    as_row_get(&cache, slot, row.data());
    bool good = true;
    for (std::int64_t k = 0; k < span.num_scales; ++k) {
      float scale;
      std::memcpy(&scale, row.data() + span.scales + 4 * k, sizeof(scale));
      std::uint8_t largest = 0;
      for (std::int64_t i = k * block; i < (k + 1) * block; ++i) {
        const auto code = static_cast<std::uint8_t>(row[to_size(span.elements + i)] & 0x7f);
        good = good && code != kNanCode;
        largest = std::max(largest, code);
      }
      good = good && std::isfinite(scale) && scale > 0 &&
             (largest >= kHalfFull || scale <= 2 * kSmallest);
    }
    to.check(kMlaQuantised, good, fmt::format("token {}, slot {}", t, slot));
  }
}

void check_mla(const Session& session, DumpInvariants& to) {
  const OpParams& params = session.last_params();
  switch (params.op()) {
    case AS_OP_SLOT_MAPPING:
      check_positions(session, to, kMlaPositions);
      return mla_slots(session, to);
    case AS_OP_MLA_KV_INSERT: {
      const auto& p = params.get<as_mla_kv_insert_params>();
      return mla_quantised(p.cache, p.slots, to);
    }
    case AS_OP_INDEX_KEY_INSERT: {
      const auto& p = params.get<as_index_key_insert_params>();
      return mla_quantised(p.cache, p.slots, to);
    }
    default:
      break;
  }
  if (params.info().phase != AS_PHASE_LAYER) return;
  if (params.info().role == AS_ROLE_SCORE) {
    mla_rows_written(session, to);
    mla_scores(session, to);
  } else if (params.info().role == AS_ROLE_SELECT) {
    mla_selected(session, to);
  } else if (lists_selected(params.op())) {
    mla_blocks(session, to);
  } else if (ListedAttention::of(params.op())) {
    mla_rows_written(session, to);
    const auto rows = last_rows(session.metadata());
    const ListedAttention listed(params, rows);
    check_masses(session, copy_attention(listed.params(), rows, nullptr), rows, to, kMlaMass);
    check_last_row_alone(session, to, kMlaRowAlone);
  }
}

}  // namespace

const FamilyInvariants& mla_invariants() {
  static constexpr FamilyInvariants kInvariants = {"mla", kMlaTexts, check_mla};
  return kInvariants;
}

}  // namespace attnscope
