#include "engine/backend/lane_timer.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <fstream>
#include <new>
#include <vector>

#include "engine/backend/call_op.h"

namespace attnscope {
namespace {

constexpr std::size_t kLine = 64;  // bytes of a cache line

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

class HostTimer : public LaneTimer {
 public:
  HostTimer(const as_threads* threads, std::size_t cache_bytes)
      : call_(host_call(threads)), cache_bytes_(cache_bytes), sweep_(2 * cache_bytes, 1) {}

  Rounds rounds() const override { return {9, 4, 1, 5}; }
  const char* method() const override { return "calls one after another, by the steady clock"; }
  std::int32_t device() const override { return 0; }
  std::size_t cache_bytes() const override { return cache_bytes_; }

  Result<void*> allocate(std::size_t bytes) override {
    void* memory = ::operator new(bytes, std::align_val_t{kLine}, std::nothrow);
    if (memory == nullptr) return Error{AS_NO_ENVIRONMENT, "not enough memory", {}};
    memory_.emplace_back(memory);
    return memory;
  }
  Result<void> write(void* to, const void* from, std::size_t bytes) override {
    std::memcpy(to, from, bytes);
    return {};
  }
  void clear() override { memory_.clear(); }

  Result<double> time(const std::function<Result<void>(const as_call&)>& work) override {
    using Clock = std::chrono::steady_clock;
    std::vector<double> times;
    for (int round = 0; round < rounds().warm + rounds().counted; ++round) {
      // Through the cache: a fill of this size would pass by it.
      for (std::size_t at = 0; at < sweep_.size(); at += kLine) ++sweep_[at];
      const Clock::time_point start = Clock::now();
      if (auto ok = work(call_); !ok) return ok.error();
      const std::chrono::duration<double, std::micro> spent = Clock::now() - start;
      if (round >= rounds().warm) times.push_back(spent.count());
    }
    return median(std::move(times));
  }

 private:
  struct Free {
    void operator()(void* memory) const { ::operator delete(memory, std::align_val_t{kLine}); }
  };

  as_call call_;
  std::size_t cache_bytes_;
  std::vector<unsigned char> sweep_;
  std::vector<std::unique_ptr<void, Free>> memory_;
};

class DeviceTimer : public LaneTimer {
 public:
  DeviceTimer(std::shared_ptr<ComputeDevice> device, std::size_t cache_bytes)
      : device_(std::move(device)), cache_bytes_(cache_bytes) {}
  ~DeviceTimer() override {
    DeviceTimer::clear();
    if (sweep_ != nullptr) device_->release(sweep_);
  }
  DeviceTimer(const DeviceTimer&) = delete;
  DeviceTimer& operator=(const DeviceTimer&) = delete;

  Rounds rounds() const override { return {1, 8, 3, 15}; }
  const char* method() const override { return "a recorded graph of the calls, by CUDA events"; }
  std::int32_t device() const override { return 1; }
  std::size_t cache_bytes() const override { return cache_bytes_; }

  Result<void*> allocate(std::size_t bytes) override {
    Result<void*> memory = device_->allocate(bytes);
    if (memory) memory_.push_back(*memory);
    return memory;
  }
  Result<void> write(void* to, const void* from, std::size_t bytes) override {
    return device_->upload(to, from, bytes);
  }
  void clear() override {
    for (void* memory : memory_) device_->release(memory);
    memory_.clear();
  }

  Result<double> time(const std::function<Result<void>(const as_call&)>& work) override {
    as_call call = host_call(nullptr);
    call.stream = device_->stream(0);
    const auto round = [&] { return work(call); };
    if (auto ok = round(); !ok) return ok.error();  // workspaces get their size
    if (auto ok = device_->synchronize(); !ok) return ok.error();
    const Result<std::size_t> graph = device_->record(round);
    if (!graph) return graph.error();
    std::vector<double> times;
    for (int i = 0; i < rounds().warm + rounds().counted; ++i) {
      const Result<double> us = replay(*graph);
      if (!us) return us.error();
      if (i >= rounds().warm) times.push_back(*us);
    }
    return median(std::move(times));
  }

 private:
  // The launch is put on the stream while the fill still runs: its own time does not count.
  Result<double> replay(std::size_t graph) {
    if (sweep_ == nullptr) {
      const Result<void*> memory = device_->allocate(2 * cache_bytes_);
      if (!memory) return memory.error();
      sweep_ = *memory;
    }
    if (auto ok = device_->fill(sweep_, 0, 2 * cache_bytes_); !ok) return ok.error();
    if (auto ok = device_->mark(0, 0); !ok) return ok.error();
    if (auto ok = device_->replay(graph); !ok) return ok.error();
    if (auto ok = device_->mark(0, 1); !ok) return ok.error();
    return device_->between(0, 1);
  }

  std::shared_ptr<ComputeDevice> device_;
  std::size_t cache_bytes_;
  void* sweep_ = nullptr;
  std::vector<void*> memory_;
};

}  // namespace

std::unique_ptr<LaneTimer> host_timer(const as_threads* threads, std::size_t cache_bytes) {
  return std::make_unique<HostTimer>(threads, cache_bytes);
}

std::unique_ptr<LaneTimer> device_timer(std::shared_ptr<ComputeDevice> device,
                                        std::size_t cache_bytes) {
  return std::make_unique<DeviceTimer>(std::move(device), cache_bytes);
}

std::size_t last_level_cache_bytes() {
  std::size_t largest = 0;
  for (int level = 0; level < 8; ++level) {
    // "32768K"
    std::ifstream file(fmt::format("/sys/devices/system/cpu/cpu0/cache/index{}/size", level));
    std::size_t kibibytes = 0;
    if (file >> kibibytes) largest = std::max(largest, kibibytes << 10);
  }
  return largest > 0 ? largest : std::size_t{32} << 20;
}

}  // namespace attnscope
