// How many blocks of a kernel run on one multiprocessor at once, and what keeps more from it: by
// threads, registers and shared memory of the launch and the limits of the GPU. The rules are those
// of CUDA's cuda_occupancy.h, limits those of the table of compute capabilities in NVIDIA's CUDA
// C++ Programming Guide; the largest carve-out of shared memory is taken.
//
//   Result<Occupancy> of = occupancy({.threads = 256, .registers = 128, .shared = 48 << 10}, {9,
//   0});
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/backend/attention_backend.h"

namespace attnscope {

struct LaunchNumbers {
  std::int64_t threads = 0;    // of a block
  std::int64_t registers = 0;  // of a thread
  std::int64_t shared = 0;     // bytes of a block, static and dynamic
};

struct GpuLimits {
  ComputeCapability capability;
  std::int64_t warps = 0, blocks = 0;  // of a multiprocessor
  std::int64_t shared = 0;             // bytes, likewise
  std::int64_t shared_of_block = 0;    // at most, asked for
  std::int64_t reserved = 0;           // bytes that the system has of each block
  std::int64_t unit = 0;               // in which shared memory is given
};
// Those that are known, by capability. Each has 65536 registers in four parts, and gives a warp
// multiples of 256.
const std::vector<GpuLimits>& gpu_limits();

struct OccupancyLimit {
  std::string what;         // "registers"
  std::int64_t blocks = 0;  // that it lets run at once
};

struct Occupancy {
  std::int64_t warps_of_block = 0;
  std::int64_t blocks = 0;             // at once on a multiprocessor
  double share = 0;                    // of the warps that it can have
  std::vector<OccupancyLimit> limits;  // threads, blocks, registers, shared memory
  std::vector<std::string> by;         // those that let no more run
};

// AS_BAD_INPUT: a launch that the GPU refuses, and by which limit; a GPU that is not known.
Result<Occupancy> occupancy(const LaunchNumbers& launch, ComputeCapability gpu);

// "2 blocks of 8 warps at once, 25 % of 64 warps; registers let no more run"
std::string describe(const Occupancy& of, ComputeCapability gpu);

}  // namespace attnscope
