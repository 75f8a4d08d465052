// The CUDA lane as a lane: its table, what it refuses, that it keeps no stale copy of the host's
// memory, on both sides of the border between host and GPU tensors.
#include "kernels/cuda/cuda_lane.h"
#include "kernels/cuda/device.h"
#include "kernels/cuda/ops.h"
#include "tests/gpu/support.h"
#include "tests/unit/kernels/support.h"

namespace attnscope::gpu_tests {
namespace {

using kernel_tests::Array;
using kernel_tests::make_params;
using kernel_tests::Outcome;
using kernel_tests::PagedCache;

template <class Params>
Outcome run_cuda(as_op_id op, const Params& params) {
  return kernel_tests::run(op, params, nullptr, cuda::lane());
}

TEST(GpuLane, HasEveryOpOfTheCpuLane) {
  for (std::int32_t op = 0; op < AS_OP_COUNT; ++op) {
    EXPECT_EQ(cuda::lane()->ops[op] == nullptr, cpu::lane()->ops[op] == nullptr)
        << as_op_find(op)->name;
  }
}

TEST(GpuLane, RefusesForeignStructs) {
  kernel_tests::expect_foreign_structs_refused(*cuda::lane());
}

TEST(GpuLane, RefusesSlotsOutsideTheCacheAndWritesNothing) {
  Array<bf16_t> kv_row({3, 512}, kernel_tests::to_bf16(1.0f));
  Array<std::int64_t> slots({3}, {0, 4, 2});
  PagedCache cache(AS_RECORD_LATENT, 512, 2, 2);
  const std::vector<unsigned char> before = cache.bytes();
  auto p = make_params<as_q_rope_kv_insert_params>();
  p.kv_row = kv_row.tensor;
  p.slots = slots.tensor;
  p.cache = cache.view();
  p.rows_given = 1;
  EXPECT_REFUSED(run_cuda(AS_OP_Q_ROPE_KV_INSERT, p), "slots[1] is slot 4");
  EXPECT_EQ(cache.bytes(), before);
  slots[1] = 3;
  EXPECT_OK(run_cuda(AS_OP_Q_ROPE_KV_INSERT, p));
  EXPECT_TRUE(cache.guards_intact());
}

TEST(GpuLane, RefusesTensorsOnBothSides) {
  Array<bf16_t> h({1, 8}), y({1, 8}), out({1, 8});
  auto p = make_params<as_residual_params>();
  p.h = h.tensor;
  p.y = y.tensor;
  p.out = out.tensor;
  p.y.device = 1;
  EXPECT_REFUSED(run_cuda(AS_OP_RESIDUAL, p), "some tensors lie on the host");
  p.y.device = 2;
  EXPECT_REFUSED(run_cuda(AS_OP_RESIDUAL, p), "some tensors lie on the host");
}

TEST(GpuLane, RefusesRowsOnTheGpuThatAreNotAligned) {
  auto memory = cuda::DeviceMemory::allocate(1 << 16);
  ASSERT_TRUE(memory) << memory.error().text();
  const auto place = [&](as_tensor t) {
    t.data = memory->data();
    t.device = 1;
    return t;
  };
  auto p = make_params<as_q_rope_kv_insert_params>();
  p.rows_given = 1;
  p.kv_row = place(make_tensor(nullptr, AS_BF16, {2, 512}));
  p.kv_row.stride[0] = 513;
  p.slots = place(make_tensor(nullptr, AS_I64, {2}));
  p.cache.data = place(make_tensor(nullptr, AS_U8, {2, 1168}));
  p.cache.record = AS_RECORD_LATENT;
  p.cache.rows_per_block = 2;
  p.cache.width = 512;
  EXPECT_REFUSED(run_cuda(AS_OP_Q_ROPE_KV_INSERT, p), "kv_row is not aligned");
  p.kv_row.stride[0] = 520;
  p.cache.data.stride[0] = 1169;
  EXPECT_REFUSED(run_cuda(AS_OP_Q_ROPE_KV_INSERT, p), "cache is not aligned");
}

// Weights stay on the GPU between calls; a changed byte must be seen all the same.
TEST(GpuLane, SeesWeightsThatChangedInPlace) {
  Report report(11);
  Random random(11);
  Memory memory;
  OpParams engine;
  auto& p = engine.init<as_linear_params>(AS_OP_Q_B_PROJ);
  p.x = memory.normals(AS_BF16, {3, 256}, random);
  p.weight = memory.normals(AS_BF16, {512, 256}, random);
  p.y = memory.make(AS_BF16, {3, 512});
  for (std::int64_t change = 0; change < 3; ++change) {
    at<bf16_t>(p.weight, 511 * (change % 2), 255)->bits = 0x4280;  // 64
    check_against_cpu(Way::kHost, engine, &memory, &report);
    EXPECT_TRUE(report.ok()) << report;
    at<bf16_t>(p.weight, 511 * (change % 2), 255)->bits = 0xc280;
  }
}

// Rows that the CPU lane wrote are read by the CUDA lane and the other way round, call by call.
TEST(GpuLane, SharesCachesWithTheCpuLane) {
  Random random(5);
  Array<bf16_t> kv_row({8, 512});
  kernel_tests::fill_normal(kv_row, random);
  PagedCache cache(AS_RECORD_LATENT, 512, 4, 3), expected(AS_RECORD_LATENT, 512, 4, 3);
  auto p = make_params<as_q_rope_kv_insert_params>();
  p.rows_given = 1;
  for (std::int64_t t = 0; t < 8; ++t) {
    Array<std::int64_t> slots({1}, {t + 4});
    p.slots = slots.tensor;
    p.kv_row = kv_row.tensor;
    p.kv_row.shape[0] = 1;
    p.kv_row.data = at<bf16_t>(kv_row.tensor, t);
    p.cache = cache.view();
    EXPECT_OK(t % 2 == 0 ? run_cuda(AS_OP_Q_ROPE_KV_INSERT, p)
                         : kernel_tests::run(AS_OP_Q_ROPE_KV_INSERT, p));
    p.cache = expected.view();
    EXPECT_OK(kernel_tests::run(AS_OP_Q_ROPE_KV_INSERT, p));
    ASSERT_EQ(cache.bytes(), expected.bytes()) << "token " << t;
  }
}

}  // namespace
}  // namespace attnscope::gpu_tests
