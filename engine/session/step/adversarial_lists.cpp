#include "engine/session/step/adversarial_lists.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "engine/backend/call_op.h"
#include "engine/model/numbers.h"
#include "kernels/cpu/codec.h"
#include "kernels/params/row_format.h"
#include "kernels/params/tensor_view.h"

namespace attnscope {
namespace {

constexpr std::int64_t kMostHoles = 5;
constexpr std::int64_t kLeastGarbage = 11;  // columns behind the end of a list

// A row of the null block that has NaN in its codes alone.
constexpr std::int32_t kNanCodes = 1;

bool has_nan_codes(std::int64_t row) { return row % 2 == kNanCodes; }

// How many holes a list has: none in every fourth.
std::int64_t holes_of(std::int64_t position, int layer) {
  return (position + layer) % 4 == 3 ? 0 : 1 + (position * 7 + layer * 3) % kMostHoles;
}

// Row 1 of a page is there unless pages have one row.
std::int32_t nan_slot(const as_cache& cache) {
  return std::min(kNanCodes, cache.rows_per_block - 1);
}

}  // namespace

void plant_nan_codes(const CacheLayout& layout, const Slab& slab) {
  constexpr std::uint8_t kOne = 127;  // UE8M0
  const std::uint16_t rope = cpu::float_to_bf16(1);
  for (const CacheSpec& spec : layout.specs) {
    if (spec.id.role != AS_CACHE_KV) continue;
    const as_cache cache = slab.cache(spec);
    const as_row_layout rows = as_row_layout_of(cache.record, cache.width, 1, 1);
    std::vector<std::uint8_t> record(to_size(rows.row));
    for (std::int64_t row = 0; row < spec.rows_per_block; ++row) {
      if (!has_nan_codes(row)) continue;
      as_row_get(&cache, row, record.data());
      for (std::int32_t i = 0; i < rows.format->num_parts; ++i) {
        const as_part_span part = as_part_in_row(&rows, 0, i);
        const bool codes = rows.format->parts[i].code == AS_CODE_E4M3;
        for (std::int64_t k = 0; k < part.count; ++k) {
          if (codes) {
            record[to_size(part.elements + k)] = k % 2 == 0 ? 0x7f : 0xff;
          } else {
            std::memcpy(record.data() + part.elements + 2 * k, &rope, sizeof(rope));
          }
        }
        std::fill_n(record.begin() + part.scales, part.num_scales, kOne);
      }
      as_row_put(&cache, row, record.data());
    }
  }
}

void AdversarialLists::List::make(as_tensor& indices, as_tensor& lengths, std::int64_t garbage_rows,
                                  const std::int64_t* positions, int layer) {
  const std::int64_t tokens = indices.shape[0], had = indices.shape[1];
  const std::int64_t width = had + kMostHoles + kLeastGarbage;
  slots.resize(to_size(tokens * width));
  lens.resize(to_size(tokens));
  for (std::int64_t t = 0; t < tokens; ++t) {
    const std::int32_t* from = at<std::int32_t>(indices, t);
    const std::int64_t len = std::clamp<std::int64_t>(*at<std::int32_t>(lengths, t), 0, had);
    const std::int64_t holes = holes_of(positions[t], layer);
    std::int32_t* row = slots.data() + t * width;
    std::int64_t n = 0;
    for (std::int64_t k = 0, made = 0; k < len || made < holes;) {
      // The first hole stands before the first entry, the others at equal distances.
      if (made < holes && (k == len || k >= made * len / holes)) {
        row[n++] = -1;
        ++made;
      } else {
        row[n++] = from[k++];
      }
    }
    lens[to_size(t)] = static_cast<std::int32_t>(n);
    for (; n < width; ++n) row[n] = static_cast<std::int32_t>(n % garbage_rows);
  }
  indices = make_tensor(slots.data(), {tokens, width});
  lengths = make_tensor(lens.data(), {tokens});
}

const OpParams& AdversarialLists::dress(const OpParams& params, const std::int64_t* positions,
                                        int layer) {
  params_ = params;
  if (as_op_role(params.op()) == AS_ROLE_SELECT) {
    auto& p = params_.get<as_indexer_topk_params>();
    const std::int64_t tokens = p.logits.shape[0], width = p.logits.shape[1];
    logits_.resize(to_size(tokens * width));
    for (std::int64_t t = 0; t < tokens; ++t) {
      const std::int64_t len = std::clamp<std::int64_t>(*at<std::int32_t>(p.lens, t), 0, width);
      float* row = logits_.data() + t * width;
      std::copy_n(at<float>(p.logits, t), len, row);
      std::fill(row + len, row + width, std::numeric_limits<float>::max());
    }
    p.logits = make_tensor(logits_.data(), {tokens, width});
    return params_;
  }
  auto& p = params_.get<as_sparse_attention_params>();
  window_.make(p.indices, p.topk_length, p.cache.rows_per_block, positions, layer);
  if (present(p.extra_indices)) {
    extra_.make(p.extra_indices, p.extra_topk_length, p.extra_cache.rows_per_block, positions,
                layer + 1);
  }
  p.plan_rows = p.plan_splits = no_tensor();  // of the lists as they were
  return params_;
}

Result<std::optional<std::string>> AdversarialLists::read_nan_codes(const OpParams& params,
                                                                    as_op_fn lane,
                                                                    const as_call& call) {
  const auto& given = params.get<as_sparse_attention_params>();
  const bool extra = present(given.extra_indices) && given.extra_cache.rows_per_block > kNanCodes;
  const std::int64_t last = given.q.shape[0] - 1, heads = given.q.shape[1], calls = extra ? 2 : 1;
  const std::int32_t len = *at<std::int32_t>(given.topk_length, last);
  if (len < 1) return std::optional<std::string>();
  // Row 0 finds the NaN in its window, row 1 among its compressed entries.
  const std::int32_t own = *at<std::int32_t>(given.indices, last, len - 1);
  const std::vector<std::int32_t> window = {own, nan_slot(given.cache), own, -1};
  const std::vector<std::int32_t> lens = {2, 1}, extra_topk_length = {0, 1};
  const std::vector<std::int32_t> extra_slots = {-1, kNanCodes};
  const std::int64_t dim = given.q.shape[2], per_row = heads * dim;
  std::vector<bf16_t> q, o(to_size(calls * per_row), bf16_t{0});
  for (std::int64_t i = 0; i < calls; ++i) {
    const bf16_t* row = at<bf16_t>(given.q, last);
    q.insert(q.end(), row, row + per_row);
  }
  std::vector<float> lse(to_size(calls * heads), 0.0f);
  OpParams probe = params;
  auto& p = probe.get<as_sparse_attention_params>();
  p.q = make_tensor(q.data(), {calls, heads, dim});
  p.indices = make_tensor(window.data(), {calls, 2});
  p.topk_length = make_tensor(lens.data(), {calls});
  p.o = make_tensor(o.data(), {calls, heads, dim});
  p.lse = make_tensor(lse.data(), {calls, heads});
  // On the way that the token itself took: each call is a part of its own.
  std::vector<std::int32_t> parts = {0, 0, 0, 1};
  if (present(given.prefill)) {
    if (*at<std::int32_t>(given.prefill, last, 0) < 0) std::ranges::fill(parts, -1);
    p.prefill = make_tensor(parts.data(), {calls, 2});
  }
  if (present(p.extra_indices)) {
    p.extra_indices = make_tensor(extra_slots.data(), {calls, 1});
    p.extra_topk_length = make_tensor(extra_topk_length.data(), {calls});
  }
  p.plan_rows = p.plan_splits = no_tensor();
  if (auto ran = call_op(lane, probe.data(), call); !ran) return ran.error();
  for (std::int64_t i = 0; i < calls; ++i) {
    for (std::int64_t h = 0; h < heads; ++h) {
      for (std::int64_t d = -1; d < dim; ++d) {  // -1: the LSE
        const float value =
            d < 0 ? *at<float>(p.lse, i, h) : cpu::bf16_to_float(at<bf16_t>(p.o, i, h, d)->bits);
        if (std::isnan(value)) continue;
        return std::optional(fmt::format(
            "asked once more about token {} over its own row and one of {} with NaN codes: {} of "
            "head {} is {:.6g}, must be NaN",
            last, i == 0 ? "the window" : "the compressed entries",
            d < 0 ? std::string("lse") : fmt::format("o[{}]", d), h, value));
      }
    }
  }
  return std::optional<std::string>();
}

}  // namespace attnscope
