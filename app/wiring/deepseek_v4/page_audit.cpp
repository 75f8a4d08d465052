#include "app/wiring/deepseek_v4/page_audit.h"

#include <fmt/format.h>

#include <algorithm>

#include "engine/family/deepseek_v4/caches.h"
#include "engine/model/numbers.h"
#include "kernels/params/dtype.h"

namespace attnscope {
namespace {

const std::uint8_t* part_at(const as_tensor& all, int group) {
  return static_cast<const std::uint8_t*>(all.data) +
         group * all.stride[0] * as_dtype_size(all.dtype);
}

}  // namespace

std::vector<PageAudit::Fault> PageAudit::op_done(const OpParams& params, int layer) {
  faults_.clear();
  const auto block_tokens = [&](int group) { return layout_.groups[to_size(group)].block_tokens; };
  switch (params.op()) {
    case AS_OP_BLOCK_TABLES:
      tables_ = params.get<as_block_tables_params>().tables;
      break;
    case AS_OP_SLOT_MAPPING: {
      const auto& p = params.get<as_slot_mapping_params>();
      slots_ = p.slots;
      c4_slots_ = p.c4_slots;
      c128_slots_ = p.c128_slots;
      number("mla_group", p.mla_group, layout_.mla_group);
      break;
    }
    case AS_OP_SWA_INDEX: {
      const auto& p = params.get<as_swa_index_params>();
      swa_indices_ = p.indices;
      number("block_size", p.block_size, block_tokens(layout_.swa_groups.front()));
      break;
    }
    case AS_OP_C128_INDEX: {
      const auto& p = params.get<as_c128_index_params>();
      number("rows_per_block", p.rows_per_block, block_tokens(layout_.mla_group) / 128);
      part_of("table", p.table, tables_, layout_.mla_group);
      break;
    }
    case AS_OP_ATTENTION_PLAN: {
      const auto& p = params.get<as_attention_plan_params>();
      plan_rows_ = p.rows;
      plan_splits_ = p.splits;
      break;
    }
    default:
      if (layer >= 0) layer_op(params, layer);
  }
  return faults_;
}

bool PageAudit::has_layer_from(int group, int layer) const {
  return std::ranges::any_of(layout_.specs, [&](const CacheSpec& spec) {
    return spec.group == group && spec.layer >= layer;
  });
}

void PageAudit::layer_op(const OpParams& params, int layer) {
  switch (params.op()) {
    case AS_OP_Q_ROPE_KV_INSERT: {
      const auto& p = params.get<as_q_rope_kv_insert_params>();
      const CacheSpec& own = spec(layer, kSwaCache);
      cache("cache", p.cache, own);
      return part_of("slots", p.slots, slots_, own.group);
    }
    case AS_OP_COMPRESSOR_STATE:
    case AS_OP_INDEXER_COMPRESSOR_STATE: {
      const bool main = params.op() == AS_OP_COMPRESSOR_STATE;
      const auto& p = params.get<as_compressor_state_params>();
      const CacheSpec& own = spec(layer, main ? kMainStateCache : kIndexStateCache);
      cache("state", p.state, own);
      return part_of("slots", p.slots, slots_, own.group);
    }
    case AS_OP_COMPRESS_INSERT:
    case AS_OP_INDEXER_COMPRESS_INSERT: {
      const bool main = params.op() == AS_OP_COMPRESS_INSERT;
      const auto& p = params.get<as_compress_insert_params>();
      const CacheSpec& state = spec(layer, main ? kMainStateCache : kIndexStateCache);
      const CacheSpec& own = spec(layer, main ? kMainCache : kIndexCache);
      cache("state", p.state, state);
      cache("cache", p.cache, own);
      part_of("table", p.table, tables_, state.group);
      const bool c4 = own.tokens_per_row == 4;
      const as_tensor& right = c4 ? c4_slots_ : c128_slots_;
      if (main && c4 && host_rows_) return exchange_.wrote(p.slots, c4_slots_);
      if (p.slots.data == right.data) return;
      return faults_.push_back({"slots", fmt::format("its slots are not {} of slot_mapping",
                                                     c4 ? "c4_slots" : "c128_slots")});
    }
    case AS_OP_INDEXER_LOGITS: {
      const auto& p = params.get<as_indexer_logits_params>();
      cache("cache", p.cache, spec(layer, kIndexCache));
      return part_of("table", p.table, tables_, layout_.mla_group);
    }
    case AS_OP_TOPK_TO_SLOTS: {
      const auto& p = params.get<as_topk_to_slots_params>();
      number("rows_per_block", p.rows_per_block, spec(layer, kMainCache).rows_per_block);
      return part_of("table", p.table, tables_, layout_.mla_group);
    }
    case AS_OP_EXCHANGE_ROWS: {
      const auto& p = params.get<as_exchange_rows_params>();
      for (const auto& [what, rows] : {std::pair{"fresh", &p.fresh},
                                       {"pages", &p.pages},
                                       {"missed", &p.missed},
                                       {"pool", &p.pool}}) {
        cache(what, *rows, spec(layer, kMainCache));
      }
      if (std::string note = exchange_.exchanged(p); !note.empty()) {
        faults_.push_back({"pages_to", std::move(note)});
      }
      return;
    }
    case AS_OP_SPARSE_ATTENTION: {
      const auto& p = params.get<as_sparse_attention_params>();
      const CacheSpec& own = spec(layer, kSwaCache);
      cache("cache", p.cache, own);
      const CacheSpec* main = layout_.find(layer, kMainCache);
      if (main != nullptr) cache("extra_cache", p.extra_cache, *main);
      const int type = main == nullptr ? 0 : main->tokens_per_row == 4 ? 1 : 2;
      plan("plan_rows", p.plan_rows, plan_rows_, type);
      plan("plan_splits", p.plan_splits, plan_splits_, type);
      return part_of("indices", p.indices, swa_indices_, own.group - layout_.swa_groups.front());
    }
    default:
      return;
  }
}

void PageAudit::number(const char* what, std::int64_t given, std::int64_t right) {
  if (given == right) return;
  faults_.push_back({what, fmt::format("its {} is {}; the caches' is {}", what, given, right)});
}

void PageAudit::cache(const char* what, const as_cache& given, const CacheSpec& spec) {
  if (given.record == spec.record && given.rows_per_block == spec.rows_per_block) return;
  faults_.push_back(
      {what, fmt::format("its {} has record {} and {} rows a page; that of {} has record {} and {}",
                         what, given.record, given.rows_per_block, spec.name, spec.record,
                         spec.rows_per_block)});
}

void PageAudit::plan(const char* what, const as_tensor& given, const as_tensor& all, int type) {
  if (all.data == nullptr || given.data == part_at(all, type)) return;
  constexpr const char* kTypes[] = {"SWA", "C4A", "C128A"};
  faults_.push_back(
      {what, fmt::format("its {} is not that of {} layers, which it is in", what, kTypes[type])});
}

void PageAudit::part_of(const char* what, const as_tensor& given, const as_tensor& all, int group) {
  if (all.data == nullptr || given.data == part_at(all, group)) return;
  std::string other = "that of no group";
  for (int g = 0; g < all.shape[0]; ++g) {
    if (given.data == part_at(all, g)) other = fmt::format("that of group {}", g);
  }
  faults_.push_back(
      {what, fmt::format("what it is given as {} is {}, not that of group {}, where its "
                         "rows lie",
                         what, other, group)});
}

}  // namespace attnscope
