// A piece of a row that is longer than a block holds, for the top-k: read in tiles, what may be
// among the best kept in a list. Entries of a warp are spread over its lanes one by one, and
// ballots count them.
#pragma once

#include "kernels/cuda/topk_count.cuh"

namespace attnscope::cuda::topk {

// How many chosen keys come before this warp's and in all; ties only where the cut has some.
struct Ballots {
  std::uint32_t above, ties;
  std::uint32_t all_above, all_ties;
};
template <int n, class Memory>
__device__ Ballots count_ballots(Memory& s, const std::uint32_t (&keys)[n], Cut cut, int* turn) {
  const int lane = static_cast<int>(threadIdx.x % 32), warp = static_cast<int>(threadIdx.x / 32);
  std::uint32_t above = 0, ties = 0;
#pragma unroll
  for (int j = 0; j < n; ++j) {
    above += static_cast<std::uint32_t>(__popc(__ballot_sync(kAllLanes, keys[j] > cut.key)));
  }
  if (cut.ties != 0u) {
#pragma unroll
    for (int j = 0; j < n; ++j) {
      ties += static_cast<std::uint32_t>(__popc(__ballot_sync(kAllLanes, keys[j] == cut.key)));
    }
  }
  if (lane == 0) s.chosen[*turn][warp] = above << 16 | ties;
  __syncthreads();
  const std::uint32_t other = lane < kWarps ? s.chosen[*turn][lane] : 0u;
  // At most 16 entries a thread: sums stay below 2^16.
  const std::uint32_t before = __reduce_add_sync(kAllLanes, lane < warp ? other : 0u);
  const std::uint32_t all = __reduce_add_sync(kAllLanes, other);
  *turn ^= 1;
  return {before >> 16, before & 0xffffu, all >> 16, all & 0xffffu};
}

// Calls put(j, place) for the chosen keys of this thread.
template <int n, class Put>
__device__ __forceinline__ void place_ballots(const std::uint32_t (&keys)[n], Cut cut,
                                              Ballots counts, const Put& put) {
  const std::uint32_t lower = (1u << (threadIdx.x % 32)) - 1u;
#pragma unroll
  for (int j = 0; j < n; ++j) {
    const std::uint32_t above = __ballot_sync(kAllLanes, keys[j] > cut.key);
    const std::uint32_t ties = cut.ties != 0u ? __ballot_sync(kAllLanes, keys[j] == cut.key) : 0u;
    if ((above | ties) == 0u) continue;
    const std::uint32_t rank = counts.ties + static_cast<std::uint32_t>(__popc(ties & lower));
    const std::uint32_t to =
        counts.above + static_cast<std::uint32_t>(__popc(above & lower)) + min(rank, cut.ties);
    const bool tie = keys[j] == cut.key && rank < cut.ties;
    if (keys[j] > cut.key || tie) put(j, to);
    counts.above += static_cast<std::uint32_t>(__popc(above));
    counts.ties += static_cast<std::uint32_t>(__popc(ties));
  }
}

// Neighbouring entries of a warp: a multiple of 32 of n entries spread over the warps.
__device__ __forceinline__ int chunk_of(int n) { return (n + kThreads - 1) / kThreads * 32; }

// Reads a piece of `length` scores in tiles; the list gets at least its min(k, length) best, and
// what of others was not known to be worse. Returns how many.
template <class Memory>
__device__ int fill_list(Memory& s, const float* scores, int length, std::uint32_t k, int* turn,
                         int* count_turn) {
  const int lane = static_cast<int>(threadIdx.x % 32), warp = static_cast<int>(threadIdx.x / 32);
  const int tiles = (length + kThreads * kTile - 1) / (kThreads * kTile);
  const int chunk = chunk_of((length + tiles - 1) / tiles);
  float next[kTile];
  auto fetch = [&](int tile) {
    const int first = tile * chunk * kWarps + warp * chunk + lane;
#pragma unroll
    for (int j = 0; j < kTile; ++j) {
      next[j] = j * 32 < chunk && first + j * 32 < length ? scores[first + j * 32] : 0.0f;
    }
  };
  fetch(0);
  std::uint32_t floor = 1;  // keys below it are not among the best
  int listed = 0;
#pragma unroll 1
  for (int tile = 0; tile < tiles; ++tile) {
    const int first = tile * chunk * kWarps + warp * chunk + lane;
    std::uint32_t keys[kTile];
#pragma unroll
    for (int j = 0; j < kTile; ++j) {
      keys[j] = j * 32 < chunk && first + j * 32 < length ? order_key(next[j]) : 0u;
    }
    if (tile + 1 < tiles) fetch(tile + 1);
    if (tile == 0) {
      // Bests of one, two or four groups of a thread's entries: at least twice as many as k.
      std::uint32_t best[4] = {keys[0], keys[1], keys[2], keys[3]};
#pragma unroll
      for (int j = 4; j < kTile; ++j) best[j % 4] = max(best[j % 4], keys[j]);
      if (k <= kThreads) {
        best[0] = max(best[0], best[2]);
        best[1] = max(best[1], best[3]);
        best[2] = best[3] = 0;
      }
      if (2 * k <= kThreads) {
        best[0] = max(best[0], best[1]);
        best[1] = 0;
      }
      std::uint32_t* histogram = s.histogram[*turn];
#pragma unroll
      for (int g = 0; g < 4; ++g) {
        if (best[g] != 0u) atomicAdd(&histogram[best[g] >> (32 - kBits)], 1u);
      }
      clear(s, *turn ^ 1);
      __syncthreads();
      if (scan(s, histogram, k) >= k) floor = max(s.found.bin << (32 - kBits), 1u);
      *turn ^= 1;
    }
    Cut cut{floor - 1u, 0u};
    Ballots counts = count_ballots(s, keys, cut, count_turn);
    if (listed + static_cast<int>(counts.all_above) > kList) {
      if (listed > static_cast<int>(k)) {
        std::uint32_t held[kPer];
        std::int32_t entries[kPer];
        const int part = chunk_of(listed);
#pragma unroll
        for (int j = 0; j < kPer; ++j) {
          const int c = warp * part + j * 32 + lane;
          const bool any = j * 32 < part && c < listed;
          held[j] = any ? s.keys[c] : 0u;
          entries[j] = any ? s.entries[c] : 0;
        }
        cut = find_cut<1, kPer>(
            s, [&](int j) { return held[j]; }, k, turn);
        counts = count_ballots(s, held, cut, count_turn);  // all have read the list
        place_ballots(held, cut, counts, [&](int j, std::uint32_t to) {
          s.keys[to] = held[j];
          s.entries[to] = entries[j];
        });
        listed = static_cast<int>(k);
        floor = max(floor, cut.key + 1u);
        cut = {floor - 1u, 0u};
        counts = count_ballots(s, keys, cut, count_turn);
      }
      if (listed + static_cast<int>(counts.all_above) > kList) {
        cut = find_cut<1, kTile>(
            s, [&](int j) { return keys[j]; }, k, turn);
        counts = count_ballots(s, keys, cut, count_turn);
        floor = max(floor, cut.key + 1u);
      }
    }
    place_ballots(keys, cut, {counts.above + static_cast<std::uint32_t>(listed), counts.ties, 0, 0},
                  [&](int j, std::uint32_t to) {
                    s.keys[to] = keys[j];
                    s.entries[to] = first + j * 32;
                  });
    listed += static_cast<int>(counts.all_above + min(counts.all_ties, cut.ties));
  }
  __syncthreads();
  return listed;
}

// Writes the chosen entries of the piece of `length` scores that begins at `begin`. listed: some
// piece of the row is longer than kList.
template <int pieces, class Memory>
__device__ __forceinline__ void select_tiled(Memory& s, const float* scores, int begin, int length,
                                             bool listed, std::uint32_t k, std::int32_t* out) {
  const int lane = static_cast<int>(threadIdx.x % 32), warp = static_cast<int>(threadIdx.x / 32);
  int turn = 0, count_turn = 0, held = length;
  std::uint32_t keys[kPer];
  if (listed) {
    __syncthreads();
    held = fill_list(s, scores, length, k, &turn, &count_turn);
  }
  const int chunk = chunk_of(held), first = warp * chunk + lane;
  if (listed) {
#pragma unroll
    for (int j = 0; j < kPer; ++j) {
      keys[j] = j * 32 < chunk && first + j * 32 < held ? s.keys[first + j * 32] : 0u;
    }
  } else {
    float score[kPer];
#pragma unroll
    for (int j = 0; j < kPer; ++j) {
      score[j] = j * 32 < chunk && first + j * 32 < held ? scores[first + j * 32] : 0.0f;
    }
#pragma unroll
    for (int j = 0; j < kPer; ++j) {
      keys[j] = j * 32 < chunk && first + j * 32 < held ? order_key(score[j]) : 0u;
    }
    __syncthreads();
  }
  all_began<pieces>();
  const Cut cut = find_cut<pieces, kPer>(
      s, [&](int j) { return keys[j]; }, k, &turn);
  Ballots counts = count_ballots(s, keys, cut, &count_turn);
  const uint2 before = chosen_before<pieces>(s, counts.all_above, counts.all_ties);
  counts.above += before.x;
  counts.ties += before.y;
  place_ballots(keys, cut, counts, [&](int j, std::uint32_t to) {
    const int entry = first + j * 32;
    out[to] = begin + (listed ? s.entries[entry] : entry);
  });
}

}  // namespace attnscope::cuda::topk
