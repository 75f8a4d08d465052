#include "reference/torch/device.h"

#include <ATen/Parallel.h>
#include <dlfcn.h>

#include <string>

#include "reference/torch/guard.h"
#include "reference/torch/tensors.h"

namespace attnscope::reference {

namespace {

constexpr std::int64_t kFew = 1 << 14;
thread_local bool on_host = false;

at::Device& chosen() {
  static at::Device device(at::kCPU);
  return device;
}

at::Device parsed(const std::string& name) {
  try {
    return at::Device(name);
  } catch (const c10::Error&) {
    throw BadInput("reference device '" + name +
                   "' is none that libtorch knows; usual: cpu, cuda, cuda:1");
  }
}

}  // namespace

at::Device torch_device() { return on_host ? at::Device(at::kCPU) : chosen(); }

void one_thread_beside_gpu() {
  thread_local bool done = false;
  if (done || chosen().is_cpu()) return;
  at::set_num_threads(1);
  done = true;
}

FewOnHost::FewOnHost(std::int64_t numbers) : before_(on_host) {
  on_host = on_host || numbers <= kFew;
}
FewOnHost::~FewOnHost() { on_host = before_; }

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
      why = e.what_without_backtrace();
      why = why.substr(0, why.find('\n')).substr(0, 160);
    }
    if (!why.empty()) {
      throw NoDevice(std::string("libtorch " ATTNSCOPE_TORCH_VERSION " has no device '") + name +
                     "' here: " + why);
    }
    chosen() = device;
  });
}

}  // namespace attnscope::reference
