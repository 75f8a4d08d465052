#include "kernels/cuda/device.h"

#include <cuda_runtime_api.h>

#include <cstring>
#include <vector>

#include "kernels/cuda/captured_graph.h"
#include "kernels/cuda/fill_pieces.h"

namespace attnscope::cuda {
namespace {

cudaStream_t stream_of(const Stream& stream) { return static_cast<cudaStream_t>(stream.handle()); }

Result<void> check(cudaError_t code, const char* what) {
  if (code == cudaSuccess) return {};
  return device_error(code, what);
}

}  // namespace

Error device_error(int code, const std::string& what) {
  const auto error = static_cast<cudaError_t>(code);
  std::string hint = "run on the CPU lane (--lane cpu), or see what nvidia-smi says of the GPU";
  if (error == cudaErrorMemoryAllocation) {
    hint = "free memory on the GPU, use a smaller scenario, or run on the CPU lane (--lane cpu)";
  }
  return {AS_NO_ENVIRONMENT,
          what + ": " + cudaGetErrorString(error) + " (" + cudaGetErrorName(error) + ")", hint};
}

Result<const Device*> Device::open() {
  int count = 0;
  const cudaError_t found = cudaGetDeviceCount(&count);
  if (found == cudaErrorInsufficientDriver || found == cudaErrorNoDevice ||
      (found == cudaSuccess && count == 0)) {
    int driver = 0;
    cudaDriverGetVersion(&driver);
    const std::string why = driver == 0 ? "no NVIDIA driver is loaded"
                            : found == cudaErrorInsufficientDriver
                                ? "the NVIDIA driver is older than this build's CUDA"
                                : "the NVIDIA driver shows no GPU";
    return Error{AS_NO_ENVIRONMENT, "no GPU: " + why, "use --lane cpu, or a machine with a GPU"};
  }
  if (found != cudaSuccess) return device_error(found, "no GPU");
  if (const cudaError_t set = cudaSetDevice(0); set != cudaSuccess) {
    return device_error(set, "the GPU cannot be opened");
  }
  cudaDeviceProp prop{};
  if (const cudaError_t got = cudaGetDeviceProperties(&prop, 0); got != cudaSuccess) {
    return device_error(got, "the GPU cannot be asked for its properties");
  }
  if (prop.major < 8) {
    return Error{AS_NO_ENVIRONMENT,
                 std::string("no usable GPU: ") + prop.name + " has compute capability " +
                     std::to_string(prop.major) + "." + std::to_string(prop.minor) +
                     ", the kernels need 8.0 or newer",
                 "use --lane cpu, or choose another GPU with CUDA_VISIBLE_DEVICES"};
  }
  static Device device;
  device.info_.name = prop.name;
  device.info_.major = prop.major;
  device.info_.minor = prop.minor;
  device.info_.multiprocessors = prop.multiProcessorCount;
  device.info_.shared_memory = prop.sharedMemPerBlockOptin;
  device.info_.memory = prop.totalGlobalMem;
  device.info_.l2 = static_cast<std::size_t>(prop.l2CacheSize);
  cudaDriverGetVersion(&device.info_.driver);
  cudaRuntimeGetVersion(&device.info_.runtime);
  return &device;
}

const Result<const Device*>& Device::get() {
  static const Result<const Device*> kDevice = open();
  return kDevice;
}

std::size_t Device::free_memory() const {
  std::size_t free = 0, total = 0;
  return cudaMemGetInfo(&free, &total) == cudaSuccess ? free : 0;
}

Result<void> Device::synchronize() const {
  return check(cudaDeviceSynchronize(), "work on the GPU");
}

DeviceMemory::~DeviceMemory() {
  if (data_ != nullptr) cudaFree(data_);
}

Result<DeviceMemory> DeviceMemory::allocate(std::size_t bytes) {
  DeviceMemory memory;
  void* data = nullptr;
  if (const cudaError_t code = cudaMalloc(&data, bytes > 0 ? bytes : 1); code != cudaSuccess) {
    cudaGetLastError();  // a failed allocation leaves nothing broken behind
    return device_error(code, std::to_string(bytes) + " bytes of GPU memory");
  }
  memory.data_ = static_cast<unsigned char*>(data);
  memory.size_ = bytes;
  return memory;
}

Result<MemoryHandle> DeviceMemory::share() const {
  cudaIpcMemHandle_t handle{};
  static_assert(sizeof(handle) == sizeof(MemoryHandle));
  if (const cudaError_t code = cudaIpcGetMemHandle(&handle, data_); code != cudaSuccess) {
    cudaGetLastError();
    return device_error(code, "GPU memory for another process");
  }
  MemoryHandle out;
  std::memcpy(out.data(), &handle, sizeof(handle));
  return out;
}

OpenedMemory::~OpenedMemory() {
  if (data_ != nullptr) cudaIpcCloseMemHandle(data_);
}

Result<OpenedMemory> OpenedMemory::open(const MemoryHandle& handle) {
  cudaIpcMemHandle_t theirs{};
  std::memcpy(&theirs, handle.data(), sizeof(theirs));
  void* data = nullptr;
  const cudaError_t code = cudaIpcOpenMemHandle(&data, theirs, cudaIpcMemLazyEnablePeerAccess);
  if (code != cudaSuccess) {
    cudaGetLastError();
    return device_error(code, "GPU memory of another process");
  }
  OpenedMemory memory;
  memory.data_ = static_cast<unsigned char*>(data);
  return memory;
}

PinnedMemory::~PinnedMemory() {
  if (data_ != nullptr) cudaFreeHost(data_);
}

Result<PinnedMemory> PinnedMemory::allocate(std::size_t bytes) {
  PinnedMemory memory;
  void* data = nullptr;
  if (const cudaError_t code = cudaMallocHost(&data, bytes > 0 ? bytes : 1); code != cudaSuccess) {
    cudaGetLastError();
    return device_error(code, std::to_string(bytes) + " bytes of pinned host memory");
  }
  memory.data_ = static_cast<unsigned char*>(data);
  memory.size_ = bytes;
  return memory;
}

Stream::~Stream() {
  if (handle_ != nullptr) cudaStreamDestroy(stream_of(*this));
}

Result<Stream> Stream::create(bool urgent) {
  cudaStream_t stream = nullptr;
  int least = 0, greatest = 0;
  cudaError_t code = cudaDeviceGetStreamPriorityRange(&least, &greatest);
  if (code == cudaSuccess) {
    code = cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking, urgent ? greatest : least);
  }
  if (code != cudaSuccess) return device_error(code, "a CUDA stream");
  return Stream(stream);
}

