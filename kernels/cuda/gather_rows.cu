// gather_rows: the values of cache rows, by slot. A block a row.
#include "kernels/cuda/codec.cuh"
#include "kernels/cuda/helper_ops.h"

namespace attnscope::cuda {
namespace {

// Value d of a row.
template <int record>
__device__ __forceinline__ float value_of(const RowAddress& row, int d) {
  std::uint32_t low = 0, high = 0;
  if constexpr (record == AS_RECORD_STATE) {
    return reinterpret_cast<const float*>(row.payload)[d];
  } else if constexpr (record == AS_RECORD_LATENT) {
    if (d >= AS_NOPE_DIM) {
      return bf16_to_float(
          reinterpret_cast<const std::uint16_t*>(row.payload + AS_NOPE_DIM)[d - AS_NOPE_DIM]);
    }
    decode_e4m3x4(row.payload[d], 127u, &low, &high);
    return bf16_to_float(static_cast<std::uint16_t>(low)) *
           ue8m0_to_float(row.scales[d / AS_QUANT_BLOCK]);
  } else if constexpr (record == AS_RECORD_INDEX_FP8) {
    decode_e4m3x4(row.payload[d], 127u, &low, &high);
    return bf16_to_float(static_cast<std::uint16_t>(low)) *
           *reinterpret_cast<const float*>(row.scales);
  } else {
    const std::uint32_t code = (row.payload[d / 2] >> (4 * (d % 2))) & 0xfu;
    decode_e2m1x4(code, 127u, &low, &high);
    return bf16_to_float(static_cast<std::uint16_t>(low)) *
           ue8m0_to_float(row.scales[d / AS_MXFP4_BLOCK]);
  }
}

template <int record>
__global__ void gather_rows_kernel(as_gather_rows_params p, CacheView cache, int payload_bytes,
                                   int scale_bytes) {
  const std::int64_t n = blockIdx.x;
  const std::int64_t slot = *at<std::int64_t>(p.slots, n);
  RowAddress row{};
  if (slot >= 0) row = cache_row(cache, slot, payload_bytes, scale_bytes);
  for (int d = static_cast<int>(threadIdx.x); d < p.out.shape[1];
       d += static_cast<int>(blockDim.x)) {
    const float value = slot >= 0 ? value_of<record>(row, d) : 0.0f;
    if (p.out.dtype == AS_F32) {
      *at<float>(p.out, n, d) = value;
    } else {
      *at<std::uint16_t>(p.out, n, d) = float_to_bf16(value);
    }
  }
}

template <int record>
int launch_kernel(const as_gather_rows_params& p, const Launch& launch) {
  const auto rows = static_cast<unsigned>(p.slots.shape[0]);
  const unsigned threads = p.out.shape[1] > AS_INDEX_DIM ? 256 : 128;
  gather_rows_kernel<record><<<rows, threads, 0, static_cast<cudaStream_t>(launch.stream)>>>(
      p, cache_view(p.cache), static_cast<int>(as_payload_bytes(record, p.cache.width)),
      static_cast<int>(as_scale_bytes(record)));
  return launch_status();
}

}  // namespace

int gather_rows(const as_gather_rows_params& p, const Launch& launch) {
  if (p.slots.shape[0] == 0) return 0;
  switch (p.cache.record) {
    case AS_RECORD_LATENT:
      return launch_kernel<AS_RECORD_LATENT>(p, launch);
    case AS_RECORD_INDEX_FP8:
      return launch_kernel<AS_RECORD_INDEX_FP8>(p, launch);
    case AS_RECORD_INDEX_MXFP4:
      return launch_kernel<AS_RECORD_INDEX_MXFP4>(p, launch);
    default:
      return launch_kernel<AS_RECORD_STATE>(p, launch);
  }
}

}  // namespace attnscope::cuda
