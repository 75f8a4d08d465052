// In place of the CUDA lane in builds without it.
#include "kernels/cuda/cuda_lane.h"
#include "kernels/cuda/device.h"
#include "kernels/cuda/launches.h"

namespace attnscope::cuda {
namespace {

constexpr char kWhy[] =
    "this build has no CUDA lane; configure it with ATTNSCOPE_CUDA=ON where nvcc is installed";

}  // namespace

const Lane* lane() {
  static const Lane kLane = {"cuda", kWhy, {}};
  return &kLane;
}

const char* fp8_projections() { return ""; }

// There is never a device, so that nothing below is reached but Device::get().
const Result<const Device*>& Device::get() {
  static const Result<const Device*> kNone =
      Error{AS_NO_ENVIRONMENT, kWhy, "use --lane cpu, or a build with CUDA"};
  return kNone;
}
std::size_t Device::free_memory() const { return 0; }
Result<void> Device::synchronize() const { return get().error(); }

// As where there is a device, none is trivial.
DeviceMemory::~DeviceMemory() {}
Result<DeviceMemory> DeviceMemory::allocate(std::size_t) { return Device::get().error(); }
Result<MemoryHandle> DeviceMemory::share() const { return Device::get().error(); }
OpenedMemory::~OpenedMemory() {}
Result<OpenedMemory> OpenedMemory::open(const MemoryHandle&) { return Device::get().error(); }
PinnedMemory::~PinnedMemory() {}
Result<PinnedMemory> PinnedMemory::allocate(std::size_t) { return Device::get().error(); }

Stream::~Stream() {}
Result<Stream> Stream::create(bool) { return Device::get().error(); }
Result<Stream> Stream::create_in_order() { return Device::get().error(); }
Result<void> Stream::upload(void*, const void*, std::size_t) const { return Device::get().error(); }
Result<void> Stream::download(void*, const void*, std::size_t) const {
  return Device::get().error();
}
Result<void> Stream::copy(void*, const void*, std::size_t) const { return Device::get().error(); }
Result<void> Stream::fill(void*, int, std::size_t) const { return Device::get().error(); }
Result<void> Stream::fill_pieces(void*, std::size_t, std::span<const std::int32_t>, int) const {
  return Device::get().error();
}
Result<void> Stream::synchronize() const { return Device::get().error(); }
Result<void> Stream::wait(const Event&) const { return Device::get().error(); }

Event::~Event() {}
Result<Event> Event::create() { return Device::get().error(); }
Result<void> Event::record(const Stream&) const { return Device::get().error(); }
Result<void> Event::record_in_graph(const Stream&) const { return Device::get().error(); }
Result<double> Event::since(const Event&) const { return Device::get().error(); }

Graph::~Graph() {}
Result<Graph> Graph::capture(const Stream&, const std::function<Result<void>()>&) {
  return Device::get().error();
}
Result<void> Graph::launch(const Stream&) const { return Device::get().error(); }

Result<OpLaunches> launches_of(const Stream&, const std::function<Result<void>()>&) {
  return Device::get().error();
}

}  // namespace attnscope::cuda
