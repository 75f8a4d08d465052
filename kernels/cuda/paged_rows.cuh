// What the kernels of paged_attention share: where rows lie, which rows a token sees, how its
// result is put out, whole or as a part that is merged later.
#pragma once

#include <algorithm>

#include "kernels/cpu/kv_codes.h"
#include "kernels/cuda/codec.cuh"
#include "kernels/cuda/ops.h"
#include "kernels/cuda/reduce.cuh"

namespace attnscope::cuda::paged {

using I64 = std::int64_t;

constexpr I64 kOthers = 2;  // of a part: maximum and sum, before its values

struct Numbers {
  cpu::KvPages k, v;
  cpu::KvCodes k_codes, v_codes;  // in their place where rows are codes
  I64 rows_of_page;
  I64 rows_total;  // of the smaller cache
  I64 group;       // query heads of a KV head
  I64 splits;
  bool paged;
  // Of a form with two passes (as_paged_form): by request the row where they are cut, then the
  // request through whose table all read the rows before it, -1 = each its own. nullptr: one pass.
  const std::int32_t* cuts;
};

__device__ __forceinline__ float minus_infinity() { return __uint_as_float(0xff800000u); }

// Of a cache of so many rows, in pages or not, through its table.
__device__ __forceinline__ I64 slot_in(const as_tensor& table, bool paged, I64 rows_of_page,
                                       I64 rows_total, I64 request, I64 row) {
  I64 slot;
  if (paged) {
    const auto narrow = static_cast<std::uint32_t>(row);  // below the columns times the rows
    const auto rows = static_cast<std::uint32_t>(rows_of_page);
    AS_DEVICE_CHECK(narrow / rows < table.shape[1]);
    slot = I64{*at<std::int32_t>(table, request, narrow / rows)} * rows_of_page + narrow % rows;
  } else {
    slot = I64{*at<std::int32_t>(table, request)} + row;
  }
  AS_DEVICE_CHECK(slot >= 0 && slot < rows_total);
  return slot;
}
__device__ __forceinline__ I64 slot_of(const as_paged_attention_params& p, const Numbers& n,
                                       I64 request, I64 row) {
  return slot_in(p.table, n.paged, n.rows_of_page, n.rows_total, request, row);
}

// Distance of a slot's head from the base, in 16-bit numbers.
__device__ __forceinline__ I64 offset_of(const cpu::KvPages& c, I64 slot, I64 head) {
  if (c.rows == 1) return slot * c.page + head * c.head;
  if (slot <= INT32_MAX) {
    const auto narrow = static_cast<std::uint32_t>(slot);
    const auto rows = static_cast<std::uint32_t>(c.rows);
    return I64{narrow / rows} * c.page + I64{narrow % rows} * c.row + head * c.head;
  }
  return slot / c.rows * c.page + slot % c.rows * c.row + head * c.head;
}

// The rows first .. end - 1 that a token sees.
struct Seen {
  I64 first = 0, end = 0, position = 0;
};
__device__ __forceinline__ Seen seen_by(const as_paged_attention_params& p, I64 t, I64 request) {
  Seen s;
  if (request < 0) return s;
  AS_DEVICE_CHECK(request < p.table.shape[0]);
  s.position = *at<std::int64_t>(p.positions, t);
  s.end = *at<std::int32_t>(p.seq_lens, request);
  if (p.causal != 0) s.end = min(s.end, s.position + 1);
  if (p.window > 0) s.first = max(I64{0}, s.position - p.window + 1);
  if (p.chunk > 0) s.first = max(s.first, s.position / p.chunk * p.chunk);
  if (present(p.first_rows)) s.first = max(s.first, I64{*at<std::int32_t>(p.first_rows, request)});
  return s;
}

// What masks and score functions are asked of a token of a request: q_idx, and kv_idx of row 0.
struct MaskOrigin {
  I64 query = 0, row = 0;
};
__device__ __forceinline__ MaskOrigin mask_origin(const as_paged_attention_params& p, I64 t,
                                                  I64 request, I64 position) {
  if (request < 0) return {};
  const I64 moved = present(p.places) ? *at<std::int64_t>(p.places, t) - position : 0;
  MaskOrigin origin{position + moved, moved};
  if (present(p.query_starts)) origin.query -= *at<std::int32_t>(p.query_starts, request);
  if (present(p.row_starts)) origin.row -= *at<std::int32_t>(p.row_starts, request);
  return origin;
}

// The share of split `split` of rows first .. end - 1.
__device__ __forceinline__ Seen part_of(Seen s, I64 splits, I64 split) {
  const I64 rows = s.end > s.first ? (s.end - s.first + splits - 1) / splits : 0;
  s.first += rows * split;
  s.end = min(s.end, s.first + rows);
  return s;
}

// What weights are divided by: their sum, and the sink.
__device__ __forceinline__ float total_of(const as_paged_attention_params& p, I64 h, float best,
                                          float sum) {
  const float shift = best == minus_infinity() ? 0.0f : best;
  return present(p.sinks) ? sum + expf(*at<float>(p.sinks, h) - shift) : sum;
}
__device__ __forceinline__ float lse_of(float best, float sum) {
  return (best == minus_infinity() ? 0.0f : best) + logf(sum);
}

// Parts of a head of a token lie one after another.
__device__ __forceinline__ float* part_at(const as_paged_attention_params& p, const Numbers& n,
                                          float* parts, I64 t, I64 h, I64 split) {
  return parts + ((t * p.q.shape[1] + h) * n.splits + split) * (p.o.shape[2] + kOthers);
}

// Whether token begin + i is of the request of token `begin` and i behind it there; one that is not
// among the `tokens` is no hindrance.
__device__ __forceinline__ bool follows(const as_paged_attention_params& p, I64 begin,
                                        std::int32_t request, I64 i, I64 tokens) {
  return i >= tokens ||
         (*at<std::int32_t>(p.token_to_req, begin + i) == request &&
          *at<std::int64_t>(p.positions, begin + i) == *at<std::int64_t>(p.positions, begin) + i);
}

// Tokens that one kernel leaves to another: how many, then which, in any order.
struct Others {
  std::int32_t* list = nullptr;  // null = all tokens

