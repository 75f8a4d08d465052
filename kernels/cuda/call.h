// What an entry of a lane does around an op: finds out where the tensors lie, puts the op on the
// caller's stream or takes host tensors to the GPU and back. Shared by the op table's lane and the
// helper ops'.
#pragma once

#include <algorithm>
#include <map>
#include <mutex>
#include <vector>

#include "kernels/cpu/check.h"
#include "kernels/cuda/device.h"
#include "kernels/cuda/host_call.h"
#include "kernels/cuda/ops.h"
#include "kernels/cuda/staging.h"
#include "kernels/params/helper_params.h"

namespace attnscope::cuda {

// Fills the error with why an op did not run; returns its code.
std::int32_t refuse(as_error* error, const char* op, const Error& why);

Gpu gpu_of(const DeviceInfo& info);

// as_call is of this build.
bool check_call(const as_call* call, cpu::Check& check);

// What calls share. Calls with host tensors come one after another; those with GPU tensors have a
// workspace for each stream.
struct Context {
  std::mutex mutex;
  Arena arena;
  WeightMirrors weights;
  // By stream. Outgrown ones stay: a captured graph may go on using them.
  std::map<void*, std::vector<DeviceMemory>> workspaces;
  Stream stream;

  // Made on first use, never destroyed: the driver may be gone when static objects are.
  static Context* get(Error* why);
};

// The op as a range in a profiler's timeline; nothing without one.
class Range {
 public:
  explicit Range(const char* name);
  ~Range();
  Range(const Range&) = delete;
  Range& operator=(const Range&) = delete;
};

enum class Place { kHost, kDevice, kMixed };

// Where the tensors of a call lie; marks all of `params` as host memory, so that one set of checks
// serves both.
class Finder {
 public:
  void look(as_tensor& t) {
    if (t.data == nullptr) return;
    (t.device == 0 ? host_ : t.device == 1 ? device_ : other_) = true;
    t.device = 0;
  }
  void look(as_cache& c) { look(c.data); }
  Place place() const {
    if (other_ || (host_ && device_)) return Place::kMixed;
    return device_ ? Place::kDevice : Place::kHost;
  }

 private:
  bool host_ = false, device_ = false, other_ = false;
};

// Of an op that rotates; nullptr of others.
template <class Params>
as_rope* rope_of(Params& params) {
  if constexpr (requires { params.rope.table; }) {
    return &params.rope;
  } else {
    return nullptr;
  }
}

template <class Params>
Place find_place(const Taps& taps, Params& params) {
  Finder finder;
  for (std::uint32_t i = 0; i < taps.count; ++i) {
    char* field = reinterpret_cast<char*>(&params) + taps.items[i].offset;
    if (taps.items[i].kind == AS_TAP_CACHE) {
      finder.look(*reinterpret_cast<as_cache*>(field));
    } else {
      finder.look(*reinterpret_cast<as_tensor*>(field));
    }
  }
  if (as_rope* rope = rope_of(params)) finder.look(rope->table);
  return finder.place();
}

template <class Params>
using OpBody = int (*)(const Params&, const Launch&);

// Tensors on the GPU: puts the op on the caller's stream.
template <class Params>
Result<void> run_on_device(const Params& params, OpBody<Params> body, const as_call* call,
                           Context& context, const Gpu& gpu) {
  Launch launch;
  launch.stream = call != nullptr ? call->stream : nullptr;
  launch.gpu = gpu;
  launch.workspace_bytes = workspace_bytes(params, gpu);
  if (launch.workspace_bytes > 0) {
    const std::lock_guard lock(context.mutex);
    std::vector<DeviceMemory>& memory = context.workspaces[launch.stream];
    const std::size_t held = memory.empty() ? 0 : memory.back().size();
    if (held < launch.workspace_bytes) {
      auto larger = DeviceMemory::allocate(std::max(launch.workspace_bytes, 2 * held));
      if (!larger) return larger.error();
      memory.push_back(std::move(*larger));
    }
    launch.workspace = memory.back().data();
    launch.workspace_bytes = memory.back().size();
  }
  if (const int code = body(params, launch); code != 0) return device_error(code, "launch");
  return {};
}

// Tensors on the host: there and back.
template <class Params>
Result<void> run_on_host(const Taps& taps, const Params& params, OpBody<Params> body,
                         const as_call* call, Context& context, const Gpu& gpu) {
  const std::lock_guard lock(context.mutex);
  context.arena.reset();
  Staging staging(context.stream, context.arena, context.weights,
                  call != nullptr ? call->threads : nullptr);
  Params device = params;
  staging.tensors(taps, &device);
  stage_more(params, device, staging);
  Launch launch;
  launch.stream = context.stream.handle();
  launch.gpu = gpu;
  launch.workspace_bytes = workspace_bytes(device, gpu);
  if (launch.workspace_bytes > 0) launch.workspace = staging.workspace(launch.workspace_bytes);
  if (!staging.ok()) {
    if (auto done = context.stream.synchronize(); !done) return done;
    return staging.error();
  }
  const int code = body(device, launch);
  // Also after a failure: copies may be under way from memory that the caller takes back.
  if (auto done = code == 0 ? staging.finish() : context.stream.synchronize(); !done) return done;
  if (code != 0) return device_error(code, "launch");
  return {};
}

// An op whose params and call have been looked at. `as_host` is a scratch copy of the params;
// check(as_host, on_host) fills `checked` and says whether the op may run.
template <class Params, class Checked>
std::int32_t run_entry(const char* name, const Taps& taps, const Params& given, OpBody<Params> body,
                       const as_call* call, cpu::Check& check, as_error* error,
                       const Checked& checked) {
  Params as_host = given;
  const Place place = find_place(taps, as_host);
  if (place == Place::kMixed) {
    check.fail(
        "some tensors lie on the host, some on a GPU; put all on one side (device 0: "
        "host, 1: the GPU)");
    return check.status();
  }
  const bool on_host = place == Place::kHost;
  if (!checked(as_host, on_host)) return check.status();
  const auto& device = Device::get();
  if (!device) return refuse(error, name, device.error());
  Error why;
  Context* context = Context::get(&why);
  if (context == nullptr) return refuse(error, name, why);
  const Gpu gpu = gpu_of((*device)->info());
  const Result<void> ok = on_host ? run_on_host<Params>(taps, given, body, call, *context, gpu)
                                  : run_on_device<Params>(given, body, call, *context, gpu);
  return ok ? AS_OK : refuse(error, name, ok.error());
}

}  // namespace attnscope::cuda
