// indexer_topk: the k best entries of each row of logits, in ascending order of entry.
#include <algorithm>
#include <cstring>

#include "kernels/cpu/ops.h"
#include "kernels/cpu/parallel.h"
#include "kernels/params/tensor_view.h"

namespace attnscope::cpu {
namespace {

// Unsigned key in the order of the scores: NaN below everything, -0 equal to 0.
std::uint32_t order_key(float score) {
  if (score != score) return 0;
  score += 0.0f;  // -0 becomes 0
  std::uint32_t bits;
  std::memcpy(&bits, &score, sizeof(bits));
  return (bits & 0x80000000u) != 0 ? ~bits : bits | 0x80000000u;
}

// The key of the k-th best score (1 <= k <= count), and how many scores equal to it belong to the
// best k. Radix selection from the highest bits down.
struct Threshold {
  std::uint32_t key;
  std::int64_t ties;
};

Threshold find_threshold(const float* scores, std::int64_t count, std::int64_t k) {
  constexpr int kBits = 11;
  std::uint32_t prefix = 0;
  std::uint32_t decided = 0;  // mask of the bits of prefix that are known
  std::int64_t left = k;      // how many of the scores that share the prefix belong to the best k
  for (int shift = 32 - kBits; decided != ~0u; shift = std::max(shift - kBits, 0)) {
    const std::uint32_t mask = ((1u << kBits) - 1) << shift & ~decided;
    std::int64_t histogram[1 << kBits] = {};
    for (std::int64_t c = 0; c < count; ++c) {
      const std::uint32_t key = order_key(scores[c]);
      if ((key & decided) == prefix) ++histogram[(key & mask) >> shift];
    }
    std::uint32_t bin = mask >> shift;
    while (histogram[bin] < left) left -= histogram[bin--];
    prefix |= bin << shift;
    decided |= mask;
  }
  return {prefix, left};
}

void select(const float* scores, std::int64_t count, std::int64_t k, std::int32_t* out) {
  std::int64_t written = 0;
  if (count <= k) {
    for (; written < count; ++written) out[written] = static_cast<std::int32_t>(written);
  } else if (k > 0) {
    Threshold threshold = find_threshold(scores, count, k);
    for (std::int64_t c = 0; written < k; ++c) {
      const std::uint32_t key = order_key(scores[c]);
      if (key < threshold.key || (key == threshold.key && threshold.ties-- <= 0)) continue;
      out[written++] = static_cast<std::int32_t>(c);
    }
  }
  std::fill(out + written, out + k, -1);
}

}  // namespace

void indexer_topk(const as_indexer_topk_params& p, const as_call* call, Check& check) {
  if (!check.tensor("logits", p.logits, AS_F32, {kAny, kAny})) return;
  const std::int64_t tokens = p.logits.shape[0];
  if (!check.tensor("lens", p.lens, AS_I32, {tokens}) ||
      !check.tensor("indices", p.indices, AS_I32, {tokens, kAny})) {
    return;
  }
  for (std::int64_t t = 0; t < tokens; ++t) {
    const std::int32_t len = *at<std::int32_t>(p.lens, t);
    if (len < 0 || len > p.logits.shape[1]) {
      check.fail("lens[%lld] is %d; a row of logits has 0 to %lld columns",
                 static_cast<long long>(t), len, static_cast<long long>(p.logits.shape[1]));
      return;
    }
  }
  parallel_for(call, tokens, 4, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t t = begin; t < end; ++t) {
      select(at<float>(p.logits, t), *at<std::int32_t>(p.lens, t), p.indices.shape[1],
             at<std::int32_t>(p.indices, t));
    }
  });
}

}  // namespace attnscope::cpu
