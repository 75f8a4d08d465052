#include "engine/session/what_if/deepseek_v4/dump_invariants.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "engine/family/deepseek_v4/caches.h"
#include "engine/model/numbers.h"
#include "engine/session/session.h"
#include "engine/session/step/attention_copy.h"
#include "kernels/params/row_access.h"
#include "kernels/params/row_format.h"
#include "kernels/params/tensor_view.h"

namespace attnscope {
namespace {

// Rows of a full group's cache.
int entries_per_block(const Session& session, int ratio) {
  const CacheLayout& layout = session.parts().layout;
  return layout.groups[to_size(layout.mla_group)].block_tokens / ratio;
}

// By InvariantChecks::Name.
constexpr InvariantText kInvariantTexts[] = {
    {"positions", "A token's position is seq_len - query_len + its place in its request."},
    {"window_rows",
     "A window holds min(position + 1, W) rows, in the order of the block table, and ends with "
     "the token's own slot."},
    {"own_blocks",
     "No list names the null block, a block of another request or one beyond the "
     "pool."},
    {"selected_entries",
     "A token selects min(K, visible) different entries, all visible, and -1 only after them."},
    {"c128_entries", "A token lists the C128A entries 0 to (position + 1) / 128 - 1."},
    {"entries_written",
     "Every listed entry was written since its block was handed out, by its "
     "last token's step."},
    {"quantised_bytes",
     "Scale bytes lie in 105..247 (from 92 with a floor of 1e-8), pads are 0, no code is NaN, "
     "and the largest code of a block is at least 224 unless the scale is the smallest."},
    {"state_rows", "The state rows that an emission pools lie in blocks that are held."},
    {"attention_mass",
     "The LSE recomputed from the rows is the op's, and window + selected + sink mass is 1."},
    {"row_alone",
     "A row computed alone differs from the same row in its batch by at most two "
     "steps of bf16 or 2^-10 of its largest element (2^-7 where it is merged of parts), its "
     "LSE by 2^-18."},
    {"finite_scores", "No visible entry has the score NaN."},
};

class InvariantChecks {
 public:
  explicit InvariantChecks(DumpInvariants& to) : to_(to) {}

  void check_op(const Session& session);

 private:
  enum Name {
    kPositions,
    kWindowRows,
    kOwnBlocks,
    kSelectedEntries,
    kC128Entries,
    kEntriesWritten,
    kQuantisedBytes,
    kStateRows,
    kAttentionMass,
    kRowAlone,
    kFiniteScores
  };

  // how: what it makes is the text of one that does not hold.
  template <class How>
  void check(Name name, bool holds, const How& how) {
    to_.check(name, holds, holds ? std::string() : how());
  }
  void window_rows(const Session& session);
  void own_blocks(const Session& session, const as_tensor& list, int group, int rows_per_block);
  void selected_entries(const Session& session);
  void c128_entries(const Session& session);
  void attention(const Session& session);
  void latent_rows(const as_cache& cache, const as_tensor& slots, std::int32_t scale_floor);
  void state_rows(const Session& session);
  void scores(const Session& session);

