// inverse_rope: undoes the rotation that the values carry, at the query's position.
#include "kernels/cpu/codec.h"
#include "kernels/cpu/ops.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/rope.h"
#include "kernels/cpu/simd/simd.h"

namespace attnscope::cpu {

void inverse_rope(const as_inverse_rope_params& p, const as_call* call, Check& check) {
  if (!check.tensor("o", p.o, AS_BF16, {kAny, kAny, kAny}) || !check.rope(p.rope)) return;
  const std::int64_t tokens = p.o.shape[0];
  const std::int64_t heads = p.o.shape[1];
  const std::int64_t dim = p.o.shape[2];
  if (!check.range("last dim of o", dim, AS_ROPE_DIM, INT32_MAX) ||
      !check.tensor("positions", p.positions, AS_I64, {tokens}) ||
      !check.tensor("out", p.out, AS_BF16, {tokens, heads, dim})) {
    return;
  }
  for (std::int64_t t = 0; t < tokens; ++t) {
    if (!check.rope_position(p.rope, t, *at<std::int64_t>(p.positions, t))) return;
  }
  const simd::Kernels& simd = simd::kernels();
  const std::int64_t plain = dim - AS_ROPE_DIM;
  parallel_for(call, tokens * heads, 64, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t item = begin; item < end; ++item) {
      const std::int64_t t = item / heads;
      const auto* in = at<std::uint16_t>(p.o, t, item % heads);
      auto* out = at<std::uint16_t>(p.out, t, item % heads);
      float turned[AS_ROPE_DIM];
      simd.from_bf16(in + plain, AS_ROPE_DIM, turned);
      rotate(turned, rope_row(p.rope, *at<std::int64_t>(p.positions, t)), -1.0f);
      if (out != in) std::memcpy(out, in, static_cast<std::size_t>(plain) * sizeof(*in));
      simd.to_bf16(turned, 1.0f, AS_ROPE_DIM, out + plain);
    }
  });
}

}  // namespace attnscope::cpu
