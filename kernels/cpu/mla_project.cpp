// mla_q_absorb and mla_v_up: both parts of kv_b_proj, which stays one weight.
#include <algorithm>
#include <vector>

#include "kernels/cpu/mla_checks.h"
#include "kernels/cpu/ops.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/rope.h"
#include "kernels/cpu/simd/simd.h"
#include "kernels/params/tensor_view.h"

namespace attnscope::cpu {
namespace {

using Bits = std::uint16_t;
using I64 = std::int64_t;

constexpr I64 kTokens = 32;  // of a head at once

// Tokens [first, first + count) of head h. weight: [N][512].
void absorb(const as_mla_q_absorb_params& p, I64 h, I64 first, I64 count, const float* weight) {
  const simd::Kernels& simd = simd::kernels();
  const I64 plain = p.q_raw.shape[2] - AS_MLA_ROPE;
  std::vector<float> x(static_cast<std::size_t>(count * plain));
  std::vector<float> sums(static_cast<std::size_t>(count * AS_MLA_LATENT), 0.0f);
  for (I64 i = 0; i < count; ++i) {
    simd.from_bf16(at<Bits>(p.q_raw, first + i, h), plain, x.data() + i * plain);
  }
  simd.gemm_add(x.data(), plain, count, weight, AS_MLA_LATENT, plain, sums.data(), AS_MLA_LATENT,
                AS_MLA_LATENT);
  for (I64 i = 0; i < count; ++i) {
    const I64 t = first + i;
    Bits* q = at<Bits>(p.q, t, h);
    simd.to_bf16(sums.data() + i * AS_MLA_LATENT, 1.0f, AS_MLA_LATENT, q);
    float turned[AS_MLA_ROPE];
    simd.from_bf16(at<Bits>(p.q_raw, t, h) + plain, AS_MLA_ROPE, turned);
    rotate(turned, rope_row(p.rope, *at<std::int64_t>(p.positions, t)));
    simd.to_bf16(turned, 1.0f, AS_MLA_ROPE, q + AS_MLA_LATENT);
  }
}

}  // namespace

void mla_q_absorb(const as_mla_q_absorb_params& p, const as_call* call, Check& check) {
  if (!check_params(p, true, check)) return;
  const I64 tokens = p.q_raw.shape[0], plain = p.q_raw.shape[2] - AS_MLA_ROPE;
  if (tokens == 0) return;
  parallel_for(call, p.q_raw.shape[1], 1, [&](I64 begin, I64 end) {
    std::vector<float> weight(static_cast<std::size_t>(plain * AS_MLA_LATENT));
    for (I64 h = begin; h < end; ++h) {
      for (I64 n = 0; n < plain; ++n) {
        simd::kernels().from_bf16(at<Bits>(p.kv_b, h, n), AS_MLA_LATENT,
                                  weight.data() + n * AS_MLA_LATENT);
      }
      for (I64 t = 0; t < tokens; t += kTokens) {
        absorb(p, h, t, std::min(kTokens, tokens - t), weight.data());
      }
    }
  });
}

void mla_v_up(const as_mla_v_up_params& p, const as_call* call, Check& check) {
  if (!check_params(p, true, check)) return;
  const I64 tokens = p.o.shape[0], values = p.y.shape[2];
  const I64 skipped = p.kv_b.shape[1] - values;
  if (tokens == 0) return;
  const simd::Kernels& simd = simd::kernels();
  parallel_for(call, p.o.shape[1], 1, [&](I64 begin, I64 end) {
    std::vector<float> sums(static_cast<std::size_t>(kTokens * values));
    for (I64 h = begin; h < end; ++h) {
      for (I64 first = 0; first < tokens; first += kTokens) {
        const I64 count = std::min(kTokens, tokens - first);
        simd.gemm_bf16(at<Bits>(p.o, first, h), p.o.stride[0], count, at<Bits>(p.kv_b, h, skipped),
                       p.kv_b.stride[1], values, AS_MLA_LATENT, sums.data(), values);
        for (I64 i = 0; i < count; ++i) {
          simd.to_bf16(sums.data() + i * values, 1.0f, values, at<Bits>(p.y, first + i, h));
        }
      }
    }
  });
}

}  // namespace attnscope::cpu
