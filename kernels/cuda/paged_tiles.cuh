// What ops of attention_tiles.cuh say where tiles are tokens of paged_attention that follow each
// other in a request.
#pragma once

#include "kernels/cuda/attention_tiles.cuh"

namespace attnscope::cuda::paged {

struct PagedTiles {
  as_paged_attention_params p;
  Numbers n;
  I64 group;
  I64 tokens;  // of a tile
  float* parts;
  Others others;

  __device__ __forceinline__ bool find(I64 number, tiles::Tile& tile) const {
    // Later tokens see more: they begin first.
    tile.begin = ((p.q.shape[0] - 1) / tokens - number) * tokens;
    tile.tokens = min(tokens, p.q.shape[0] - tile.begin);
    const std::int32_t request = *at<std::int32_t>(p.token_to_req, tile.begin);
    tile.request = tiles::all_of_copiers(follows(p, tile.begin, request, threadIdx.x, tile.tokens))
                       ? request
                       : -1;
    return tile.request >= 0;
  }
  __device__ __forceinline__ void leave(const tiles::Tile& tile) const {
    others.add(tile.begin, tile.tokens, [] { hopper::barrier_wait(tiles::kCopying, 128); });
  }
  __device__ __forceinline__ Seen seen(I64 token, I64 request) const {
    return seen_by(p, token, request);
  }
  __device__ __forceinline__ Seen part(const Seen& rows) const {
    return part_of(rows, n.splits, blockIdx.z);
  }
  __device__ __forceinline__ float* part_of_head(I64 token, I64 head) const {
    return n.splits > 1 ? part_at(p, n, parts, token, head, blockIdx.z) : nullptr;
  }
  __device__ __forceinline__ float total(I64 head, float best, float sum) const {
    return total_of(p, head, best, sum);
  }
};

// Tokens of a tile of so many query rows, of heads that are written two dims at a time; 0 = not so.
inline I64 tokens_of_tile(const as_paged_attention_params& p, const Numbers& n,
                          const tiles::Fit& fit, const Gpu& gpu) {
  if (!gpu.hopper || fit.rows == 0 || gpu.shared_memory < static_cast<std::size_t>(fit.bytes)) {
    return 0;
  }
  const bool pairs = p.o.stride[2] == 1 && p.o.shape[2] % 2 == 0 && p.o.stride[0] % 2 == 0 &&
                     p.o.stride[1] % 2 == 0;
  return pairs ? fit.rows / std::min<I64>(n.group, fit.rows) : 0;
}

}  // namespace attnscope::cuda::paged
