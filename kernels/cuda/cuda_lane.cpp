#include "kernels/cuda/cuda_lane.h"

#if __has_include(<nvtx3/nvToolsExt.h>)
#include <nvtx3/nvToolsExt.h>
#define ATTNSCOPE_NVTX 1
#endif

#include <algorithm>
#include <cstdio>
#include <map>
#include <mutex>
#include <new>
#include <string>
#include <vector>

#include "kernels/cuda/check_params.h"
#include "kernels/cuda/device.h"
#include "kernels/cuda/host_call.h"
#include "kernels/cuda/ops.h"
#include "kernels/cuda/staging.h"
#include "kernels/params/lane_entries.h"

namespace attnscope::cuda {
namespace {

std::int32_t refuse(as_error* error, const as_op_info& info, const Error& why) {
  if (error != nullptr) {
    error->code = why.code;
    std::snprintf(error->message, sizeof(error->message), "%s: %s", info.name, why.text().c_str());
  }
  return why.code;
}

// What calls share. Calls with host tensors come one after another; those with GPU tensors have a
// workspace for each stream.
struct Context {
  std::mutex mutex;
  Arena arena;
  WeightMirrors weights;
  // By stream. Outgrown ones stay: a captured graph may go on using them.
  std::map<void*, std::vector<DeviceMemory>> workspaces;
  Stream stream;

