// A plugin in C++: its residual gives h back.
#include <attnscope_plugin.h>

#include <cstring>

namespace {

int32_t residual(const void* params, const as_call*, as_error*) {
  const auto& p = *static_cast<const as_residual_params*>(params);
  std::memcpy(p.out.data, p.h.data, static_cast<std::size_t>(as_tensor_numel(&p.h)) * 2);
  return AS_OK;
}

const as_lane_op kOps[] = {AS_LANE_OP(AS_OP_RESIDUAL, as_residual_params, residual)};
const as_lane kLane = AS_LANE("plain", nullptr, kOps);

}  // namespace

AS_PLUGIN_EXPORT const as_lane* attnscope_lane(void) { return &kLane; }
