#include "kernels/cuda/host_call.h"

#include <algorithm>
#include <limits>

#include "kernels/params/op_table.h"
#include "kernels/params/row_access.h"
#include "kernels/params/tensor_view.h"

namespace attnscope::cuda {
namespace {

using I64 = std::int64_t;

I64 i64(const as_tensor& t, I64 i) { return *at<std::int64_t>(t, i); }

// Blocks of a cache with rows that a call touches, in no order.
Blocks blocks_touched(const void* params, const as_cache_access& access, const as_cache& c) {
  Blocks blocks;
  std::size_t tidy = 1024;
  RowAccess::for_each(params, access, [&](const RowVisit& v) {
    const I64 block = c.addressing == AS_PAGED ? v.slot / c.rows_per_block : v.slot;
    if (!blocks.empty() && blocks.back() == block) return;
    blocks.push_back(block);
    if (blocks.size() < tidy) return;
    // Neighbours share blocks: keep the list short.
    std::sort(blocks.begin(), blocks.end());
    blocks.erase(std::unique(blocks.begin(), blocks.end()), blocks.end());
    tidy = std::max(tidy, 2 * blocks.size());
  });
  return blocks;
}

// The caches of an op, by its accesses.
template <class Params>
void stage_caches(std::int32_t op, const Params& host, Params& device, Staging& staging) {
  for (const as_cache_access& access : RowAccess::of(op)) {
    const char* field = reinterpret_cast<const char*>(&host) + access.cache;
    const auto& c = *reinterpret_cast<const as_cache*>(field);
    if (c.record == AS_RECORD_NONE || !present(c.data)) continue;
    auto& there = *reinterpret_cast<as_cache*>(reinterpret_cast<char*>(&device) + access.cache);
    staging.cache(there, blocks_touched(&host, access, c), access.direction == AS_TAP_OUT);
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
  stage_caches(AS_OP_Q_ROPE_KV_INSERT, host, device, staging);
  if (host.rows_given == 0) stage_rope(host.positions, device.rope, staging);
}

void stage_more(const as_sparse_attention_params& host, as_sparse_attention_params& device,
                Staging& staging) {
  stage_caches(AS_OP_SPARSE_ATTENTION, host, device, staging);
}

void stage_more(const as_inverse_rope_params& host, as_inverse_rope_params& device,
                Staging& staging) {
  stage_rope(host.positions, device.rope, staging);
}

void stage_more(const as_inverse_rope_quantise_params& host,
                as_inverse_rope_quantise_params& device, Staging& staging) {
  stage_rope(host.positions, device.rope, staging);
}

void stage_more(const as_rope_kv_insert_params& host, as_rope_kv_insert_params& device,
                Staging& staging) {
  stage_caches(AS_OP_ROPE_KV_INSERT, host, device, staging);
  if (host.rows_given == 0) stage_rope(host.positions, device.rope, staging);
}

void stage_more(const as_paged_attention_params& host, as_paged_attention_params& device,
                Staging& staging) {
  stage_caches(AS_OP_PAGED_ATTENTION, host, device, staging);
}

void stage_more(const as_gather_rows_params& host, as_gather_rows_params& device,
                Staging& staging) {
  stage_caches(AS_OP_GATHER_ROWS, host, device, staging);
}

void stage_more(const as_convert_rows_params& host, as_convert_rows_params& device,
                Staging& staging) {
  stage_caches(AS_OP_CONVERT_ROWS, host, device, staging);
}

void stage_more(const as_exchange_rows_params& host, as_exchange_rows_params& device,
                Staging& staging) {
  stage_caches(AS_OP_EXCHANGE_ROWS, host, device, staging);
}

void stage_more(const as_swap_out_params& host, as_swap_out_params& device, Staging& staging) {
  stage_caches(AS_OP_SWAP_OUT, host, device, staging);
}

void stage_more(const as_swap_in_params& host, as_swap_in_params& device, Staging& staging) {
  stage_caches(AS_OP_SWAP_IN, host, device, staging);
}

void stage_more(const as_compressor_state_params& host, as_compressor_state_params& device,
                Staging& staging) {
  stage_caches(AS_OP_COMPRESSOR_STATE, host, device, staging);
}

void stage_more(const as_compress_insert_params& host, as_compress_insert_params& device,
                Staging& staging) {
  stage_caches(AS_OP_COMPRESS_INSERT, host, device, staging);
  if (host.rows_given != 0) return;
  Span span;
  for (I64 t = 0; t < host.slots.shape[0]; ++t) {
    if (i64(host.slots, t) >= 0) span.add(i64(host.positions, t) + 1 - host.ratio);
  }
  span.stage(device.rope, staging);
}

void stage_more(const as_indexer_q_params& host, as_indexer_q_params& device, Staging& staging) {
  if (host.rows_given == 0) stage_rope(host.positions, device.rope, staging);
}

void stage_more(const as_indexer_logits_params& host, as_indexer_logits_params& device,
                Staging& staging) {
  stage_caches(AS_OP_INDEXER_LOGITS, host, device, staging);
}

void stage_more(const as_mla_q_absorb_params& host, as_mla_q_absorb_params& device,
                Staging& staging) {
  stage_rope(host.positions, device.rope, staging);
}

void stage_more(const as_mla_kv_insert_params& host, as_mla_kv_insert_params& device,
                Staging& staging) {
  stage_caches(AS_OP_MLA_KV_INSERT, host, device, staging);
  if (host.rows_given == 0) stage_rope(host.positions, device.rope, staging);
}

void stage_more(const as_index_query_params& host, as_index_query_params& device,
                Staging& staging) {
  if (host.rows_given == 0) stage_rope(host.positions, device.rope, staging);
}

void stage_more(const as_index_key_insert_params& host, as_index_key_insert_params& device,
                Staging& staging) {
  stage_caches(AS_OP_INDEX_KEY_INSERT, host, device, staging);
  if (host.rows_given == 0) stage_rope(host.positions, device.rope, staging);
}

void stage_more(const as_mla_attention_params& host, as_mla_attention_params& device,
                Staging& staging) {
  stage_caches(AS_OP_MLA_ATTENTION, host, device, staging);
}

void stage_more(const as_sparse_mla_attention_params& host, as_sparse_mla_attention_params& device,
                Staging& staging) {
  stage_caches(AS_OP_SPARSE_MLA_ATTENTION, host, device, staging);
}

}  // namespace attnscope::cuda
