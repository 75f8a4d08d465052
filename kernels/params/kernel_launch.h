// What an op puts on a GPU, as the driver has it: each kernel's grid, its registers and its shared
// memory.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace attnscope {

struct LaunchExtent {
  std::int64_t x = 1, y = 1, z = 1;
  std::int64_t count() const { return x * y * z; }
  friend bool operator==(const LaunchExtent&, const LaunchExtent&) = default;
};

struct KernelLaunch {
  std::string name;                 // as kernel_name() has it
  LaunchExtent grid;                // blocks
  LaunchExtent block;               // threads
  LaunchExtent cluster;             // blocks that run together; 1 = each by itself
  std::int64_t registers = 0;       // of a thread, when it starts
  std::int64_t static_shared = 0;   // bytes of a block
  std::int64_t dynamic_shared = 0;  // bytes of a block, asked for by the launch
  std::int64_t local = 0;           // bytes of a thread: arrays, and registers that were spilled
  std::int64_t at_once = 0;  // blocks of a multiprocessor, says the driver; 0 = it does not say
  friend bool operator==(const KernelLaunch&, const KernelLaunch&) = default;
};

struct OpLaunches {
  std::int64_t major = 0, minor = 0;  // compute capability of the GPU
  std::int64_t multiprocessors = 0;
  std::vector<KernelLaunch> kernels;  // in the order of the stream
  std::string unknown;                // why there are none, where there should be
  bool empty() const { return kernels.empty() && unknown.empty(); }
  static OpLaunches not_known(std::string why) {
    OpLaunches none;
    none.unknown = std::move(why);
    return none;
  }
};

// Of a name as compilers write it: without namespaces, result and parameters, template arguments
// kept. "_ZN9attnscope4cuda6gatherILi64EEEvPf" is "gather<64>".
std::string kernel_name(const std::string& mangled);

}  // namespace attnscope