  static std::size_t bytes(I64 tokens) { return static_cast<std::size_t>(tokens + 1) * 4; }
  // By the first threads of a block, which are at least as many; meet: what they wait for one
  // another with.
  template <class Meet>
  __device__ __forceinline__ void add(I64 begin, I64 count, const Meet& meet) const {
    __shared__ int at;
    if (threadIdx.x == 0) at = atomicAdd(list, static_cast<int>(count));
    meet();
    if (threadIdx.x < count) list[1 + at + threadIdx.x] = static_cast<int>(begin + threadIdx.x);
    meet();
  }
};

// Kernels on tensor cores, of heads that are chunks of 16 bytes.
//
// Any tokens over rows of bf16; a block a token, a KV head and a split; of all tokens, or of others
// in about `blocks` blocks.
int decode(const as_paged_attention_params& p, const Numbers& n, float* parts, const Others& others,
           I64 blocks, const Launch& launch);

// The same over rows of codes, both caches of less than kMostCodes bytes; a block likewise, of so
// many heads.
constexpr I64 kHeadsOfCodes = 8, kMostCodes = I64{15} << 32;
int decode_codes(const as_paged_attention_params& p, const Numbers& n, float* parts,
                 const Others& others, I64 blocks, const Launch& launch);

// Rows of bf16: a block for a tile of so many tokens, at most prefill_tokens(), and a KV
// head, where all of them are of one request and follow each other in it; the tokens of other tiles
// become others. 0 = not on this GPU, or not these heads.
I64 prefill_tokens(const as_paged_attention_params& p, const Numbers& n, const Gpu& gpu);
int prefill(const as_paged_attention_params& p, const Numbers& n, I64 tokens, float* parts,
            const Others& others, const Launch& launch);

// The same over rows of codes that decode_codes takes, in pages of any size or none.
I64 prefill_tokens_of_codes(const as_paged_attention_params& p, const Numbers& n, const Gpu& gpu);
int prefill_codes(const as_paged_attention_params& p, const Numbers& n, I64 tokens, float* parts,
                  const Others& others, const Launch& launch);

}  // namespace attnscope::cuda::paged
