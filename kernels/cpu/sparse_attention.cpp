// sparse_attention: every head of a token over its window rows and its compressed rows, with sink.
// workspace_attention: the same over rows that have been gathered before.
//
// Rows are read in place and decoded in tiles, once for all heads of a work item; scores and values
// are small matrix products; the softmax runs online over the tiles, window rows first. With a plan
// each split of a token has a softmax of its own, and these are combined in the order of the plan.
// Tokens that prefill may attend over a workspace instead (prefill_workspace.h).
#include <algorithm>
#include <cmath>
#include <limits>
#include <type_traits>
#include <vector>

#include "kernels/cpu/attention_plan_check.h"
#include "kernels/cpu/codec.h"
#include "kernels/cpu/helper_ops.h"
#include "kernels/cpu/ops.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/prefill_workspace.h"
#include "kernels/cpu/simd/simd.h"
#include "kernels/layout/records.h"
#include "kernels/params/tensor_view.h"

namespace attnscope::cpu {
namespace {

using Bits = std::uint16_t;
using Params = as_sparse_attention_params;

constexpr std::int64_t kTile = 64;   // rows decoded at once
constexpr std::int64_t kHeads = 64;  // heads of a work item at most
// Floats from one decoded row to the next: a line more than it has, since rows 2 KB apart would
// share sets of the L1 cache.
constexpr std::int64_t kRowStride = AS_HEAD_DIM + 16;
constexpr float kInfinity = std::numeric_limits<float>::infinity();

bool check_list(const char* name, const as_tensor& indices, const as_tensor& lens,
                const as_cache& cache, Check& check) {
  const std::int64_t rows = cache_rows(cache);
  for (std::int64_t t = 0; t < indices.shape[0]; ++t) {
    const std::int64_t len = *at<std::int32_t>(lens, t);
    if (len > indices.shape[1]) {
      return check.fail("token %lld has %lld entries in %s, whose rows hold 0 to %lld",
                        static_cast<long long>(t), static_cast<long long>(len), name,
                        static_cast<long long>(indices.shape[1]));
    }
    const std::int32_t* list = at<std::int32_t>(indices, t);
    for (std::int64_t k = 0; k < len; ++k) {
      if (list[k] >= rows) {
        return check.fail(
            "%s[%lld,%lld] of token %lld is slot %d; the cache has rows 0 to %lld "
            "(negative = none)",
            name, static_cast<long long>(t), static_cast<long long>(k), static_cast<long long>(t),
            list[k], static_cast<long long>(rows - 1));
      }
    }
  }
  return true;
}

bool check_params(const Params& p, Check& check) {
  if (!check.tensor("q", p.q, AS_BF16, {kAny, kAny, AS_HEAD_DIM})) return false;
  const std::int64_t tokens = p.q.shape[0];
  const std::int64_t heads = p.q.shape[1];
  if (!check.cache("cache", p.cache, AS_RECORD_LATENT, AS_HEAD_DIM) ||
      !check.tensor("indices", p.indices, AS_I32, {tokens, kAny}) ||
      !check.tensor("topk_length", p.topk_length, AS_I32, {tokens}) ||
      !check.tensor("sinks", p.sinks, AS_F32, {heads}) ||
      !check.tensor("o", p.o, AS_BF16, {tokens, heads, AS_HEAD_DIM}) ||
      !check.tensor("lse", p.lse, AS_F32, {tokens, heads}) ||
      !check_prefill(p.prefill, tokens, true, check) ||
      !check_list("indices", p.indices, p.topk_length, p.cache, check) ||
      !check_plan(p, true, check)) {
    return false;
  }
  if (p.extra_cache.record == AS_RECORD_NONE) return true;
  return check.cache("extra_cache", p.extra_cache, AS_RECORD_LATENT, AS_HEAD_DIM) &&
         check.tensor("extra_indices", p.extra_indices, AS_I32, {tokens, kAny}) &&
         check.tensor("extra_topk_length", p.extra_topk_length, AS_I32, {tokens}) &&
         check_list("extra_indices", p.extra_indices, p.extra_topk_length, p.extra_cache, check);
}

void decode_latent(const as_row_address& row, float* out) {
  const simd::Kernels& simd = simd::kernels();
  for (int block = 0; block < AS_QUANT_BLOCKS; ++block) {
    const int first = block * AS_QUANT_BLOCK;
    simd.decode_e4m3(row.payload + first, ue8m0_to_float(row.scales[block]), AS_QUANT_BLOCK,
                     out + first);
  }
  Bits rope[AS_ROPE_DIM];
  std::memcpy(rope, row.payload + AS_NOPE_DIM, sizeof(rope));
  simd.from_bf16(rope, AS_ROPE_DIM, out + AS_NOPE_DIM);
}

// The valid entries of a token in the order of its lists.
class CacheEntries {
 public:
  CacheEntries(const Params& p, std::int64_t t) {
    lists_[0] = {&p.cache, at<std::int32_t>(p.indices, t), *at<std::int32_t>(p.topk_length, t)};
    if (p.extra_cache.record == AS_RECORD_NONE) return;
    lists_[1] = {&p.extra_cache, at<std::int32_t>(p.extra_indices, t),
                 *at<std::int32_t>(p.extra_topk_length, t)};
  }

