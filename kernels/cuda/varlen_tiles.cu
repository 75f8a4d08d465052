// varlen_attention on Hopper, by the tiles of attention_tiles.cuh: a tile has tokens of one
// sequence, and a box is a whole tile of keys wherever they begin. What a sequence has behind its
// keys are those of the next, which no query sees.
#include "kernels/cuda/attention_tiles.cuh"
#include "kernels/cuda/varlen_tiles.h"

namespace attnscope::cuda::varlen {

using tiles::I64;
using tiles::Seen;

struct VarlenOp {
  as_varlen_attention_params p;
  I64 group;
  int box_rows;
  int panels_k, panels_v;
  I64 tokens;  // of a tile

  __device__ __forceinline__ I64 sequences() const { return p.cu_seqlens.shape[0] - 1; }
  // Where a sequence's tokens begin; behind the last one those that no sequence has, then their
  // end.
  __device__ __forceinline__ I64 start(I64 sequence) const {
    return sequence > sequences() ? p.q.shape[0] : *at<std::int32_t>(p.cu_seqlens, sequence);
  }
  __device__ __forceinline__ I64 key_start(I64 sequence) const {
    return *at<std::int32_t>(present(p.cu_seqlens_k) ? p.cu_seqlens_k : p.cu_seqlens, sequence);
  }

  // Tiles are numbered sequence by sequence: every warp looks for the block's, 32 sequences at a
  // time.
  __device__ __forceinline__ bool find(I64 wanted, tiles::Tile& tile) const {
    const I64 lane = threadIdx.x % 32, all = sequences() + 1;
    I64 before = 0;
    for (I64 first = 0; first < all; first += 32) {
      const I64 mine = min(first + lane, all), begin = start(mine);
      const I64 length = mine < all ? start(mine + 1) - begin : 0;
      const auto count = static_cast<int>((length + tokens - 1) / tokens);
      int upto = count;
#pragma unroll
      for (int s = 1; s < 32; s *= 2) {
        const int other = __shfl_up_sync(kAllLanes, upto, s);
        if (lane >= s) upto += other;
      }
      const unsigned past = __ballot_sync(kAllLanes, before + upto > wanted);
      if (past != 0) {
        const int from = __ffs(static_cast<int>(past)) - 1;
        const I64 skipped = (wanted - before - __shfl_sync(kAllLanes, upto - count, from)) * tokens;
        tile.begin = __shfl_sync(kAllLanes, begin, from) + skipped;
        tile.tokens = min(tokens, __shfl_sync(kAllLanes, length, from) - skipped);
        tile.request = first + from;
        return true;
      }
      before += __shfl_sync(kAllLanes, upto, 31);
    }
    return false;
  }
  __device__ __forceinline__ void leave(const tiles::Tile&) const {}
  __device__ __forceinline__ Seen seen(I64 token, I64 sequence) const {
    Seen s;
    if (sequence == sequences()) return s;
    const I64 key = key_start(sequence), keys = key_start(sequence + 1) - key;
    AS_DEVICE_CHECK(key >= 0 && keys >= 0 && key + keys <= p.k.shape[0]);
    s.position = keys - (start(sequence + 1) - token);
    s.end = keys;
    if (p.causal != 0) s.end = min(s.end, s.position + 1);
    if (p.window_right >= 0) s.end = min(s.end, s.position + p.window_right + 1);
    if (p.window_left >= 0) s.first = max(I64{0}, s.position - p.window_left);
    return s;
  }
  __device__ __forceinline__ Seen part(const Seen& rows) const { return rows; }
  __device__ __forceinline__ I64 first_row(const Seen& rows) const { return rows.first; }
  __device__ __forceinline__ tiles::Box box(I64 sequence, I64 row) const {
    return {static_cast<int>(key_start(sequence) + row), 0};
  }
  __device__ __forceinline__ const std::uint16_t* value_row(I64 sequence, I64 row, I64 head) const {
    return at<std::uint16_t>(p.v, key_start(sequence) + row, head);
  }
  __device__ __forceinline__ float* part_of_head(I64, I64) const { return nullptr; }
  __device__ __forceinline__ float total(I64, float, float sum) const { return sum; }
};

namespace {

tiles::Fit fit_of(const as_varlen_attention_params& p) {
  return tiles::fit_of(std::max(p.q.shape[2], p.o.shape[2]));
}

tiles::Rows rows_of(const as_tensor& t) {
  return {t.data, t.shape[2],  t.shape[1],  t.shape[0],
          1,      t.stride[1], t.stride[0], t.shape[0] * t.stride[0]};
}

}  // namespace

bool takes(const as_varlen_attention_params& p, const Gpu& gpu) {
  const tiles::Fit fit = fit_of(p);
  I64 apart = p.q.shape[2] | p.o.shape[2];
  std::uintptr_t addresses = 0;
  for (const as_tensor* t : {&p.q, &p.k, &p.v}) {
    apart |= t->stride[0] | t->stride[1];
    addresses |= reinterpret_cast<std::uintptr_t>(t->data);
  }
  const bool chunks = apart % 8 == 0 && addresses % 16 == 0;
  const bool pairs = (p.o.stride[0] | p.o.stride[1]) % 2 == 0 &&
                     reinterpret_cast<std::uintptr_t>(p.o.data) % 4 == 0;
  return gpu.hopper && !gpu.exact && fit.rows > 0 && p.k.shape[0] > 0 && chunks && pairs &&
         gpu.shared_memory >= static_cast<std::size_t>(fit.bytes);
}

int attend_tiles(const as_varlen_attention_params& p, const Launch& launch) {
  const tiles::Fit fit = fit_of(p);
  CUtensorMap k{}, v{};
  int mapped = tiles::map_rows(rows_of(p.k), fit.keys, &k);
  if (mapped == 0) mapped = tiles::map_rows(rows_of(p.v), fit.keys, &v);
  if (mapped != 0) return mapped;
  const I64 group = p.q.shape[1] / p.k.shape[1];
  const I64 tokens = fit.rows / std::min<I64>(group, fit.rows);
  // At most: every sequence, and what no sequence has, may end in a tile that is not full.
  const I64 most = std::min(p.q.shape[0], p.q.shape[0] / tokens + p.cu_seqlens.shape[0]);
  const VarlenOp op{p, group, fit.keys, 0, 0, tokens};
  const auto launch_for = [&]<int kDims> {
    return tiles::launch_tiles<tiles::Shape<kDims, false>>(op, most, p.k.shape[1], 1, k, v, launch);
  };
  return fit.dims == 64    ? launch_for.template operator()<64>()
         : fit.dims == 128 ? launch_for.template operator()<128>()
                           : launch_for.template operator()<256>();
}

}  // namespace attnscope::cuda::varlen
