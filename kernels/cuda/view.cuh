// Tensors and caches inside kernels: element addresses in 64 bits, rows of paged and logical
// caches.
#pragma once

#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/layout/records.h"
#include "kernels/params/tensor.h"

// In builds with ATTNSCOPE_CUDA_CHECKED an index out of range stops the kernel where it is met.
#ifdef ATTNSCOPE_CUDA_CHECKED
#define AS_DEVICE_CHECK(condition) \
  do {                             \
    if (!(condition)) __trap();    \
  } while (false)
#else
#define AS_DEVICE_CHECK(condition) \
  do {                             \
  } while (false)
#endif

namespace attnscope::cuda {

template <class T>
__device__ __forceinline__ T* at(const as_tensor& t, std::int64_t i = 0, std::int64_t j = 0,
                                 std::int64_t k = 0) {
  return static_cast<T*>(t.data) + i * t.stride[0] + j * t.stride[1] + k * t.stride[2];
}

__device__ __forceinline__ bool present(const as_tensor& t) { return t.data != nullptr; }

// Its line into the L2: a hint, that reads nothing.
__device__ __forceinline__ void prefetch(const void* address) {
  asm volatile("prefetch.global.L2 [%0];" ::"l"(address));
}

// A cache as kernels address it: where the row of a slot lies, without a division by page sizes
// that are not known when compiling more than once.
struct CacheView {
  unsigned char* base;
  std::int64_t page_stride;  // bytes
  std::int64_t rows_total;
  std::int32_t rows;    // in a page; 1 for a logical cache
  std::int32_t scales;  // offset of the scale plane in a page
};

struct RowAddress {
  unsigned char* payload;
  unsigned char* scales;
};

inline CacheView cache_view(const as_cache& c) {
  const bool paged = c.addressing == AS_PAGED;
  CacheView view{};
  view.base = static_cast<unsigned char*>(c.data.data);
  view.page_stride = c.data.stride[0] * (paged ? 1 : as_dtype_size(c.data.dtype));
  view.rows = paged ? c.rows_per_block : 1;
  view.rows_total = c.data.shape[0] * view.rows;
  view.scales = static_cast<std::int32_t>(view.rows * as_payload_bytes(c.record, c.width));
  return view;
}

// payload_bytes and scale_bytes: of a row of the record, known when compiling.
__device__ __forceinline__ RowAddress cache_row(const CacheView& c, std::int64_t slot,
                                                std::int32_t payload_bytes,
                                                std::int32_t scale_bytes) {
  AS_DEVICE_CHECK(slot >= 0 && slot < c.rows_total);
  std::int64_t page = slot;
  std::int32_t row = 0;
  if (c.rows > 1) {
    if (slot <= INT32_MAX) {
      const auto narrow = static_cast<std::uint32_t>(slot);
      page = narrow / static_cast<std::uint32_t>(c.rows);
      row = static_cast<std::int32_t>(narrow % static_cast<std::uint32_t>(c.rows));
    } else {
      page = slot / c.rows;
      row = static_cast<std::int32_t>(slot % c.rows);
    }
  }
  unsigned char* start = c.base + page * c.page_stride;
  return {start + row * payload_bytes, start + c.scales + row * scale_bytes};
}

inline int launch_status() { return cudaGetLastError(); }

}  // namespace attnscope::cuda
