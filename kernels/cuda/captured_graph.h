// What work would put on a stream, as a CUDA graph that nobody runs.
#pragma once

#include <cuda_runtime_api.h>

#include <functional>
#include <memory>
#include <type_traits>

#include "kernels/cuda/device.h"

namespace attnscope::cuda {

struct DestroyGraph {
  void operator()(cudaGraph_t graph) const { cudaGraphDestroy(graph); }
};
using CapturedGraph = std::unique_ptr<std::remove_pointer_t<cudaGraph_t>, DestroyGraph>;

// Errors are those of `work`, or AS_NO_ENVIRONMENT where it does what no capture may (allocates,
// waits); neither leaves anything behind in the stream.
Result<CapturedGraph> capture_graph(const Stream& stream,
                                    const std::function<Result<void>()>& work);

}  // namespace attnscope::cuda
