#include "kernels/cuda/helper_entries.h"

#include <cuda_runtime_api.h>

#include <new>
#include <string>
#include <vector>

#include "kernels/cpu/helper_ops.h"
#include "kernels/cuda/call.h"
#include "kernels/cuda/check_params.h"
#include "kernels/cuda/helper_ops.h"
#include "kernels/params/op_ids.h"
#include "kernels/params/tensor_view.h"

namespace attnscope::cuda {
namespace {

// Rows that kernels read in 16-byte steps.
bool aligned(const as_workspace_attention_params& p, cpu::Check& check) {
  return check_alignment("q", p.q, check) && check_alignment("rows", p.rows, check) &&
         check_alignment("o", p.o, check);
}
template <class Params>
bool aligned(const Params&, cpu::Check&) {
  return true;
}

template <as_op_id Id, class Params, OpBody<Params> kBody>
std::int32_t entry(const void* params, const as_call* call, as_error* error) {
  const as_op_info& info = *as_op_find(Id);
  const Range range(info.name);
  cpu::Check check(Id, error);
  if (!check.head(params, sizeof(Params)) || !check_call(call, check)) return check.status();
  try {
    return run_entry<Params>(
        info.name, {info.taps, info.num_taps}, *static_cast<const Params*>(params), kBody, call,
        check, error, [&](const Params& as_host, bool on_host) {
          return cpu::check_params(as_host, on_host, check) && (on_host || aligned(as_host, check));
        });
  } catch (const std::bad_alloc&) {
    return refuse(error, info.name, {AS_NO_ENVIRONMENT, "out of memory", "use fewer tokens"});
  }
}

// The GPU can reach the pool: its own memory, or pinned memory of the host.
bool reachable(const char* name, as_tensor& pool, cpu::Check& check) {
  if (as_tensor_numel(&pool) == 0) return true;
  cudaPointerAttributes attributes{};
  const cudaError_t code = cudaPointerGetAttributes(&attributes, pool.data);
  if (code != cudaSuccess) cudaGetLastError();
  const bool pinned = code == cudaSuccess && attributes.type == cudaMemoryTypeHost;
  if (pool.device == 0 && !pinned) {
    return check.fail(
        "%s lies in host memory that is not pinned; allocate it with cuda::PinnedMemory or "
        "cudaMallocHost, or copy with the CPU lane",
        name);
  }
  if (pinned) pool.data = attributes.devicePointer;
  return true;
}

// Pools on either side, pairs on the GPU (put on the caller's stream) or on the host (done on
// return).
std::int32_t copy_blocks_entry(const void* params, const as_call* call, as_error* error) {
  using Params = as_copy_blocks_params;
  const char* name = as_op_find(AS_OP_COPY_BLOCKS)->name;
  const Range range(name);
  cpu::Check check(AS_OP_COPY_BLOCKS, error);
  if (!check.head(params, sizeof(Params)) || !check_call(call, check)) return check.status();
  Params p = *static_cast<const Params*>(params);
  const bool pairs_here = p.pairs.device == 0;
  if (!cpu::check_params(p, pairs_here, check)) return check.status();
  const auto& device = Device::get();
  if (!device) return refuse(error, name, device.error());
  if (!reachable("from", p.from, check) || !reachable("to", p.to, check)) return check.status();
  Launch launch;
  launch.stream = call != nullptr ? call->stream : nullptr;
  if (!pairs_here) {
    const int code = copy_blocks(p, launch);
    return code == 0 ? AS_OK : refuse(error, name, device_error(code, "launch"));
  }
  auto stream = Stream::create();
  auto pairs = DeviceMemory::allocate(static_cast<std::size_t>(16 * p.pairs.shape[0]));
  if (!stream || !pairs) return refuse(error, name, (stream ? pairs.error() : stream.error()));
  launch.stream = stream->handle();
  std::vector<std::int64_t> packed;  // lives until the stream is done
  for (std::int64_t n = 0; n < p.pairs.shape[0]; ++n) {
    packed.push_back(*at<std::int64_t>(p.pairs, n, 0));
    packed.push_back(*at<std::int64_t>(p.pairs, n, 1));
  }
  if (auto ok = stream->upload(pairs->data(), packed.data(), 8 * packed.size()); !ok) {
    return refuse(error, name, ok.error());
  }
  p.pairs.data = pairs->data();
  p.pairs.stride[0] = 2;
  p.pairs.stride[1] = 1;
  const int code = copy_blocks(p, launch);
  const Result<void> done = stream->synchronize();
  if (code != 0) return refuse(error, name, device_error(code, "launch"));
  return done ? AS_OK : refuse(error, name, done.error());
}

}  // namespace

void enter_helpers(Lane* lane) {
#define AS_ENTRY(id, number, params, body) lane->ops[id] = entry<id, params, body>;
  AS_FOR_EACH_HELPER(AS_ENTRY)
#undef AS_ENTRY
  // Its sides may lie apart.
  lane->ops[AS_OP_COPY_BLOCKS] = copy_blocks_entry;
}

}  // namespace attnscope::cuda
