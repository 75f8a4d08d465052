#include "kernels/cuda/host_call.h"

#include <algorithm>
#include <limits>

#include "kernels/params/tensor_view.h"

namespace attnscope::cuda {
namespace {

using I64 = std::int64_t;

I64 i32(const as_tensor& t, I64 i, I64 j = 0) { return *at<std::int32_t>(t, i, j); }
I64 i64(const as_tensor& t, I64 i) { return *at<std::int64_t>(t, i); }

I64 block_of(const as_cache& c, I64 slot) {
  return c.addressing == AS_PAGED ? slot / c.rows_per_block : slot;
}

Blocks blocks_of_slots(const as_cache& c, const as_tensor& slots) {
  Blocks blocks;
  for (I64 t = 0; t < slots.shape[0]; ++t) {
    if (i64(slots, t) >= 0) blocks.push_back(block_of(c, i64(slots, t)));
  }
  return blocks;
}

Blocks blocks_of_lists(const as_cache& c, const as_tensor& slots, const as_tensor& lens) {
  Blocks blocks;
  for (I64 t = 0; t < slots.shape[0]; ++t) {
    for (I64 k = 0; k < i32(lens, t); ++k) {
      if (i32(slots, t, k) >= 0) blocks.push_back(block_of(c, i32(slots, t, k)));
    }
    // Neighbours share blocks: keep the list short.
    std::sort(blocks.begin(), blocks.end());
    blocks.erase(std::unique(blocks.begin(), blocks.end()), blocks.end());
  }
  return blocks;
}

// Blocks with rows [first, last] of a request.
void add_rows(const as_cache& c, const as_tensor& table, I64 request, I64 first, I64 last,
              Blocks* blocks) {
  if (c.addressing == AS_LOGICAL) {
    for (I64 row = first; row <= last; ++row) blocks->push_back(i32(table, request) + row);
    return;
  }
  for (I64 column = first / c.rows_per_block; column <= last / c.rows_per_block; ++column) {
    blocks->push_back(i32(table, request, column));
  }
}

// The span of rotary rows that positions, each plus an offset, use. Empty: row 0.
class Span {
 public:
  void add(I64 position) {
    first_ = std::min(first_, position);
    last_ = std::max(last_, position);
  }
  void stage(as_rope& rope, Staging& staging) const {
    if (rope.table.shape[0] == 0) return;
    staging.rope(rope, first_ <= last_ ? first_ : 0, first_ <= last_ ? last_ : 0);
  }

 private:
  I64 first_ = std::numeric_limits<I64>::max();
  I64 last_ = -1;
};

void stage_rope(const as_tensor& positions, as_rope& rope, Staging& staging) {
  Span span;
  for (I64 t = 0; t < positions.shape[0]; ++t) span.add(i64(positions, t));
  span.stage(rope, staging);
}

}  // namespace

void stage_more(const as_q_rope_kv_insert_params& host, as_q_rope_kv_insert_params& device,
                Staging& staging) {
  staging.cache(device.cache, blocks_of_slots(host.cache, host.slots), true);
  if (host.rows_given == 0) stage_rope(host.positions, device.rope, staging);
}

void stage_more(const as_sparse_attention_params& host, as_sparse_attention_params& device,
                Staging& staging) {
  staging.cache(device.cache, blocks_of_lists(host.cache, host.indices, host.lens), false);
  if (host.extra_cache.record == AS_RECORD_NONE) return;
  staging.cache(device.extra_cache,
                blocks_of_lists(host.extra_cache, host.extra_indices, host.extra_lens), false);
}

void stage_more(const as_inverse_rope_params& host, as_inverse_rope_params& device,
                Staging& staging) {
  stage_rope(host.positions, device.rope, staging);
}

void stage_more(const as_inverse_rope_quantise_params& host,
                as_inverse_rope_quantise_params& device, Staging& staging) {
  stage_rope(host.positions, device.rope, staging);
}

void stage_more(const as_gather_rows_params& host, as_gather_rows_params& device,
                Staging& staging) {
  staging.cache(device.cache, blocks_of_slots(host.cache, host.slots), false);
}

void stage_more(const as_compressor_state_params& host, as_compressor_state_params& device,
                Staging& staging) {
  staging.cache(device.state, blocks_of_slots(host.state, host.slots), true);
}

void stage_more(const as_compress_insert_params& host, as_compress_insert_params& device,
                Staging& staging) {
  staging.cache(device.cache, blocks_of_slots(host.cache, host.slots), true);
  if (host.rows_given != 0) return;
  const I64 window = (host.ratio == 4 ? 2 : 1) * host.ratio;
  Blocks blocks;
  Span span;
  for (I64 t = 0; t < host.slots.shape[0]; ++t) {
    if (i64(host.slots, t) < 0) continue;
    const I64 position = i64(host.positions, t);
    add_rows(host.state, host.table, i32(host.request_of, t),
             std::max<I64>(position + 1 - window, 0), position, &blocks);
    span.add(position + 1 - host.ratio);
  }
  staging.cache(device.state, std::move(blocks), false);
  span.stage(device.rope, staging);
}

void stage_more(const as_indexer_q_params& host, as_indexer_q_params& device, Staging& staging) {
  if (host.rows_given == 0) stage_rope(host.positions, device.rope, staging);
}

void stage_more(const as_indexer_logits_params& host, as_indexer_logits_params& device,
                Staging& staging) {
  // The longest row of each request covers the others.
  std::vector<I64> longest(static_cast<std::size_t>(host.table.shape[0]), 0);
  for (I64 t = 0; t < host.lens.shape[0]; ++t) {
    if (i32(host.lens, t) == 0) continue;
    I64& len = longest[static_cast<std::size_t>(i32(host.request_of, t))];
    len = std::max(len, i32(host.lens, t));
  }
  Blocks blocks;
  for (std::size_t r = 0; r < longest.size(); ++r) {
    if (longest[r] > 0) {
      add_rows(host.cache, host.table, static_cast<I64>(r), 0, longest[r] - 1, &blocks);
    }
  }
  staging.cache(device.cache, std::move(blocks), false);
}

}  // namespace attnscope::cuda
