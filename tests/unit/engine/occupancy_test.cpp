// Occupancy of launches, by the numbers that CUDA's own calculator (cuda_occupancy.h) gives for
// them.
#include "engine/backend/occupancy.h"

#include <gtest/gtest.h>

namespace attnscope {
namespace occupancy_test {

struct Known {
  LaunchNumbers launch;
  ComputeCapability gpu;
  std::int64_t blocks;
  std::vector<std::string> by;
};

TEST(Occupancy, IsThatOfCudasCalculator) {
  const Known kKnown[] = {
      {{256, 128, 48 << 10}, {9, 0}, 2, {"registers"}},
      {{384, 168, 200 << 10}, {9, 0}, 1, {"registers", "shared memory"}},
      {{128, 40, 0}, {8, 0}, 12, {"registers"}},
      {{32, 16, 0}, {8, 6}, 16, {"blocks"}},
      {{32, 16, 0}, {8, 9}, 24, {"blocks"}},
      {{1024, 32, 0}, {9, 0}, 2, {"threads", "registers"}},
      {{1024, 64, 0}, {9, 0}, 1, {"registers"}},
      {{160, 72, 20000}, {8, 9}, 4, {"shared memory"}},
      {{96, 255, 0}, {12, 0}, 2, {"registers"}},
      {{1, 0, 0}, {7, 5}, 16, {"blocks", "registers", "shared memory"}},
      {{64, 32, 227 << 10}, {10, 0}, 1, {"shared memory"}},
  };
  for (const Known& known : kKnown) {
    const auto of = occupancy(known.launch, known.gpu);
    ASSERT_TRUE(of) << of.error().text();
    EXPECT_EQ(of->blocks, known.blocks) << capability_name(known.gpu) << known.launch.threads;
    EXPECT_EQ(of->by, known.by) << capability_name(known.gpu) << known.launch.threads;
  }
}

// More of anything never lets more run.
TEST(Occupancy, FallsWithWhatALaunchAsksFor) {
  for (const GpuLimits& gpu : gpu_limits()) {
    for (std::int64_t threads = 32; threads <= 1024; threads += 96) {
      std::int64_t last = gpu.blocks;
      for (std::int64_t registers = 8; registers <= 255; ++registers) {
        const auto of = occupancy({threads, registers, 0}, gpu.capability);
        if (!of) break;  // more than a block has, and so are all behind it
        EXPECT_LE(of->blocks, last);
        EXPECT_GE(of->blocks, 1);
        EXPECT_LE(of->share, 1);
        last = of->blocks;
      }
      last = gpu.blocks;
      for (std::int64_t shared = 0; shared <= gpu.shared_of_block; shared += 512) {
        const auto of = occupancy({threads, 32, shared}, gpu.capability);
        ASSERT_TRUE(of) << of.error().text();
        EXPECT_LE(of->blocks, last);
        EXPECT_GE(of->blocks, 1);
        last = of->blocks;
      }
    }
  }
}

TEST(Occupancy, LaunchesThatAGpuRefusesAreNamed) {
  const auto refused = [](const LaunchNumbers& launch, ComputeCapability gpu) {
    const auto of = occupancy(launch, gpu);
    return of ? std::string() : of.error().text();
  };
  EXPECT_NE(refused({1024, 65, 0}, {9, 0}).find("asks for 73728 registers"), std::string::npos);
  EXPECT_NE(refused({1025, 16, 0}, {9, 0}).find("threads 1025"), std::string::npos);
  EXPECT_NE(refused({128, 256, 0}, {9, 0}).find("registers 256"), std::string::npos);
  EXPECT_NE(refused({128, 16, 100 << 10}, {8, 9}).find("shared 102400 of a launch on sm_89"),
            std::string::npos);
  EXPECT_NE(refused({128, 16, 0}, {3, 0}).find("limits of sm_30 are not known"), std::string::npos);
}

TEST(Occupancy, IsSaidInASentence) {
  EXPECT_EQ(describe(*occupancy({256, 128, 48 << 10}, {9, 0}), {9, 0}),
            "2 blocks of 8 warps at once, 25 % of 64 warps; registers let no more run");
  EXPECT_EQ(describe(*occupancy({160, 72, 20000}, {8, 9}), {8, 9}),
            "4 blocks of 5 warps at once, 42 % of 48 warps; shared memory lets no more run");
}

}  // namespace occupancy_test
}  // namespace attnscope
