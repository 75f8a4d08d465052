// pad_rows: rows of different length as a rectangle. A block a row.
#include "kernels/cuda/helper_ops.h"
#include "kernels/cuda/view.cuh"

namespace attnscope::cuda {
namespace {

using I64 = std::int64_t;

constexpr int kThreads = 128;

__global__ void pad_rows_kernel(as_pad_rows_params p) {
  const I64 r = blockIdx.x, first = *at<std::int32_t>(p.starts, r);
  const I64 values = *at<std::int32_t>(p.starts, r + 1) - first;
  AS_DEVICE_CHECK(first >= 0 && values >= 0 && first + values <= p.values.shape[0]);
  AS_DEVICE_CHECK(values <= p.rows.shape[1]);
  for (I64 c = threadIdx.x; c < p.rows.shape[1]; c += kThreads) {
    *at<std::int32_t>(p.rows, r, c) = c < values ? *at<std::int32_t>(p.values, first + c) : p.pad;
  }
}

}  // namespace

int pad_rows(const as_pad_rows_params& p, const Launch& launch) {
  if (p.rows.shape[0] == 0) return 0;
  const auto rows = static_cast<unsigned>(p.rows.shape[0]);
  pad_rows_kernel<<<rows, kThreads, 0, static_cast<cudaStream_t>(launch.stream)>>>(p);
  return launch_status();
}

}  // namespace attnscope::cuda
