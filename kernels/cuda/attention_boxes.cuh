// What blocks of attention_tiles.cuh have in shared memory, and how the copying warpgroup fills it.
#pragma once

#include "kernels/cuda/paged_steps.cuh"
#include "kernels/cuda/tensor_map.h"
#include "kernels/cuda/wgmma.cuh"

namespace attnscope::cuda::tiles {

using hopper::Barrier;
using paged::Exponents;
using paged::I64;
using paged::Seen;

// The rows of a tile, by the dims that heads are padded to: 64, 128 or 256. Keys and values lie in
// panels of 64 columns; `grouped`, a box that has all columns brings eight rows of every panel,
// then the next eight; `coded`, they are f16, of codes (attention_codes.cuh).
template <int kDims_, bool grouped, bool coded = false>
struct Shape {
  static constexpr int kDims = kDims_;
  static constexpr bool kGrouped = grouped;
  static constexpr bool kCoded = coded;
  // Blocks take one tile after another; where registers are few that is slower.
  static constexpr bool kGoesOn = kDims < 256 && !coded;
  static constexpr int kGroups = 2;           // that compute
  static constexpr int kRows = kGroups * 64;  // of queries
  static constexpr int kKeys = kDims == 256 ? 64 : 128;
  static constexpr int kStages = kDims == 64 ? 4 : kDims == 128 && !coded ? 3 : 2;
  static constexpr int kCopiers = 128;                        // threads
  static constexpr int kRowsOfBits = coded ? kKeys / 4 : 32;  // of a word of bits of rows
  static constexpr int kThreads = kCopiers + kGroups * 128;
  static constexpr int kPanels = kDims / 64;
  static constexpr int kPanel = kKeys * 128;  // bytes of 64 columns of its rows
  static constexpr int kTileBytes = kPanels * kPanel;
  static constexpr int kPanelStep = grouped ? 1024 : kPanel;
  static constexpr int kGroupStep = grouped ? kPanels * 1024 : 1024;  // eight rows
  static constexpr int kQueryPanel = kRows * 128;
  static constexpr int kBytes = kPanels * kQueryPanel + 2 * kStages * kTileBytes + 1024;
  // Registers of a thread that copies and of one that computes.
  static constexpr int kFew = coded ? 72 : kDims == 256 ? 40 : 56;
  static constexpr int kMany = coded ? 216 : kDims == 256 ? 232 : 224;

  // Byte offset of a 16-byte chunk of a key or of values.
  static __device__ __forceinline__ std::uint32_t offset(int row, int chunk) {
    return static_cast<std::uint32_t>(row / 8 * kGroupStep + chunk / 8 * kPanelStep +
                                      row % 8 * 128 + ((chunk % 8) ^ (row & 7)) * 16);
  }
};

struct Box {
  int row, page;
};

// A tile's tokens, and the heads of its KV head that it has.
struct Tile {
  I64 begin, tokens, request, kv_head, first_head;
  int heads;
};

// By stage: scales of its keys and values, where rows have them, and by warp of copiers the largest
// exponent of the latter; by query row what undoes its power of two.
template <class S, bool coded>
struct Scales {};
template <class S>
struct Scales<S, true> {
  alignas(8) float k_scale[S::kStages][S::kKeys];
  alignas(8) float v_scale[S::kStages][S::kKeys];
  int v_top[S::kStages][S::kCopiers / 32];
  float back[S::kRows];
};

// What the copiers tell of a tile: the rows that one of its tokens sees (the block's share of
// them), those that all see, or that there is none any more.
struct Told {
  Tile tile;
  Seen rows;
  int all_first, all_end;
  bool there;

  // All queries see the `keys` rows from `row` on.
  __device__ __forceinline__ bool whole(I64 row, int keys) const {
    return row >= max(I64{all_first}, rows.first) && row + keys <= min(I64{all_end}, rows.end);
  }
};

template <class S>
struct Shared : Scales<S, S::kCoded> {
  Barrier full_k[S::kStages], full_v[S::kStages], empty_k[S::kStages], empty_v[S::kStages];
  Barrier landed;  // values that are looked through before they are full
  // By turn: the next tile is known; nobody looks at that of two turns before any more.
  Barrier tile_there[2], tile_done[2];
  Told told[2];
  // By warp of copiers: of its tokens, as the rows of a Told.
  int bounds[S::kCopiers / 32][4];
  // By stage and warp of copiers: rows with a NaN or an infinity that not all queries see.
  std::uint32_t unusual[S::kStages][S::kCopiers / 32];
};

// Named barriers: of the computing warpgroups group + 1, of the copiers this.
constexpr int kCopying = 3;
__device__ __forceinline__ bool all_of_copiers(bool mine) {
  std::uint32_t all;
  asm volatile(
      "{\n.reg .pred p;\nsetp.ne.u32 p, %1, 0;\n"
      "barrier.cta.red.and.aligned.pred p, %2, %3, p;\nselp.u32 %0, 1, 0, p;\n}\n"
      : "=r"(all)
      : "r"(mine ? 1u : 0u), "n"(kCopying), "n"(128)
      : "memory");
  return all != 0;
}

// Where tiles lie in shared memory: queries, keys by stage, values by stage. Of operands that are
// the same in all lanes without the compiler's looking at memory, so that it keeps them, and the
// descriptors made from them, in uniform registers.
template <class S>
struct Tiles {
  std::uint32_t queries, keys, values;