  // Decodes the next one.
  bool next(float* values) {
    for (; list_ < 2; ++list_, k_ = 0) {
      const List& list = lists_[list_];
      while (k_ < list.len) {
        if (k_ + kTile < list.len) fetch_soon(list, k_ + kTile);
        const std::int64_t slot = list.slots[k_++];
        if (slot < 0) continue;
        decode_latent(as_cache_row(list.cache, slot), values);
        return true;
      }
    }
    return false;
  }

  // Those of a tile of the plan, which counts places of each list; their number.
  std::int64_t tile(std::int64_t tile, float* rows) const {
    const std::int64_t of_window = std::max<std::int64_t>(1, (lists_[0].len + kTile - 1) / kTile);
    const List& list = lists_[tile < of_window ? 0 : 1];
    std::int64_t k = (tile < of_window ? tile : tile - of_window) * kTile, n = 0;
    for (const std::int64_t end = std::min(k + kTile, list.len); k < end; ++k) {
      if (list.slots[k] < 0) continue;
      decode_latent(as_cache_row(list.cache, list.slots[k]), rows + n++ * kRowStride);
    }
    return n;
  }

 private:
  struct List {
    const as_cache* cache = nullptr;
    const std::int32_t* slots = nullptr;
    std::int64_t len = 0;
  };
  // Rows lie anywhere: while a tile is computed the next one's come into the cache.
  static void fetch_soon(const List& list, std::int64_t k) {
    if (list.slots[k] < 0) return;
    const as_row_address row = as_cache_row(list.cache, list.slots[k]);
    for (int byte = 0; byte < AS_NOPE_DIM + 2 * AS_ROPE_DIM; byte += 64) {
      __builtin_prefetch(row.payload + byte, 0, 2);
    }
    __builtin_prefetch(row.scales, 0, 2);
  }

  List lists_[2];
  int list_ = 0;
  std::int64_t k_ = 0;
};

// The same over rows that lie there as values.
class WorkspaceEntries {
 public:
  WorkspaceEntries(const as_workspace_attention_params& p, std::int64_t t)
      : rows_(p.rows),
        list_(at<std::int32_t>(p.indices, t)),
        left_(*at<std::int32_t>(p.topk_length, t)) {}

  bool next(float* values) {
    for (; left_ > 0; --left_) {
      const std::int32_t row = *list_++;
      if (row < 0) continue;
      --left_;
      simd::kernels().from_bf16(at<Bits>(rows_, row), AS_HEAD_DIM, values);
      return true;
    }
    return false;
  }

 private:
  const as_tensor& rows_;
  const std::int32_t* list_;
  std::int32_t left_;
};

// Some heads of one token: running maximum, sum and weighted values of each.
template <class Params, class Entries>
class Heads {
 public:
  Heads(const Params& p, std::int64_t t, std::int64_t first, std::int64_t count)
      : p_(p), t_(t), first_(first), count_(count) {
    for (std::int64_t h = 0; h < count_ && !simd_.pairs; ++h) {
      simd_.from_bf16(at<Bits>(p_.q, t_, first_ + h), AS_HEAD_DIM, queries_ + h * AS_HEAD_DIM);
    }
    begin();
  }

