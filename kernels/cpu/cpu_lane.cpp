#include "kernels/cpu/cpu_lane.h"

#include <cstdio>
#include <new>

#include "kernels/cpu/ops.h"
#include "kernels/cpu/simd/simd.h"
#include "kernels/params/lane_entries.h"

namespace attnscope::cpu {
namespace {

template <class Params>
using OpBody = void (*)(const Params&, const as_call*, Check&);

// What the op table calls: checks the head, keeps exceptions inside.
template <as_op_id Op, class Params, OpBody<Params> kBody>
std::int32_t entry(const void* params, const as_call* call, as_error* error) {
  Check check(Op, error);
  if (!check.head(params, sizeof(Params))) return check.status();
  if (call != nullptr && call->struct_size != sizeof(as_call)) {
    check.fail(
        "as_call has struct_size %u, this lane was built for %zu; rebuild both sides with "
        "the same kernels/params headers",
        call->struct_size, sizeof(as_call));
    return check.status();
  }
  try {
    kBody(*static_cast<const Params*>(params), call, check);
  } catch (const std::bad_alloc&) {
    check.fail("out of memory; use fewer tokens per step");
  }
  return check.status();
}

as_lane make_lane() {
  as_lane lane{};
  lane.struct_size = sizeof(as_lane);
  lane.version = AS_LANE_VERSION;
  lane.name = "cpu";
  lane.description = "Every op on the byte-exact caches, on host threads with SIMD.";
#define AS_ENTRY(id, params, function) lane.ops[id] = entry<id, params, function>;
  AS_FOR_EACH_KERNEL(AS_ENTRY)
#undef AS_ENTRY
  return lane;
}

}  // namespace

const as_lane* lane() {
  static const as_lane kLane = make_lane();
  return &kLane;
}

const char* simd_level() { return simd::kernels().name; }

}  // namespace attnscope::cpu
