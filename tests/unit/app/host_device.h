// A device for tests that is host memory of its own: what was not copied there is not there, what
// was not copied back is not here. Its lane "cuda" is the CPU lane on that memory.
#pragma once

#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <new>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "app/wiring/wiring.h"
#include "engine/backend/compute_device.h"
#include "engine/backend/host_ops.h"
#include "engine/session/step/op_params.h"
#include "kernels/cpu/cpu_lane.h"
#include "kernels/params/helper_params.h"
#include "kernels/params/mla_params.h"
#include "kernels/params/offload_params.h"
#include "kernels/params/op_ids.h"
#include "kernels/params/paged_params.h"

namespace attnscope {

class HostDevice : public ComputeDevice {
 public:
  struct Counts {
    std::int64_t uploads = 0, downloads = 0, allocations = 0, calls = 0, replays = 0;
    std::int64_t held = 0;        // pieces of memory
    std::int64_t marks = 0;       // events, of graphs whenever they are replayed
    std::int64_t list_calls = 0;  // of ops before the layers, here
    std::int64_t orders = 0;      // of branches
  };
  Counts counts;
  std::int64_t fail_after = -1;  // calls of ops that still succeed; -1 = all
  std::int64_t memory_left = std::int64_t{1} << 40;
  bool host_memory_short = false;  // of the kind that the device reaches by itself

  HostDevice() {
    for (int i = 0; i < kBranches; ++i) streams_.push_back(this);
  }
  ~HostDevice() override {
    for (auto& [memory, bytes] : memory_) ::operator delete(memory);
    for (auto& [memory, bytes] : host_memory_) ::operator delete(memory);
  }

  Result<void*> allocate(std::size_t bytes) override {
    ++counts.allocations;
    memory_left -= static_cast<std::int64_t>(bytes);
    if (memory_left < 0) return lost("out of memory on the device");
    void* memory = ::operator new(bytes);
    std::memset(memory, 0xFF, bytes);
    memory_[memory] = bytes;
    ++counts.held;
    return memory;
  }
  void release(void* memory) override {
    memory_.erase(memory);
    --counts.held;
    ::operator delete(memory);
  }
  Result<void*> allocate_host(std::size_t bytes) override {
    if (host_memory_short) return lost("out of host memory");
    ++counts.held;
    auto* memory = static_cast<char*>(::operator new(bytes));
    host_memory_[memory] = bytes;
    return static_cast<void*>(memory);
  }
  void release_host(void* memory) override {
    host_memory_.erase(static_cast<char*>(memory));
    --counts.held;
    ::operator delete(memory);
  }
  Result<void> upload(void* device, const void* host, std::size_t bytes) override {
    if (recording_ && !is_own(host)) return lost("an upload of passing memory in a graph");
    static_cast<void>(put([this] { ++counts.uploads; }));
    return move(device, host, bytes);
  }
  Result<void> download(void* host, const void* device, std::size_t bytes) override {
    if (recording_ && !is_own(host)) return lost("a download to passing memory in a graph");
    static_cast<void>(put([this] { ++counts.downloads; }));
    return move(host, device, bytes);
  }
  Result<void> copy(void* to, const void* from, std::size_t bytes) override {
    return put([=] { std::memcpy(to, from, bytes); });
  }
  Result<void> fill(void* device, int byte, std::size_t bytes) override {
    return put([=] { std::memset(device, byte, bytes); });
  }
  Result<void> synchronize() override { return {}; }
  void* stream(int branch) const override {
    return const_cast<HostDevice**>(&streams_[static_cast<std::size_t>(branch)]);
  }
  Result<void> order(int, int) override {
    ++counts.orders;
    return {};
  }
  Result<void> mark(int, std::size_t event) override {
    return put([this, event] {
      ++counts.marks;
      marked_[event] = counts.marks;
    });
  }
  Result<double> between(std::size_t first, std::size_t second) override {
    if (marked_.count(first) + marked_.count(second) != 2) return lost("an event nobody marked");
    return 7.0 * static_cast<double>(marked_.at(second) - marked_.at(first));
  }
  Result<std::size_t> record(const std::function<Result<void>()>& work) override {
    recording_ = true;
    graphs_.emplace_back();
    Result<void> ok = work();
    recording_ = false;
    if (!ok) return ok.error();
    return graphs_.size() - 1;
  }
  Result<void> replay(std::size_t graph) override {
    ++counts.replays;
    for (const auto& work : graphs_[graph]) work();
    return {};
  }