  static Context* get(Error* why) {
    static Result<Stream> made = Stream::create();
    if (!made) {
      *why = made.error();
      return nullptr;
    }
    // Never destroyed: the driver may be gone when static objects are.
    static auto* context = new Context{{}, {}, {}, {}, std::move(*made)};
    return context;
  }
};

// The op as a range in a profiler's timeline; nothing without one.
class Range {
 public:
  explicit Range([[maybe_unused]] const char* name) {
#ifdef ATTNSCOPE_NVTX
    nvtxRangePushA(name);
#endif
  }
  ~Range() {
#ifdef ATTNSCOPE_NVTX
    nvtxRangePop();
#endif
  }
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

as_rope* rope_of(as_q_rope_kv_insert_params& p) { return &p.rope; }
as_rope* rope_of(as_inverse_rope_params& p) { return &p.rope; }
as_rope* rope_of(as_compress_insert_params& p) { return &p.rope; }
as_rope* rope_of(as_indexer_q_params& p) { return &p.rope; }
template <class Params>
as_rope* rope_of(Params&) {
  return nullptr;
}

template <class Params>
Place find_place(const as_op_info& info, Params& params) {
  Finder finder;
  for (std::uint32_t i = 0; i < info.num_taps; ++i) {
    char* field = reinterpret_cast<char*>(&params) + info.taps[i].offset;
    if (info.taps[i].kind == AS_TAP_CACHE) {
      finder.look(*reinterpret_cast<as_cache*>(field));
    } else {
      finder.look(*reinterpret_cast<as_tensor*>(field));
    }
  }
  if (as_rope* rope = rope_of(params)) finder.look(rope->table);
  return finder.place();
}

// Rows that kernels read in 16-byte steps. Host tensors are laid out so when they are copied.
bool aligned(const as_q_rope_kv_insert_params& p, cpu::Check& check) {
  if (!check_alignment("cache", p.cache, check)) return false;
  if (p.rows_given != 0) return check_alignment("kv_row", p.kv_row, check);
  return check_alignment("q_raw", p.q_raw, check) && check_alignment("kv", p.kv, check) &&
         check_alignment("q", p.q, check) &&
         (p.kv_row.data == nullptr || check_alignment("kv_row", p.kv_row, check));
}
bool aligned(const as_sparse_attention_params& p, cpu::Check& check) {
  return check_alignment("q", p.q, check) && check_alignment("o", p.o, check) &&
         check_alignment("cache", p.cache, check) &&
         (p.extra_cache.record == AS_RECORD_NONE ||
          check_alignment("extra_cache", p.extra_cache, check));
}
bool aligned(const as_compressor_state_params& p, cpu::Check& check) {
  return check_alignment("state", p.state, check);
}
bool aligned(const as_compress_insert_params& p, cpu::Check& check) {
  return check_alignment("cache", p.cache, check) &&
         (p.rows_given != 0 || check_alignment("state", p.state, check));
}
bool aligned(const as_indexer_logits_params& p, cpu::Check& check) {
  return check_alignment("cache", p.cache, check);
}
template <class Params>
bool aligned(const Params&, cpu::Check&) {
  return true;
}

template <class Params>
using OpBody = int (*)(const Params&, const Launch&);

// Tensors on the GPU: puts the op on the caller's stream.
template <class Params>
Result<void> run_on_device(const Params& params, OpBody<Params> body, const as_call* call,
                           Context& context, int multiprocessors) {
  Launch launch;
  launch.stream = call != nullptr ? call->stream : nullptr;
  launch.multiprocessors = multiprocessors;
  launch.workspace_bytes = workspace_bytes(params, multiprocessors);
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
Result<void> run_on_host(const as_op_info& info, const Params& params, OpBody<Params> body,
                         const as_call* call, Context& context, int multiprocessors) {
  const std::lock_guard lock(context.mutex);
  context.arena.reset();
  Staging staging(context.stream, context.arena, context.weights,
                  call != nullptr ? call->threads : nullptr);
  Params device = params;
  staging.tensors(info, &device);
  stage_more(params, device, staging);
  Launch launch;
  launch.stream = context.stream.handle();
  launch.multiprocessors = multiprocessors;
  launch.workspace_bytes = workspace_bytes(device, multiprocessors);
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

// What the op table calls.
template <as_op_id Op, class Params, OpBody<Params> kBody>
std::int32_t entry(const void* params, const as_call* call, as_error* error) {
  const as_op_info& info = *as_op_find(Op);
  const Range range(info.name);
  cpu::Check check(Op, error);
  if (!check.head(params, sizeof(Params))) return check.status();
  if (call != nullptr && call->struct_size != sizeof(as_call)) {
    check.fail(
        "as_call has struct_size %u, this lane was built for %zu; rebuild both sides with the "
        "same kernels/params headers",
        call->struct_size, sizeof(as_call));
    return check.status();
  }
  const auto& given = *static_cast<const Params*>(params);
  try {
    Params as_host = given;
    const Place place = find_place(info, as_host);
    if (place == Place::kMixed) {
      check.fail(
          "some tensors lie on the host, some on a GPU; put all on one side (device 0: "
          "host, 1: the GPU)");
      return check.status();
    }
    const bool on_host = place == Place::kHost;
    if (!check_params(as_host, on_host, check)) return check.status();
    if (!on_host && !aligned(as_host, check)) return check.status();
    const auto& device = Device::get();
    if (!device) return refuse(error, info, device.error());
    Error why;
    Context* context = Context::get(&why);
    if (context == nullptr) return refuse(error, info, why);
    const int multiprocessors = (*device)->info().multiprocessors;
    const Result<void> ok =
        on_host ? run_on_host<Params>(info, given, kBody, call, *context, multiprocessors)
                : run_on_device<Params>(given, kBody, call, *context, multiprocessors);
    return ok ? AS_OK : refuse(error, info, ok.error());
  } catch (const std::bad_alloc&) {
    return refuse(error, info, {AS_NO_ENVIRONMENT, "out of memory", "use fewer tokens per step"});
  }
}

as_lane make_lane() {
  as_lane lane{};
  lane.struct_size = sizeof(as_lane);
  lane.version = AS_LANE_VERSION;
  lane.name = "cuda";
  const auto& device = Device::get();
  if (!device) {
    static const std::string kWhy = device.error().message;
    lane.description = kWhy.c_str();
    return lane;
  }
  lane.description = "Every op on the byte-exact caches, on the GPU.";
#define AS_ENTRY(id, params, function) lane.ops[id] = entry<id, params, function>;
  AS_FOR_EACH_KERNEL(AS_ENTRY)
#undef AS_ENTRY
  return lane;
}

}  // namespace

const as_lane* lane() {
  static const as_lane kLane = make_lane();
  return &kLane;
}

}  // namespace attnscope::cuda
