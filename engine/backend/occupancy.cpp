#include "engine/backend/occupancy.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "engine/io/plural.h"

namespace attnscope {
namespace {

constexpr std::int64_t kKiB = 1024, kWarp = 32, kMostThreads = 1024, kMostRegisters = 255;
constexpr std::int64_t kRegisters = 65536, kRegisterUnit = 256, kParts = 4;

std::int64_t whole(std::int64_t n, std::int64_t unit) { return (n + unit - 1) / unit * unit; }

const GpuLimits* limits_of(ComputeCapability gpu) {
  const auto found = std::ranges::find(gpu_limits(), gpu, &GpuLimits::capability);
  return found == gpu_limits().end() ? nullptr : &*found;
}

Result<void> check_launch(const LaunchNumbers& launch, const GpuLimits& gpu) {
  struct Range {
    const char* what;
    std::int64_t value, least, most;
  };
  for (const Range& r : {Range{"threads", launch.threads, 1, kMostThreads},
                         Range{"registers", launch.registers, 0, kMostRegisters},
                         Range{"shared", launch.shared, 0, gpu.shared_of_block}}) {
    if (r.value >= r.least && r.value <= r.most) continue;
    return bad_input(
        fmt::format("{} {} of a launch on {}", r.what, r.value, capability_name(gpu.capability)),
        fmt::format("allowed: {} to {}", r.least, r.most));
  }
  // Every part of the multiprocessor has as many warps of a block as the fullest one.
  const std::int64_t warps = whole(launch.threads, kWarp) / kWarp;
  const std::int64_t of_warp = whole(launch.registers * kWarp, kRegisterUnit);
  if (of_warp * whole(warps, kParts) <= kRegisters) return {};
  return bad_input(fmt::format("a block of {} threads with {} registers each asks for {} registers",
                               launch.threads, launch.registers, of_warp * whole(warps, kParts)),
                   fmt::format("a block has {} at most: fewer threads, or fewer registers a thread",
                               kRegisters));
}

}  // namespace

const std::vector<GpuLimits>& gpu_limits() {
  static const std::vector<GpuLimits> kLimits = {
      {{7, 5}, 32, 16, 64 * kKiB, 64 * kKiB, 0, 256},
      {{8, 0}, 64, 32, 164 * kKiB, 163 * kKiB, kKiB, 128},
      {{8, 6}, 48, 16, 100 * kKiB, 99 * kKiB, kKiB, 128},
      {{8, 9}, 48, 24, 100 * kKiB, 99 * kKiB, kKiB, 128},
      {{9, 0}, 64, 32, 228 * kKiB, 227 * kKiB, kKiB, 128},
      {{10, 0}, 64, 32, 228 * kKiB, 227 * kKiB, kKiB, 128},
      {{12, 0}, 48, 24, 100 * kKiB, 99 * kKiB, kKiB, 128},
  };
  return kLimits;
}

Result<Occupancy> occupancy(const LaunchNumbers& launch, ComputeCapability capability) {
  const GpuLimits* gpu = limits_of(capability);
  if (gpu == nullptr) {
    std::vector<std::string> known;
    for (const GpuLimits& limits : gpu_limits())
      known.push_back(capability_name(limits.capability));
    return bad_input(
        fmt::format("the limits of {} are not known here", capability_name(capability)),
        fmt::format("allowed: {}", fmt::join(known, ", ")));
  }
  if (auto ok = check_launch(launch, *gpu); !ok) return ok.error();
  Occupancy of;
  of.warps_of_block = whole(launch.threads, kWarp) / kWarp;
  const std::int64_t of_warp = whole(launch.registers * kWarp, kRegisterUnit);
  const std::int64_t shared = whole(launch.shared + gpu->reserved, gpu->unit);
  const std::int64_t most = gpu->blocks;
  const std::int64_t by_registers =
      of_warp > 0 ? kRegisters / kParts / of_warp * kParts / of.warps_of_block : most;
  of.limits = {{"threads", gpu->warps / of.warps_of_block},
               {"blocks", most},
               {"registers", by_registers},
               {"shared memory", shared > 0 ? gpu->shared / shared : most}};
  of.blocks = std::ranges::min_element(of.limits, {}, &OccupancyLimit::blocks)->blocks;
  of.share = static_cast<double>(of.blocks * of.warps_of_block) / static_cast<double>(gpu->warps);
  for (const OccupancyLimit& limit : of.limits) {
    if (limit.blocks == of.blocks) of.by.push_back(limit.what);
  }
  return of;
}

std::string describe(const Occupancy& of, ComputeCapability gpu) {
  const GpuLimits* limits = limits_of(gpu);
  return fmt::format("{} of {} at once, {:.0f} % of {} warps; {} {} no more run",
                     counted(of.blocks, "block", "blocks"),
                     counted(of.warps_of_block, "warp", "warps"), 100 * of.share,
                     limits != nullptr ? limits->warps : 0, fmt::join(of.by, " and "),
                     of.by.size() == 1 && of.by[0] == "shared memory" ? "lets" : "let");
}

}  // namespace attnscope
