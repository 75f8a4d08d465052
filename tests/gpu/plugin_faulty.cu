// A plugin whose residual takes tensors on the GPU, with one fault, chosen when it is compiled:
// FAULT=NAME. Without a fault it is right.
#include <attnscope_plugin.h>

#include <cstring>

namespace {

enum Fault {
  NONE,
  DEFAULT_STREAM,
  ILLEGAL_ADDRESS,
  ENDLESS,
  WRITE_BEHIND,
  WRITE_BEFORE,
  WRITE_INPUT,
  BAD_LAUNCH,
  FROM_THE_HOST,
  CRASH
};
constexpr Fault kFault = FAULT;

__device__ volatile int forever = 1;

__device__ float from_bf16(unsigned short bits) {
  return __uint_as_float(static_cast<unsigned>(bits) << 16);
}

__device__ unsigned short to_bf16(float value) {
  const unsigned bits = __float_as_uint(value);
  return static_cast<unsigned short>((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
}

__global__ void residual_kernel(const unsigned short* h, const unsigned short* y,
                                unsigned short* out, long long count) {
  const long long first = blockIdx.x * static_cast<long long>(blockDim.x) + threadIdx.x;
  const long long all = gridDim.x * static_cast<long long>(blockDim.x);
  for (long long i = first; i < count; i += all) {
    out[i] = to_bf16(from_bf16(h[i]) + from_bf16(y[i]));
  }
  if (first != 0) return;
  if (kFault == ILLEGAL_ADDRESS) *reinterpret_cast<volatile int*>(forever - 1LL) = 1;
  if (kFault == ENDLESS) {
    while (forever) {
    }
  }
  if (kFault == WRITE_BEHIND) out[count] = 1;
  if (kFault == WRITE_BEFORE) out[-1] = 1;
  if (kFault == WRITE_INPUT) const_cast<unsigned short*>(h)[3] ^= 1;
}

int32_t residual(const void* params, const as_call* call, as_error* err) {
  const auto& p = *static_cast<const as_residual_params*>(params);
  if (p.h.device != 1 || p.y.device != 1 || p.out.device != 1) {
    std::strcpy(err->message, "a tensor lies on the host");
    return AS_BAD_INPUT;
  }
  if (kFault == FROM_THE_HOST) *static_cast<volatile char*>(p.out.data) = 1;
  if (kFault == CRASH) *reinterpret_cast<volatile int*>(p.h.rank - 2LL) = 1;
  const auto stream = kFault == DEFAULT_STREAM ? nullptr : static_cast<cudaStream_t>(call->stream);
  residual_kernel<<<4, kFault == BAD_LAUNCH ? 5000 : 128, 0, stream>>>(
      static_cast<const unsigned short*>(p.h.data), static_cast<const unsigned short*>(p.y.data),
      static_cast<unsigned short*>(p.out.data), p.h.shape[0] * p.h.shape[1]);
  const cudaError_t code = cudaGetLastError();
  if (code == cudaSuccess) return AS_OK;
  std::strcpy(err->message, cudaGetErrorName(code));
  return AS_NO_ENVIRONMENT;
}

}  // namespace

AS_PLUGIN_EXPORT const as_lane* attnscope_lane(void) {
  static const as_lane_op ops[] = {AS_LANE_OP_ON_GPU(AS_OP_RESIDUAL, as_residual_params, residual)};
  static const as_lane lane = AS_LANE("faulty_cuda", "Of the tests.", ops);
  return &lane;
}