  void run() {
    Entries entries(p_, t_);
    std::int64_t total = 0;
    for (std::int64_t n = kTile; n == kTile; total += n) {
      n = 0;
      while (n < kTile && entries.next(rows_ + n * kRowStride)) ++n;
      if (n > 0) add_tile(n);
    }
    finish(total > 0);
  }

  // By the plan.
  void run_splits() {
    const std::int32_t* row = at<std::int32_t>(p_.plan_rows, t_);
    const Entries entries(p_, t_);
    std::vector<Part> parts;
    for (std::int64_t n = row[0]; n < row[0] + row[1]; ++n) {
      const std::int32_t* split = at<std::int32_t>(p_.plan_splits, n);
      begin();
      std::int64_t total = 0;
      for (std::int64_t tile = split[AS_PLAN_BEGIN]; tile < split[AS_PLAN_END]; ++tile) {
        const std::int64_t valid = entries.tile(tile, rows_);
        if (valid > 0) add_tile(valid);
        total += valid;
      }
      if (row[1] == 1) return finish(total > 0);
      if (total > 0) keep(parts);
    }
    combine(parts);
    finish(!parts.empty());
  }

 private:
  // What a split comes to, by head.
  struct Part {
    std::vector<float> max, values;
    std::vector<double> sum;
  };

  void begin() {
    std::fill(max_, max_ + count_, -kInfinity);
    std::fill(sum_, sum_ + count_, 0.0);
    std::fill(values_, values_ + count_ * AS_HEAD_DIM, 0.0f);
  }

  void keep(std::vector<Part>& parts) const {
    parts.push_back(
        {{max_, max_ + count_}, {values_, values_ + count_ * AS_HEAD_DIM}, {sum_, sum_ + count_}});
  }

  // Relative to the largest maximum of all parts, as each is to its own.
  void combine(const std::vector<Part>& parts) {
    begin();
    for (std::int64_t h = 0; h < count_; ++h) {
      for (const Part& part : parts) max_[h] = std::max(max_[h], part.max[to_index(h)]);
      const double shift = max_[h] == -kInfinity ? 0.0 : static_cast<double>(max_[h]);
      float* values = values_ + h * AS_HEAD_DIM;
      for (const Part& part : parts) {
        const double factor = std::exp(static_cast<double>(part.max[to_index(h)]) - shift);
        sum_[h] += part.sum[to_index(h)] * factor;
        const float* from = part.values.data() + h * AS_HEAD_DIM;
        for (std::int64_t d = 0; d < AS_HEAD_DIM; ++d) {
          values[d] += static_cast<float>(factor) * from[d];
        }
      }
    }
  }

  static std::size_t to_index(std::int64_t h) { return static_cast<std::size_t>(h); }

  void add_tile(std::int64_t n) {
    if (simd_.pairs) {
      for (std::int64_t i = 0; i < n; ++i) {  // e4m3 times a power of two, and bf16
        simd_.upper_halves(rows_ + i * kRowStride, AS_HEAD_DIM, halves_ + i * kRowStride);
      }
      simd_.gemm_bf16(at<Bits>(p_.q, t_, first_), p_.q.stride[1], count_, halves_, kRowStride, n,
                      AS_HEAD_DIM, scores_, kTile);
    } else {
      simd_.gemm_f32(queries_, AS_HEAD_DIM, count_, rows_, kRowStride, n, AS_HEAD_DIM, scores_,
                     kTile);
    }
    for (std::int64_t h = 0; h < count_; ++h) {
      float* scores = scores_ + h * kTile;
      const float best =
          std::max(max_[h], simd_.scale_max(scores, n, static_cast<float>(p_.scale)));
      const float shift = best == -kInfinity ? 0.0f : best;
      if (best > max_[h]) {
        const double old = std::exp(static_cast<double>(max_[h]) - best);
        sum_[h] *= old;
        float* values = values_ + h * AS_HEAD_DIM;
        if (old > 0.0) {
          simd_.scale(values, AS_HEAD_DIM, static_cast<float>(old));
        } else {
          std::fill_n(values, AS_HEAD_DIM, 0.0f);
        }
        max_[h] = best;
      }
      sum_[h] += static_cast<double>(simd_.exp_sum(scores, n, shift));
    }
    simd_.gemm_add(scores_, kTile, count_, rows_, kRowStride, n, values_, AS_HEAD_DIM, AS_HEAD_DIM);
  }