Result<Stream> Stream::create_in_order() {
  cudaStream_t stream = nullptr;
  if (const cudaError_t code = cudaStreamCreate(&stream); code != cudaSuccess) {
    return device_error(code, "a CUDA stream");
  }
  return Stream(stream);
}

Result<void> Stream::upload(void* device, const void* host, std::size_t bytes) const {
  return check(cudaMemcpyAsync(device, host, bytes, cudaMemcpyHostToDevice, stream_of(*this)),
               "copy to the GPU");
}

Result<void> Stream::download(void* host, const void* device, std::size_t bytes) const {
  return check(cudaMemcpyAsync(host, device, bytes, cudaMemcpyDeviceToHost, stream_of(*this)),
               "copy from the GPU");
}

Result<void> Stream::copy(void* to, const void* from, std::size_t bytes) const {
  return check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, stream_of(*this)),
               "copy on the GPU");
}

Result<void> Stream::copy_pieces(std::span<void* const> to, std::span<const void* const> from,
                                 std::size_t bytes) const {
#if CUDART_VERSION >= 13000
  const std::vector<std::size_t> sizes(to.size(), bytes);
  cudaMemcpyAttributes attributes{};
  attributes.srcAccessOrder = cudaMemcpySrcAccessOrderStream;
  std::size_t first = 0;
  return check(cudaMemcpyBatchAsync(to.data(), from.data(), sizes.data(), sizes.size(), &attributes,
                                    &first, 1, stream_of(*this)),
               "copy pieces");
#else
  for (std::size_t i = 0; i < to.size(); ++i) {
    auto ok = check(cudaMemcpyAsync(to[i], from[i], bytes, cudaMemcpyDefault, stream_of(*this)),
                    "copy a piece");
    if (!ok) return ok;
  }
  return {};
#endif
}

