// slot_mapping: the slot each new row goes to, per cache group and per compressed cache.
#include "kernels/cuda/ops.h"
#include "kernels/cuda/view.cuh"

namespace attnscope::cuda {
namespace {

// Slot of the row that holds units of `ratio` tokens and ends with this position, -1 if it does not
// end here. rows: per block.
__device__ std::int64_t slot_of(const as_slot_mapping_params& p, int group, int request,
                                std::int64_t position, std::int64_t rows, std::int64_t ratio) {
  if ((position + 1) % ratio != 0) return -1;
  const std::int64_t row = position / ratio;
  AS_DEVICE_CHECK(row / rows < p.tables.shape[2]);
  return *at<std::int32_t>(p.tables, group, request, row / rows) * rows + row % rows;
}

// as_first_with_rows (step_params.h): how many tokens of a request have rows, -1 = all.
__device__ std::int64_t first_with_rows(std::int32_t reach) {
  return reach < -(1 << 30) ? std::int64_t{reach} - INT32_MIN : -1;
}

__global__ void slot_mapping_kernel(as_slot_mapping_params p) {
  const std::int64_t t = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (t >= p.positions.shape[0]) return;
  const int groups = static_cast<int>(p.groups.shape[0]);
  const int request = *at<std::int32_t>(p.token_to_req, t);
  const std::int64_t position = *at<std::int64_t>(p.positions, t);
  const bool padding = request < 0;
  for (int g = 0; g < groups; ++g) {
    const std::int64_t rows = *at<std::int32_t>(p.groups, g);
    const std::int64_t most = first_with_rows(*at<std::int32_t>(p.groups, g, 1));
    const bool none = padding || (most >= 0 && position >= most);
    *at<std::int64_t>(p.slots, g, t) = none ? -1 : slot_of(p, g, request, position, rows, 1);
  }
  const std::int64_t mla = p.mla_group >= 0 ? *at<std::int32_t>(p.groups, p.mla_group) : 0;
  if (present(p.c4_slots)) {
    *at<std::int64_t>(p.c4_slots, t) =
        padding ? -1 : slot_of(p, p.mla_group, request, position, mla / 4, 4);
  }
  if (present(p.c128_slots)) {
    *at<std::int64_t>(p.c128_slots, t) =
        padding ? -1 : slot_of(p, p.mla_group, request, position, mla / 128, 128);
  }
  if (present(p.c4_lens)) {
    *at<std::int32_t>(p.c4_lens, t) = padding ? 0 : static_cast<std::int32_t>((position + 1) / 4);
  }
  if (present(p.seen_lens)) {
    *at<std::int32_t>(p.seen_lens, t) = padding ? 0 : static_cast<std::int32_t>(position + 1);
  }
}

}  // namespace

int slot_mapping(const as_slot_mapping_params& p, const Launch& launch) {
  const std::int64_t tokens = p.positions.shape[0];
  if (tokens == 0) return 0;
  const auto blocks = static_cast<unsigned>((tokens + 127) / 128);
  slot_mapping_kernel<<<blocks, 128, 0, static_cast<cudaStream_t>(launch.stream)>>>(p);
  return launch_status();
}

}  // namespace attnscope::cuda
