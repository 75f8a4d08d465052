// A plugin as a lane "plugin:NAME". What its kernels do wrong is written down and, where a session
// goes on, made good by another lane: the op that failed once is left to that lane from then on.
//
//   auto plugin = PluginLane::open({"libmine.so", ..});
//   registry.add((*plugin)->lane());
//   .. for (const PluginFault& f : (*plugin)->faults()) ..
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "engine/plugin/load.h"
#include "engine/plugin/process.h"

namespace attnscope {

struct PluginOptions {
  std::string library;
  std::string program;      // that runs the child; not needed in-process
  bool in_process = false;  // fast, and nothing is caught
  double seconds_limit = 10;
  // Carries out an op that the plugin failed at, and is timed beside it.
  const Lane* stand_in = nullptr;
  // Timed beside ops on the GPU, on tensors there; nullptr = nobody is.
  const Lane* beside_on_device = nullptr;
  OpenPluginDevice open_device = open_cuda_plugin_device;
};

struct PluginFault {
  std::string lane;  // plugin:NAME
  as_op_id op = AS_OP_SCHEDULE;
  std::string what;  // "crashed (SIGSEGV): it wrote beyond the end of o: byte 4096 of 4096"
  std::string text() const;
  std::string text_with(const char* stand_in) const;  // and who carries out the op from then on
};

// Calls of one op that have the same number of rows: times of others cannot be laid beside each
// other. Another lane is timed beside some of them, on a copy of their inputs; of these the one
// that took the plugin least is kept.
struct PluginTiming {
  as_op_id op = AS_OP_SCHEDULE;
  std::int64_t all_calls = 0;  // of the op, of whatever size
  std::int64_t rows = 0;       // first axis of what it puts out: mostly tokens
  std::int64_t calls = 0;      // of that size
  double microseconds = 0;     // the fastest of these
  struct Pair {
    double plugin = 0, other = 0;  // microseconds of the same call
    const char* lane = "";         // the other
  };
  std::optional<Pair> pair;
};

class PluginLane {
 public:
  static Result<std::unique_ptr<PluginLane>> open(const PluginOptions& options);
  ~PluginLane();

  // Whether its tensors lie on the GPU.
  bool on_device(std::int32_t op) const { return on_device_[op]; }
  const Lane& lane() const { return lane_; }
  // Whether a fault ends the call with an error (a case) or the stand-in takes over (a session).
  void set_strict(bool strict) { strict_ = strict; }
  // What outputs hold before a call, 0xff unless said. In-process the caller's memory is what it
  // is.
  void set_poison(std::uint8_t byte) {
    if (process_ != nullptr) process_->set_poison(byte);
  }
  void set_on_fault(std::function<void(const PluginFault&)> on_fault) {
    on_fault_ = std::move(on_fault);
  }
  std::vector<PluginFault> faults() const;
  // One an op that was called: of its largest calls, those that another lane was timed beside
  // first.
  std::vector<PluginTiming> timings() const;
  void reset_timings();
  // Calls that ended with an error, strict or not.
  std::int64_t failures() const { return failures_; }

  // A call from the lane's table. Where the stand-in carries it out, that is noted
  // (backend/stand_in.h).
  std::int32_t run(as_op_id op, const void* params, const as_call* call, as_error* error);

 private:
  explicit PluginLane(const PluginOptions& options) : options_(options) {}
  Result<PluginInfo> load();
  // Who is timed beside an op.
  const Lane* beside(as_op_id op) const {
    return on_device_[op] ? options_.beside_on_device : options_.stand_in;
  }
  // The library's op where it is loaded in this process.
  DeviceImage::Function in_process(as_op_id op) const;
  Result<double> run_plugin(as_op_id op, const void* params, const as_call* call);
  Result<double> run_here_on_device(as_op_id op, const void* params, const as_call* call);
  std::optional<double> time_other(as_op_id op, const void* params, const as_call* call,
                                   std::int64_t calls_before);

  PluginOptions options_;
  std::string name_, description_;
  Lane lane_{};
  LoadedPlugin loaded_;  // in-process
  PerOp<bool> on_device_;
  std::unique_ptr<DeviceImage> image_;  // outlives the process, which has it open
  std::unique_ptr<PluginProcess> process_;
  int slot_ = -1;
  bool strict_ = false;
  std::function<void(const PluginFault&)> on_fault_;
  mutable std::mutex mutex_;
  PerOp<std::optional<PluginFault>> failed_;
  PerOp<std::map<std::int64_t, PluginTiming>> timings_;  // by rows
  std::vector<PluginFault> faults_;
  std::atomic<std::int64_t> failures_{0};
};

}  // namespace attnscope