  __device__ __forceinline__ Tiles() {
    extern __shared__ unsigned char memory[];
    queries = (shared_address(memory) + 1023) / 1024 * 1024;
    keys = queries + S::kPanels * S::kQueryPanel;
    values = keys + S::kStages * S::kTileBytes;
  }
  __device__ __forceinline__ std::uint32_t keys_of(int stage) const {
    return keys + stage * S::kTileBytes;
  }
  __device__ __forceinline__ std::uint32_t values_of(int stage) const {
    return values + stage * S::kTileBytes;
  }
};

// Place in the ring of stages, and the parity of its phase.
template <class S>
struct Place {
  int stage = 0, parity = 0;
  __device__ __forceinline__ void next() {
    if (++stage == S::kStages) {
      stage = 0;
      parity ^= 1;
    }
  }
};

// All panels of a box of a head, by one thread, which comes to the barrier with them. `panels`: of
// 64 columns from one head to the next, where boxes have all of a head's.
template <class S>
__device__ __forceinline__ void copy_box(std::uint32_t to, const CUtensorMap* map, int kv_head,
                                         int panels, Box box, int rows, Barrier& done) {
  done.come_and_expect(static_cast<std::uint32_t>(S::kPanels * rows * 128));
  if constexpr (S::kGrouped) {
    asm volatile(
        "cp.async.bulk.tensor.5d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, "
        "{%2, %2, %3, %4, %5}], [%6];" ::"r"(to),
        "l"(map), "r"(0), "r"(kv_head * panels), "r"(box.row / 8), "r"(box.page),
        "r"(done.address())
        : "memory");
  } else {
#pragma unroll
    for (int panel = 0; panel < S::kPanels; ++panel) {
      asm volatile(
          "cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, "
          "{%2, %3, %4, %5}], [%6];" ::"r"(to + panel * S::kPanel),
          "l"(map), "r"(panel * 64), "r"(kv_head), "r"(box.row), "r"(box.page), "r"(done.address())
          : "memory");
    }
  }
}

// A query that does not see a row would still multiply it by zero: where a row of values that not
// all see holds a NaN or an infinity, zeros take its place and its bit is set. A thread a row,
// whose copies are done; unusual: it is one in any case.
template <class S>
__device__ __forceinline__ void hide_unusual(std::uint32_t values, std::uint32_t* rows,
                                             bool unusual = false) {
  constexpr std::uint32_t kHigh = S::kCoded ? 0x7c000000u : 0x7f800000u, kLow = kHigh >> 16;
  const int lane = threadIdx.x % 32, row = threadIdx.x / 32 * S::kRowsOfBits + lane;
  __syncwarp();
  const bool there = lane < S::kRowsOfBits && row < S::kKeys;
  bool found = unusual && there;
  if (there) {
#pragma unroll
    for (int chunk = 0; chunk < S::kDims / 8; ++chunk) {
      uint4 word;
      asm volatile("ld.shared.v4.u32 {%0,%1,%2,%3}, [%4];"
                   : "=r"(word.x), "=r"(word.y), "=r"(word.z), "=r"(word.w)
                   : "r"(values + S::offset(row, chunk))
                   : "memory");
      for (const std::uint32_t pair : {word.x, word.y, word.z, word.w}) {
        found |= (pair & kLow) == kLow || (pair & kHigh) == kHigh;
      }
    }
  }
  const std::uint32_t all = __ballot_sync(kAllLanes, found);
  if (threadIdx.x % 32 == 0) rows[threadIdx.x / 32] = all;
  if (!found) return;
  for (int chunk = 0; chunk < S::kDims / 8; ++chunk) {
    asm volatile("st.shared.v4.u32 [%0], {%1,%1,%1,%1};" ::"r"(values + S::offset(row, chunk)),
                 "r"(0)
                 : "memory");
  }
}

// Boxes of a tile of rows, one a thread; all copiers come to a barrier with every tile. looks: how
// often `landed` was waited for.
template <class S, class Op>
__device__ __forceinline__ void copy_all(const Op& op, const Told& told, const CUtensorMap* k,
                                         const CUtensorMap* v, Shared<S>& shared, Place<S>& place,
                                         int& looks) {
  const Tile& tile = told.tile;
  const Seen& rows = told.rows;
  const int of_box = op.box_rows, kv_head = static_cast<int>(tile.kv_head);
  const int mine = static_cast<int>(threadIdx.x) * of_box;
  const auto box_in = [&](I64 row) {
    const bool there = mine < S::kKeys && row + mine < rows.end;
    return there ? op.box(tile.request, row + mine) : Box{-1, -1};
  };
  const auto copy = [&](std::uint32_t to, const CUtensorMap* map, int panels, Box box,
                        Barrier& done) {
    if (box.row < 0) return done.come();
    copy_box<S>(to + mine / 8 * S::kGroupStep, map, kv_head, panels, box, of_box, done);
  };
  const Tiles<S> tiles;
  I64 row = op.first_row(rows);
  Box box = box_in(row);
  for (; row < rows.end; row += S::kKeys) {
    const Box next = box_in(row + S::kKeys);
    shared.empty_k[place.stage].wait(place.parity ^ 1);
    copy(tiles.keys_of(place.stage), k, op.panels_k, box, shared.full_k[place.stage]);
    shared.empty_v[place.stage].wait(place.parity ^ 1);
    std::uint32_t* unusual = shared.unusual[place.stage];
    if (told.whole(row, S::kKeys)) {
      if (threadIdx.x % 32 == 0) unusual[threadIdx.x / 32] = 0;
      copy(tiles.values_of(place.stage), v, op.panels_v, box, shared.full_v[place.stage]);
    } else {
      copy(tiles.values_of(place.stage), v, op.panels_v, box, shared.landed);
      shared.landed.wait(looks++ % 2);
      hide_unusual<S>(tiles.values_of(place.stage), unusual);
      hopper::publish_shared();
      shared.full_v[place.stage].come();
    }
    box = next;
    place.next();
  }
}

}  // namespace attnscope::cuda::tiles
