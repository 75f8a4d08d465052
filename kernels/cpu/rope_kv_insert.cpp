// rope_kv_insert: norm and RoPE of queries and keys, keys and values into their caches.
#include <cstring>

#include "kernels/cpu/codec.h"
#include "kernels/cpu/kv_codes.h"
#include "kernels/cpu/norm.h"
#include "kernels/cpu/ops.h"
#include "kernels/cpu/paged_checks.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/simd/simd.h"
#include "kernels/params/tensor_view.h"

namespace attnscope::cpu {
namespace {

using Bits = std::uint16_t;
using Params = as_rope_kv_insert_params;

// x[a] and x[b] by the angle of a table row's pair.
void turn(float* a, float* b, float c, float s) {
  const float first = *a, second = *b;
  *a = first * c - second * s;
  *b = second * c + first * s;
}

void rotate_head(float* x, const float* row, std::int64_t dims, std::int32_t style) {
  const std::int64_t half = dims / 2;
  for (std::int64_t i = 0; i < half; ++i) {
    const bool pairs = style == AS_ROPE_GPTJ;
    turn(x + (pairs ? 2 * i : i), x + (pairs ? 2 * i + 1 : i + half), row[i], row[half + i]);
  }
}

// A head of a token, from `raw` to `out`.
void make_head(const Params& p, const Bits* raw, const as_tensor& weight, std::int64_t token,
               std::int64_t size, Bits* out) {
  const simd::Kernels& simd = simd::kernels();
  float x[AS_MAX_HEAD_SIZE];
  simd.from_bf16(raw, size, x);
  if (present(weight)) {
    const float factor = inverse_rms(simd.sum_squares(x, size), size, p.eps);
    for (std::int64_t i = 0; i < size; ++i) {
      const float w = bf16_to_float(*at<Bits>(weight, i));
      x[i] = x[i] * factor * (p.weight_plus_one != 0 ? 1.0f + w : w);
    }
  }
  if (const std::int64_t dims = rotary_dim(p.rope); dims > 0) {
    const float* row = at<float>(p.rope.table, *at<std::int64_t>(p.positions, token));
    rotate_head(x, row, dims, p.style);
  }
  simd.to_bf16(x, 1.0f, size, out);
}

void make_queries(const Params& p, const as_call* call) {
  const std::int64_t heads = p.q.shape[1], size = p.q.shape[2];
  parallel_for(call, p.q.shape[0] * heads, 32, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      const std::int64_t t = i / heads, h = i % heads;
      make_head(p, at<Bits>(p.q, t, h), p.q_weight, t, size, at<Bits>(p.q_out, t, h));
    }
  });
}

}  // namespace

void rope_kv_insert(const Params& p, const as_call* call, Check& check) {
  if (!check_params(p, true, check)) return;
  const bool given = p.rows_given != 0;
  if (!given && present(p.q)) make_queries(p, call);
  if (as_queries_alone(&p) != 0) return;
  const as_tensor& keys = given ? p.k_row : p.k;
  const std::int64_t tokens = keys.shape[0], kv_heads = keys.shape[1], size = keys.shape[2];
  const KvRows k_rows(p.k_cache, p.k_scale), v_rows(p.v_cache, p.v_scale);
  const bool wide = has_wide_rows(p);
  const KvRows k_wide(wide ? p.k_wide : p.k_cache, wide ? no_tensor() : p.k_scale);
  const KvRows v_wide(wide ? p.v_wide : p.v_cache, wide ? no_tensor() : p.v_scale);
  parallel_for(call, tokens * kv_heads, 32, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      const std::int64_t t = i / kv_heads, g = i % kv_heads;
      Bits made[AS_MAX_HEAD_SIZE];
      const Bits* key = made;
      if (given) {
        key = at<Bits>(p.k_row, t, g);
      } else {
        make_head(p, at<Bits>(p.k, t, g), p.k_weight, t, size, made);
        if (present(p.k_row)) {
          std::memcpy(at<Bits>(p.k_row, t, g), made, static_cast<std::size_t>(size) * sizeof(Bits));
        }
      }
      const std::int64_t wide_slot = wide ? *at<std::int64_t>(p.wide_slots, t) : -1;
      if (wide_slot >= 0) {
        k_wide.put(wide_slot, g, key, size);
        v_wide.put(wide_slot, g, at<Bits>(p.v, t, g), p.v.shape[2]);
      }
      const std::int64_t slot = *at<std::int64_t>(p.slots, t);
      if (slot < 0) continue;
      k_rows.put(slot, g, key, size);
      v_rows.put(slot, g, at<Bits>(p.v, t, g), p.v.shape[2]);
    }
  });
}

}  // namespace attnscope::cpu
