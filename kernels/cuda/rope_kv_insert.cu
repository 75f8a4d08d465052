// rope_kv_insert: norm and RoPE of queries and keys, keys and values into their caches. A warp a
// head of a token: those of q first, then those of k with their v.
#include <cuda_fp16.h>

#include "kernels/cpu/kv_codes.h"
#include "kernels/cpu/paged_checks.h"
#include "kernels/cuda/codec.cuh"
#include "kernels/cuda/kv_codes.cuh"
#include "kernels/cuda/ops.h"
#include "kernels/cuda/reduce.cuh"

namespace attnscope::cuda {
namespace {

constexpr unsigned kHeads = 4;  // of a block

// A cache that rows go to.
struct Rows {
  cpu::KvPages pages;
  cpu::KvCodes codes;  // in their place where rows are codes
  std::int64_t total;  // rows in all pages
};
Rows rows_of(const as_cache& cache, const as_tensor& scale) {
  const cpu::KvRows rows(cache, scale);
  return {rows.pages, rows.codes, cpu::cache_rows(cache)};
}

// What a kernel needs besides the params.
struct Places {
  Rows k, v;
  Rows k_wide, v_wide;   // of first tokens in 16 bits, with `wide`
  std::int64_t rotated;  // dims
  bool queries;
  bool alone;  // queries, and no rows
  bool wide;
};

__device__ __forceinline__ std::uint16_t* place(const cpu::KvPages& c, std::int64_t slot,
                                                std::int64_t head) {
  return c.base + slot / c.rows * c.page + slot % c.rows * c.row + head * c.head;
}

__device__ __forceinline__ void put(const Rows& rows, std::int64_t slot, std::int64_t head,
                                    const std::uint16_t* values, std::int64_t size) {
  AS_DEVICE_CHECK(slot < rows.total);
  if (rows.codes.code != AS_CODE_NONE) return put_codes(rows.codes, slot, head, values, size);
  std::uint16_t* to = place(rows.pages, slot, head);
  for (std::int64_t d = threadIdx.x; d < size; d += 32) {
    to[d] =
        rows.pages.f16 ? __half_as_ushort(__float2half_rn(bf16_to_float(values[d]))) : values[d];
  }
}

// x, a head in shared memory, normalised, rotated and rounded to `out`.
__device__ void make_head(const as_rope_kv_insert_params& p, const Places& places,
                          const std::uint16_t* raw, const as_tensor& weight, std::int64_t token,
                          std::int64_t size, float* x, std::uint16_t* out) {
  float squares = 0.0f;
  for (std::int64_t d = threadIdx.x; d < size; d += 32) {
    x[d] = bf16_to_float(raw[d]);
    squares = __fmaf_rn(x[d], x[d], squares);
  }
  if (present(weight)) {
    const float factor = inverse_rms(warp_sum(squares), size, p.eps);
    for (std::int64_t d = threadIdx.x; d < size; d += 32) {
      const float w = bf16_to_float(*at<std::uint16_t>(weight, d));
      x[d] = __fmul_rn(__fmul_rn(x[d], factor), p.weight_plus_one != 0 ? __fadd_rn(1.0f, w) : w);
    }
  }
  __syncwarp();
  const std::int64_t half = places.rotated / 2;
  if (half > 0) {
    const std::int64_t position = *at<std::int64_t>(p.positions, token);
    AS_DEVICE_CHECK(position >= 0 && position < p.rope.table.shape[0]);
    const float* row = at<float>(p.rope.table, position);
    for (std::int64_t i = threadIdx.x; i < half; i += 32) {
      const std::int64_t a = p.style == AS_ROPE_GPTJ ? 2 * i : i;
      const std::int64_t b = p.style == AS_ROPE_GPTJ ? 2 * i + 1 : i + half;
      const float c = row[i], s = row[half + i], first = x[a], second = x[b];
      x[a] = __fsub_rn(__fmul_rn(first, c), __fmul_rn(second, s));
      x[b] = __fadd_rn(__fmul_rn(second, c), __fmul_rn(first, s));
    }
    __syncwarp();
  }
  for (std::int64_t d = threadIdx.x; d < size; d += 32) out[d] = float_to_bf16(x[d]);
  __syncwarp();
}

__global__ void __launch_bounds__(32 * kHeads)
    rope_kv_insert_kernel(as_rope_kv_insert_params p, Places places) {
  __shared__ float values[kHeads][AS_MAX_HEAD_SIZE];
  __shared__ std::uint16_t keys[kHeads][AS_MAX_HEAD_SIZE];
  const bool given = p.rows_given != 0;
  const bool alone = places.alone;
  const as_tensor& source = alone ? p.q : given ? p.k_row : p.k;
  const std::int64_t t = blockIdx.x, size = source.shape[2];
  const std::int64_t heads = places.queries ? p.q.shape[1] : 0;
  const std::int64_t item = std::int64_t{blockIdx.y} * kHeads + threadIdx.y;
  float* x = values[threadIdx.y];
  if (item < heads) {
    make_head(p, places, at<std::uint16_t>(p.q, t, item), p.q_weight, t, size, x,
              at<std::uint16_t>(p.q_out, t, item));
    return;
  }
  const std::int64_t g = item - heads;
  if (alone || g >= source.shape[1]) return;
  const std::uint16_t* key = keys[threadIdx.y];
  if (given) {
    key = at<std::uint16_t>(p.k_row, t, g);
  } else {
    make_head(p, places, at<std::uint16_t>(p.k, t, g), p.k_weight, t, size, x, keys[threadIdx.y]);
    if (present(p.k_row)) {
      std::uint16_t* to = at<std::uint16_t>(p.k_row, t, g);
      for (std::int64_t d = threadIdx.x; d < size; d += 32) to[d] = key[d];
    }
  }
  const std::uint16_t* value = at<std::uint16_t>(p.v, t, g);
  const std::int64_t wide_slot = places.wide ? *at<std::int64_t>(p.wide_slots, t) : -1;
  if (wide_slot >= 0) {
    put(places.k_wide, wide_slot, g, key, size);
    put(places.v_wide, wide_slot, g, value, p.v.shape[2]);
  }
  const std::int64_t slot = *at<std::int64_t>(p.slots, t);
  if (slot < 0) return;
  put(places.k, slot, g, key, size);
  put(places.v, slot, g, value, p.v.shape[2]);
}

}  // namespace

int rope_kv_insert(const as_rope_kv_insert_params& p, const Launch& launch) {
  const bool alone = as_queries_alone(&p) != 0;
  const as_tensor& source = alone ? p.q : p.rows_given != 0 ? p.k_row : p.k;
  Places places{};
  if (!alone) {
    places.k = rows_of(p.k_cache, p.k_scale);
    places.v = rows_of(p.v_cache, p.v_scale);
    places.wide = cpu::has_wide_rows(p);
  }
  if (places.wide) {
    places.k_wide = rows_of(p.k_wide, as_tensor{});
    places.v_wide = rows_of(p.v_wide, as_tensor{});
  }
  places.rotated = cpu::rotary_dim(p.rope);
  places.alone = alone;
  places.queries = p.rows_given == 0 && p.q.data != nullptr;
  const std::int64_t items = (alone ? 0 : source.shape[1]) + (places.queries ? p.q.shape[1] : 0);
  if (source.shape[0] == 0 || items == 0) return 0;
  const dim3 grid(static_cast<unsigned>(source.shape[0]),
                  static_cast<unsigned>((items + kHeads - 1) / kHeads));
  const auto stream = static_cast<cudaStream_t>(launch.stream);
  rope_kv_insert_kernel<<<grid, dim3(32, kHeads), 0, stream>>>(p, places);
  return static_cast<int>(cudaGetLastError());
}

}  // namespace attnscope::cuda
