// compact_tables: the blocks that a table still has, in their order. A warp a row: of 32 columns at
// once each lane that keeps its entry counts those before it.
#include "kernels/cuda/helper_ops.h"
#include "kernels/cuda/view.cuh"

namespace attnscope::cuda {
namespace {

using I64 = std::int64_t;

constexpr unsigned kAllLanes = 0xffffffffu;

__global__ void compact_tables_kernel(as_compact_tables_params p) {
  const I64 r = blockIdx.x, length = *at<std::int32_t>(p.lens, r);
  const int lane = static_cast<int>(threadIdx.x);
  AS_DEVICE_CHECK(length >= 0 && length <= p.table.shape[1]);
  I64 kept = 0;
  for (I64 base = 0; base < length; base += 32) {
    const I64 c = base + lane;
    const std::int32_t block = c < length ? *at<std::int32_t>(p.table, r, c) : -1;
    const bool keep = block >= 0 && block != p.null_block;
    const unsigned lanes = __ballot_sync(kAllLanes, keep);
    if (keep) {
      const I64 k = kept + __popc(lanes & ((1u << lane) - 1u));
      *at<std::int32_t>(p.compact, r, k) = block;
      *at<std::int32_t>(p.columns, r, k) = static_cast<std::int32_t>(c);
    }
    kept += __popc(lanes);
  }
  if (lane == 0) *at<std::int32_t>(p.kept, r) = static_cast<std::int32_t>(kept);
  for (I64 k = kept + lane; k < p.table.shape[1]; k += 32) {
    *at<std::int32_t>(p.compact, r, k) = -1;
    *at<std::int32_t>(p.columns, r, k) = -1;
  }
}

}  // namespace

int compact_tables(const as_compact_tables_params& p, const Launch& launch) {
  if (p.table.shape[0] == 0) return 0;
  const auto rows = static_cast<unsigned>(p.table.shape[0]);
  compact_tables_kernel<<<rows, 32, 0, static_cast<cudaStream_t>(launch.stream)>>>(p);
  return launch_status();
}

}  // namespace attnscope::cuda
