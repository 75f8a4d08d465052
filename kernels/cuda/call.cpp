#include "kernels/cuda/call.h"

#if __has_include(<nvtx3/nvToolsExt.h>)
#include <nvtx3/nvToolsExt.h>
#define ATTNSCOPE_NVTX 1
#endif

#include <cstdio>
#include <cstdlib>
#include <string_view>

namespace attnscope::cuda {

std::int32_t refuse(as_error* error, const char* op, const Error& why) {
  if (error != nullptr) {
    error->code = why.code;
    std::snprintf(error->message, sizeof(error->message), "%s: %s", op, why.text().c_str());
  }
  return why.code;
}

namespace {

// Whether a variable of the environment has a value.
bool environment_is(const char* name, std::string_view wanted) {
  const char* value = std::getenv(name);
  return value != nullptr && std::string_view(value) == wanted;
}

}  // namespace

Gpu gpu_of(const DeviceInfo& info) {
  Gpu gpu;
  gpu.multiprocessors = info.multiprocessors;
  gpu.shared_memory = info.shared_memory;
#ifdef ATTNSCOPE_SM90A
  static const bool kRefused = environment_is("ATTNSCOPE_HOPPER", "0");
  static const bool kExact = environment_is("ATTNSCOPE_ATTENTION", "exact");
  gpu.hopper = !kRefused && info.major == 9 && info.minor == 0;
  gpu.exact = kExact;
#endif
  return gpu;
}

bool check_call(const as_call* call, cpu::Check& check) {
  if (call == nullptr || call->struct_size == sizeof(as_call)) return true;
  return check.fail(
      "as_call has struct_size %u, this lane was built for %zu; rebuild both sides with the "
      "same kernels/params headers",
      call->struct_size, sizeof(as_call));
}

Context* Context::get(Error* why) {
  static Result<Stream> made = Stream::create();
  if (!made) {
    *why = made.error();
    return nullptr;
  }
  static auto* context = new Context{{}, {}, {}, {}, std::move(*made)};
  return context;
}

#ifdef ATTNSCOPE_NVTX
Range::Range(const char* name) { nvtxRangePushA(name); }
Range::~Range() { nvtxRangePop(); }
#else
Range::Range(const char*) {}
Range::~Range() {}
#endif

}  // namespace attnscope::cuda
