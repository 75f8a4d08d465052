// convert_rows: rows of keys or values in another format. A warp a head of a row.
#include <cuda_fp16.h>

#include "kernels/cpu/kv_codes.h"
#include "kernels/cuda/helper_ops.h"
#include "kernels/cuda/kv_codes.cuh"

namespace attnscope::cuda {
namespace {

constexpr unsigned kConvertHeads = 4;  // of a block

// One side: pages of 16-bit numbers, or of codes in their place.
struct Side {
  cpu::KvPages pages;
  cpu::KvCodes codes;
  bool coded;
  std::int64_t rows;  // in all pages
};

Side side_of(const as_cache& cache, const as_tensor& scale) {
  const cpu::KvRows rows(cache, scale);
  return {rows.pages, rows.codes, rows.coded, cpu::cache_rows(cache)};
}

__device__ __forceinline__ std::uint16_t* place(const cpu::KvPages& c, std::int64_t slot,
                                                std::int64_t head) {
  return c.base + slot / c.rows * c.page + slot % c.rows * c.row + head * c.head;
}

// Numbers of a head as bf16; every NaN becomes 0x7fc0.
__device__ void read_head(const Side& from, std::int64_t slot, std::int64_t head, std::int64_t size,
                          std::uint16_t* out) {
  cpu::HeadScale scale;
  const unsigned char* codes = nullptr;
  const std::uint16_t* numbers = nullptr;
  if (from.coded) {
    scale = read_scale(from.codes, slot, head);
    codes = from.codes.base + codes_at(from.codes, slot, head);
  } else {
    numbers = place(from.pages, slot, head);
  }
  for (std::int64_t d = threadIdx.x; d < size; d += 32) {
    float x;
    if (codes != nullptr) {
      x = __fmul_rn(code_value(from.codes.code, codes[d], scale.zero), scale.scale);
    } else {
      x = from.pages.f16 ? __half2float(__ushort_as_half(numbers[d])) : bf16_to_float(numbers[d]);
    }
    out[d] = x != x ? std::uint16_t{0x7fc0} : float_to_bf16(x);
  }
}

__global__ void __launch_bounds__(32 * kConvertHeads)
    convert_rows_kernel(as_convert_rows_params p, Side from, Side to, std::int64_t heads,
                        std::int64_t size) {
  __shared__ std::uint16_t values[kConvertHeads][AS_MAX_HEAD_SIZE];
  const std::int64_t head = std::int64_t{blockIdx.y} * kConvertHeads + threadIdx.y;
  const std::int64_t slot = *at<std::int64_t>(p.slots, blockIdx.x);
  if (slot < 0 || head >= heads) return;
  AS_DEVICE_CHECK(slot < from.rows && slot < to.rows);
  std::uint16_t* row = values[threadIdx.y];
  read_head(from, slot, head, size, row);
  __syncwarp();
  if (to.coded) return put_codes(to.codes, slot, head, row, size);
  std::uint16_t* target = place(to.pages, slot, head);
  for (std::int64_t d = threadIdx.x; d < size; d += 32) {
    target[d] = to.pages.f16 ? __half_as_ushort(__float2half_rn(bf16_to_float(row[d]))) : row[d];
    if (to.pages.f16 && row[d] == 0x7fc0) target[d] = 0x7e00;
  }
}

}  // namespace

int convert_rows(const as_convert_rows_params& p, const Launch& launch) {
  const std::int64_t heads = as_cache_heads(&p.from);
  if (p.slots.shape[0] == 0) return 0;
  const dim3 grid(static_cast<unsigned>(p.slots.shape[0]),
                  static_cast<unsigned>((heads + kConvertHeads - 1) / kConvertHeads));
  convert_rows_kernel<<<grid, dim3(32, kConvertHeads), 0,
                        static_cast<cudaStream_t>(launch.stream)>>>(
      p, side_of(p.from, p.from_scale), side_of(p.to, p.to_scale), heads, p.from.width / heads);
  return launch_status();
}

}  // namespace attnscope::cuda
