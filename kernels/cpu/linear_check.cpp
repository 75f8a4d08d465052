#include "kernels/cpu/linear_check.h"

#include "kernels/params/tensor_view.h"

namespace attnscope::cpu {
namespace {

bool weight(const as_linear_params& p, Check& check) {
  if (p.weight.dtype != AS_U8) {
    if (!check.tensor("weight", p.weight, AS_BF16, {kAny, kAny})) return false;
    if (!present(p.weight_scale)) return true;
    return check.fail("weight is bf16 and has a weight_scale; scales belong to codes (u8)");
  }
  if (!check.tensor("weight", p.weight, AS_U8, {kAny, kAny})) return false;
  const std::int64_t out = p.weight.shape[0], in = p.weight.shape[1];
  if (out % AS_PROJECTION_BLOCK != 0 || in % AS_PROJECTION_BLOCK != 0) {
    return check.fail("weight has codes of shape [%lld,%lld]; both sides must be multiples of %d",
                      static_cast<long long>(out), static_cast<long long>(in), AS_PROJECTION_BLOCK);
  }
  return check.tensor("weight_scale", p.weight_scale, AS_F32,
                      {out / AS_PROJECTION_BLOCK, in / AS_PROJECTION_BLOCK});
}

}  // namespace

bool check_linear(const as_linear_params& p, Check& check) {
  return weight(p, check) && check.tensor("x", p.x, AS_BF16, {kAny, p.weight.shape[1]}) &&
         check.tensor("y", p.y, p.y.dtype == AS_F32 ? AS_F32 : AS_BF16,
                      {p.x.shape[0], p.weight.shape[0]});
}

}  // namespace attnscope::cpu
