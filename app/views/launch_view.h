// The kernels that an op put on a GPU, in words: grid, registers, shared memory, and how many
// blocks of each run at once and why no more.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "engine/backend/occupancy.h"
#include "kernels/params/kernel_launch.h"

namespace attnscope {

struct LaunchRow {
  KernelLaunch kernel;
  std::int64_t times = 1;              // launched like this one behind the other
  std::optional<Occupancy> occupancy;  // none: the limits of the GPU are not known here
  std::int64_t at_once = 0;            // blocks of a multiprocessor; 0 = not known
  // Times that all multiprocessors are filled with blocks; a last one that is not full counts as
  // its part of one. 0 = not known.
  double waves = 0;
};
std::vector<LaunchRow> launch_rows(const OpLaunches& launches);

// "gather<64>: 132 blocks of 384 threads, 168 registers, 208 KiB shared"
std::string launch_text(const LaunchRow& row);
// "1 block of 12 warps at once, 19 % of 64 warps; registers let no more run; 2 waves on 132
// multiprocessors", or "on 96 of 132 multiprocessors" where each has a block at most.
std::string launch_occupancy_text(const LaunchRow& row, const OpLaunches& launches);
// What a panel says of an op: a line of how many there are, two for each; nothing where there are
// none.
std::vector<std::string> launch_lines(const OpLaunches& launches);

}  // namespace attnscope
