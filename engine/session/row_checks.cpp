#include "engine/session/row_checks.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <utility>

#include "kernels/params/tensor_view.h"

namespace attnscope {
namespace {

class Checker {
 public:
  Checker(const CacheSpec& spec, const as_cache& cache, const Shadow& shadow,
          const AddressSpace& space, const StepMetadata& step)
      : spec_(spec), cache_(cache), shadow_(shadow), space_(space), step_(step) {
    total_slots_ = cache.data.shape[0] * cache.rows_per_block;
  }

  // expected: logical row that must be in the slot; -1 = any row of the same request.
  void look(std::int64_t token, std::int64_t slot, std::int64_t expected) {
    const std::int32_t request = request_of(token);
    if (!seen_.insert({slot, expected >= 0 ? expected : -1 - request}).second) return;
    ++check_.rows;
    if (slot < 0 || slot >= total_slots_) {
      return complain(token, slot, fmt::format("is outside the cache of {} slots", total_slots_));
    }
    const std::int64_t held = shadow_.row_of(spec_, slot);
    if (held < 0) return complain(token, slot, "was never written");
    const int ratio = row_ratio(spec_);
    const std::int64_t row = expected < 0 ? shadow_.row_of(spec_, slot, request)
                             : shadow_.holds(spec_, slot, expected) ? expected
                                                                    : -1;
    if (row < 0) {
      return complain(token, slot,
                      fmt::format("holds logical row {}, not {} of request {}; last written in "
                                  "step {}",
                                  held, expected >= 0 ? fmt::format("row {}", expected) : "a row",
                                  request, shadow_.written(spec_, held)));
    }
    if (!shadow_.matches(spec_, cache_, slot, row)) {
      complain(token, slot,
               fmt::format("holds other bytes than request {} {} {} wrote in step {}",
                           space_.request_of(held, ratio), ratio == 1 ? "position" : "entry",
                           row - space_.base(request, ratio), shadow_.written(spec_, row)));
    }
  }

  RowCheck result() { return check_; }

 private:
  std::int32_t request_of(std::int64_t token) const {
    const auto row = static_cast<std::size_t>(step_.request_of[static_cast<std::size_t>(token)]);
    return step_.live[row];
  }

  void complain(std::int64_t token, std::int64_t slot, const std::string& what) {
    if (check_.bad++ > 0) return;
    check_.note = fmt::format("{} cache, token {} (position {}): slot {} (block {}, row {}) {}",
                              cache_kind_name(spec_.kind), token,
                              step_.positions[static_cast<std::size_t>(token)], slot,
                              slot / cache_.rows_per_block, slot % cache_.rows_per_block, what);
  }

  const CacheSpec& spec_;
  const as_cache& cache_;
  const Shadow& shadow_;
  const AddressSpace& space_;
  const StepMetadata& step_;
  std::int64_t total_slots_ = 0;
  std::set<std::pair<std::int64_t, std::int64_t>> seen_;  // slot, what it must hold
  RowCheck check_;
};

void look_at_list(Checker& checker, const as_tensor& indices, const as_tensor& lens) {
  for (std::int64_t t = 0; t < indices.shape[0]; ++t) {
    const std::int64_t len = std::min<std::int64_t>(indices.shape[1], *at<std::int32_t>(lens, t));
    for (std::int64_t k = 0; k < len; ++k) {
      const std::int32_t slot = *at<std::int32_t>(indices, t, k);
      if (slot >= 0) checker.look(t, slot, -1);
    }
  }
}

// Rows p = begin..end-1 of the token's request through a block table.
void look_through_table(Checker& checker, const as_tensor& table, std::int64_t table_row,
                        std::int64_t rows_per_block, std::int64_t token, std::int64_t first,
                        std::int64_t begin, std::int64_t end) {
  for (std::int64_t p = begin; p < end; ++p) {
    const std::int64_t column = p / rows_per_block;
    // Beyond the table: no slot, which is a bad one.
    if (column >= table.shape[1]) return checker.look(token, -1, first + p);
    const std::int64_t block = *at<std::int32_t>(table, table_row, column);
    checker.look(token, block * rows_per_block + p % rows_per_block, first + p);
  }
}

}  // namespace

RowCheck check_rows_read(const OpParams& params, std::size_t cache_offset, const CacheSpec& spec,
                         const as_cache& cache, const Shadow& shadow, const AddressSpace& space,
                         const StepMetadata& step) {
  Checker checker(spec, cache, shadow, space, step);
  const auto base = [&](std::int64_t token) {
    const auto row = static_cast<std::size_t>(step.request_of[static_cast<std::size_t>(token)]);
    return space.base(step.live[row], row_ratio(spec));
  };
  switch (params.op()) {
    case AS_OP_SPARSE_ATTENTION: {
      const auto& p = params.get<as_sparse_attention_params>();
      if (cache_offset == offsetof(as_sparse_attention_params, cache)) {
        look_at_list(checker, p.indices, p.lens);
      } else {
        look_at_list(checker, p.extra_indices, p.extra_lens);
      }
      break;
    }
    case AS_OP_COMPRESS_INSERT:
    case AS_OP_INDEXER_COMPRESS_INSERT: {
      const auto& p = params.get<as_compress_insert_params>();
      const std::int64_t span = p.ratio == 4 ? 8 : p.ratio;
      for (std::int64_t t = 0; t < p.slots.shape[0]; ++t) {
        if (*at<std::int64_t>(p.slots, t) < 0) continue;
        const std::int64_t position = *at<std::int64_t>(p.positions, t);
        look_through_table(checker, p.table, *at<std::int32_t>(p.request_of, t),
                           cache.rows_per_block, t, base(t),
                           std::max<std::int64_t>(0, position - span + 1), position + 1);
      }
      break;
    }
    case AS_OP_INDEXER_LOGITS: {
      const auto& p = params.get<as_indexer_logits_params>();
      // The last token of a request sees all that its earlier ones see.
      for (std::int64_t t = 0; t < p.lens.shape[0]; ++t) {
        const std::int32_t row = *at<std::int32_t>(p.request_of, t);
        const bool last = t + 1 == p.lens.shape[0] || *at<std::int32_t>(p.request_of, t + 1) != row;
        if (!last) continue;
        look_through_table(checker, p.table, row, cache.rows_per_block, t, base(t), 0,
                           *at<std::int32_t>(p.lens, t));
      }
      break;
    }
    default:
      break;
  }
  return checker.result();
}

void logical_top_k_slots(const as_topk_to_slots_params& params, const LogicalMetadata& logical) {
  for (std::int64_t t = 0; t < params.indices.shape[0]; ++t) {
    const auto request = static_cast<std::size_t>(*at<std::int32_t>(params.request_of, t));
    std::int32_t len = 0;
    for (std::int64_t k = 0; k < params.indices.shape[1]; ++k) {
      const std::int32_t entry = *at<std::int32_t>(params.indices, t, k);
      *at<std::int32_t>(params.slots, t, k) = entry < 0 ? -1 : logical.table4[request] + entry;
      len += entry >= 0 ? 1 : 0;
    }
    *at<std::int32_t>(params.lens, t) = len;
  }
}

}  // namespace attnscope
