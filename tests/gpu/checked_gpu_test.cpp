// Builds with ATTNSCOPE_CUDA_CHECKED: an index out of range on the GPU stops the kernel instead of
// reading or writing elsewhere. A stopped kernel ends all CUDA work of its process, so each case
// has one of its own.
#include <cstdlib>
#include <functional>

#include "kernels/cuda/cuda_lane.h"
#include "kernels/cuda/device.h"
#include "kernels/cuda/ops.h"
#include "tests/gpu/device_lane.h"
#include "tests/gpu/support.h"
#include "tests/property/helper_checks.h"

namespace attnscope::gpu_tests {
namespace {

using properties::helper_params;
using properties::Memory;
using properties::TwinCache;

constexpr int kStopped = 7;

// Ends the process: with kStopped when the call failed on the GPU.
[[noreturn]] void run_and_leave(const std::function<std::int32_t(as_error*)>& call) {
  as_error error{};
  const std::int32_t status = call(&error);
  std::fprintf(stderr, "status %d: %s\n", status, error.message);
  std::_Exit(status == AS_NO_ENVIRONMENT ? kStopped : 1);
}

class GpuChecked : public testing::Test {
 protected:
  void SetUp() override {
    if (!cuda::kChecked) GTEST_SKIP() << "skipped: built without ATTNSCOPE_CUDA_CHECKED";
    GTEST_FLAG_SET(death_test_style, "threadsafe");
  }
  Random random{3};
  Memory memory;
};

TEST_F(GpuChecked, StopsAttentionAtASlotBeyondTheCache) {
  const auto run = [&](std::int32_t slot) {
    TwinCache cache(AS_RECORD_LATENT, AS_HEAD_DIM, {40}, {64, 0}, random);
    cache.put_all(random);
    OpParams params;
    auto& p = params.init<as_sparse_attention_params>(AS_OP_SPARSE_ATTENTION);
    p.q = memory.normals(AS_BF16, {1, 8, AS_HEAD_DIM}, random);
    p.cache = cache.paged();
    p.indices = memory.ints({0, slot}, {1, 2});
    p.topk_length = memory.ints({2}, {1});
    p.sinks = memory.normals(AS_F32, {8}, random);
    p.o = memory.make(AS_BF16, {1, 8, AS_HEAD_DIM});
    p.lse = memory.make(AS_F32, {1, 8});
    p.scale = 0.04;
    run_and_leave([&](as_error* error) {
      return device_lane().ops[AS_OP_SPARSE_ATTENTION](params.data(), nullptr, error);
    });
  };
  EXPECT_EXIT(run(1 << 20), testing::ExitedWithCode(kStopped), "sparse_attention|work on the GPU");
  EXPECT_EXIT(run(1), testing::ExitedWithCode(1), "status 0");
}

TEST_F(GpuChecked, StopsAtARotaryRowBeyondTheTable) {
  const auto run = [&](std::int64_t position) {
    OpParams params;
    auto& p = params.init<as_inverse_rope_params>(AS_OP_INVERSE_ROPE);
    p.o = memory.normals(AS_BF16, {1, 2, AS_HEAD_DIM}, random);
    p.positions = memory.ints64({position});
    p.rope = properties::plain_rope();
    p.out = memory.make(AS_BF16, {1, 2, AS_HEAD_DIM});
    run_and_leave([&](as_error* error) {
      return device_lane().ops[AS_OP_INVERSE_ROPE](params.data(), nullptr, error);
    });
  };
  EXPECT_EXIT(run(4096), testing::ExitedWithCode(kStopped), "GPU");
  EXPECT_EXIT(run(-1), testing::ExitedWithCode(kStopped), "GPU");
  EXPECT_EXIT(run(4095), testing::ExitedWithCode(1), "status 0");
}

TEST_F(GpuChecked, StopsAtARowOrBlockThatIsNotThere) {
  const auto gather = [&](std::int64_t slot) {
    TwinCache cache(AS_RECORD_INDEX_FP8, AS_INDEX_DIM, {40}, {64, 0}, random);
    cache.put_all(random);
    auto p = helper_params<as_gather_rows_params>();
    p.cache = cache.paged();
    p.slots = memory.ints64({slot});
    p.out = memory.make(AS_F32, {1, AS_INDEX_DIM});
    run_and_leave([&](as_error* error) {
      const int op = AS_OP_GATHER_ROWS;
      return device_lane().ops[op](&p, nullptr, error);
    });
  };
  EXPECT_EXIT(gather(1 << 20), testing::ExitedWithCode(kStopped), "GPU");
  EXPECT_EXIT(gather(-1), testing::ExitedWithCode(1), "status 0");
  const auto copy = [&](std::int64_t block) {
    auto p = helper_params<as_copy_blocks_params>();
    p.from = memory.make(AS_U8, {4, 64});
    p.to = memory.make(AS_U8, {4, 64});
    p.pairs = memory.make(AS_I64, {1, 2});
    *at<std::int64_t>(p.pairs, 0, 0) = 1;
    *at<std::int64_t>(p.pairs, 0, 1) = block;
    run_and_leave([&](as_error* error) {
      const int op = AS_OP_COPY_BLOCKS;
      return device_lane().ops[op](&p, nullptr, error);
    });
  };
  EXPECT_EXIT(copy(4), testing::ExitedWithCode(kStopped), "GPU");
  const auto pages = [&](std::int32_t length) {
    auto p = helper_params<as_page_indices_params>();
    p.table = memory.ints({5, 6}, {1, 2});
    p.seq_lens = memory.ints({length}, {1});
    p.indptr = memory.make(AS_I32, {2});
    p.indices = memory.make(AS_I32, {4});
    p.last_page_len = memory.make(AS_I32, {1});
    p.block_size = 16;
    run_and_leave([&](as_error* error) {
      const int op = AS_OP_PAGE_INDICES;
      return device_lane().ops[op](&p, nullptr, error);
    });
  };
  EXPECT_EXIT(pages(33), testing::ExitedWithCode(kStopped), "GPU");
  EXPECT_EXIT(pages(32), testing::ExitedWithCode(1), "status 0");
}

}  // namespace
}  // namespace attnscope::gpu_tests
