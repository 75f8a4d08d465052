// The helper ops on the GPU: the property checks with both ways to call the lane, blocks in pinned
// host memory, attention in the shared memory of smaller GPUs.
#include <cstring>
#include <numeric>

#include "kernels/cuda/cuda_lane.h"
#include "kernels/cuda/device.h"
#include "kernels/cuda/ops.h"
#include "tests/gpu/device_lane.h"
#include "tests/gpu/support.h"
#include "tests/property/helper_checks.h"

namespace attnscope::gpu_tests {
namespace {

using namespace properties;

constexpr Way kWays[] = {Way::kHost, Way::kDevice};

template <class Case>
class Checks : public testing::TestWithParam<std::tuple<Way, Case>> {
 protected:
  const Lane& lane() const { return gpu_tests::lane(std::get<0>(this->GetParam())); }
  const Case& param() const { return std::get<1>(this->GetParam()); }
};

template <class Case>
std::string param_name(const testing::TestParamInfo<std::tuple<Way, Case>>& info) {
  return way_name(std::get<0>(info.param)) + "_" + std::get<1>(info.param).name;
}

void expect_right(const Report& report) { EXPECT_TRUE(report.ok()) << report; }

#define AS_CHECKS(Suite, Case, check, cases)                                                     \
  class Suite : public Checks<Case> {};                                                          \
  TEST_P(Suite, MatchesTheReference) { expect_right(check(lane(), param())); }                   \
  INSTANTIATE_TEST_SUITE_P(Shapes, Suite,                                                        \
                           testing::Combine(testing::ValuesIn(kWays), testing::ValuesIn(cases)), \
                           param_name<Case>)

AS_CHECKS(GpuMergeStates, MergeCase, check_merge, merge_cases());
AS_CHECKS(GpuGatherRows, GatherCase, check_gather, gather_cases());
AS_CHECKS(GpuConvertRows, ConvertCase, check_convert, convert_cases());
AS_CHECKS(GpuWorkspaceAttention, WorkspaceCase, check_workspace, workspace_cases());
AS_CHECKS(GpuInverseRopeQuantise, TurnCase, check_turn, turn_cases());
AS_CHECKS(GpuFp8Linear, Fp8Case, check_fp8, fp8_cases());
AS_CHECKS(GpuSequenceTable, TableCase, check_sequence_table, table_cases());
AS_CHECKS(GpuPageIndices, TableCase, check_page_indices, table_cases());
AS_CHECKS(GpuCompactTables, TableCase, check_compact_tables, table_cases());
AS_CHECKS(GpuPadRows, TableCase, check_pad_rows, table_cases());
#undef AS_CHECKS

// Host blocks must be pinned: the check's pools lie on the GPU.
class GpuCopyBlocks : public testing::TestWithParam<CopyCase> {};
TEST_P(GpuCopyBlocks, MatchesTheReference) { expect_right(check_copy(device_lane(), GetParam())); }
INSTANTIATE_TEST_SUITE_P(Shapes, GpuCopyBlocks, testing::ValuesIn(copy_cases()), name_of<CopyCase>);

// Blocks swapped out to pinned memory, exchanged with others there, swapped in elsewhere; the pairs
// lie on the host or on the GPU.
TEST(GpuSwapBlocks, ThroughPinnedMemoryAndBack) {
  constexpr std::int64_t kBlocks = 7, kBytes = 1728, kStride = 1760;
  for (const bool pairs_on_gpu : {false, true}) {
    auto stream = cuda::Stream::create();
    auto pool = cuda::DeviceMemory::allocate(kBlocks * kStride);
    auto host = cuda::PinnedMemory::allocate(kBlocks * kBytes);
    auto ids = cuda::DeviceMemory::allocate(1 << 10);
    ASSERT_TRUE(stream && pool && host && ids);
    std::vector<unsigned char> before(kBlocks * kStride), after(kBlocks * kStride);
    std::iota(before.begin(), before.end(), static_cast<unsigned char>(1));
    for (std::size_t i = 0; i < before.size(); ++i) before[i] ^= static_cast<unsigned char>(i >> 8);
    ASSERT_TRUE(stream->upload(pool->data(), before.data(), before.size()));
    std::memset(host->data(), 0x55, host->size());
    ASSERT_TRUE(stream->synchronize());

    const auto copy = [&](bool out, bool exchange, std::vector<std::int64_t> pairs) {
      auto p = helper_params<as_copy_blocks_params>();
      as_tensor on_gpu = make_tensor(pool->data(), {kBlocks, kBytes});
      on_gpu.stride[0] = kStride;
      on_gpu.device = 1;
      const as_tensor on_host = make_tensor(host->data(), {kBlocks, kBytes});
      p.from = out ? on_gpu : on_host;
      p.to = out ? on_host : on_gpu;
      p.pairs = make_tensor(pairs.data(), {static_cast<std::int64_t>(pairs.size()) / 2, 2});
      p.exchange = exchange ? 1 : 0;
      if (pairs_on_gpu) {
        ASSERT_TRUE(stream->upload(ids->data(), pairs.data(), 8 * pairs.size()));
        p.pairs.data = ids->data();
        p.pairs.device = 1;
      }
      as_call call{};
      call.struct_size = sizeof(call);
      call.stream = stream->handle();
      as_error error{};
      const as_op_fn op = cuda::lane()->ops[AS_OP_COPY_BLOCKS];
      ASSERT_EQ(op(&p, &call, &error), AS_OK) << error.message;
      ASSERT_TRUE(stream->synchronize());
    };
    copy(true, false, {1, 6, 5, 0, -1, 3});   // out: host 6 = 1, host 0 = 5
    copy(true, true, {2, 6});                 // host 6 = 2, gpu 2 = 1
    copy(false, false, {0, 3, 4, -1, 6, 4});  // in: gpu 3 = 5, gpu 4 = 2
    ASSERT_TRUE(stream->download(after.data(), pool->data(), after.size()));
    ASSERT_TRUE(stream->synchronize());
    const std::int64_t from[kBlocks] = {0, 1, 1, 5, 2, 5, 6};
    for (std::int64_t b = 0; b < kBlocks; ++b) {
      EXPECT_EQ(std::memcmp(after.data() + b * kStride, before.data() + from[b] * kStride, kBytes),
                0)
          << "block " << b;
      EXPECT_EQ(std::memcmp(after.data() + b * kStride + kBytes,
                            before.data() + b * kStride + kBytes, kStride - kBytes),
                0)
          << "behind block " << b;
    }
    EXPECT_EQ(host->data()[kBytes], 0x55);
  }
}

TEST(GpuSwapBlocks, RefusesHostMemoryThatIsNotPinned) {
  std::vector<unsigned char> pool(64);
  std::vector<std::int64_t> pairs = {0, 1};
  auto p = helper_params<as_copy_blocks_params>();
  p.from = p.to = make_tensor(pool.data(), {4, 16});
  p.pairs = make_tensor(pairs.data(), {1, 2});
  as_error error{};
  const as_op_fn op = cuda::lane()->ops[AS_OP_COPY_BLOCKS];
  EXPECT_EQ(op(&p, nullptr, &error), AS_BAD_INPUT);
  EXPECT_NE(std::string(error.message).find("not pinned"), std::string::npos) << error.message;
}

// An attention call whose tensors are taken to the GPU one by one.
struct SmallCall {
  as_sparse_attention_params params{};
  std::vector<cuda::DeviceMemory> memory;

