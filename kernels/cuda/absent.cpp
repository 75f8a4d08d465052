// In place of the CUDA lane in builds without it.
#include "kernels/cuda/cuda_lane.h"

namespace attnscope::cuda {

const as_lane* lane() {
  static const as_lane kLane = {
      sizeof(as_lane),
      AS_LANE_VERSION,
      "cuda",
      "this build has no CUDA lane; configure it with ATTNSCOPE_CUDA=ON where nvcc is installed",
      {}};
  return &kLane;
}

}  // namespace attnscope::cuda
