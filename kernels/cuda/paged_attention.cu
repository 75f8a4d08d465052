// paged_attention: which kernel takes it, the merge of its parts, and the kernel for heads and
// caches that tensor cores do not take, for masks, score functions and biases by distance, and for
// rows of first tokens in 16 bits beside others: a warp a query head of a token on fp32 units, the
// heads of a KV head side by side in a block so that they find its rows in the L1 cache. 32 rows at
// a time: a lane scores a row, then each lane weighs its dims of their values.
#include <cuda_fp16.h>

#include <algorithm>

#include "kernels/cuda/early.cuh"
#include "kernels/cuda/kv_codes.cuh"
#include "kernels/cuda/mask_code.cuh"
#include "kernels/cuda/paged_rows.cuh"

namespace attnscope::cuda {
namespace {

using namespace paged;

constexpr I64 kHeads = 8;  // of a block
constexpr I64 kHeadsOfStep = 16;
constexpr I64 kMaxSplits = 256;
// Below these a part is not worth its merge: where the GPU has no more blocks to do at once, and
// where it has none otherwise.
constexpr I64 kRowsOfSplit = 256, kRowsOfIdle = 64;

// Rows of first tokens in 16 bits, below wide_tokens: caches and a table of their own.
struct FirstRows {
  cpu::KvPages k, v;
  I64 rows_of_page, rows_total;
};

__device__ __forceinline__ I64 first_slot(const as_paged_attention_params& p, const Numbers& n,
                                          const FirstRows& first, I64 request, I64 row) {
  return slot_in(p.wide_table, n.paged, first.rows_of_page, first.rows_total, request, row);
}

__device__ __forceinline__ const std::uint16_t* row_of(const as_paged_attention_params& p,
                                                       const Numbers& n, const cpu::KvPages& c,
                                                       I64 request, I64 row, I64 head) {
  return c.base + offset_of(c, slot_of(p, n, request, row), head);
}

__device__ __forceinline__ float number(std::uint16_t bits, bool f16) {
  return f16 ? __half2float(__ushort_as_half(bits)) : bf16_to_float(bits);
}

// q . k of a row of codes.
__device__ __forceinline__ float dot_codes(const float* q, const cpu::KvCodes& c, I64 slot,
                                           I64 head, I64 size) {
  const cpu::HeadScale s = read_scale(c, slot, head);
  const unsigned char* k = c.base + codes_at(c, slot, head);
  float sum = 0.0f;
  for (I64 d = 0; d < size; ++d) sum = fmaf(q[d], code_value(c.code, k[d], s.zero), sum);
  return sum * s.scale;
}

template <bool vectors>
__device__ __forceinline__ float dot(const float* q, const std::uint16_t* k, I64 size, bool f16) {
  float sum = 0.0f;
  if constexpr (vectors) {
    for (I64 d = 0; d < size; d += 8) {
      const uint4 word = *reinterpret_cast<const uint4*>(k + d);
      const std::uint32_t parts[4] = {word.x, word.y, word.z, word.w};
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        sum = fmaf(q[d + 2 * i], number(static_cast<std::uint16_t>(parts[i]), f16), sum);
        sum = fmaf(q[d + 2 * i + 1], number(static_cast<std::uint16_t>(parts[i] >> 16), f16), sum);
      }
    }
  } else {
    for (I64 d = 0; d < size; ++d) sum = fmaf(q[d], number(k[d], f16), sum);
  }
  return sum;
}

// Whether a head has met a row: all that its token sees, or some that the mask shows.
__device__ __forceinline__ bool met_any(const as_paged_attention_params& p, const Seen& seen,
                                        float sum) {
  return seen.first < seen.end && !(present(p.mask_code) && sum == 0.0f);
}

// The result of a head over all its rows, or an empty one.
__device__ __forceinline__ void put_result(const as_paged_attention_params& p, I64 t, I64 h,
                                           bool any, float best, float sum, const float* values,
                                           int count) {
  const float total = total_of(p, h, best, sum);
  std::uint16_t* o = at<std::uint16_t>(p.o, t, h);
  for (int i = 0; i < count; ++i) {
    const I64 d = threadIdx.x + 32 * i;
    if (d < p.o.shape[2]) o[d] = any ? float_to_bf16(values[i] / total) : std::uint16_t{0};
  }
  if (threadIdx.x == 0) *at<float>(p.lse, t, h) = any ? lse_of(best, sum) : minus_infinity();
}

// The cuts of a call, by one block: rows computed before, then the columns that are in common.
constexpr int kCutThreads = 256;
__global__ void __launch_bounds__(kCutThreads)
    find_cuts_kernel(as_paged_attention_params p, I64 rows_of_page, std::int32_t* cuts) {
  const int requests = static_cast<int>(p.table.shape[0]);
  for (int r = threadIdx.x; r < requests; r += kCutThreads) cuts[r] = INT32_MAX;
  __shared__ int one, with_tokens, common;
  if (threadIdx.x == 0) one = common = INT32_MAX, with_tokens = 0;
  __syncthreads();
  for (I64 t = threadIdx.x; t < p.q.shape[0]; t += kCutThreads) {
    const std::int32_t r = *at<std::int32_t>(p.token_to_req, t);
    AS_DEVICE_CHECK(r < requests);
    if (r < 0) continue;
    const I64 held = max(0, *at<std::int32_t>(p.seq_lens, r));
    atomicMin(cuts + r, static_cast<std::int32_t>(min(*at<std::int64_t>(p.positions, t), held)));
  }
  __syncthreads();
  const bool cascade = p.form == AS_PAGED_CASCADE;
  for (int r = threadIdx.x; r < requests; r += kCutThreads) {
    if (cuts[r] == INT32_MAX) {
      if (!cascade) cuts[r] = 0;
      continue;
    }
    atomicMin(&one, r);
    atomicAdd(&with_tokens, 1);
    atomicMin(&common, cuts[r] / static_cast<int>(rows_of_page));
  }
  __syncthreads();
  if (!cascade) {
    if (threadIdx.x == 0) cuts[requests] = -1;
    return;
  }
  const int most = with_tokens > 1 ? common : 0;
  __syncthreads();
  for (int r = threadIdx.x; most > 0 && r < requests; r += kCutThreads) {
    if (cuts[r] == INT32_MAX) continue;
    int same = 0;
    while (same < most &&
           *at<std::int32_t>(p.table, r, same) == *at<std::int32_t>(p.table, one, same)) {
      ++same;
    }
    atomicMin(&common, same);
  }
  __syncthreads();
  const int rows = most > 0 ? common * static_cast<int>(rows_of_page) : 0;
  for (int r = threadIdx.x; r < requests; r += kCutThreads) cuts[r] = rows;
  if (threadIdx.x == 0) cuts[requests] = rows > 0 ? one : -1;
}

// kPart: values of a lane. kCoded: a cache may have rows of codes. kAsked: a mask, a score
// function, a bias by distance, rows of first tokens or a form of two passes, a split each, may be
// there. Grid: tokens, KV heads times blocks of their heads, splits.
template <int kPart, bool vectors, bool kCoded, bool kAsked>
__global__ void __launch_bounds__(32 * kHeads)
    paged_attention_kernel(as_paged_attention_params p, Numbers n, FirstRows first_rows,
                           I64 head_blocks, float* partial) {
  __shared__ float queries[kHeads][32 * kPart];
  const I64 t = blockIdx.x, g = blockIdx.y / head_blocks;
  const I64 in_group = blockIdx.y % head_blocks * kHeads + threadIdx.y;
  if (in_group >= n.group) return;
  const I64 h = g * n.group + in_group, size = p.q.shape[2], size_v = p.o.shape[2];
  float* q = queries[threadIdx.y];
  for (I64 d = threadIdx.x; d < size; d += 32)
    q[d] = bf16_to_float(*at<std::uint16_t>(p.q, t, h, d));
  __syncwarp();

  const I64 request = *at<std::int32_t>(p.token_to_req, t);
  const Seen all = seen_by(p, t, request);
  Seen mine_of = n.splits > 1 ? part_of(all, n.splits, blockIdx.z) : all;
  I64 rows_of = request;  // through whose table rows are found
  if (kAsked && n.cuts != nullptr && request >= 0) {
    const I64 cut = min(max(I64{n.cuts[request]}, all.first), all.end);
    const std::int32_t shared = n.cuts[p.table.shape[0]];
    mine_of.first = blockIdx.z == 0 ? all.first : cut;
    mine_of.end = blockIdx.z == 0 ? cut : all.end;
    if (blockIdx.z == 0 && shared >= 0) rows_of = shared;
  }
  const I64 first = mine_of.first, end = mine_of.end, position = all.position;

  float best = minus_infinity(), sum = 0.0f;
  float values[kPart];
#pragma unroll
  for (int i = 0; i < kPart; ++i) values[i] = 0.0f;
  const auto scale = static_cast<float>(p.scale), cap = static_cast<float>(p.soft_cap);
  const float slope = present(p.alibi_slopes) ? *at<float>(p.alibi_slopes, h) : 0.0f;
  MaskOrigin origin;
  if constexpr (kAsked) origin = mask_origin(p, t, request, position);
  for (I64 tile = first; tile < end; tile += 32) {
    const I64 row = tile + threadIdx.x;
    const MaskPlace place{origin.query, origin.row + row, h, request};
    bool mine = row < end;
    if constexpr (kAsked) {
      if (mine && present(p.mask_code)) mine = mask_shows(p.mask_code, place);
    }
    float score = minus_infinity();
    if (mine) {
      const bool coded = kCoded && n.k_codes.code != AS_CODE_NONE;
      if (kAsked && row < p.wide_tokens) {
        const I64 slot = first_slot(p, n, first_rows, rows_of, row);
        const std::uint16_t* k = first_rows.k.base + offset_of(first_rows.k, slot, g);
        score = dot<false>(q, k, size, first_rows.k.f16);
      } else {
        score = coded ? dot_codes(q, n.k_codes, slot_of(p, n, rows_of, row), g, size)
                      : dot<vectors>(q, row_of(p, n, n.k, rows_of, row, g), size, n.k.f16);
      }
      score *= scale;
      if (cap > 0.0f) score = cap * tanhf(score / cap);
      if (slope != 0.0f)
        score -= slope * static_cast<float>(position > row ? position - row : row - position);
      if constexpr (kAsked) score = asked_score(p, place, row - position, score);
    }
    // What a mask hides may hold NaN.
    const unsigned shown = kAsked ? __ballot_sync(kAllLanes, mine) : kAllLanes;
    const float larger = fmaxf(best, warp_max(score));
    const float shift = larger == minus_infinity() ? 0.0f : larger;
    const float weight = mine ? expf(score - shift) : 0.0f;
    const float old = best == minus_infinity() ? 0.0f : expf(best - shift);
    sum = sum * old + warp_sum(weight);
    best = larger;
#pragma unroll
    for (int i = 0; i < kPart; ++i) values[i] *= old;
    const int rows = static_cast<int>(min(I64{32}, end - tile));
    for (int r = 0; r < rows; ++r) {
      const float w = __shfl_sync(kAllLanes, weight, r);
      if (kAsked && (shown >> r & 1) == 0) continue;
      const bool of_first = kAsked && tile + r < p.wide_tokens;
      if (kCoded && n.v_codes.code != AS_CODE_NONE && !of_first) {
        const I64 slot = slot_of(p, n, rows_of, tile + r);
        const cpu::HeadScale s = read_scale(n.v_codes, slot, g);
        const unsigned char* v = n.v_codes.base + codes_at(n.v_codes, slot, g);
#pragma unroll
        for (int i = 0; i < kPart; ++i) {
          const I64 d = threadIdx.x + 32 * i;
          if (d >= size_v) continue;
          values[i] = fmaf(w, code_value(n.v_codes.code, v[d], s.zero) * s.scale, values[i]);
        }
        continue;
      }
      const cpu::KvPages& pages = of_first ? first_rows.v : n.v;
      const I64 v_slot = of_first ? first_slot(p, n, first_rows, rows_of, tile + r)
                                  : slot_of(p, n, rows_of, tile + r);
      const std::uint16_t* v = pages.base + offset_of(pages, v_slot, g);
#pragma unroll
      for (int i = 0; i < kPart; ++i) {
        const I64 d = threadIdx.x + 32 * i;
        if (d < size_v) values[i] = fmaf(w, number(v[d], pages.f16), values[i]);
      }
    }
  }
  if (n.splits == 1) {
    return put_result(p, t, h, met_any(p, all, sum), best, sum, values, kPart);
  }
  float* to = part_at(p, n, partial, t, h, blockIdx.z);
  if (threadIdx.x == 0) {
    to[0] = best;
    to[1] = sum;
  }
#pragma unroll
  for (int i = 0; i < kPart; ++i) {
    const I64 d = threadIdx.x + 32 * i;
    if (d < size_v) to[kOthers + d] = values[i];
  }
}

// A warp a head of a token: a lane weighs a part, then all sum their dims of eight parts at once,
// since what takes time is to wait for them.
template <int kPart>
__global__ void __launch_bounds__(32 * kHeads)
    merge_parts_kernel(as_paged_attention_params p, Numbers n, const float* partial) {
  follow_kernel_before();
  const I64 heads = p.q.shape[1], size_v = p.o.shape[2], size = size_v + kOthers;
  const I64 item = I64{blockIdx.x} * kHeads + threadIdx.y;
  if (item >= p.q.shape[0] * heads) return;
  const float* from = partial + item * n.splits * size;
  float best = minus_infinity(), sum = 0.0f;
  for (I64 s = threadIdx.x; s < n.splits; s += 32) best = fmaxf(best, from[s * size]);
  best = warp_max(best);
  const float shift = best == minus_infinity() ? 0.0f : best;
  float values[kPart];
#pragma unroll
  for (int i = 0; i < kPart; ++i) values[i] = 0.0f;
  for (I64 first = 0; first < n.splits; first += 32) {
    const I64 mine = first + threadIdx.x;
    float weight = 0.0f;
    bool counts = false;  // a part without weight is left out, but a NaN goes on
    if (mine < n.splits) {
      const float of_part = from[mine * size + 1];
      weight = from[mine * size] == minus_infinity() ? 0.0f : expf(from[mine * size] - shift);
      counts = weight != 0.0f || of_part != of_part;
      if (counts) sum = fmaf(of_part, weight, sum);
    }
    const unsigned counted = __ballot_sync(kAllLanes, counts);
    const int parts = static_cast<int>(min(I64{32}, n.splits - first));
    for (int s = 0; s < parts; s += 8) {
      float read[8][kPart];
#pragma unroll
      for (int j = 0; j < 8; ++j) {
        const float* part = from + (first + s + j) * size + kOthers + threadIdx.x;
#pragma unroll
        for (int i = 0; i < kPart; ++i) {
          const bool there = (counted >> (s + j) & 1) != 0 && threadIdx.x + 32 * i < size_v;
          read[j][i] = there ? part[32 * i] : 0.0f;
        }
      }
#pragma unroll
      for (int j = 0; j < 8; ++j) {
        const float w = __shfl_sync(kAllLanes, weight, s + j);
#pragma unroll
        for (int i = 0; i < kPart; ++i) values[i] = fmaf(read[j][i], w, values[i]);
      }
    }
  }
  sum = warp_sum(sum);
  const I64 t = item / heads;
  const Seen seen = seen_by(p, t, *at<std::int32_t>(p.token_to_req, t));
  put_result(p, t, item % heads, met_any(p, seen, sum), best, sum, values, kPart);
}

bool codes_on_tensor_cores(const as_paged_attention_params& p, const Numbers& n) {
  const cpu::KvCodes &k = n.k_codes, &v = n.v_codes;
  const I64 apart = k.page | k.row | k.head | v.page | v.row | v.head | p.q.shape[2] | p.o.shape[2];
  const auto addresses = reinterpret_cast<std::uintptr_t>(k.base) |
                         reinterpret_cast<std::uintptr_t>(v.base) |
                         reinterpret_cast<std::uintptr_t>(p.q.data);
  // A scale and its zero point are copied at once.
  const auto scales_fit = [](const cpu::KvCodes& c) {
    return !c.zero || (c.scales | c.scale_row | c.scale_head) % 8 == 0;
  };
  if (!scales_fit(k) || !scales_fit(v)) return false;
  const I64 most = std::max(p.k_cache.data.shape[0] * k.page, p.v_cache.data.shape[0] * v.page);
  return k.code != AS_CODE_NONE && v.code != AS_CODE_NONE && apart % 16 == 0 && most < kMostCodes &&
         (p.q.stride[0] | p.q.stride[1]) % 8 == 0 && addresses % 16 == 0 &&
         std::max(p.q.shape[2], p.o.shape[2]) <= 256;
}

// What the kernel of fp32 units alone computes.
bool by_the_row(const as_paged_attention_params& p) {
  return asks_each_score(p) || p.form != AS_PAGED_ONE_PASS || p.wide_tokens > 0;
}

bool on_tensor_cores(const as_paged_attention_params& p, const Numbers& n) {
  if (by_the_row(p)) return false;
  if (n.k_codes.code != AS_CODE_NONE || n.v_codes.code != AS_CODE_NONE) {
    return codes_on_tensor_cores(p, n);
  }
  const I64 apart = n.k.page | n.k.row | n.k.head | n.v.page | n.v.row | n.v.head | p.q.shape[2] |
                    p.o.shape[2] | p.q.stride[0] | p.q.stride[1];
  const auto addresses = reinterpret_cast<std::uintptr_t>(n.k.base) |
                         reinterpret_cast<std::uintptr_t>(n.v.base) |
                         reinterpret_cast<std::uintptr_t>(p.q.data);
  return !n.k.f16 && !n.v.f16 && apart % 8 == 0 && addresses % 16 == 0 &&
         std::max(p.q.shape[2], p.o.shape[2]) <= 256;
}

// As many parts as fill the GPU, of a size that is worth it: by shapes alone.
I64 splits_of(const as_paged_attention_params& p, const Numbers& n, const Gpu& gpu) {
  if (p.form != AS_PAGED_ONE_PASS) return 2;
  if (p.num_splits > 0) return std::min<I64>(p.num_splits, kMaxSplits);
  const I64 heads = n.k_codes.code != AS_CODE_NONE ? kHeadsOfCodes : kHeadsOfStep;
  const I64 blocks = p.q.shape[0] * as_cache_heads(&p.k_cache) * ((n.group + heads - 1) / heads);
  if (blocks == 0 || p.k_cache.addressing != AS_PAGED) return 1;
  I64 rows = p.table.shape[1] * p.k_cache.rows_per_block;
  if (p.window > 0) rows = std::min<I64>(rows, p.window);
  if (p.chunk > 0) rows = std::min<I64>(rows, p.chunk);
  const I64 many = std::min(rows / kRowsOfSplit, 4 * gpu.multiprocessors / blocks);
  const I64 idle = std::min(rows / kRowsOfIdle, gpu.multiprocessors / blocks);
  return std::clamp<I64>(std::max(many, idle), 1, kMaxSplits);
}

// What shapes and addresses say.
struct Choice {
  Numbers n{};
  bool steps = false;
};
Choice choose(const as_paged_attention_params& p, const Gpu& gpu) {
  Choice c;
  const cpu::KvRows k(p.k_cache, p.k_scale), v(p.v_cache, p.v_scale);
  c.n.k = k.pages;
  c.n.v = v.pages;
  c.n.k_codes = k.codes;
  c.n.v_codes = v.codes;
  c.n.rows_of_page = k.rows;
  c.n.rows_total = std::min(cpu::cache_rows(p.k_cache), cpu::cache_rows(p.v_cache));
  c.n.group = p.q.shape[1] / as_cache_heads(&p.k_cache);
  c.n.paged = p.k_cache.addressing == AS_PAGED;
  c.steps = on_tensor_cores(p, c.n);
  c.n.splits = splits_of(p, c.n, gpu);
  return c;
}

template <int kPart>
int merge_parts(const as_paged_attention_params& p, const Numbers& n, const Launch& launch) {
  const I64 items = p.q.shape[0] * p.q.shape[1];
  const auto blocks = static_cast<unsigned>((items + kHeads - 1) / kHeads);
  return launch_early(launch.gpu.hopper, launch.stream, blocks, dim3(32, kHeads), 0,
                      merge_parts_kernel<kPart>, p, n,
                      reinterpret_cast<const float*>(launch.workspace));
}

FirstRows first_rows_of(const as_paged_attention_params& p) {
  FirstRows first{};
  if (p.wide_tokens == 0) return first;
  const cpu::KvRows k(p.k_wide, as_tensor{}), v(p.v_wide, as_tensor{});
  first.k = k.pages;
  first.v = v.pages;
  first.rows_of_page = k.rows;
  first.rows_total = std::min(cpu::cache_rows(p.k_wide), cpu::cache_rows(p.v_wide));
  return first;
}

template <int kPart>
int attend(const as_paged_attention_params& p, const Numbers& n, const Launch& launch) {
  const I64 head_blocks = (n.group + kHeads - 1) / kHeads;
  const dim3 grid(static_cast<unsigned>(p.q.shape[0]),
                  static_cast<unsigned>(as_cache_heads(&p.k_cache) * head_blocks),
                  static_cast<unsigned>(n.splits));
  const auto warps = static_cast<unsigned>(std::min(n.group, kHeads));
  const auto stream = static_cast<cudaStream_t>(launch.stream);
  const I64 apart = n.k.page | n.k.row | n.k.head | p.q.shape[2];
  const bool vectors = reinterpret_cast<std::uintptr_t>(n.k.base) % 16 == 0 && apart % 8 == 0;
  const bool coded = n.k_codes.code != AS_CODE_NONE || n.v_codes.code != AS_CODE_NONE;
  const auto kernel = by_the_row(p) ? paged_attention_kernel<kPart, false, true, true>
                      : coded       ? paged_attention_kernel<kPart, false, true, false>
                      : vectors     ? paged_attention_kernel<kPart, true, false, false>
                                    : paged_attention_kernel<kPart, false, false, false>;
  kernel<<<grid, dim3(32, warps), 0, stream>>>(p, n, first_rows_of(p), head_blocks,
                                               reinterpret_cast<float*>(launch.workspace));
  return static_cast<int>(cudaGetLastError());
}

// Of the workspace: parts, then others.
std::size_t parts_bytes(const as_paged_attention_params& p, const Numbers& n) {
  if (n.splits == 1) return 0;
  return static_cast<std::size_t>(p.q.shape[0] * p.q.shape[1] * n.splits *
                                  (p.o.shape[2] + kOthers)) *
         sizeof(float);
}

// For tokens that tiles leave to others: of a tile at the border of two requests, mostly, or of no
// request at all, also where there is none.
I64 blocks_of_others(const as_paged_attention_params& p, I64 tokens) {
  return std::clamp<I64>(tokens * p.table.shape[0], 1, p.q.shape[0]);
}

// The same over rows of codes.
int take_steps_of_codes(const as_paged_attention_params& p, const Numbers& n, float* parts,
                        const Launch& launch) {
  const bool chunks = p.q.shape[0] > p.table.shape[0];
  const I64 tokens = chunks && !launch.gpu.exact ? prefill_tokens_of_codes(p, n, launch.gpu) : 0;
  if (tokens == 0) return decode_codes(p, n, parts, {}, p.q.shape[0], launch);
  const Others others{reinterpret_cast<std::int32_t*>(launch.workspace + parts_bytes(p, n))};
  const int code = prefill_codes(p, n, tokens, parts, others, launch);
  if (code != 0) return code;
  const I64 blocks = blocks_of_others(p, tokens);
  return decode_codes(p, n, parts, others, blocks, launch);
}

// Tiles of tokens that follow each other go to one kernel, all others to another; there are none
// where no request has several. Tokens of many heads are a tile each, over rows of bf16. Tiles
// round weights, to bf16 or f16: not where results are to be exact.
int take_steps(const as_paged_attention_params& p, const Numbers& n, const Launch& launch) {
  auto* parts = reinterpret_cast<float*>(launch.workspace);
  if (n.k_codes.code != AS_CODE_NONE) return take_steps_of_codes(p, n, parts, launch);
  const bool chunks = p.q.shape[0] > p.table.shape[0];
  const I64 most = launch.gpu.exact ? 0 : prefill_tokens(p, n, launch.gpu);
  const I64 tokens = chunks ? most : std::min<I64>(most, 1);
  if (tokens == 0 || (!chunks && n.group <= kHeadsOfStep)) {
    return decode(p, n, parts, {}, p.q.shape[0], launch);
  }
  const Others others{reinterpret_cast<std::int32_t*>(launch.workspace + parts_bytes(p, n))};
  if (const int code = prefill(p, n, tokens, parts, others, launch); code != 0) return code;
  const I64 blocks = blocks_of_others(p, tokens);
  return decode(p, n, parts, others, blocks, launch);
}

// Behind what the other kernels have of the workspace.
std::int32_t* cuts_in(const as_paged_attention_params& p, const Numbers& n, const Launch& launch) {
  return reinterpret_cast<std::int32_t*>(launch.workspace + parts_bytes(p, n)) +
         Others::bytes(p.q.shape[0]) / sizeof(std::int32_t);
}

template <int kPart>
int run(const as_paged_attention_params& p, Choice& choice, const Launch& launch) {
  if (p.form != AS_PAGED_ONE_PASS && choice.n.paged) {
    std::int32_t* cuts = cuts_in(p, choice.n, launch);
    find_cuts_kernel<<<1, kCutThreads, 0, static_cast<cudaStream_t>(launch.stream)>>>(
        p, choice.n.rows_of_page, cuts);
    if (const int code = launch_status(); code != 0) return code;
    choice.n.cuts = cuts;
  }
  const int code =
      choice.steps ? take_steps(p, choice.n, launch) : attend<kPart>(p, choice.n, launch);
  return code != 0 || choice.n.splits == 1 ? code : merge_parts<kPart>(p, choice.n, launch);
}

}  // namespace

std::size_t workspace_bytes(const as_paged_attention_params& p, const Gpu& gpu) {
  if (p.q.shape[0] == 0 || p.q.shape[1] == 0) return 0;
  const std::size_t cuts =
      p.form == AS_PAGED_ONE_PASS ? 0 : static_cast<std::size_t>(p.table.shape[0] + 1) * 4;
  return parts_bytes(p, choose(p, gpu).n) + Others::bytes(p.q.shape[0]) + cuts;
}

int paged_attention(const as_paged_attention_params& p, const Launch& launch) {
  if (p.q.shape[0] == 0 || p.q.shape[1] == 0) return 0;
  Choice choice = choose(p, launch.gpu);
  const I64 largest = std::max(p.q.shape[2], p.o.shape[2]);
  if (largest <= 64) return run<2>(p, choice, launch);
  if (largest <= 128) return run<4>(p, choice, launch);
  if (largest <= 256) return run<8>(p, choice, launch);
  return run<16>(p, choice, launch);
}

}  // namespace attnscope::cuda