  // As of a GPU of ten multiprocessors: one kernel for each call of `work`.
  Result<OpLaunches> launches(const std::function<Result<void>()>& work) override {
    const Counts before = counts;
    const std::int64_t fails = std::exchange(fail_after, -1);
    const Result<std::size_t> recorded = record(work);
    counts = before;
    fail_after = fails;
    if (!recorded) return recorded.error();
    OpLaunches out{.major = 9, .minor = 0, .multiprocessors = 10, .kernels = {}, .unknown = {}};
    for (std::size_t i = 0; i < graphs_.back().size(); ++i) {
      out.kernels.push_back({.name = "host<64>",
                             .grid = {20, 2, 1},
                             .block = {256, 1, 1},
                             .cluster = {},
                             .registers = 128,
                             .static_shared = 1024,
                             .dynamic_shared = 96 << 10,
                             .local = 0,
                             .at_once = 2});
    }
    graphs_.pop_back();
    return out;
  }

  // Now, or whenever the graph being recorded is replayed.
  Result<void> put(std::function<void()> work) {
    if (recording_) {
      graphs_.back().push_back(std::move(work));
    } else {
      work();
    }
    return {};
  }
  bool may_call() { return fail_after < 0 || counts.calls++ < fail_after; }

 private:
  static Error lost(const char* what) { return {AS_NO_ENVIRONMENT, what, "test"}; }
  Result<void> move(void* to, const void* from, std::size_t bytes) {
    return put([=] { std::memcpy(to, from, bytes); });
  }

  // Memory of allocate_host().
  bool is_own(const void* host) const {
    const auto* p = static_cast<const char*>(host);
    const auto next = host_memory_.upper_bound(const_cast<char*>(p));
    if (next == host_memory_.begin()) return false;
    const auto& [begin, bytes] = *std::prev(next);
    return p < begin + bytes;
  }

  std::map<void*, std::size_t> memory_;
  std::map<char*, std::size_t> host_memory_;
  std::vector<HostDevice*> streams_;
  std::vector<std::vector<std::function<void()>>> graphs_;
  std::map<std::size_t, std::int64_t> marked_;  // events, 7 microseconds apart
  bool recording_ = false;
};

namespace host_device {

// Whether calls may have all tensors on the host, as the GPU's lane takes them, too.
inline bool takes_host_tensors = false;

// The op on memory of the device: every tensor must have been taken there.
template <int op, class Params>
std::int32_t call(const void* params, const as_call* call, as_error* error) {
  OpParams own;
  own.init<Params>(static_cast<as_op_id>(op)) = *static_cast<const Params*>(params);
  const as_op_info& info = own.info();
  // Ops before the layers may be called with tensors of the host.
  const bool before = info.phase == AS_PHASE_BEFORE;
  bool here = false, there = false;
  for (std::uint32_t i = 0; i < info.num_taps; ++i) {
    const as_tap_info& tap = info.taps[i];
    as_tensor& t = tap.kind == AS_TAP_CACHE ? own.cache(tap.offset).data : own.tensor(tap.offset);
    if (t.data == nullptr) continue;
    if (!before && !takes_host_tensors && t.device == 0) {
      return fail(error, AS_INTERNAL, (std::string(tap.name) + " lies elsewhere").c_str());
    }
    (t.device == 0 ? here : there) = true;
    t.device = 0;
  }
  if constexpr (requires(Params p) { p.rope; }) own.get<Params>().rope.table.device = 0;
  if (here && there) return fail(error, AS_INTERNAL, "tensors of both sides");
  if (!there) return cpu::lane()->ops[op](own.data(), call, error);
  HostDevice& device = **static_cast<HostDevice**>(call->stream);
  if (!device.may_call()) return fail(error, AS_NO_ENVIRONMENT, "the device fell off the bus");
  std::int32_t status = AS_OK;
  if (before) ++device.counts.list_calls;
  static_cast<void>(device.put([own] {
    as_error ignored{};
    if (cpu::lane()->ops[op](own.data(), nullptr, &ignored) != AS_OK) {
      throw std::runtime_error(ignored.message);
    }
  }));
  return status;
}

inline Lane make_lane() {
  Lane lane = *cpu::lane();
  lane.name = "cuda";
#define AS_ENTRY(id, number, params, function) lane.ops[id] = call<id, params>;
  AS_FOR_EACH_KERNEL(AS_ENTRY)
#undef AS_ENTRY
  lane.ops[AS_OP_MERGE_STATES] = call<AS_OP_MERGE_STATES, as_merge_states_params>;
  return lane;
}

// All lanes, with this one in place of the GPU's.
inline LaneRegistry lanes() {
  LaneRegistry registry;
  registry.add(*cpu::lane());
  registry.add(make_lane());
  const LaneRegistry all = all_lanes();
  for (const char* name : {"ref.sim", "ref.exact"}) {
    if (const Lane* lane = all.find(name)) registry.add(*lane);
  }
  return registry;
}

}  // namespace host_device
}  // namespace attnscope
