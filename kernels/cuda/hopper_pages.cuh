// Pages of index keys on Hopper: how they are dealt out to blocks, and copies of them into shared
// memory by the copy engine.
#pragma once

#include <cuda.h>

#include <cstdint>

#include "kernels/cuda/reduce.cuh"
#include "kernels/cuda/tensor_map.h"
#include "kernels/cuda/wgmma.cuh"

namespace attnscope::cuda::hopper {

constexpr int kPageKeys = 64;

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

// What pages are copied and scores written with: a step reads each once, so that both make way
// first in the L2, the older ones before the others.
__device__ __forceinline__ std::uint64_t read_once() {
  std::uint64_t policy;
  asm("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
  return policy;
}

__device__ __forceinline__ void bulk_copy(void* to, const void* from, std::uint32_t bytes,
                                          Barrier& done) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint [%0], "
      "[%1], %2, [%3], %4;" ::"r"(shared_address(to)),
      "l"(from), "r"(bytes), "r"(done.address()), "l"(read_once())
      : "memory");
}
__device__ __forceinline__ void box_copy(void* to, const CUtensorMap* map, int page,
                                         Barrier& done) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint "
      "[%0], [%1, {%2, %2, %3}], [%4], %5;" ::"r"(shared_address(to)),
      "l"(map), "r"(0), "r"(page), "r"(done.address()), "l"(read_once())
      : "memory");
}
__device__ __forceinline__ void write_score(float* to, float score) {
  asm volatile("st.global.L2::cache_hint.f32 [%0], %1, %2;" ::"l"(to), "f"(score), "l"(read_once())
               : "memory");
}
__device__ __forceinline__ void prefetch_map(const CUtensorMap* map) {
  asm volatile("prefetch.tensormap [%0];" ::"l"(map) : "memory");
}
// Barriers that this thread has set up are known to the copy engine.
__device__ __forceinline__ void publish_barriers() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  publish_shared();
}

__device__ __forceinline__ uint4 load_shared16(std::uint32_t address) {
  uint4 v;
  asm volatile("ld.shared.v4.u32 {%0,%1,%2,%3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "r"(address)
               : "memory");
  return v;
}
__device__ __forceinline__ std::uint32_t load_shared4(std::uint32_t address) {
  std::uint32_t v;
  asm volatile("ld.shared.u32 %0, [%1];" : "=r"(v) : "r"(address) : "memory");
  return v;
}

__device__ __forceinline__ int keys_of(const as_indexer_logits_params& p, int token) {
  const int len = *at<std::int32_t>(p.lens, token);
  AS_DEVICE_CHECK(len >= 0 && len <= p.logits.shape[1]);
  return len;
}
constexpr int kLine = 128;  // bytes
// Line number `mine` of a tensor of few lines into the L2, whoever writes it yet.
__device__ __forceinline__ void fetch_line(const as_tensor& tensor, std::int64_t bytes,
                                           std::size_t mine, std::size_t most) {
  const auto lines = static_cast<std::size_t>(bytes) / kLine;
  if (lines > most || mine >= lines) return;
  prefetch(static_cast<const char*>(tensor.data) + kLine * mine);
}
__device__ __forceinline__ int pages_of(int keys) { return (keys + kPageKeys - 1) / kPageKeys; }

// The pages of all tokens in a row are dealt out in equal runs: a block's run, token after token.
// All lanes of a warp hold the same.
struct PageRun {
  int token = 0;
  int len = 0, request = 0;  // of the token
  int page = 0;              // the first of its pages that is the block's
  int left = 0;              // pages of the block from here on

