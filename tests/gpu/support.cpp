#include "tests/gpu/support.h"

#include "kernels/cpu/thread_pool.h"
#include "kernels/cuda/cuda_lane.h"
#include "kernels/cuda/device.h"
#include "tests/gpu/device_lane.h"

namespace attnscope::gpu_tests {
namespace {

// Without a GPU every test of the executable is skipped, with one line that says why.
class GpuEnvironment : public testing::Environment {
 public:
  void SetUp() override {
    const auto& device = cuda::Device::get();
    if (!device) GTEST_SKIP() << "skipped: " << device.error().text();
  }
};
[[maybe_unused]] testing::Environment* const kEnvironment =
    testing::AddGlobalTestEnvironment(new GpuEnvironment);

template <int op>
std::int32_t threaded(const void* params, const as_call*, as_error* error) {
  static cpu::ThreadPool pool(0);
  as_call call{};
  call.struct_size = sizeof(call);
  call.threads = pool.handle();
  return cpu::lane()->ops[op](params, &call, error);
}

template <int op>
void fill(Lane* lane) {
  if constexpr (op < AS_OP_COUNT) {
    lane->ops[op] = cpu::lane()->ops[op] != nullptr ? threaded<op> : nullptr;
    fill<op + 1>(lane);
  }
}

}  // namespace

const Lane& lane(Way way) { return way == Way::kHost ? *cuda::lane() : device_lane(); }

const Lane& cpu_lane() {
  static const Lane kLane = [] {
    Lane lane = *cpu::lane();
    fill<0>(&lane);
    return lane;
  }();
  return kLane;
}

OpParams same_outputs(const OpParams& params, Memory* memory) {
  OpParams own = params;
  const as_op_info& info = params.info();
  for (std::uint32_t i = 0; i < info.num_taps; ++i) {
    const as_tap_info& tap = info.taps[i];
    if (tap.direction != AS_TAP_OUT || tap.kind != AS_TAP_TENSOR) continue;
    const as_tensor& t = params.tensor(tap.offset);
    if (!present(t)) continue;
    own.tensor(tap.offset) =
        memory->make(t.dtype, std::vector<std::int64_t>(t.shape, t.shape + t.rank));
  }
  return own;
}

void check_against_cpu(Way way, const OpParams& params, Memory* memory, Report* report) {
  if (!properties::run(lane(way), params, report)) return;
  const OpParams own = same_outputs(params, memory);
  if (!properties::run(cpu_lane(), own, report)) return;
  properties::judge_all(params, own, report);
}

void check_against_sim(const OpParams& ran, Memory* memory, Report* report) {
  const OpParams sim = properties::with_own_outputs(ran, memory);
  if (!properties::run(*reference::sim_lane(), sim, report)) return;
  properties::judge_all(ran, sim, report);
}

}  // namespace attnscope::gpu_tests
