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

bool check_grouped_linear(const as_grouped_linear_params& p, Check& check) {
  const bool codes = p.weight.dtype == AS_U8;
  const std::int32_t dtype = codes ? AS_U8 : AS_BF16;
  if (!check.tensor("weight", p.weight, dtype, {kAny, kAny, kAny})) return false;
  const std::int64_t groups = p.weight.shape[0], out = p.weight.shape[1], in = p.weight.shape[2];
  if (!check.tensor("x", p.x, dtype, {kAny, groups, in}) ||
      !check.tensor("y", p.y, AS_BF16, {p.x.shape[0], groups, out})) {
    return false;
  }
  if (!codes) {
    const bool scaled = present(p.weight_scale), x_scaled = present(p.x_scale);
    if (!scaled && !x_scaled) return true;
    return check.fail("weight is bf16 and there is %s; scales belong to codes (u8)",
                      scaled ? "a weight_scale" : "an x_scale");
  }
  if (in % AS_PROJECTION_BLOCK != 0) {
    return check.fail("weight has codes of %lld inputs a group; allowed: multiples of %d",
                      static_cast<long long>(in), AS_PROJECTION_BLOCK);
  }
  const std::int64_t blocks = in / AS_PROJECTION_BLOCK;
  return check.tensor("weight_scale", p.weight_scale, AS_F32,
                      {groups, (out + AS_PROJECTION_BLOCK - 1) / AS_PROJECTION_BLOCK, blocks}) &&
         check.tensor("x_scale", p.x_scale, AS_F32, {p.x.shape[0], groups, blocks});
}

}  // namespace attnscope::cpu