Result<void> Stream::fill(void* device, int byte, std::size_t bytes) const {
  return check(cudaMemsetAsync(device, byte, bytes, stream_of(*this)), "fill on the GPU");
}

Result<void> Stream::fill_pieces(void* device, std::size_t bytes,
                                 std::span<const std::int32_t> pieces, int byte) const {
  return check(static_cast<cudaError_t>(cuda::fill_pieces(device, bytes, pieces, byte, handle_)),
               "fill on the GPU");
}

Result<void> Stream::synchronize() const {
  return check(cudaStreamSynchronize(stream_of(*this)), "work on the GPU");
}

Result<void> Stream::wait(const Event& event) const {
  return check(cudaStreamWaitEvent(stream_of(*this), static_cast<cudaEvent_t>(event.handle_), 0),
               "order between CUDA streams");
}

Event::~Event() {
  if (handle_ != nullptr) cudaEventDestroy(static_cast<cudaEvent_t>(handle_));
}

Result<Event> Event::create() {
  cudaEvent_t event = nullptr;
  if (const cudaError_t code = cudaEventCreate(&event); code != cudaSuccess) {
    return device_error(code, "a CUDA event");
  }
  return Event(event);
}

Result<void> Event::record(const Stream& stream) const {
  return check(cudaEventRecord(static_cast<cudaEvent_t>(handle_), stream_of(stream)),
               "a CUDA event");
}

Result<void> Event::record_in_graph(const Stream& stream) const {
  return check(cudaEventRecordWithFlags(static_cast<cudaEvent_t>(handle_), stream_of(stream),
                                        cudaEventRecordExternal),
               "a CUDA event in a graph");
}

Result<double> Event::since(const Event& earlier) const {
  const auto end = static_cast<cudaEvent_t>(handle_);
  float milliseconds = 0;
  cudaError_t code = cudaEventSynchronize(end);
  if (code == cudaSuccess) {
    code = cudaEventElapsedTime(&milliseconds, static_cast<cudaEvent_t>(earlier.handle_), end);
  }
  if (code != cudaSuccess) return device_error(code, "work on the GPU");
  return 1e3 * static_cast<double>(milliseconds);
}

Graph::~Graph() {
  if (handle_ != nullptr) cudaGraphExecDestroy(static_cast<cudaGraphExec_t>(handle_));
}

Result<CapturedGraph> capture_graph(const Stream& stream,
                                    const std::function<Result<void>()>& work) {
  cudaError_t code = cudaStreamBeginCapture(stream_of(stream), cudaStreamCaptureModeThreadLocal);
  if (code != cudaSuccess) return device_error(code, "capture of a CUDA graph");
  const Result<void> worked = work();
  cudaGraph_t graph = nullptr;
  code = cudaStreamEndCapture(stream_of(stream), &graph);
  if (!worked || code != cudaSuccess) {
    if (graph != nullptr) cudaGraphDestroy(graph);
    cudaGetLastError();
    return worked ? device_error(code, "capture of a CUDA graph") : worked.error();
  }
  return CapturedGraph(graph);
}

Result<Graph> Graph::capture(const Stream& stream, const std::function<Result<void>()>& work) {
  const auto graph = capture_graph(stream, work);
  if (!graph) return graph.error();
  cudaGraphExec_t exec = nullptr;
  const cudaError_t code =
      cudaGraphInstantiate(&exec, graph->get(), cudaGraphInstantiateFlagUseNodePriority);
  if (code != cudaSuccess) return device_error(code, "a CUDA graph");
  return Graph(exec);
}

Result<void> Graph::launch(const Stream& stream) const {
  return check(cudaGraphLaunch(static_cast<cudaGraphExec_t>(handle_), stream_of(stream)),
               "a CUDA graph");
}

}  // namespace attnscope::cuda