  DumpInvariants& to_;
};

void InvariantChecks::check_op(const Session& session) {
  const OpParams& params = session.last_params();
  const CacheLayout& layout = session.parts().layout;
  switch (params.op()) {
    case AS_OP_SLOT_MAPPING:
      return check_positions(session, to_, kPositions);
    case AS_OP_SWA_INDEX:
      return window_rows(session);
    case AS_OP_C128_INDEX:
      c128_entries(session);
      return own_blocks(session, params.get<as_c128_index_params>().indices, layout.mla_group,
                        entries_per_block(session, 128));
    case AS_OP_Q_ROPE_KV_INSERT: {
      const auto& p = params.get<as_q_rope_kv_insert_params>();
      return latent_rows(p.cache, p.slots, p.scale_floor);
    }
    case AS_OP_COMPRESS_INSERT: {
      const auto& p = params.get<as_compress_insert_params>();
      state_rows(session);
      return latent_rows(p.cache, p.slots, p.scale_floor);
    }
    case AS_OP_INDEXER_COMPRESS_INSERT:
      return state_rows(session);
    case AS_OP_INDEXER_LOGITS:
      return scores(session);
    case AS_OP_INDEXER_TOPK:
      return selected_entries(session);
    case AS_OP_TOPK_TO_SLOTS:
      return own_blocks(session, params.get<as_topk_to_slots_params>().slots, layout.mla_group,
                        entries_per_block(session, 4));
    case AS_OP_SPARSE_ATTENTION:
      attention(session);
      return check_last_row_alone(session, to_, kRowAlone);
    default:
      return;
  }
}

void InvariantChecks::window_rows(const Session& session) {
  const StepMetadata& m = session.metadata();
  const auto& p = session.last_params().get<as_swa_index_params>();
  for (std::int64_t s = 0; s < p.indices.shape[0]; ++s) {
    const int group = session.parts().layout.swa_groups[to_size(s)];
    for (std::int64_t t = 0; t < p.indices.shape[1]; ++t) {
      const std::int64_t position = m.positions[to_size(t)];
      const std::int64_t wanted = std::min<std::int64_t>(position + 1, p.window);
      const std::int32_t len = *at<std::int32_t>(p.lens, t);
      bool good = len == wanted;
      const std::int32_t* list = at<std::int32_t>(p.indices, s, t);
      const std::int32_t row = m.token_to_req[to_size(t)];
      for (std::int64_t k = 0; good && k < p.window; ++k) {
        const std::int64_t q = position - wanted + 1 + k;
        const std::int64_t block =
            k < wanted ? *at<std::int32_t>(p.tables, s, row, q / p.block_size) : 0;
        good = list[k] == (k < wanted ? block * p.block_size + q % p.block_size : -1);
      }
      const std::int64_t own = m.slots[to_size(group * m.num_tokens_in_step() + t)];
      good = good && len > 0 && list[len - 1] == own;
      check(kWindowRows, good, [&] {
        return fmt::format(
            "token {} (request {}, position {}) lists {} rows, the last in slot {}; "
            "{} rows and slot {} belong there",
            t, m.live[to_size(row)], position, len, len > 0 ? list[len - 1] : -1, wanted, own);
      });
    }
    own_blocks(session, make_tensor(at<std::int32_t>(p.indices, s), {p.indices.shape[1], p.window}),
               group, p.block_size);
  }
}

void InvariantChecks::own_blocks(const Session& session, const as_tensor& list, int group,
                                 int rows_per_block) {
  const StepMetadata& m = session.metadata();
  const as_tensor table = m.group_table(group);
  std::vector<std::vector<std::int32_t>> owned(to_size(table.shape[0]));
  for (std::int64_t r = 0; r < table.shape[0]; ++r) {
    for (std::int64_t c = 0; c < table.shape[1]; ++c) {
      const std::int32_t block = *at<std::int32_t>(table, r, c);
      if (block != AS_NULL_BLOCK) owned[to_size(r)].push_back(block);
    }
    std::ranges::sort(owned[to_size(r)]);
  }
  for (std::int64_t t = 0; t < list.shape[0]; ++t) {
    const std::int32_t row = m.token_to_req[to_size(t)];
    for (std::int64_t k = 0; k < list.shape[1]; ++k) {
      const std::int32_t slot = *at<std::int32_t>(list, t, k);
      if (slot < 0) continue;
      check(kOwnBlocks, std::ranges::binary_search(owned[to_size(row)], slot / rows_per_block),
            [&] {
              return fmt::format(
                  "token {}, place {}: slot {} lies in block {}, which request {} does not "
                  "hold in this group",
                  t, k, slot, slot / rows_per_block, m.live[to_size(row)]);
            });
    }
  }
}

void InvariantChecks::selected_entries(const Session& session) {
  const StepMetadata& m = session.metadata();
  const auto& p = session.last_params().get<as_indexer_topk_params>();
  std::vector<std::int32_t> chosen;
  for (std::int64_t t = 0; t < p.indices.shape[0]; ++t) {
    const std::int64_t visible = (m.positions[to_size(t)] + 1) / 4;
    chosen.clear();
    bool good = true;
    for (std::int64_t k = 0; k < p.indices.shape[1]; ++k) {
      const std::int32_t entry = *at<std::int32_t>(p.indices, t, k);
      if (entry < 0) continue;
      good = good && entry < visible && static_cast<std::int64_t>(chosen.size()) == k;
      chosen.push_back(entry);
    }
    if (!std::ranges::is_sorted(chosen)) std::ranges::sort(chosen);
    const auto twice = std::ranges::unique(chosen);
    good = good && twice.empty();
    chosen.erase(twice.begin(), twice.end());
    const auto wanted = std::min<std::int64_t>(visible, p.indices.shape[1]);
    check(kSelectedEntries, good && static_cast<std::int64_t>(chosen.size()) == wanted, [&] {
      return fmt::format("token {} (position {}) selects {} different entries of {} visible", t,
                         m.positions[to_size(t)], chosen.size(), visible);
    });
  }
}

void InvariantChecks::c128_entries(const Session& session) {
  const StepMetadata& m = session.metadata();
  const auto& p = session.last_params().get<as_c128_index_params>();
  for (std::int64_t t = 0; t < p.indices.shape[0]; ++t) {
    const std::int64_t wanted = (m.positions[to_size(t)] + 1) / 128;
    bool good = *at<std::int32_t>(p.lens, t) == wanted;
    const std::int32_t row = m.token_to_req[to_size(t)];
    for (std::int64_t c = 0; good && c < std::min(wanted, p.indices.shape[1]); ++c) {
      const std::int64_t block = *at<std::int32_t>(p.table, row, c / p.rows_per_block);
      good = *at<std::int32_t>(p.indices, t, c) == block * p.rows_per_block + c % p.rows_per_block;
    }
    check(kC128Entries, good, [&] {
      return fmt::format("token {} (position {}) does not list entries 0..{}", t,
                         m.positions[to_size(t)], wanted - 1);
    });
  }
}

void InvariantChecks::attention(const Session& session) {
  const auto& p = session.last_params().get<as_sparse_attention_params>();
  const StepMetadata& m = session.metadata();
  // Their lists are the longest.
  const std::vector<std::int32_t> rows = last_rows(m);
  const AttentionCopy copy = copy_attention(p, rows, session.parts().threads);
  check_masses(session, copy, rows, to_, kAttentionMass);
  const std::int64_t columns = copy.window + copy.extra;
  if (!present(p.extra_indices)) return;
  const int layer = session.cursor().layer;  // it stands on the next op of the same layer
  const CacheSpec* spec = session.parts().layout.find(layer, kMainCache);
  if (spec == nullptr) return;
  const Shadow& shadow = session.verifier().shadow();
  for (std::size_t i = 0; i < rows.size(); ++i) {
    for (std::int64_t c = 0; c < copy.extra_len[i]; ++c) {
      const std::int64_t slot = copy.slots[i * to_size(columns) + to_size(copy.window + c)];
      if (slot < 0) continue;
      const std::int64_t row = shadow.row_of(*spec, slot);
      check(kEntriesWritten, row >= 0 && shadow.written(*spec, row) >= 0, [&] {
        return fmt::format("token {}: slot {} of the main cache was never written", rows[i], slot);
      });
    }
  }
}

void InvariantChecks::latent_rows(const as_cache& cache, const as_tensor& slots,
                                  std::int32_t scale_floor) {
  const std::int64_t total = cache.data.shape[0] * cache.rows_per_block;
  const std::uint8_t smallest = scale_floor == AS_SCALE_FLOOR_1E8 ? 92 : 105;
  const as_row_layout layout = as_row_layout_of(cache.record, cache.width, 1, 1);
  const as_part_span codes = as_part_in_row(&layout, 0, 0);
  const std::int64_t block = layout.format->parts[0].block;
  std::vector<std::uint8_t> row(to_size(layout.row));
  for (std::int64_t t = 0; t < slots.shape[0]; ++t) {
    const std::int64_t slot = *at<std::int64_t>(slots, t);
    if (slot < 0 || slot >= total) continue;
    as_row_get(&cache, slot, row.data());
    bool good = row[to_size(codes.scales + codes.num_scales)] == 0;  // padding
    for (std::int64_t k = 0; k < codes.num_scales; ++k) {
      std::uint8_t largest = 0;
      for (std::int64_t i = k * block; i < (k + 1) * block; ++i) {
        const auto code = static_cast<std::uint8_t>(row[to_size(codes.elements + i)] & 0x7f);
        good = good && code != 0x7f;
        largest = std::max(largest, code);
      }
      constexpr std::uint8_t kLargest = 247, kHalfFull = 0x76;  // code of 224
      const std::uint8_t scale = row[to_size(codes.scales + k)];
      good = good && scale >= smallest && scale <= kLargest &&
             (scale == smallest || largest >= kHalfFull);
    }
    check(kQuantisedBytes, good, [&] {
      return fmt::format("token {}, slot {} (block {}, row {})", t, slot,
                         slot / cache.rows_per_block, slot % cache.rows_per_block);
    });
  }
}

void InvariantChecks::state_rows(const Session& session) {
  const OpParams& params = session.last_params();
  const auto& p = params.get<as_compress_insert_params>();
  const std::int64_t rows = p.state.rows_per_block;
  const std::size_t state = offsetof(as_compress_insert_params, state);
  RowAccess::for_each(params.data(), *RowAccess::find(params.op(), state), [&](const RowVisit& v) {
    const bool held = v.slot != RowAccess::kBeyondTable && v.slot / rows != AS_NULL_BLOCK;
    check(kStateRows, held, [&] {
      return fmt::format(
          "token {} (position {}) pools the state row of position {}, whose block "
          "is null",
          v.token, *at<std::int64_t>(p.positions, v.token), v.place);
    });
  });
}

void InvariantChecks::scores(const Session& session) {
  const auto& p = session.last_params().get<as_indexer_logits_params>();
  for (std::int64_t t = 0; t < p.lens.shape[0]; ++t) {
    std::int64_t nan = 0;
    for (std::int64_t c = 0; c < *at<std::int32_t>(p.lens, t); ++c) {
      nan += std::isnan(*at<float>(p.logits, t, c)) ? 1 : 0;
    }
    check(kFiniteScores, nan == 0,
          [&] { return fmt::format("token {} has {} scores that are NaN", t, nan); });
  }
}

void check_invariants(const Session& session, DumpInvariants& to) {
  InvariantChecks(to).check_op(session);
}

}  // namespace

const FamilyInvariants& deepseek_v4_invariants() {
  static constexpr FamilyInvariants kInvariants = {"deepseek_v4", kInvariantTexts,
                                                   check_invariants};
  return kInvariants;
}

}  // namespace attnscope
