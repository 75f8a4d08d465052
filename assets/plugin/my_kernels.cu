// A kernel of one's own for attnscope, on the GPU: residual, out = bf16(h + y). Its tensors lie on
// the GPU, because its entry below says so; attnscope takes them there and back, and
// times what lies in the stream between the call's begin and its end.
//
//   nvcc -O2 -shared -Xcompiler -fPIC -I include my_kernels.cu -o libmine_cuda.so
//   attnscope run default --plugin ./libmine_cuda.so --lane residual=plugin:mine_cuda
#include <attnscope_plugin.h>
#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <cstdio>

namespace {

__global__ void add(as_tensor h, as_tensor y, as_tensor out, long long columns, long long count) {
  const long long i = blockIdx.x * static_cast<long long>(blockDim.x) + threadIdx.x;
  if (i >= count) return;
  const long long t = i / columns, c = i % columns;
  const auto at = [t, c](const as_tensor& x) {
    return static_cast<__nv_bfloat16*>(x.data) + t * x.stride[0] + c * x.stride[1];
  };
  *at(out) = __float2bfloat16_rn(__bfloat162float(*at(h)) + __bfloat162float(*at(y)));
}

int32_t refuse(as_error* err, int32_t code, const char* what) {
  err->code = code;
  std::snprintf(err->message, sizeof(err->message), "residual: %s", what);
  return code;
}

int32_t residual(const void* params, const as_call* call, as_error* err) {
  const auto& p = *static_cast<const as_residual_params*>(params);
  if (p.head.version != AS_PARAMS_VERSION || p.head.struct_size < sizeof(p)) {
    return refuse(err, AS_BAD_INPUT, "params of another version");
  }
  const long long count = as_tensor_numel(&p.h);
  if (count == 0) return AS_OK;
  const int threads = 256;
  // Not waited for: attnscope does that.
  add<<<static_cast<unsigned>((count + threads - 1) / threads), threads, 0,
        static_cast<cudaStream_t>(call->stream)>>>(p.h, p.y, p.out, p.h.shape[1], count);
  const cudaError_t e = cudaGetLastError();
  return e == cudaSuccess ? AS_OK : refuse(err, AS_NO_ENVIRONMENT, cudaGetErrorString(e));
}

// As AS_LANE_OP its tensors would come on the host.
const as_lane_op kOps[] = {AS_LANE_OP_ON_GPU(AS_OP_RESIDUAL, as_residual_params, residual)};
const as_lane kLane = AS_LANE("mine_cuda", "The CUDA example of assets/plugin: residual.", kOps);

}  // namespace

AS_PLUGIN_EXPORT const as_lane* attnscope_lane(void) { return &kLane; }
