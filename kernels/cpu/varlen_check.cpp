// What varlen_attention asks of its params.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>

#include "kernels/cpu/mask_code.h"
#include "kernels/cpu/paged_checks.h"
#include "kernels/cpu/position_bias.h"
#include "kernels/params/tensor_view.h"

namespace attnscope::cpu {
namespace {

using VarlenLong = long long;

bool check_starts(const char* name, const as_tensor& starts, std::int64_t rows, const char* of,
                  Check& check) {
  std::int64_t before = 0;
  for (std::int64_t n = 0; n < starts.shape[0]; ++n) {
    const std::int64_t start = *at<std::int32_t>(starts, n);
    if (n == 0 && start != 0) {
      return check.fail("%s[0] is %lld; the first sequence begins at 0", name,
                        static_cast<VarlenLong>(start));
    }
    if (start < before || start > rows) {
      return check.fail(
          "%s[%lld] is %lld; allowed: from %lld, where the one before begins, to "
          "%lld, the rows of %s",
          name, static_cast<VarlenLong>(n), static_cast<VarlenLong>(start),
          static_cast<VarlenLong>(before), static_cast<VarlenLong>(rows), of);
    }
    before = start;
  }
  return true;
}

bool check_numbers(const as_varlen_attention_params& p, Check& check) {
  constexpr double kLeast = std::numeric_limits<float>::min();
  constexpr double kMost = std::numeric_limits<float>::max();
  const bool cap = p.soft_cap == 0 || (p.soft_cap >= kLeast && p.soft_cap <= kMost);
  if (std::fabs(p.scale) <= kMost && cap) return true;
  return check.fail(
      "scale is %g, soft_cap %g; both must be finite fp32 numbers, soft_cap 0 or at least %g",
      p.scale, p.soft_cap, kLeast);
}

std::int64_t longest(const as_tensor& starts) {
  std::int64_t most = 0;
  for (std::int64_t n = 0; n + 1 < starts.shape[0]; ++n) {
    const std::int64_t length = *at<std::int32_t>(starts, n + 1) - *at<std::int32_t>(starts, n);
    most = std::max(most, length);
  }
  return most;
}

bool check_tiles(const as_varlen_attention_params& p, bool values, Check& check) {
  if (!present(p.tiles) && p.tiles.rank == 0) return true;
  if (!present(p.mask_code)) {
    return check.fail("tiles is there without mask_code; give the mask that it is made of");
  }
  const std::int64_t sequences = std::max<std::int64_t>(0, p.cu_seqlens.shape[0] - 1);
  if (!check.tensor("tiles", p.tiles, AS_U8, {sequences, kAny, kAny, kAny})) return false;
  const std::int64_t maps = p.tiles.shape[1];
  if (maps != 1 && maps != p.q.shape[1]) {
    return check.fail("tiles has %lld maps; allowed: 1, and %lld, one a head",
                      static_cast<VarlenLong>(maps), static_cast<VarlenLong>(p.q.shape[1]));
  }
  if (!values) return true;
  const as_tensor& keys = present(p.cu_seqlens_k) ? p.cu_seqlens_k : p.cu_seqlens;
  const std::int64_t blocks = (longest(p.cu_seqlens) + AS_MASK_QUERIES - 1) / AS_MASK_QUERIES;
  const std::int64_t across = (longest(keys) + AS_MASK_KEYS - 1) / AS_MASK_KEYS;
  if (p.tiles.shape[2] < blocks || p.tiles.shape[3] < across) {
    return check.fail("tiles has %lld x %lld tiles; the longest sequence has %lld x %lld",
                      static_cast<VarlenLong>(p.tiles.shape[2]),
                      static_cast<VarlenLong>(p.tiles.shape[3]), static_cast<VarlenLong>(blocks),
                      static_cast<VarlenLong>(across));
  }
  return true;
}

}  // namespace

bool check_params(const as_varlen_attention_params& p, bool values, Check& check) {
  if (!check.tensor("q", p.q, AS_BF16, {kAny, kAny, kAny}) ||
      !check.tensor("k", p.k, AS_BF16, {kAny, kAny, p.q.shape[2]})) {
    return false;
  }
  const std::int64_t tokens = p.q.shape[0], heads = p.q.shape[1], kv_heads = p.k.shape[1];
  if (kv_heads < 1 || heads % kv_heads != 0) {
    return check.fail("q has %lld heads, k %lld; the first must be a multiple of the second",
                      static_cast<VarlenLong>(heads), static_cast<VarlenLong>(kv_heads));
  }
  if (!check.tensor("v", p.v, AS_BF16, {p.k.shape[0], kv_heads, kAny}) ||
      !check.range("the head size of q", p.q.shape[2], 1, AS_MAX_HEAD_SIZE) ||
      !check.range("the head size of v", p.v.shape[2], 1, AS_MAX_HEAD_SIZE) ||
      !check.tensor("cu_seqlens", p.cu_seqlens, AS_I32, {kAny}) ||
      !check.range("the length of cu_seqlens", p.cu_seqlens.shape[0], 1, INT32_MAX) ||
      !check.optional("cu_seqlens_k", p.cu_seqlens_k, AS_I32, {p.cu_seqlens.shape[0]}) ||
      !check.optional("alibi_slopes", p.alibi_slopes, AS_F32, {heads}) ||
      !check.tensor("o", p.o, AS_BF16, {tokens, heads, p.v.shape[2]}) ||
      !check.tensor("lse", p.lse, AS_F32, {tokens, heads}) ||
      !check.range("causal", p.causal, 0, 1) ||
      !check.range("window_left", p.window_left, -1, INT32_MAX) ||
      !check.range("window_right", p.window_right, -1, INT32_MAX) || !check_numbers(p, check) ||
      !check_mask_code("mask_code", p.mask_code, false, values, check) ||
      !check_mask_code("score_code", p.score_code, true, values, check) ||
      !check.optional("token_to_req", p.token_to_req, AS_I32, {tokens}) ||
      !check_position_bias(p.position_bias, p.bias_distance, p.causal, heads, values, check)) {
    return false;
  }
  if (present(p.token_to_req) && present(p.cu_seqlens_k)) {
    return check.fail(
        "token_to_req is there together with cu_seqlens_k; leave one out: padding is the queries' "
        "and their own keys'");
  }
  if (!values) return check_tiles(p, false, check);
  for (std::int64_t h = 0; present(p.alibi_slopes) && h < heads; ++h) {
    const float slope = *at<float>(p.alibi_slopes, h);
    if (!std::isfinite(slope)) {
      return check.fail("alibi_slopes[%lld] is %g; slopes must be finite",
                        static_cast<VarlenLong>(h), static_cast<double>(slope));
    }
  }
  if (present(p.cu_seqlens_k)) {
    return check_starts("cu_seqlens", p.cu_seqlens, tokens, "q", check) &&
           check_starts("cu_seqlens_k", p.cu_seqlens_k, p.k.shape[0], "k", check) &&
           check_tiles(p, true, check);
  }
  return check_starts("cu_seqlens", p.cu_seqlens, std::min(tokens, p.k.shape[0]), "q and k",
                      check) &&
         check_tiles(p, true, check);
}

}  // namespace attnscope::cpu
