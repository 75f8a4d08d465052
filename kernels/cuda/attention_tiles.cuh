// Attention of queries that follow each other in a sequence, on Hopper: a block has a tile of them
// and a KV head. One warpgroup has the copy engine fetch keys and values, whole boxes of rows at a
// time; two others score 64 query rows each, and take the scores of the next rows while
// the values of those before are summed. Weights are rounded to bf16, as public kernels do it.
//
// Where rows lie, which a query sees and what becomes of results is said by the op (Op below):
//   params p           with q, o, lse, alibi_slopes, scale, soft_cap
//   I64 group          query heads of a KV head
//   int box_rows       of a box, which divide a tile's keys
//   int panels_k, panels_v  of 64 columns from one head to the next, for grouped boxes
//   bool find(i, tile) begin, tokens and request of tile i, by all threads; false = none
//   void leave(tile)   by one block, what find said false to
//   Seen seen(t, r)    rows that token t of request r sees
//   Seen part(rows)    the block's share of them
//   I64 first_row(r)   where tiles of these rows begin, a box's first row
//   Box box(r, row)    the place of a box that begins at a row, in the tensor maps
//   value_row(r, row, g)  the values of a row's head
//   float* part_of_head(t, h)  where a head's part goes, null = it is the whole
//   float total(h, best, sum)  what weights are divided by
//
// Of 64 query rows a lane has those of mma.cuh in its warp's 16.
#pragma once

#include "kernels/cuda/paged_steps.cuh"
#include "kernels/cuda/tensor_map.h"
#include "kernels/cuda/wgmma.cuh"