  void finish(bool any) {
    for (std::int64_t h = 0; h < count_; ++h) {
      Bits* o = at<Bits>(p_.o, t_, first_ + h);
      float* lse = at<float>(p_.lse, t_, first_ + h);
      if (!any) {
        std::fill(o, o + AS_HEAD_DIM, Bits{0});
        *lse = kInfinity;
        continue;
      }
      const double shift = max_[h] == -kInfinity ? 0.0 : static_cast<double>(max_[h]);
      const double sink = std::exp(static_cast<double>(*at<float>(p_.sinks, first_ + h)) - shift);
      simd_.to_bf16(values_ + h * AS_HEAD_DIM, static_cast<float>(1.0 / (sum_[h] + sink)),
                    AS_HEAD_DIM, o);
      *lse = static_cast<float>(shift + std::log(sum_[h]));
    }
  }

  const Params& p_;
  const simd::Kernels& simd_ = simd::kernels();
  std::int64_t t_;
  std::int64_t first_;
  std::int64_t count_;
  float max_[kHeads];
  double sum_[kHeads];
  alignas(64) float queries_[kHeads * AS_HEAD_DIM];
  alignas(64) float values_[kHeads * AS_HEAD_DIM];
  alignas(64) float rows_[kTile * kRowStride];
  alignas(64) Bits halves_[kTile * kRowStride];
  alignas(64) float scores_[kHeads * kTile];
};

// Heads of a work item: all of a token's when there are tokens enough for every thread. A head's
// result does not depend on it.
std::int64_t heads_per_item(std::int64_t tokens, std::int64_t heads, const as_call* call) {
  const std::int64_t threads =
      call != nullptr && call->threads != nullptr ? call->threads->num_threads : 1;
  const std::int64_t parts = std::max<std::int64_t>(1, (2 * threads + tokens - 1) / tokens / 2);
  return std::clamp<std::int64_t>((heads + parts - 1) / parts, 1, kHeads);
}

template <class Params, class Entries>
void attend(const Params& p, const as_call* call) {
  const std::int64_t tokens = p.q.shape[0];
  const std::int64_t heads = p.q.shape[1];
  if (tokens == 0 || heads == 0) return;
  const std::int64_t width = heads_per_item(tokens, heads, call);
  const std::int64_t parts = (heads + width - 1) / width;
  parallel_for(call, tokens * parts, 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t item = begin; item < end; ++item) {
      const std::int64_t first = item % parts * width;
      Heads<Params, Entries> some(p, item / parts, first, std::min(width, heads - first));
      if constexpr (std::is_same_v<Params, as_sparse_attention_params>) {
        if (present(p.plan_rows)) {
          some.run_splits();
          continue;
        }
      }
      some.run();
    }
  });
}

}  // namespace

void sparse_attention(const Params& p, const as_call* call, Check& check) {
  if (!check_params(p, check)) return;
  if (!present(p.prefill)) return attend<Params, CacheEntries>(p, call);
  const std::int64_t tokens = p.q.shape[0];
  for (std::int64_t first = 0, end = 0; first < tokens; first = end + 1) {
    for (end = first; end < tokens && *at<std::int32_t>(p.prefill, end, 0) < 0;) ++end;
    attend<Params, CacheEntries>(of_tokens(p, first, end - first), call);
  }
  for (const PrefillWorkspace& workspace : gather_prefill(p)) attend_prefill(p, workspace, call);
}

void workspace_attention(const as_workspace_attention_params& p, const as_call* call, Check&) {
  attend<as_workspace_attention_params, WorkspaceEntries>(p, call);
}

}  // namespace attnscope::cpu
