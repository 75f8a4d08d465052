#include "reference/torch/device.h"

#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <dlfcn.h>
#include <malloc.h>

#include <map>
#include <mutex>
#include <string>

#include "reference/torch/guard.h"
#include "reference/torch/tensors.h"

namespace attnscope::reference {

namespace {

constexpr std::int64_t kFew = 1 << 16;
thread_local bool on_host = false;

at::Device& chosen() {
  static at::Device device(at::kCPU);
  return device;
}

struct Pinned {
  std::mutex mutex;
  std::map<void*, at::Tensor> memory;
};

// Never destroyed: what it holds may outlive the device's library.
Pinned& pinned() {
  static Pinned& all = *new Pinned;
  return all;
}

// Devices that cannot be one of references, whatever is installed, are refused by name.
at::Device parsed(const std::string& name) {
  const auto refused = [&](const char* why) {
    return BadInput("reference device '" + name + "' " + why + "; usual: cpu, cuda, cuda:1");
  };
  try {
    const at::Device device(name);
    if (device.is_cpu() && device.index() > 0) throw refused("does not exist: the host is one");
    if (device.is_meta()) throw refused("has shapes alone and computes no numbers");
    if (device.is_mps()) throw refused("has no float64, which references compute in");
    return device;
  } catch (const c10::Error&) {
    throw refused("is none that libtorch knows");
  }
}

// What libtorch says, in a few words.
std::string problem_of(const c10::Error& error) {
  std::string why = error.what_without_backtrace();
  if (why.starts_with("Could not run ")) return "it was built without it";
  return why.substr(0, why.find('\n')).substr(0, 160);
}

}  // namespace

at::Device torch_device() { return on_host ? at::Device(at::kCPU) : chosen(); }

bool leaves_half_free(std::size_t bytes) {
  using MemGetInfo = int (*)(std::size_t*, std::size_t*);
  if (!chosen().is_cuda()) return false;
  // This module is linked with the CPU's half of libtorch alone, see use_torch_device.
  const auto ask = reinterpret_cast<MemGetInfo>(dlsym(RTLD_DEFAULT, "cudaMemGetInfo"));
  const c10::DeviceGuard guard(chosen());
  std::size_t free = 0, total = 0;
  return ask != nullptr && ask(&free, &total) == 0 && free >= bytes + total / 2;
}

void one_thread_beside_gpu() {
  thread_local bool done = false;
  if (done || chosen().is_cpu()) return;
  at::set_num_threads(1);
  done = true;
}

void own_stream() {
  thread_local bool done = false;
  const at::Device device = chosen();
  if (done || !device.is_cuda()) return;
  const c10::impl::VirtualGuardImpl gpu(device.type());
  const at::Device there = device.has_index() ? device : gpu.getDevice();
  gpu.exchangeStream(gpu.getStreamFromGlobalPool(there));
  done = true;
}

FewOnHost::FewOnHost(std::int64_t numbers) : before_(on_host) {
  on_host = on_host || numbers <= kFew;
}
FewOnHost::~FewOnHost() { on_host = before_; }

void* allocate_pinned(std::size_t bytes) {
  if (!chosen().is_cuda()) return nullptr;
  try {
    const at::Tensor memory = at::empty({static_cast<std::int64_t>(bytes)},
                                        at::TensorOptions().dtype(at::kByte).pinned_memory(true));
    Pinned& all = pinned();
    const std::lock_guard lock(all.mutex);
    all.memory.emplace(memory.data_ptr(), memory);
    return memory.data_ptr();
  } catch (const std::exception&) {  // memory like any other will do
    return nullptr;
  }
}

void release_pinned(void* memory) {
  Pinned& all = pinned();
  const std::lock_guard lock(all.mutex);
  all.memory.erase(memory);
}

bool use_torch_device(const char* name, TorchFailure* failure) {
  return guarded(failure, [&] {
    const at::Device device = parsed(name);
    std::string why;
    // This module is linked with the CPU's half alone; the other one announces itself.
    if (device.is_cuda() && dlopen("libtorch_cuda.so", RTLD_NOW | RTLD_GLOBAL) == nullptr) {
      const char* problem = dlerror();
      why = problem != nullptr ? problem : "libtorch_cuda.so does not load";
    }
    try {
      const c10::InferenceMode inference;
      if (why.empty()) at::ones({2}, at::TensorOptions(device).dtype(at::kDouble)).sum().cpu();
    } catch (const c10::Error& e) {
      why = problem_of(e);
    }
    if (!why.empty()) {
      throw NoDevice(std::string("libtorch " ATTNSCOPE_TORCH_VERSION " has no device '") + name +
                     "' here: " + why);
    }
    // What small ops compute on the host is taken and given back all the time: by mmap, the kernel
    // would clear each again.
    if (device.is_cuda()) {
      mallopt(M_MMAP_THRESHOLD, 32 << 20);
      mallopt(M_TRIM_THRESHOLD, 1 << 30);
      mallopt(M_TOP_PAD, 32 << 20);
    }
    chosen() = device;
  });
}

}  // namespace attnscope::reference