namespace attnscope::cuda::tiles {

using hopper::Barrier;
using paged::I64;
using paged::Seen;

// The rows of a tile, by the dims that heads are padded to: 64, 128 or 256. Keys and values lie in
// panels of 64 columns; `grouped`, a box that has all columns brings eight rows of every panel,
// then the next eight.
template <int kDims_, bool grouped>
struct Shape {
  static constexpr int kDims = kDims_;
  static constexpr bool kGrouped = grouped;
  static constexpr int kGroups = 2;           // that compute
  static constexpr int kRows = kGroups * 64;  // of queries
  static constexpr int kKeys = kDims == 256 ? 64 : 128;
  static constexpr int kStages = kDims == 64 ? 4 : kDims == 128 ? 3 : 2;
  static constexpr int kCopiers = 128;  // threads
  static constexpr int kThreads = kCopiers + kGroups * 128;
  static constexpr int kPanels = kDims / 64;
  static constexpr int kPanel = kKeys * 128;  // bytes of 64 columns of its rows
  static constexpr int kTileBytes = kPanels * kPanel;
  static constexpr int kPanelStep = grouped ? 1024 : kPanel;
  static constexpr int kGroupStep = grouped ? kPanels * 1024 : 1024;  // eight rows
  static constexpr int kQueryPanel = kRows * 128;
  static constexpr int kBytes = kPanels * kQueryPanel + 2 * kStages * kTileBytes + 1024;
  // Registers of a thread that copies and of one that computes.
  static constexpr int kFew = kDims == 256 ? 40 : 56;
  static constexpr int kMany = kDims == 256 ? 232 : 224;

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

template <class S>
struct Shared {
  Barrier full_k[S::kStages], full_v[S::kStages], empty_k[S::kStages], empty_v[S::kStages];
  Barrier landed;  // values that are looked through before they are full
  // Of all tokens: the first row that one sees, the end of those that one sees, and the rows that
  // all see.
  int first, end, all_first, all_end;
  // By stage and warp of copiers: rows with a NaN or an infinity that not all queries see.
  std::uint32_t unusual[S::kStages][S::kCopiers / 32];
  // All queries see these rows.
  __device__ __forceinline__ bool whole(I64 row, const Seen& rows) const {
    return row >= max(I64{all_first}, rows.first) && row + S::kKeys <= min(I64{all_end}, rows.end);
  }
};

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
// whose copies are done.
template <class S>
__device__ __forceinline__ void hide_unusual(std::uint32_t values, std::uint32_t* rows) {
  const int row = threadIdx.x;
  __syncwarp();
  bool found = false;
  if (row < S::kKeys) {
#pragma unroll
    for (int chunk = 0; chunk < S::kDims / 8; ++chunk) {
      uint4 word;
      asm volatile("ld.shared.v4.u32 {%0,%1,%2,%3}, [%4];"
                   : "=r"(word.x), "=r"(word.y), "=r"(word.z), "=r"(word.w)
                   : "r"(values + S::offset(row, chunk))
                   : "memory");
      for (const std::uint32_t pair : {word.x, word.y, word.z, word.w}) {
        found |= (pair & 0x7f80u) == 0x7f80u || (pair & 0x7f800000u) == 0x7f800000u;
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

// Boxes of a tile of rows, one a thread; all copiers come to a barrier with every tile.
template <class S, class Op>
__device__ __forceinline__ void copy_all(const Op& op, const Tile& tile, const Seen& rows,
                                         const CUtensorMap* k, const CUtensorMap* v,
                                         Shared<S>& shared) {
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
  Place<S> place;
  int looks = 0;
  I64 row = op.first_row(rows);
  Box box = box_in(row);
  for (; row < rows.end; row += S::kKeys) {
    const Box next = box_in(row + S::kKeys);
    shared.empty_k[place.stage].wait(place.parity ^ 1);
    copy(tiles.keys_of(place.stage), k, op.panels_k, box, shared.full_k[place.stage]);
    shared.empty_v[place.stage].wait(place.parity ^ 1);
    std::uint32_t* unusual = shared.unusual[place.stage];
    if (shared.whole(row, rows)) {
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

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

template <class S, class Op>
struct Computer {
  const Op& op;
  const Tile& tile;
  const Seen& rows;
  Shared<S>& shared;
  int group;
  const Tiles<S> tiles{};

  std::int32_t first[2] = {0, 0}, end[2] = {0, 0};  // that the lane's two query rows see
  I64 token[2];
  int head[2];
  bool any[2];
  paged::Exponents exponents{};
  paged::Weights weights;
  float o[S::kDims / 2] = {};
  std::uint32_t packed[S::kKeys / 16][4] = {};

  __device__ __forceinline__ void prepare() {
    const int thread = threadIdx.x % 128, lane = thread % 32, warp = thread / 32;
    exponents.scale = static_cast<float>(op.p.scale);
    exponents.cap = static_cast<float>(op.p.soft_cap);
    for (int i = 0; i < 2; ++i) {
      const int row = group * 64 + warp * 16 + lane / 4 + 8 * i;
      token[i] = row / tile.heads;
      head[i] = row % tile.heads;
      any[i] = false;
      if (token[i] >= tile.tokens) {
        token[i] = -1;
        continue;
      }
      token[i] += tile.begin;
      const Seen seen = op.seen(token[i], tile.request);
      any[i] = seen.first < seen.end;
      first[i] = static_cast<std::int32_t>(max(seen.first, rows.first));
      end[i] = static_cast<std::int32_t>(min(seen.end, rows.end));
      exponents.position[i] = static_cast<std::int32_t>(seen.position);
      if (present(op.p.alibi_slopes)) {
        exponents.slope[i] = *at<float>(op.p.alibi_slopes, tile.first_head + head[i]);
      }
    }
    constexpr int kChunks = S::kDims / 8;
    const int size = static_cast<int>(op.p.q.shape[2]);
#pragma unroll 1
    for (int i = thread; i < 64 * kChunks; i += 128) {
      const int row = group * 64 + i / kChunks, chunk = i % kChunks;
      const I64 t = row / tile.heads;
      const bool there = t < tile.tokens && chunk * 8 < size;
      paged::copy_chunk(tiles.queries + hopper::panel_offset<S::kRows>(row, chunk),
                        there ? at<std::uint16_t>(op.p.q, tile.begin + t,
                                                  tile.first_head + row % tile.heads, chunk * 8)
                              : op.p.q.data,
                        there);
    }
    paged::end_copies();
    paged::wait_copies<0>();
    hopper::publish_shared();
    hopper::barrier_wait(group + 1, 128);
  }

  __device__ __forceinline__ void start_scores(int stage, float (&s)[S::kKeys / 2]) {
    const std::uint64_t q = hopper::uniform_descriptor(tiles.queries + group * 64 * 128, 16);
    const std::uint64_t k = hopper::uniform_descriptor(tiles.keys_of(stage), 16, S::kGroupStep);
#pragma unroll
    for (int step = 0; step < S::kDims / 16; ++step) {
      const std::uint64_t a = hopper::further(q, step / 4 * S::kQueryPanel + step % 4 * 32);
      const std::uint64_t b = hopper::further(k, step / 4 * S::kPanelStep + step % 4 * 32);
      if constexpr (S::kKeys == 64) {
        hopper::step_64x64<true>(s, a, b, step > 0);
      } else {
        hopper::step_64x128_rows<true>(s, a, b, step > 0);
      }
    }
    hopper::end_steps();
  }
  __device__ __forceinline__ void start_values(int stage) {
    const std::uint64_t v =
        hopper::uniform_descriptor(tiles.values_of(stage), S::kPanelStep, S::kGroupStep);
#pragma unroll
    for (int step = 0; step < S::kKeys / 16; ++step) {
      const std::uint64_t b = hopper::further(v, step * 2 * S::kGroupStep);
      if constexpr (S::kDims == 64) {
        hopper::step_64x64_columns<true>(o, packed[step], b);
      } else {
#pragma unroll
        for (int half = 0; half < S::kDims / 128; ++half) {
          hopper::step_64x128<true>(o + 64 * half, packed[step],
                                    hopper::further(b, 2 * half * S::kPanelStep));
        }
      }
    }
    hopper::end_steps();
  }
  __device__ __forceinline__ void scale_values(const float (&factor)[2]) {
#pragma unroll
    for (int i = 0; i < S::kDims / 2; ++i) o[i] *= factor[i % 4 / 2];
  }

  // Rows of values whose place was taken by zeros, for the queries that see them.
  __device__ __forceinline__ void add_unusual(int stage, I64 row) {
    constexpr int kPairs = S::kKeys / 4;
    std::uint32_t weights_of[kPairs];
#pragma unroll
    for (int i = 0; i < kPairs; ++i) weights_of[i] = packed[i / 4][i % 4];
    const int lane = threadIdx.x % 32, size_v = static_cast<int>(op.p.o.shape[2]);
    for (int c = 0; c < S::kKeys; ++c) {
      if ((shared.unusual[stage][c / 32] >> c % 32 & 1) == 0) continue;
      if (row + c < rows.first || row + c >= rows.end) continue;
      const std::uint16_t* from = op.value_row(tile.request, row + c, tile.kv_head);
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const std::uint32_t pair = __shfl_sync(
            kAllLanes, weights_of[c / 16 * 4 + c % 16 / 8 * 2 + i], lane / 4 * 4 + c % 8 / 2);
        const float weight = c % 2 == 0 ? paged::low_bf16(pair) : paged::high_bf16(pair);
        if (row + c < first[i] || row + c >= end[i]) continue;
#pragma unroll
        for (int d = 0; d < S::kDims / 4; ++d) {
          const int dim = d / 2 * 8 + lane % 4 * 2 + d % 2;
          const float v = dim < size_v ? bf16_to_float(from[dim]) : 0.0f;
          float& sum = o[d / 2 * 4 + 2 * i + d % 2];
          sum = fmaf(weight, v, sum);
        }
      }
    }
  }
  __device__ __forceinline__ void values_done(const Place<S>& place, I64 row) {
    const auto& unusual = shared.unusual[place.stage];
    if ((unusual[0] | unusual[1] | unusual[2] | unusual[3]) != 0) add_unusual(place.stage, row);
    shared.empty_v[place.stage].come();
  }
  __device__ __forceinline__ void weigh(float (&s)[S::kKeys / 2], I64 row, float (&factor)[2]) {
    weights.take<S::kKeys, true>(reinterpret_cast<float(&)[S::kKeys / 8][4]>(s), exponents,
                                 !shared.whole(row, rows), static_cast<std::int32_t>(row), first,
                                 end, factor);
  }
  __device__ __forceinline__ void pack(const float (&s)[S::kKeys / 2]) {
    const auto& weights_of = reinterpret_cast<const float(&)[S::kKeys / 8][4]>(s);
#pragma unroll
    for (int step = 0; step < S::kKeys / 16; ++step) {
      paged::pack_weights(weights_of[2 * step], weights_of[2 * step + 1], packed[step]);
    }
  }

  __device__ __forceinline__ void run() {
    if (rows.first >= rows.end) return;
    Place<S> place, before;
    float s[S::kKeys / 2], factor[2];
    shared.full_k[0].wait(0);
    hopper::begin_steps();
    start_scores(0, s);
    hopper::wait_steps<0>();
    shared.empty_k[0].come();
    I64 row = op.first_row(rows);
    weigh(s, row, factor);
    pack(s);
    place.next();
    row += S::kKeys;
    for (; row < rows.end; row += S::kKeys) {
      shared.full_k[place.stage].wait(place.parity);
      shared.full_v[before.stage].wait(before.parity);
      hopper::begin_steps();
      start_scores(place.stage, s);
      start_values(before.stage);
      hopper::wait_steps<1>();
      shared.empty_k[place.stage].come();
      weigh(s, row, factor);
      hopper::wait_steps<0>();
      values_done(before, row - S::kKeys);
      scale_values(factor);
      pack(s);
      before = place;
      place.next();
    }
    shared.full_v[before.stage].wait(before.parity);
    hopper::begin_steps();
    start_values(before.stage);
    hopper::wait_steps<0>();
    values_done(before, row - S::kKeys);
  }

  __device__ __forceinline__ void finish() {
    weights.sum_up();
    const int column = 2 * (threadIdx.x % 4), size_v = static_cast<int>(op.p.o.shape[2]);
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      if (token[i] < 0) continue;
      const I64 t = token[i], h = tile.first_head + head[i];
      const float best = weights.best[i] * paged::kLn2, sum = weights.sum[i];
      if (float* to = op.part_of_head(t, h); to != nullptr) {
        if (column == 0) {
          to[0] = best;
          to[1] = sum;
        }
#pragma unroll
        for (int d = 0; d < S::kDims / 4; ++d) {
          const int dim = d / 2 * 8 + column + d % 2;
          if (dim < size_v) to[paged::kOthers + dim] = o[d / 2 * 4 + 2 * i + d % 2];
        }
        continue;
      }
      const float share = any[i] ? 1.0f / op.total(h, best, sum) : 0.0f;
      std::uint16_t* to = at<std::uint16_t>(op.p.o, t, h) + column;
#pragma unroll
      for (int d = 0; d < S::kDims / 8; ++d) {
        const float low = o[4 * d + 2 * i], high = o[4 * d + 2 * i + 1];
        if (d * 8 + column < size_v) {
          *reinterpret_cast<std::uint32_t*>(to + d * 8) =
              paged::pack_bf16(low * share, high * share);
        }
      }
      if (column == 0) {
        *at<float>(op.p.lse, t, h) = any[i] ? paged::lse_of(best, sum) : paged::minus_infinity();
      }
    }
  }
};

#endif

template <class S, class Op>
__global__ void __launch_bounds__(S::kThreads, 1)
    tiles_kernel(const __grid_constant__ Op op, int heads, std::uint32_t of_tile,
                 std::uint32_t head_blocks, const __grid_constant__ CUtensorMap k,
                 const __grid_constant__ CUtensorMap v) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  __shared__ Shared<S> shared;
  Tile tile;
  // A tile's heads are neighbours, so that where the first tiles take longest all of those begin
  // first.
  const std::uint32_t number = blockIdx.x / of_tile, of_number = blockIdx.x - number * of_tile;
  if (!op.find(number, tile)) {
    if (of_number == 0 && blockIdx.z == 0) op.leave(tile);
    return;
  }
  tile.kv_head = of_number / head_blocks;
  const I64 block = of_number - tile.kv_head * head_blocks;
  tile.first_head = tile.kv_head * op.group + block * heads;
  tile.heads = static_cast<int>(min(I64{heads}, op.group - block * heads));
  if (threadIdx.x == 0) {
    for (int i = 0; i < S::kStages; ++i) {
      shared.full_k[i].init(S::kCopiers);
      shared.full_v[i].init(S::kCopiers);
      shared.empty_k[i].init(S::kGroups * 128);
      shared.empty_v[i].init(S::kGroups * 128);
    }
    shared.landed.init(S::kCopiers);
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    shared.first = shared.all_end = INT32_MAX;
    shared.end = shared.all_first = 0;
  }
  hopper::publish_shared();
  __syncthreads();
  if (threadIdx.x < tile.tokens) {
    const Seen seen = op.seen(tile.begin + threadIdx.x, tile.request);
    atomicMin(&shared.first, static_cast<int>(seen.first));
    atomicMax(&shared.end, static_cast<int>(seen.end));
    atomicMax(&shared.all_first, static_cast<int>(seen.first));
    atomicMin(&shared.all_end, static_cast<int>(seen.end));
  }
  __syncthreads();
  Seen rows;
  rows.first = __shfl_sync(kAllLanes, shared.first, 0);
  rows.end = __shfl_sync(kAllLanes, shared.end, 0);
  rows = op.part(rows);
  if (threadIdx.x < S::kCopiers) {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(S::kFew));
    if (rows.first < rows.end) copy_all<S>(op, tile, rows, &k, &v, shared);
  } else {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(S::kMany));
    const int group = __shfl_sync(kAllLanes, static_cast<int>(threadIdx.x) / 128 - 1, 0);
    Computer<S, Op> computer{op, tile, rows, shared, group};
    computer.prepare();
    computer.run();
    computer.finish();
  }
#else
  static_cast<void>(op), static_cast<void>(heads);
  static_cast<void>(of_tile), static_cast<void>(head_blocks);
  static_cast<void>(k), static_cast<void>(v);
#endif
}

// What shapes say of a tile for heads of `size` dims: 0 rows = there is none.
struct Fit {
  int dims, rows, keys, bytes;
};
template <int kDims>
constexpr Fit fit() {
  using S = Shape<kDims, false>;
  return {kDims, S::kRows, S::kKeys, S::kBytes};
}
inline Fit fit_of(I64 size) {
  if (size <= 64) return fit<64>();
  if (size <= 128) return fit<128>();
  if (size <= 256) return fit<256>();
  return {};
}

// A tensor [pages, rows, heads, size] of bf16 as boxes of 64 numbers of `box_rows` rows of a head,
// swizzled as wgmma.cuh says; strides in numbers. 0 or a CUDA error.
struct Rows {
  const void* data;
  I64 size, heads, rows, pages;
  I64 head_stride, row_stride, page_stride;
};
inline int map_rows(const Rows& r, int box_rows, CUtensorMap* map) {
  const auto encode = hopper::tensor_map_encoder();
  if (encode == nullptr) return cudaErrorNotSupported;
  const auto wide = [](I64 v) { return static_cast<cuuint64_t>(v); };
  const cuuint64_t sizes[4] = {wide(r.size), wide(r.heads), wide(r.rows), wide(r.pages)};
  const cuuint64_t strides[3] = {wide(2 * r.head_stride), wide(2 * r.row_stride),
                                 wide(2 * r.page_stride)};
  const cuuint32_t box[4] = {64, 1, static_cast<cuuint32_t>(box_rows), 1}, each[4] = {1, 1, 1, 1};
  const CUresult result =
      encode(map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 4, const_cast<void*>(r.data), sizes, strides,
             box, each, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
             CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  return result == CUDA_SUCCESS ? cudaSuccess : cudaErrorInvalidValue;
}

// The same as boxes of all columns of a head, which are whole panels and `panels` apart from head
// to head: eight rows of every panel, then the next eight.
inline int map_groups(const Rows& r, int box_rows, CUtensorMap* map) {
  const auto encode = hopper::tensor_map_encoder();
  if (encode == nullptr) return cudaErrorNotSupported;
  const auto wide = [](I64 v) { return static_cast<cuuint64_t>(v); };
  const I64 panels = r.size / 64;
  const cuuint64_t sizes[5] = {64, 8, wide((r.heads - 1) * (r.head_stride / 64) + panels),
                               wide(r.rows / 8), wide(r.pages)};
  const cuuint64_t strides[4] = {wide(2 * r.row_stride), 128, wide(16 * r.row_stride),
                                 wide(2 * r.page_stride)};
  const cuuint32_t box[5] = {64, 8, static_cast<cuuint32_t>(panels),
                             static_cast<cuuint32_t>(box_rows / 8), 1};
  const cuuint32_t each[5] = {1, 1, 1, 1, 1};
  const CUresult result =
      encode(map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 5, const_cast<void*>(r.data), sizes, strides,
             box, each, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
             CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  return result == CUDA_SUCCESS ? cudaSuccess : cudaErrorInvalidValue;
}

// Blocks for `tiles` tiles of every KV head, in `splits` parts.
template <class S, class Op>
int launch_tiles(const Op& op, I64 tiles, I64 kv_heads, I64 splits, const CUtensorMap& k,
                 const CUtensorMap& v, cudaStream_t stream) {
  const auto kernel = tiles_kernel<S, Op>;
  const cudaError_t code =
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, S::kBytes);
  if (code != cudaSuccess) return code;
  const I64 heads = std::min<I64>(op.group, S::kRows);
  const auto head_blocks = static_cast<std::uint32_t>((op.group + heads - 1) / heads);
  const auto of_tile = static_cast<std::uint32_t>(kv_heads) * head_blocks;
  const dim3 grid(static_cast<unsigned>(tiles) * of_tile, 1, static_cast<unsigned>(splits));
  kernel<<<grid, S::kThreads, S::kBytes, stream>>>(op, static_cast<int>(heads), of_tile,
                                                   head_blocks, k, v);
  return static_cast<int>(cudaGetLastError());
}

}  // namespace attnscope::cuda::tiles
