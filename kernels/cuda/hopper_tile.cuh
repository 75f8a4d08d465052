// What the warpgroups of Hopper's attention share: the block's memory, its barriers, and the two
// forms in which it multiplies.
//
// Four warpgroups: one scores tiles of 64 entries and sums value dims 0 to 255, one sums dims 256
// to 511 with the weights of the first, two gather rows and decode them. Two tiles are in shared
// memory; each has two halves of 256 dims, which are filled and given back one by one.
#pragma once

#include <type_traits>

#include "kernels/cuda/attention.cuh"
#include "kernels/cuda/wgmma.cuh"
#include "kernels/layout/mla_rows.h"
#include "kernels/params/mla_params.h"

namespace attnscope::cuda::hopper {

using portable::kDim;
using portable::kMinusInf;
using portable::kRowChunks;
using portable::kTile;
using portable::Lists;
using portable::Parts;

constexpr int kHeads = 64;   // of a block
constexpr int kGroup = 128;  // threads of a warpgroup
constexpr int kThreads = 4 * kGroup;
constexpr int kHalf = kDim / 2;  // value dims of a computing warpgroup
constexpr std::uint32_t kPanel = kTile * 128;

// The two kinds of rows. Values are dims 0 to 511 of both.
struct RecordRows {  // DeepSeek-V4: 448 codes with UE8M0 scales, 64 bf16
  static constexpr int kWidth = kDim;
  static constexpr int kWeights = 2;  // tiles whose weights have a place
  static constexpr int kForms = 2;    // the exact form too
};
struct MlaRows {  // absorbed MLA: 512 codes with fp32 scales, 64 bf16 that are no values
  static constexpr int kWidth = AS_MLA_WIDTH;
  static constexpr int kWeights = 1;
  static constexpr int kForms = 1;
};

// The near-exact form multiplies in fp16, whose eleven bits hold every e4m3 code times the scale of
// its row and round a weight eight times finer than bf16. Rows are 2^8 of their value there, so
// that UE8M0 codes from the smallest that the quantiser writes up to 126 (values up to 224) are
// exact, as are queries up to 65504 but for bits below 2^-24. What is larger is noticed, and the
// block starts again in the exact form: bf16, each weight as the sum of two. Codes times an fp32
// scale are rounded to fp16 once.
constexpr int kRowBits = 8;
constexpr std::uint32_t kSmallestCode = 105;  // ceil(log2(1e-4 / 448)) + 127

template <class Rows>
struct alignas(1024) Shared {
  unsigned char queries[kHeads * Rows::kWidth * 2];
  unsigned char rows[2][kTile * Rows::kWidth * 2];
  // By tile; rounded, and what that cut off.
  unsigned char weights[Rows::kWeights][Rows::kForms][kHeads * kTile * 2];
  std::uint32_t valid[2][8];  // by tile and eight rows: four bits a row
  float factors[2][kHeads];   // of the values so far, by tile
  float last[kHeads];         // of the values in the end
  float sinks[kHeads];        // outside clusters
  std::uint32_t grew[2][4];   // by tile and sixteen heads: factors are not all 1
  std::uint32_t misfit;       // 1: fp16 does not hold some value
  // What the first warpgroup leaves to the second: by tile weights and factors, in the end `last`.
  Barrier weights_there[2], last_there;
  Barrier weights_taken;  // the other way, where tiles share a place
  Barrier all_done;       // the whole block
  Barrier parts_there;    // from the other blocks of the cluster
};
template <class Rows>
constexpr std::size_t kBytes = sizeof(Shared<Rows>) + 1024;  // the base may have to move up
static_assert(kBytes<RecordRows> <= 232448 && kBytes<MlaRows> <= 232448);  // what a block may have

// Named barriers, of two warpgroups each. Those of a tile's halves come in fours: half * 2 +
// buffer; kReady by gathering warpgroup. Faster than barriers in shared memory for who waits; those
// are where a warpgroup hands over what it stored, which tools follow through them alone.
constexpr int kFull = 1, kEmpty = 5, kScored = 9, kQueries = 10, kReady = 11, kRest = 13;
constexpr int kPartners = 2 * kGroup;

// Where the rows of a cache lie; a slot's page by one product.
struct Pages {
  const unsigned char* base;
  std::int64_t stride;  // bytes
  std::int64_t total;   // rows
  std::uint32_t rows;   // of a page
  std::uint32_t magic, shift;
  std::uint32_t scales;  // offset of the scale plane
};
struct Sources {
  Pages pages[2];
};

inline Pages pages_of(const as_cache& cache) {
  const CacheView view = cache_view(cache);
  Pages pages{};
  pages.base = view.base;
  pages.stride = view.page_stride;
  pages.total = view.rows_total;
  pages.rows = static_cast<std::uint32_t>(view.rows);
  pages.scales = static_cast<std::uint32_t>(view.scales);
  std::uint32_t bits = 0;
  while ((std::uint64_t{1} << bits) < pages.rows) ++bits;
  if (bits > 0) {  // n / rows = n * magic >> (32 + shift) for n below 2^31
    pages.magic = static_cast<std::uint32_t>(((std::uint64_t{1} << (31 + bits)) + pages.rows - 1) /
                                             pages.rows);
    pages.shift = bits - 1;
  }
  return pages;
}

inline Sources sources_of(const as_sparse_attention_params& p) {
  Sources sources{};
  sources.pages[0] = pages_of(p.cache);
  if (p.extra_cache.record != AS_RECORD_NONE) sources.pages[1] = pages_of(p.extra_cache);
  return sources;
}

// Where the row of a slot would lie, whether there is one or not.
template <class Rows>
__device__ __forceinline__ RowAddress place_at(const Pages& pages, std::uint32_t slot) {
  std::uint32_t page = slot, row = 0;
  if (pages.rows > 1) {
    page = __umulhi(slot, pages.magic) >> pages.shift;
    row = slot - page * pages.rows;
  }
  auto* start = const_cast<unsigned char*>(pages.base) + page * pages.stride;
  if constexpr (std::is_same_v<Rows, MlaRows>) {
    start += row * std::uint32_t{AS_LATENT_656_BYTES};
    return {start, start + AS_LATENT_656_SCALES};
  }
  return {start + row * 576u, start + pages.scales + row * 8u};
}
template <class Rows>
__device__ __forceinline__ RowAddress row_at(const Pages& pages, std::uint32_t slot) {
  AS_DEVICE_CHECK(slot < pages.total);
  return place_at<Rows>(pages, slot);
}

// By the block's first warp; the others meet it at kQueries or kReady before they use a barrier.
template <class Rows>
__device__ __forceinline__ void init(Shared<Rows>& shared) {
  if (threadIdx.x == 0) {
    shared.misfit = 0;
    shared.weights_there[0].init(kGroup);
    shared.weights_there[1].init(kGroup);
    shared.last_there.init(kGroup);
    shared.weights_taken.init(kGroup);
    shared.all_done.init(kThreads);
    shared.parts_there.init(1);
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  }
  __syncwarp();
  barrier_arrive(kReady, 32 + kGroup);
  barrier_arrive(kReady + 1, 32 + kGroup);
}

// Whether any of the block's threads says so.
template <class Rows>
__device__ __forceinline__ bool any_of_block(Shared<Rows>& shared, bool mine) {
  if (__any_sync(kAllLanes, mine) != 0 && threadIdx.x % 32 == 0) atomicExch(&shared.misfit, 1u);
  shared.all_done.come();
  shared.all_done.wait(0);
  return shared.misfit != 0;
}

}  // namespace attnscope::cuda::hopper
