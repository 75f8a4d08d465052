// A kernel of one's own for attnscope, on the GPU: residual, out = bf16(h + y). Tensors come on the
// host; a plugin copies what it needs.
//
//   nvcc -O2 -shared -Xcompiler -fPIC -I include my_kernels.cu -o libmine_cuda.so
//   attnscope run default --plugin ./libmine_cuda.so --lane residual=plugin:mine_cuda
#include <attnscope_plugin.h>
#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <cstdio>

namespace {

__global__ void add(const __nv_bfloat16* h, const __nv_bfloat16* y, __nv_bfloat16* out,
                    long long count) {
  const long long i = blockIdx.x * static_cast<long long>(blockDim.x) + threadIdx.x;
  if (i < count) out[i] = __float2bfloat16_rn(__bfloat162float(h[i]) + __bfloat162float(y[i]));
}

bool dense(const as_tensor& t) { return t.stride[1] == 1 && t.stride[0] == t.shape[1]; }

int32_t refuse(as_error* err, int32_t code, const char* what) {
  err->code = code;
  std::snprintf(err->message, sizeof(err->message), "residual: %s", what);
  return code;
}

// Three buffers of one size that go with the call.
struct Buffers {
  void* memory[3] = {};
  cudaError_t make(std::size_t bytes) {
    for (void*& m : memory) {
      if (const cudaError_t e = cudaMalloc(&m, bytes); e != cudaSuccess) return e;
    }
    return cudaSuccess;
  }
  ~Buffers() {
    for (void* m : memory) cudaFree(m);
  }
};

int32_t residual(const void* params, const as_call*, as_error* err) {
  const auto& p = *static_cast<const as_residual_params*>(params);
  if (p.head.version != AS_PARAMS_VERSION || p.head.struct_size != sizeof(p)) {
    return refuse(err, AS_BAD_INPUT, "params of another version");
  }
  if (!dense(p.h) || !dense(p.y) || !dense(p.out)) {
    return refuse(err, AS_BAD_INPUT, "only dense tensors");
  }
  const long long count = as_tensor_numel(&p.h);
  if (count == 0) return AS_OK;
  const std::size_t bytes = static_cast<std::size_t>(count) * 2;
  Buffers gpu;
  cudaError_t e = gpu.make(bytes);
  if (e == cudaSuccess) e = cudaMemcpy(gpu.memory[0], p.h.data, bytes, cudaMemcpyHostToDevice);
  if (e == cudaSuccess) e = cudaMemcpy(gpu.memory[1], p.y.data, bytes, cudaMemcpyHostToDevice);
  if (e == cudaSuccess) {
    const int threads = 256;
    add<<<static_cast<unsigned>((count + threads - 1) / threads), threads>>>(
        static_cast<const __nv_bfloat16*>(gpu.memory[0]),
        static_cast<const __nv_bfloat16*>(gpu.memory[1]),
        static_cast<__nv_bfloat16*>(gpu.memory[2]), count);
    e = cudaGetLastError();
  }
  if (e == cudaSuccess) e = cudaMemcpy(p.out.data, gpu.memory[2], bytes, cudaMemcpyDeviceToHost);
  return e == cudaSuccess ? AS_OK : refuse(err, AS_NO_ENVIRONMENT, cudaGetErrorString(e));
}

as_lane make_lane() {
  as_lane lane{};
  lane.struct_size = sizeof(lane);
  lane.version = AS_LANE_VERSION;
  lane.name = "mine_cuda";
  lane.description = "The CUDA example of assets/plugin: residual.";
  lane.ops[AS_OP_RESIDUAL] = residual;
  return lane;
}

}  // namespace

AS_PLUGIN_EXPORT const as_lane* attnscope_lane(void) {
  static const as_lane lane = make_lane();
  return &lane;
}