  __device__ void start(const as_indexer_logits_params& p) {
    const int lane = static_cast<int>(threadIdx.x % 32);
    const int tokens = static_cast<int>(p.weights.shape[0]);
    if (tokens == 1) {
      len = keys_of(p, 0);
      request = *at<std::int32_t>(p.token_to_req);
      page = deal(pages_of(len));
      return;
    }
    // Of the first tokens, so that most calls wait for the memory once.
    int lens[kKept], asked[kKept];
    int total = 0;
#pragma unroll
    for (int k = 0; k < kKept; ++k) {
      const int t = 32 * k + lane;
      lens[k] = asked[k] = 0;
      if (t >= tokens) continue;
      lens[k] = keys_of(p, t);
      asked[k] = *at<std::int32_t>(p.token_to_req, t);
    }
#pragma unroll
    for (int k = 0; k < kKept; ++k) total += pages_of(lens[k]);
#pragma unroll 4
    for (int t = 32 * kKept + lane; t < tokens; t += 32) total += pages_of(keys_of(p, t));
    const int begin =
        deal(static_cast<int>(__reduce_add_sync(kAllLanes, static_cast<unsigned>(total))));
    if (left == 0) return;
    int before = 0;
    for (int first = 0;; first += 32) {
      int mine = lens[0], theirs = asked[0];
#pragma unroll
      for (int k = 1; k < kKept; ++k) {
        if (first == 32 * k) {
          mine = lens[k];
          theirs = asked[k];
        }
      }
      if (first >= 32 * kKept) {
        mine = theirs = 0;
        if (first + lane < tokens) {
          mine = keys_of(p, first + lane);
          theirs = *at<std::int32_t>(p.token_to_req, first + lane);
        }
      }
      const int pages = pages_of(mine);
      int upto = pages;
#pragma unroll
      for (int s = 1; s < 32; s *= 2) {
        const int other = __shfl_up_sync(kAllLanes, upto, s);
        if (lane >= s) upto += other;
      }
      upto += before;
      const unsigned past = __ballot_sync(kAllLanes, upto > begin);
      if (past != 0u) {
        const int from = __ffs(static_cast<int>(past)) - 1;
        token = first + from;
        len = __shfl_sync(kAllLanes, mine, from);
        request = __shfl_sync(kAllLanes, theirs, from);
        page = begin - __shfl_sync(kAllLanes, upto - pages, from);
        return;
      }
      before = __shfl_sync(kAllLanes, upto, 31);
    }
  }
  // Of the token.
  __device__ int here() const { return min(left, pages_of(len) - page); }
  // To the block's next token with pages; false: none is left.
  __device__ bool next(const as_indexer_logits_params& p) {
    left -= here();
    if (left == 0) return false;
    page = 0;
    do {
      ++token;
      len = keys_of(p, token);
      request = *at<std::int32_t>(p.token_to_req, token);
    } while (len == 0);
    return true;
  }

 private:
  static constexpr int kKept = 4;

  // The number of the block's first page.
  __device__ int deal(int total) {
    const int run = static_cast<int>((static_cast<unsigned>(total) + gridDim.x - 1) / gridDim.x);
    const int begin = run * static_cast<int>(blockIdx.x);
    left = max(0, min(run, total - begin));
    return begin;
  }
};

#endif

// FP8 pages as boxes of 66 rows of 128 bytes, 64 keys and their scales, swizzled as wgmma.cuh says.
// 0 or a CUDA error.
inline int map_pages(const CacheView& cache, CUtensorMap* map) {
  const auto encode = tensor_map_encoder();
  if (encode == nullptr) return cudaErrorNotSupported;
  constexpr cuuint32_t kRows = kPageKeys + kPageKeys * 4 / 128;
  const cuuint64_t size[3] = {128, kRows, static_cast<cuuint64_t>(cache.rows_total / kPageKeys)};
  const cuuint64_t strides[2] = {128, static_cast<cuuint64_t>(cache.page_stride)};
  const cuuint32_t box[3] = {128, kRows, 1}, each[3] = {1, 1, 1};
  const CUresult result =
      encode(map, CU_TENSOR_MAP_DATA_TYPE_UINT8, 3, cache.base, size, strides, box, each,
             CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
             CU_TENSOR_MAP_L2_PROMOTION_L2_128B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  return result == CUDA_SUCCESS ? cudaSuccess : cudaErrorInvalidValue;
}

}  // namespace attnscope::cuda::hopper
