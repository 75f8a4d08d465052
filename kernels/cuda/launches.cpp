#include "kernels/cuda/launches.h"

#include <cuda.h>

#include <vector>

#include "kernels/cuda/captured_graph.h"

namespace attnscope::cuda {
namespace {

// Kernels of libraries come from the driver's interface: the runtime knows nothing of them.
struct Driver {
  decltype(&cuGraphKernelNodeGetParams) params = nullptr;
  decltype(&cuGraphKernelNodeGetAttribute) node_attribute = nullptr;
  decltype(&cuKernelGetFunction) function_of = nullptr;
  decltype(&cuFuncGetAttribute) attribute = nullptr;
  decltype(&cuFuncGetName) name = nullptr;
  decltype(&cuOccupancyMaxActiveBlocksPerMultiprocessor) at_once = nullptr;
  bool whole = true;

  static const Driver& get() {
    static const Driver kDriver;
    return kDriver;
  }

 private:
  Driver() {
    find("cuGraphKernelNodeGetParams", 12000, params);
    find("cuGraphKernelNodeGetAttribute", 11000, node_attribute);
    find("cuKernelGetFunction", 12000, function_of);
    find("cuFuncGetAttribute", 11000, attribute);
    find("cuFuncGetName", 12030, name);
    find("cuOccupancyMaxActiveBlocksPerMultiprocessor", 11000, at_once);
  }
  template <class F>
  void find(const char* what, unsigned version, F& function) {
    void* entry = nullptr;
    cudaDriverEntryPointQueryResult found{};
    const cudaError_t code =
        cudaGetDriverEntryPointByVersion(what, &entry, version, cudaEnableDefault, &found);
    if (code != cudaSuccess) cudaGetLastError();
    if (code == cudaSuccess && found == cudaDriverEntryPointSuccess) {
      function = reinterpret_cast<F>(entry);
    }
    whole = whole && function != nullptr;
  }
};

std::int64_t number(const Driver& driver, CUfunction_attribute what, CUfunction function) {
  int value = 0;
  return driver.attribute(&value, what, function) == CUDA_SUCCESS ? value : 0;
}

// False where the driver does not tell what the node runs.
bool read_kernel(const Driver& driver, CUgraphNode node, KernelLaunch& out) {
  CUDA_KERNEL_NODE_PARAMS p{};
  if (driver.params(node, &p) != CUDA_SUCCESS) return false;
  CUfunction function = p.func;
  if (function == nullptr && driver.function_of(&function, p.kern) != CUDA_SUCCESS) return false;
  const char* name = nullptr;
  if (driver.name(&name, function) != CUDA_SUCCESS || name == nullptr) return false;
  out.name = kernel_name(name);
  out.grid = {p.gridDimX, p.gridDimY, p.gridDimZ};
  out.block = {p.blockDimX, p.blockDimY, p.blockDimZ};
  out.dynamic_shared = p.sharedMemBytes;
  out.registers = number(driver, CU_FUNC_ATTRIBUTE_NUM_REGS, function);
  out.static_shared = number(driver, CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES, function);
  out.local = number(driver, CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES, function);
  CUlaunchAttributeValue cluster{};
  if (driver.node_attribute(node, CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION, &cluster) ==
          CUDA_SUCCESS &&
      cluster.clusterDim.x > 0) {
    out.cluster = {cluster.clusterDim.x, cluster.clusterDim.y, cluster.clusterDim.z};
  } else if (const std::int64_t x =
                 number(driver, CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH, function);
             x > 0) {
    out.cluster = {x, number(driver, CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_HEIGHT, function),
                   number(driver, CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_DEPTH, function)};
  }
  int at_once = 0;
  if (driver.at_once(&at_once, function, static_cast<int>(out.block.count()), p.sharedMemBytes) ==
      CUDA_SUCCESS) {
    out.at_once = at_once;
  }
  return true;
}

}  // namespace

Result<OpLaunches> launches_of(const Stream& stream, const std::function<Result<void>()>& work) {
  const auto& device = Device::get();
  if (!device) return device.error();
  const Driver& driver = Driver::get();
  if (!driver.whole) {
    return Error{AS_NO_ENVIRONMENT, "the NVIDIA driver does not tell of kernels in graphs",
                 "a driver for CUDA 12.3 or newer does"};
  }
  const auto graph = capture_graph(stream, work);
  if (!graph) return graph.error();
  std::size_t count = 0;
  cudaError_t code = cudaGraphGetNodes(graph->get(), nullptr, &count);
  std::vector<cudaGraphNode_t> nodes(count);
  if (code == cudaSuccess && count > 0)
    code = cudaGraphGetNodes(graph->get(), nodes.data(), &count);
  if (code != cudaSuccess) return device_error(code, "nodes of a CUDA graph");
  OpLaunches out;
  out.major = (*device)->info().major;
  out.minor = (*device)->info().minor;
  out.multiprocessors = (*device)->info().multiprocessors;
  for (const cudaGraphNode_t node : nodes) {
    cudaGraphNodeType type{};
    code = cudaGraphNodeGetType(node, &type);
    if (code != cudaSuccess) return device_error(code, "a node of a CUDA graph");
    if (type != cudaGraphNodeTypeKernel) continue;
    if (!read_kernel(driver, node, out.kernels.emplace_back())) {
      return Error{AS_NO_ENVIRONMENT, "the NVIDIA driver does not tell which kernel a launch is of",
                   "use a newer driver"};
    }
  }
  return out;
}

}  // namespace attnscope::cuda
