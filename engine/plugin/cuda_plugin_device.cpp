#include <utility>
#include <vector>

#include "engine/plugin/plugin_device.h"
#include "kernels/cuda/device.h"

namespace attnscope {
namespace {

class CudaPluginDevice : public PluginDevice {
 public:
  CudaPluginDevice(const cuda::Device& device, cuda::Stream stream, cuda::Event first,
                   cuda::Event last)
      : device_(device),
        stream_(std::move(stream)),
        first_(std::move(first)),
        last_(std::move(last)) {}

  static Result<std::shared_ptr<PluginDevice>> make() {
    const auto& device = cuda::Device::get();
    if (!device) return device.error();
    auto stream = cuda::Stream::create_in_order();
    if (!stream) return stream.error();
    auto first = cuda::Event::create();
    if (!first) return first.error();
    auto last = cuda::Event::create();
    if (!last) return last.error();
    return std::shared_ptr<PluginDevice>(std::make_shared<CudaPluginDevice>(
        **device, std::move(*stream), std::move(*first), std::move(*last)));
  }

  Result<void*> allocate(std::size_t bytes) override {
    constexpr std::size_t kPage = cuda::DeviceMemory::kSharedPage;
    auto memory = cuda::DeviceMemory::allocate((bytes + kPage - 1) / kPage * kPage);
    if (!memory) return memory.error();
    memory_.push_back(std::move(*memory));
    return static_cast<void*>(memory_.back().data());
  }
  void release(void* memory) override {
    std::erase_if(memory_, [&](const cuda::DeviceMemory& m) { return m.data() == memory; });
  }
  Result<Handle> share(void* memory) override {
    for (const cuda::DeviceMemory& m : memory_) {
      if (m.data() == memory) return m.share();
    }
    return internal_error("memory that is not of this device");
  }
  Result<void*> open(const Handle& handle) override {
    auto memory = cuda::OpenedMemory::open(handle);
    if (!memory) return memory.error();
    opened_.push_back(std::move(*memory));
    return static_cast<void*>(opened_.back().data());
  }
  void close(void* memory) override {
    std::erase_if(opened_, [&](const cuda::OpenedMemory& m) { return m.data() == memory; });
  }

  Result<void> upload(void* device, const void* host, std::size_t bytes) override {
    return stream_.upload(device, host, bytes);
  }
  Result<void> download(void* host, const void* device, std::size_t bytes) override {
    return stream_.download(host, device, bytes);
  }
  Result<void> synchronize() override { return stream_.synchronize(); }

  void* stream() const override { return stream_.handle(); }
  Result<void> begin() override { return first_.record(stream_); }
  Result<double> end() override {
    if (auto ok = last_.record(stream_); !ok) return ok.error();
    if (auto ok = device_.synchronize(); !ok) return ok.error();
    return last_.since(first_);
  }

 private:
  const cuda::Device& device_;
  cuda::Stream stream_;
  cuda::Event first_, last_;
  std::vector<cuda::DeviceMemory> memory_;
  std::vector<cuda::OpenedMemory> opened_;
};

}  // namespace

Result<std::shared_ptr<PluginDevice>> open_cuda_plugin_device() { return CudaPluginDevice::make(); }

}  // namespace attnscope
