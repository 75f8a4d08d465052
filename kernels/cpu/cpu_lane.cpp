#include "kernels/cpu/cpu_lane.h"

#include <cstdio>
#include <new>

#include "kernels/cpu/helper_ops.h"
#include "kernels/cpu/ops.h"
#include "kernels/cpu/simd/simd.h"
#include "kernels/params/op_ids.h"

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

// The CUDA lane shares the checks of helper ops, which stand beside their bodies therefore.
template <class Params, OpBody<Params> kBody>
void checked(const Params& p, const as_call* call, Check& check) {
  if (check_params(p, true, check)) kBody(p, call, check);
}

Lane make_lane() {
  Lane lane{};
  lane.name = "cpu";
  lane.description = "Every op on the byte-exact caches, on host threads with SIMD.";
#define AS_ENTRY(id, number, params, function) lane.ops[id] = entry<id, params, function>;
  AS_FOR_EACH_KERNEL(AS_ENTRY)
#undef AS_ENTRY
// NOLINTBEGIN(bugprone-macro-parentheses): names of a type and of a function
#define AS_ENTRY(id, number, params, function) \
  lane.ops[id] = entry<id, params, checked<params, function>>;
  // NOLINTEND(bugprone-macro-parentheses)
  AS_FOR_EACH_HELPER(AS_ENTRY)
#undef AS_ENTRY
  return lane;
}

}  // namespace

const Lane* lane() {
  static const Lane kLane = make_lane();
  return &kLane;
}

const char* simd_level() { return simd::kernels().name; }

}  // namespace attnscope::cpu
