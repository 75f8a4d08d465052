// In place of the CUDA lane in builds without it.
#include "kernels/cuda/cuda_lane.h"
#include "kernels/cuda/helper_lane.h"

namespace attnscope::cuda {
namespace {

constexpr char kWhy[] =
    "this build has no CUDA lane; configure it with ATTNSCOPE_CUDA=ON where nvcc is installed";

}  // namespace

const as_lane* lane() {
  static const as_lane kLane = {sizeof(as_lane), AS_LANE_VERSION, "cuda", kWhy, {}};
  return &kLane;
}

const as_helper_lane* helper_lane() {
  static const as_helper_lane kLane = {sizeof(as_helper_lane), AS_LANE_VERSION, "cuda", kWhy, {}};
  return &kLane;
}

}  // namespace attnscope::cuda
