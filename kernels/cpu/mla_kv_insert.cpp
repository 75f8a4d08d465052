// mla_kv_insert: RoPE of the key that all heads share, and the latent row into its cache.
#include <cstring>

#include "kernels/cpu/block_fp8.h"
#include "kernels/cpu/mla_checks.h"
#include "kernels/cpu/ops.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/rope.h"
#include "kernels/layout/mla_rows.h"
#include "kernels/params/tensor_view.h"

namespace attnscope::cpu {
namespace {

using Bits = std::uint16_t;
using I64 = std::int64_t;

void make_latent(const as_mla_kv_insert_params& p, I64 t, Bits* row) {
  const simd::Kernels& simd = simd::kernels();
  std::memcpy(row, at<Bits>(p.kv, t), AS_MLA_LATENT * sizeof(Bits));
  float turned[AS_MLA_ROPE];
  simd.from_bf16(at<Bits>(p.qkv, t) + p.qkv.shape[1] - AS_MLA_ROPE, AS_MLA_ROPE, turned);
  rotate(turned, rope_row(p.rope, *at<std::int64_t>(p.positions, t)));
  simd.to_bf16(turned, 1.0f, AS_MLA_ROPE, row + AS_MLA_LATENT);
}

void store_latent(const as_mla_kv_insert_params& p, I64 slot, const Bits* row) {
  unsigned char* to = as_mla_row(&p.cache, slot);
  if (p.cache.record == AS_RECORD_BF16) {
    std::memcpy(to, row, AS_LATENT_BF16_BYTES);
    return;
  }
  float values[AS_MLA_LATENT];
  simd::kernels().from_bf16(row, AS_MLA_LATENT, values);
  for (int b = 0; b < AS_LATENT_656_BLOCKS; ++b) {
    const int first = b * AS_LATENT_656_BLOCK;
    const float scale = quantise_block(values + first, p.scale_rule, to + first);
    std::memcpy(to + AS_LATENT_656_SCALES + 4 * b, &scale, sizeof(scale));
  }
  std::memcpy(to + AS_LATENT_656_ROPE, row + AS_MLA_LATENT, AS_MLA_ROPE * sizeof(Bits));
}

}  // namespace

void mla_kv_insert(const as_mla_kv_insert_params& p, const as_call* call, Check& check) {
  if (!check_params(p, true, check)) return;
  const bool given = p.rows_given != 0;
  parallel_for(call, p.slots.shape[0], 16, [&](I64 begin, I64 end) {
    for (I64 t = begin; t < end; ++t) {
      Bits made[AS_MLA_WIDTH];
      const Bits* row = made;
      if (given) {
        row = at<Bits>(p.kv_row, t);
      } else {
        make_latent(p, t, made);
        if (present(p.kv_row)) std::memcpy(at<Bits>(p.kv_row, t), made, sizeof(made));
      }
      const I64 slot = *at<std::int64_t>(p.slots, t);
      if (slot >= 0) store_latent(p, slot, row);
    }
  });
}

}  // namespace attnscope::cpu
