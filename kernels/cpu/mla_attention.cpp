// mla_attention and sparse_mla_attention: heads of tokens over tiles of latent rows, which are
// decoded once for all of them. Scores and values are small matrix products, the softmax runs
// online over the tiles.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "kernels/cpu/mla_checks.h"
#include "kernels/cpu/ops.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/simd/simd.h"
#include "kernels/layout/mla_rows.h"
#include "kernels/params/tensor_view.h"

namespace attnscope::cpu {
namespace {

using Bits = std::uint16_t;
using I64 = std::int64_t;

constexpr I64 kLatentTile = 64;   // rows at once
constexpr I64 kMlaHeads = 64;     // of a work item at most
constexpr I64 kMlaQueries = 256;  // heads of tokens of one at most
constexpr float kMlaInfinity = std::numeric_limits<float>::infinity();

// Where an op's rows are and where its results go.
struct LatentCall {
  as_tensor q, o, lse;
  as_cache cache;
  float scale;
};

// Heads of tokens first .. first + count - 1, which share rows in slots; of token first + i the
// first seen[i] of them.
struct LatentItem {
  I64 first = 0, count = 0, head = 0, heads = 0;
  std::vector<I64> slots, seen;
};

class LatentWorker {
 public:
  explicit LatentWorker(const LatentCall& call) : c_(call) {}

  void run(const LatentItem& item) {
    const I64 queries = item.count * item.heads;
    queries_.resize(static_cast<std::size_t>(queries * AS_MLA_WIDTH));
    keys_.resize(kLatentTile * AS_MLA_WIDTH);
    scores_.resize(static_cast<std::size_t>(queries * kLatentTile));
    most_.assign(static_cast<std::size_t>(queries), -kMlaInfinity);
    sums_.assign(static_cast<std::size_t>(queries), 0.0);
    values_.assign(static_cast<std::size_t>(queries * AS_MLA_LATENT), 0.0f);
    for (I64 i = 0; i < queries; ++i) {
      simd_.from_bf16(at<Bits>(c_.q, item.first + i / item.heads, item.head + i % item.heads),
                      AS_MLA_WIDTH, queries_.data() + i * AS_MLA_WIDTH);
    }
    const auto rows = static_cast<I64>(item.slots.size());
    for (I64 begin = 0; begin < rows; begin += kLatentTile) {
      const I64 n = std::min(kLatentTile, rows - begin);
      for (I64 i = 0; i < n; ++i) {
        decode_latent(item.slots[static_cast<std::size_t>(begin + i)],
                      keys_.data() + i * AS_MLA_WIDTH);
      }
      simd_.gemm_f32(queries_.data(), AS_MLA_WIDTH, queries, keys_.data(), AS_MLA_WIDTH, n,
                     AS_MLA_WIDTH, scores_.data(), kLatentTile);
      for (I64 i = 0; i < item.count; ++i) {
        const I64 seen = std::min(n, item.seen[static_cast<std::size_t>(i)] - begin);
        if (seen > 0) add(i * item.heads, item.heads, seen);
      }
    }
    finish(item);
  }

 private:
  void decode_latent(I64 slot, float* x) const {
    const unsigned char* row = as_mla_row(&c_.cache, slot);
    Bits bits[AS_MLA_WIDTH];
    if (c_.cache.record == AS_RECORD_BF16) {
      std::memcpy(bits, row, sizeof(bits));
      return simd_.from_bf16(bits, AS_MLA_WIDTH, x);
    }
    for (int b = 0; b < AS_LATENT_656_BLOCKS; ++b) {
      float scale;
      std::memcpy(&scale, row + AS_LATENT_656_SCALES + 4 * b, sizeof(scale));
      const int first = b * AS_LATENT_656_BLOCK;
      simd_.decode_e4m3(row + first, scale, AS_LATENT_656_BLOCK, x + first);
    }
    std::memcpy(bits, row + AS_LATENT_656_ROPE, AS_MLA_ROPE * sizeof(Bits));
    simd_.from_bf16(bits, AS_MLA_ROPE, x + AS_MLA_LATENT);
  }

  // The tile's first n rows into the state of some queries.
  void add(I64 first, I64 queries, I64 n) {
    for (I64 i = first; i < first + queries; ++i) {
      const auto k = static_cast<std::size_t>(i);
      float* scores = scores_.data() + i * kLatentTile;
      const float best = std::max(most_[k], simd_.scale_max(scores, n, c_.scale));
      if (best > most_[k]) {
        const double old = std::exp(static_cast<double>(most_[k]) - static_cast<double>(best));
        sums_[k] *= old;
        simd_.scale(values_.data() + i * AS_MLA_LATENT, AS_MLA_LATENT, static_cast<float>(old));
        most_[k] = best;
      }
      sums_[k] += static_cast<double>(simd_.exp_sum(scores, n, best == -kMlaInfinity ? 0 : best));
    }
    simd_.gemm_add(scores_.data() + first * kLatentTile, kLatentTile, queries, keys_.data(),
                   AS_MLA_WIDTH, n, values_.data() + first * AS_MLA_LATENT, AS_MLA_LATENT,
                   AS_MLA_LATENT);
  }

