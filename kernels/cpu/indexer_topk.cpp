// indexer_topk: the k best entries of each row of logits, in ascending order of entry.
//
// Long rows are first cut down to what reaches a bound that k entries do.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "kernels/cpu/ops.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/simd/simd.h"
#include "kernels/params/tensor_view.h"

namespace attnscope::cpu {
namespace {

// Keys are unsigned numbers in the order of the scores (simd.h): NaN below everything, -0 equal to
// 0.
using Key = std::uint32_t;

// The k-th best key (1 <= k <= count), and how many keys equal to it belong to the best k.
struct Threshold {
  Key key;
  std::int64_t ties;
};

// Radix selection from the highest bits down.
Threshold find_threshold(const Key* keys, std::int64_t count, std::int64_t k) {
  constexpr int kBits = 11;
  Key prefix = 0;
  Key decided = 0;        // mask of the bits of prefix that are known
  std::int64_t left = k;  // how many of the keys that share the prefix belong to the best k
  for (int shift = 32 - kBits; decided != ~0u; shift = std::max(shift - kBits, 0)) {
    const Key mask = ((1u << kBits) - 1) << shift & ~decided;
    std::int32_t histogram[1 << kBits] = {};
    for (std::int64_t c = 0; c < count; ++c) {
      if ((keys[c] & decided) == prefix) ++histogram[(keys[c] & mask) >> shift];
    }
    Key bin = mask >> shift;
    while (histogram[bin] < left) left -= histogram[bin--];
    prefix |= bin << shift;
    decided |= mask;
  }
  return {prefix, left};
}

// What rows of up to `columns` entries, of which k are wanted, need room for.
class Selection {
 public:
  Selection(std::int64_t columns, std::int64_t k)
      : k_(k),
        groups_((std::max<std::int64_t>(2 * k, kGroups) + kLanes - 1) / kLanes * kLanes),
        bests_(make<Key>(groups_)),
        keys_(make<Key>(columns + kLanes)),
        entries_(make<std::int32_t>(columns + kLanes)) {}

  void run(const float* scores, std::int64_t count, std::int32_t* out) {
    std::int64_t written = 0;
    if (count <= k_) {
      for (; written < count; ++written) out[written] = static_cast<std::int32_t>(written);
    } else if (k_ > 0) {
      const std::int64_t candidates =
          simd_.collect(scores, count, bound(scores, count), keys_.get(), entries_.get());
      Threshold threshold = find_threshold(keys_.get(), candidates, k_);
      for (std::int64_t c = 0; written < k_; ++c) {
        const Key key = keys_[static_cast<std::size_t>(c)];
        if (key < threshold.key || (key == threshold.key && threshold.ties-- <= 0)) continue;
        out[written++] = entries_[static_cast<std::size_t>(c)];
      }
    }
    std::fill(out + written, out + k_, -1);
  }

 private:
  static constexpr std::int64_t kLanes = 16;
  static constexpr std::int64_t kGroups = 1024;

  template <class T>
  static std::unique_ptr<T[]> make(std::int64_t n) {
    return std::make_unique_for_overwrite<T[]>(static_cast<std::size_t>(n));
  }

  // A key that k entries reach at least: the k-th best of the bests of groups. Of scores in no
  // order little more than k reach it.
  Key bound(const float* scores, std::int64_t count) {
    if (count < 2 * groups_) return 0;
    simd_.best_keys(scores, count, groups_, bests_.get());
    return find_threshold(bests_.get(), groups_, k_).key;
  }

  const simd::Kernels& simd_ = simd::kernels();
  std::int64_t k_;
  std::int64_t groups_;
  std::unique_ptr<Key[]> bests_;
  std::unique_ptr<Key[]> keys_;
  std::unique_ptr<std::int32_t[]> entries_;
};

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
    Selection selection(p.logits.shape[1], p.indices.shape[1]);
    for (std::int64_t t = begin; t < end; ++t) {
      selection.run(at<float>(p.logits, t), *at<std::int32_t>(p.lens, t),
                    at<std::int32_t>(p.indices, t));
    }
  });
}

}  // namespace attnscope::cpu
