#include "kernels/cpu/helper_lane.h"

#include <new>

#include "kernels/cpu/helper_ops.h"
#include "kernels/params/lane_entries.h"

namespace attnscope::cpu {
namespace {

template <class Params>
using HelperBody = void (*)(const Params&, const as_call*, Check&);

// What callers reach: checks the head, keeps exceptions inside.
template <as_helper_id Id, class Params, HelperBody<Params> kBody>
std::int32_t entry(const void* params, const as_call* call, as_error* error) {
  Check check(Id, error);
  if (!check.head(params, sizeof(Params))) return check.status();
  try {
    const auto& p = *static_cast<const Params*>(params);
    if (check_params(p, true, check)) kBody(p, call, check);
  } catch (const std::bad_alloc&) {
    check.fail("out of memory; use fewer tokens");
  }
  return check.status();
}

as_helper_lane make_lane() {
  as_helper_lane lane{};
  lane.struct_size = sizeof(as_helper_lane);
  lane.version = AS_LANE_VERSION;
  lane.name = "cpu";
  lane.description = "Every helper op on host threads.";
#define AS_ENTRY(id, params, function) lane.ops[id - AS_HELPER_FIRST] = entry<id, params, function>;
  AS_FOR_EACH_HELPER(AS_ENTRY)
#undef AS_ENTRY
  return lane;
}

}  // namespace

const as_helper_lane* helper_lane() {
  static const as_helper_lane kLane = make_lane();
  return &kLane;
}

}  // namespace attnscope::cpu
