#include <array>
#include <vector>

#include "engine/backend/compute_device.h"
#include "kernels/cuda/device.h"
#include "kernels/cuda/launches.h"

namespace attnscope {
namespace {

class CudaDevice : public ComputeDevice {
 public:
  static Result<std::shared_ptr<ComputeDevice>> open() {
    const auto& found = cuda::Device::get();
    if (!found) return found.error();
    auto device = std::make_shared<CudaDevice>();
    for (int i = 0; i < kBranches; ++i) {
      // Branches are chains of small ops, the main stream has the large products.
      auto stream = cuda::Stream::create(i > 0);
      if (!stream) return stream.error();
      device->streams_.push_back(std::move(*stream));
      auto event = cuda::Event::create();
      if (!event) return event.error();
      device->order_.push_back(std::move(*event));
    }
    return std::shared_ptr<ComputeDevice>(std::move(device));
  }

  Result<void*> allocate(std::size_t bytes) override {
    auto memory = cuda::DeviceMemory::allocate(bytes);
    if (!memory) return memory.error();
    void* data = memory->data();
    memory_.push_back(std::move(*memory));
    return data;
  }
  void release(void* memory) override {
    std::erase_if(memory_, [&](const cuda::DeviceMemory& m) { return m.data() == memory; });
  }

  Result<void*> allocate_host(std::size_t bytes) override {
    auto memory = cuda::PinnedMemory::allocate(bytes);
    if (!memory) return memory.error();
    void* data = memory->data();
    host_memory_.push_back(std::move(*memory));
    return data;
  }
  void release_host(void* memory) override {
    std::erase_if(host_memory_, [&](const cuda::PinnedMemory& m) { return m.data() == memory; });
  }

  Result<void> upload(void* device, const void* host, std::size_t bytes) override {
    return streams_[0].upload(device, host, bytes);
  }
  Result<void> download(void* host, const void* device, std::size_t bytes) override {
    return streams_[0].download(host, device, bytes);
  }
  Result<void> copy(void* to, const void* from, std::size_t bytes) override {
    return streams_[0].copy(to, from, bytes);
  }
  Result<void> fill(void* device, int byte, std::size_t bytes) override {
    return streams_[0].fill(device, byte, bytes);
  }
  Result<void> fill_pieces(void* device, std::size_t bytes, std::span<const std::int32_t> pieces,
                           int byte) override {
    return streams_[0].fill_pieces(device, bytes, pieces, byte);
  }
  Result<void> synchronize() override {
    for (std::size_t i = 0; i < streams_.size(); ++i) {
      if (i > 0 && !busy_[i]) continue;
      if (auto ok = streams_[i].synchronize(); !ok) return ok;
      busy_[i] = false;
    }
    return {};
  }

  void* stream(int branch) const override { return streams_[index(branch)].handle(); }
  Result<void> order(int branch, int on) override {
    if (!recording_) busy_[index(branch)] = busy_[index(on)] = true;
    if (auto ok = order_[index(on)].record(streams_[index(on)]); !ok) return ok;
    return streams_[index(branch)].wait(order_[index(on)]);
  }
  Result<void> mark(int branch, std::size_t event) override {
    while (marks_.size() <= event) {
      auto made = cuda::Event::create();
      if (!made) return made.error();
      marks_.push_back(std::move(*made));
    }
    return recording_ ? marks_[event].record_in_graph(streams_[index(branch)])
                      : marks_[event].record(streams_[index(branch)]);
  }
  Result<double> between(std::size_t first, std::size_t second) override {
    return marks_[second].since(marks_[first]);
  }

  Result<std::size_t> record(const std::function<Result<void>()>& work) override {
    recording_ = true;
    auto graph = cuda::Graph::capture(streams_[0], work);
    recording_ = false;
    if (!graph) return graph.error();
    graphs_.push_back(std::move(*graph));
    return graphs_.size() - 1;
  }
  Result<void> replay(std::size_t graph) override { return graphs_[graph].launch(streams_[0]); }

  Result<OpLaunches> launches(const std::function<Result<void>()>& work) override {
    return cuda::launches_of(streams_[0], work);
  }

 private:
  static std::size_t index(int branch) { return static_cast<std::size_t>(branch); }

  std::vector<cuda::DeviceMemory> memory_;
  std::vector<cuda::PinnedMemory> host_memory_;
  std::vector<cuda::Stream> streams_;
  std::array<bool, kBranches> busy_{};  // streams that were told to go on beside the main one
  std::vector<cuda::Event> order_;
  std::vector<cuda::Event> marks_;
  std::vector<cuda::Graph> graphs_;
  bool recording_ = false;
};

}  // namespace

Result<std::shared_ptr<ComputeDevice>> open_cuda_device() { return CudaDevice::open(); }

}  // namespace attnscope
