// The lane's table, the SIMD levels, the thread pool.
#include <atomic>
#include <thread>

#include "kernels/cpu/simd/simd.h"
#include "tests/unit/kernels/support.h"

namespace attnscope::kernel_tests {
namespace lane_test {

TEST(CpuLane, HasEveryOpExceptTheHostOnes) {
  const Lane* lane = cpu::lane();
  EXPECT_STREQ(lane->name, "cpu");
  for (int i = 0; const as_op_info* op = as_op_at(i); ++i) {
    const bool host = op->id == AS_OP_SCHEDULE || op->id == AS_OP_BLOCK_TABLES;
    EXPECT_EQ(lane->ops[op->id] == nullptr, host) << op->name;
  }
  EXPECT_EQ(lane->ops.count(), AS_NUM_OPS - 2);
}

TEST(CpuLane, EveryOpRefusesForeignStructs) { expect_foreign_structs_refused(*cpu::lane()); }

TEST(ThreadPool, CoversEveryIndexOnce) {
  for (int threads : {1, 2, 3, 7}) {
    cpu::ThreadPool pool(threads);
    EXPECT_EQ(pool.num_threads(), threads);
    for (std::int64_t count : {0, 1, 2, 63, 1000}) {
      for (std::int64_t grain : {1, 7, 2000}) {
        std::vector<std::atomic<int>> hits(static_cast<std::size_t>(count));
        pool.parallel_for(
            count, grain,
            [](void* ctx, std::int64_t begin, std::int64_t end) {
              auto& all = *static_cast<std::vector<std::atomic<int>>*>(ctx);
              for (std::int64_t i = begin; i < end; ++i) ++all[static_cast<std::size_t>(i)];
            },
            &hits);
        for (const auto& hit : hits) ASSERT_EQ(hit.load(), 1);
      }
    }
  }
}

TEST(ThreadPool, ManyShortCallsAndNestedOnes) {
  cpu::ThreadPool pool(4);
  struct Context {
    cpu::ThreadPool* pool;
    std::atomic<std::int64_t> sum{0};
  } context{&pool};
  for (int round = 0; round < 3000; ++round) {
    pool.parallel_for(
        8, 1,
        [](void* ctx, std::int64_t begin, std::int64_t end) {
          auto& c = *static_cast<Context*>(ctx);
          for (std::int64_t i = begin; i < end; ++i) {
            c.pool->parallel_for(
                2, 1,
                [](void* inner, std::int64_t first, std::int64_t last) {
                  static_cast<Context*>(inner)->sum += last - first;
                },
                ctx);
          }
        },
        &context);
  }
  EXPECT_EQ(context.sum.load(), 3000 * 8 * 2);
}

TEST(ThreadPool, SleepingWorkersWakeUp) {
  cpu::ThreadPool pool(3);
  std::atomic<int> calls{0};
  for (int round = 0; round < 5; ++round) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    pool.parallel_for(
        100, 1,
        [](void* ctx, std::int64_t begin, std::int64_t end) {
          *static_cast<std::atomic<int>*>(ctx) += static_cast<int>(end - begin);
        },
        &calls);
  }
  EXPECT_EQ(calls.load(), 500);
}

TEST(ThreadPool, CallsFromSeveralThreadsAreCarriedOut) {
  cpu::ThreadPool pool(2);
  std::atomic<int> sum{0};
  std::vector<std::thread> callers;
  for (int c = 0; c < 3; ++c) {
    callers.emplace_back([&] {
      for (int round = 0; round < 500; ++round) {
        pool.parallel_for(
            4, 1,
            [](void* ctx, std::int64_t begin, std::int64_t end) {
              *static_cast<std::atomic<int>*>(ctx) += static_cast<int>(end - begin);
            },
            &sum);
      }
    });
  }
  for (std::thread& caller : callers) caller.join();
  EXPECT_EQ(sum.load(), 3 * 500 * 4);
}

TEST(Simd, ChosenLevelIsRunnable) {
  const cpu::simd::Levels levels = cpu::simd::runnable_levels();
  bool found = false;
  for (int i = 0; i < levels.count; ++i) {
    found = found || std::string(levels.items[i]->name) == cpu::simd_level();
  }
  EXPECT_TRUE(found) << cpu::simd_level();
  EXPECT_STREQ(levels.items[0]->name, "generic");
}

}  // namespace lane_test
}  // namespace attnscope::kernel_tests
