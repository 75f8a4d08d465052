#include "engine/session/verify/reference_call.h"

#include <fmt/format.h>

#include "engine/backend/call_op.h"
#include "engine/session/verify/forced_copy.h"
#include "kernels/params/tensor_view.h"

namespace attnscope {

Result<void> call_reference(const Lane* lane, const OpParams& params, const as_call& how) {
  auto ran = call_op(lane->ops[params.op()], params.data(), how);
  if (ran) return ran;
  return Error{ran.error().code,
               fmt::format("{}: {}: {}", lane->name, params.info().name, ran.error().message),
               {}};
}

// Numbers that a quantiser puts out with the scale of its codes in them.
bool carries_scale(const as_tap_info& tap, const as_tensor& value) {
  return tap.follows_row != 0 && tap.kind == AS_TAP_TENSOR && is_float(value.dtype);
}

TapMask mask_of(const void* params, const as_tap_info& tap) {
  const auto& of =
      *reinterpret_cast<const as_tensor*>(static_cast<const char*>(params) + tap.mask_offset);
  TapMask mask;
  if (tap.mask == AS_MASK_SLOTS) mask.slots = at<std::int64_t>(of);
  if (tap.mask == AS_MASK_LENS) mask.lens = at<std::int32_t>(of);
  return mask;
}

}  // namespace attnscope