  void upload(as_tensor* t) {
    if (!present(*t)) return;
    const auto bytes =
        static_cast<std::size_t>((t->shape[0] - 1) * t->stride[0] * as_dtype_size(t->dtype) +
                                 (t->rank > 1 ? t->stride[0] : 1) * as_dtype_size(t->dtype));
    auto device = cuda::DeviceMemory::allocate(bytes);
    auto stream = cuda::Stream::create();
    ASSERT_TRUE(device && stream);
    ASSERT_TRUE(stream->upload(device->data(), t->data, bytes));
    ASSERT_TRUE(stream->synchronize());
    t->data = device->data();
    memory.push_back(std::move(*device));
  }
};

TEST(GpuSmallSharedMemory, AttentionGivesTheSameResults) {
  const auto& device = cuda::Device::get();
  ASSERT_TRUE(device);
  for (const std::int64_t heads : {8, 17, 64, 128}) {
    Random random(static_cast<std::uint64_t>(heads));
    Memory memory;
    TwinCache cache(AS_RECORD_LATENT, AS_HEAD_DIM, {300}, {53, 16}, random);
    cache.put_all(random);
    OpParams host;
    auto& p = host.init<as_sparse_attention_params>(AS_OP_SPARSE_ATTENTION);
    constexpr std::int64_t kTokens = 5, kColumns = 200;
    p.q = memory.normals(AS_BF16, {kTokens, heads, AS_HEAD_DIM}, random);
    p.cache = cache.paged();
    p.indices = memory.make(AS_I32, {kTokens, kColumns});
    p.topk_length = memory.ints({200, 1, 0, 64, 129}, {kTokens});
    for (std::int64_t t = 0; t < kTokens; ++t) {
      for (std::int64_t k = 0; k < kColumns; ++k) {
        *at<std::int32_t>(p.indices, t, k) =
            static_cast<std::int32_t>(cache.slot(0, below(random, 300)));
      }
    }
    p.sinks = memory.normals(AS_F32, {heads}, random);
    p.o = memory.make(AS_BF16, {kTokens, heads, AS_HEAD_DIM});
    p.lse = memory.make(AS_F32, {kTokens, heads});
    p.scale = 0.04419417382415922;  // 512^-0.5
    Report report(1);
    const OpParams cpu = same_outputs(host, &memory);
    ASSERT_TRUE(properties::run(cpu_lane(), cpu, &report));

    SmallCall call;
    call.params = p;
    auto& on_gpu = call.params;
    for (as_tensor* t : {&on_gpu.q, &on_gpu.cache.data, &on_gpu.indices, &on_gpu.topk_length,
                         &on_gpu.sinks, &on_gpu.o, &on_gpu.lse}) {
      call.upload(t);
    }
    cuda::Launch launch;
    launch.gpu = {(*device)->info().multiprocessors, 99u << 10};
    const std::size_t wanted = cuda::workspace_bytes(on_gpu, launch.gpu);
    auto workspace = cuda::DeviceMemory::allocate(wanted);
    auto stream = cuda::Stream::create();
    ASSERT_TRUE(workspace && stream);
    launch.workspace = workspace->data();
    launch.workspace_bytes = wanted;
    launch.stream = stream->handle();
    ASSERT_EQ(cuda::sparse_attention(on_gpu, launch), 0);
    const auto rows = static_cast<std::size_t>(kTokens * heads);
    ASSERT_TRUE(stream->download(p.o.data, on_gpu.o.data, rows * AS_HEAD_DIM * 2));
    ASSERT_TRUE(stream->download(p.lse.data, on_gpu.lse.data, rows * 4));
    ASSERT_TRUE(stream->synchronize());
    properties::judge_all(host, cpu, &report);
    EXPECT_TRUE(report.ok()) << heads << " heads: " << report;
  }
}

}  // namespace
}  // namespace attnscope::gpu_tests