  void finish(const LatentItem& item) const {
    for (I64 i = 0; i < item.count * item.heads; ++i) {
      const auto k = static_cast<std::size_t>(i);
      const I64 t = item.first + i / item.heads, h = item.head + i % item.heads;
      Bits* o = at<Bits>(c_.o, t, h);
      if (item.seen[static_cast<std::size_t>(i / item.heads)] <= 0) {
        std::fill_n(o, AS_MLA_LATENT, Bits{0});
        *at<float>(c_.lse, t, h) = -kMlaInfinity;
        continue;
      }
      const double shift = most_[k] == -kMlaInfinity ? 0.0 : static_cast<double>(most_[k]);
      simd_.to_bf16(values_.data() + i * AS_MLA_LATENT, static_cast<float>(1.0 / sums_[k]),
                    AS_MLA_LATENT, o);
      *at<float>(c_.lse, t, h) = static_cast<float>(shift + std::log(sums_[k]));
    }
  }

  const LatentCall& c_;
  const simd::Kernels& simd_ = simd::kernels();
  std::vector<float> queries_, keys_, scores_, most_, values_;
  std::vector<double> sums_;
};

// firsts: the first token of each run that shares rows, and the number of tokens behind them.
// make_rows(item): the item's slots, and what each of its tokens sees of them.
template <class MakeRows>
void attend_latent(const LatentCall& call, const as_call* how, const std::vector<I64>& firsts,
                   const MakeRows& make_rows) {
  const I64 heads = call.q.shape[1], parts = (heads + kMlaHeads - 1) / kMlaHeads;
  parallel_for(how, static_cast<I64>(firsts.size() - 1) * parts, 1, [&](I64 begin, I64 end) {
    LatentWorker worker(call);
    LatentItem item;
    for (I64 i = begin; i < end; ++i) {
      const auto block = static_cast<std::size_t>(i / parts);
      item.first = firsts[block];
      item.count = firsts[block + 1] - item.first;
      item.head = i % parts * kMlaHeads;
      item.heads = std::min(kMlaHeads, heads - item.head);
      make_rows(item);
      worker.run(item);
    }
  });
}

}  // namespace

void mla_attention(const as_mla_attention_params& p, const as_call* call, Check& check) {
  if (!check_params(p, true, check)) return;
  const I64 tokens = p.q.shape[0];
  if (tokens == 0 || p.q.shape[1] == 0) return;
  // Runs of tokens of one request.
  const I64 most = std::max<I64>(1, kMlaQueries / std::min(kMlaHeads, p.q.shape[1]));
  std::vector<I64> firsts;
  for (I64 t = 0; t < tokens; ++t) {
    const bool same =
        t > 0 && t - firsts.back() < most &&
        *at<std::int32_t>(p.token_to_req, t) == *at<std::int32_t>(p.token_to_req, firsts.back());
    if (!same) firsts.push_back(t);
  }
  firsts.push_back(tokens);
  const LatentCall latent{p.q, p.o, p.lse, p.cache, static_cast<float>(p.scale)};
  attend_latent(latent, call, firsts, [&](LatentItem& item) {
    item.seen.clear();
    item.slots.clear();
    for (I64 i = 0; i < item.count; ++i) item.seen.push_back(seen_end(p, item.first + i));
    const I64 end = *std::ranges::max_element(item.seen);
    const I64 r = *at<std::int32_t>(p.token_to_req, item.first);
    for (I64 n = 0; n < end; ++n) {
      const I64 rows = p.cache.addressing == AS_PAGED ? p.cache.rows_per_block : end;
      const I64 id = *at<std::int32_t>(p.table, r, n / rows);
      item.slots.push_back(p.cache.addressing == AS_PAGED ? id * rows + n % rows : id + n);
    }
  });
}

void sparse_mla_attention(const as_sparse_mla_attention_params& p, const as_call* call,
                          Check& check) {
  if (!check_params(p, true, check)) return;
  const I64 tokens = p.q.shape[0];
  if (tokens == 0 || p.q.shape[1] == 0) return;
  std::vector<I64> firsts;
  for (I64 t = 0; t <= tokens; ++t) firsts.push_back(t);
  const LatentCall latent{p.q, p.o, p.lse, p.cache, static_cast<float>(p.scale)};
  attend_latent(latent, call, firsts, [&](LatentItem& item) {
    item.slots.clear();
    for (I64 k = 0; k < *at<std::int32_t>(p.topk_length, item.first); ++k) {
      const std::int32_t slot = *at<std::int32_t>(p.indices, item.first, k);
      if (slot >= 0) item.slots.push_back(slot);
    }
    item.seen.assign(1, static_cast<I64>(item.slots.size()));
  });
}

}  // namespace attnscope::cpu
