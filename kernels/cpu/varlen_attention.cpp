// varlen_attention: blocks of neighbouring queries of a head of a sequence over tiles of its keys,
// which begin at multiples of their size. Scores and values are small matrix products, the softmax
// runs online over the tiles. Which blocks share a thread changes no byte. Under a mask, tiles that
// it hides whole are left out, those that it shows whole are as without it, and in the others each
// query goes over the runs of keys that it sees.
#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "kernels/cpu/mask_code.h"
#include "kernels/cpu/ops.h"
#include "kernels/cpu/paged_checks.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/position_bias.h"
#include "kernels/cpu/simd/simd.h"
#include "kernels/cpu/varlen_sequences.h"
#include "kernels/params/tensor_view.h"

namespace attnscope::cpu {
namespace {

using VarlenBits = std::uint16_t;

constexpr std::int64_t kVarlenTile = AS_MASK_KEYS;      // keys and values at once
constexpr std::int64_t kVarlenBlock = AS_MASK_QUERIES;  // queries of a block
constexpr std::int64_t kVarlenWidth = 16;  // values of a row are padded to a multiple of it
constexpr float kNothing = -std::numeric_limits<float>::infinity();

// Queries first .. first + count - 1 of a sequence.
struct VarlenBlock {
  VarlenSequence sequence;
  std::int64_t number = 0;  // of the sequence
  std::int64_t first = 0, count = 0;
};

class VarlenWorker {
 public:
  VarlenWorker(const as_varlen_attention_params& p, const PositionBias& bias)
      : p_(p),
        bias_(bias),
        size_(p.q.shape[2]),
        size_v_(p.o.shape[2]),
        stride_((size_v_ + kVarlenWidth - 1) / kVarlenWidth * kVarlenWidth),
        group_(p.k.shape[1] > 0 ? p.q.shape[1] / p.k.shape[1] : 1) {
    values_.resize(static_cast<std::size_t>(kVarlenTile * stride_));
    scores_.resize(static_cast<std::size_t>(kVarlenBlock * kVarlenTile));
  }

  void attend(const VarlenBlock& b, std::int64_t head) {
    max_.assign(kVarlenBlock, kNothing);
    sum_.assign(kVarlenBlock, 0.0);
    out_.assign(static_cast<std::size_t>(kVarlenBlock * stride_), 0.0f);
    seen_.clear();
    std::int64_t begin = b.sequence.keys, end = 0;
    for (std::int64_t i = 0; i < b.count; ++i) {
      seen_.push_back(seen_keys(p_, b.sequence, b.first + i));
      if (seen_.back().first >= seen_.back().end) continue;
      begin = std::min(begin, seen_.back().first);
      end = std::max(end, seen_.back().end);
    }
    any_.assign(kVarlenBlock, false);
    for (std::int64_t tile = begin / kVarlenTile * kVarlenTile; tile < end; tile += kVarlenTile) {
      const int state = state_of(b, head, tile);
      if (state == AS_TILE_EMPTY) continue;
      masked_ = state == AS_TILE_PARTIAL;
      add(b, head, std::max(tile, begin), std::min(tile + kVarlenTile, end));
    }
    for (std::int64_t i = 0; i < b.count; ++i) finish(b, head, i);
  }

 private:
  int state_of(const VarlenBlock& b, std::int64_t head, std::int64_t tile) const {
    if (!present(p_.mask_code)) return AS_TILE_FULL;
    if (!present(p_.tiles)) return AS_TILE_PARTIAL;
    const std::int64_t map = p_.tiles.shape[1] > 1 ? head : 0;
    return *at<std::uint8_t>(p_.tiles, b.number, map, b.first / kVarlenBlock, tile / kVarlenTile);
  }

  // The first key from `from` on, before `to`, that query i sees, or does not see; `to`: none.
  std::int64_t next(const VarlenBlock& b, std::int64_t head, std::int64_t i, std::int64_t from,
                    std::int64_t to, bool seen) const {
    const std::int64_t place = place_among_keys(b.sequence, b.first + i);
    while (from < to && mask_shows(p_.mask_code, {place, from, head, b.number}) != seen) ++from;
    return from;
  }

  // Keys first .. end - 1 of the sequence, of one tile.
  void add(const VarlenBlock& b, std::int64_t head, std::int64_t first, std::int64_t end) {
    const std::int64_t kv_head = head / group_, row = b.sequence.key + first;
    simd_.gemm_bf16(at<VarlenBits>(p_.q, b.sequence.query + b.first, head), p_.q.stride[0], b.count,
                    at<VarlenBits>(p_.k, row, kv_head), p_.k.stride[0], end - first, size_,
                    scores_.data(), kVarlenTile);
    for (std::int64_t n = 0; n < end - first; ++n) {
      simd_.from_bf16(at<VarlenBits>(p_.v, row + n, kv_head), size_v_,
                      values_.data() + n * stride_);
    }
    for (std::int64_t i = 0; i < b.count; ++i) {
      const SeenKeys& seen = seen_[static_cast<std::size_t>(i)];
      std::int64_t from = std::max(first, seen.first);
      const std::int64_t to = std::min(end, seen.end);
      while (from < to) {
        if (masked_) from = next(b, head, i, from, to, true);
        const std::int64_t stop = masked_ ? next(b, head, i, from, to, false) : to;
        if (from < stop) run(b, head, i, first, from, stop);
        from = stop;
      }
    }
  }

  // Query i over keys from .. to - 1 of the tile that begins with `first`.
  void run(const VarlenBlock& b, std::int64_t head, std::int64_t i, std::int64_t first,
           std::int64_t from, std::int64_t to) {
    float* scores = scores_.data() + i * kVarlenTile + from - first;
    any_[static_cast<std::size_t>(i)] = true;
    soften(b, head, i, from, to - from, scores);
    simd_.gemm_add(scores, kVarlenTile, 1, values_.data() + (from - first) * stride_, stride_,
                   to - from, out_.data() + i * stride_, stride_, stride_);
  }

  // Scores of query i with n keys from `from` on become weights relative to its maximum so far.
  void soften(const VarlenBlock& b, std::int64_t head, std::int64_t i, std::int64_t from,
              std::int64_t n, float* scores) {
    float best = simd_.scale_max(scores, n, static_cast<float>(p_.scale));
    if (p_.soft_cap > 0) simd_.soft_cap(scores, n, static_cast<float>(p_.soft_cap));
    if (present(p_.alibi_slopes)) {
      const float slope = *at<float>(p_.alibi_slopes, head);
      const std::int64_t place = place_among_keys(b.sequence, b.first + i);
      for (std::int64_t k = 0; k < n; ++k) {
        scores[k] -= slope * static_cast<float>(std::abs(place - from - k));
      }
    }
    if (bias_) bias_.add(scores, n, head, from - place_among_keys(b.sequence, b.first + i));
    if (present(p_.score_code)) {
      const std::int64_t place = place_among_keys(b.sequence, b.first + i);
      for (std::int64_t k = 0; k < n; ++k) {
        const MaskPlace at_key{place, from + k, head, b.number};
        scores[k] = static_cast<float>(
            run_mask_code(p_.score_code, at_key, static_cast<double>(scores[k])));
      }
    }
    const bool moved =
        p_.soft_cap > 0 || present(p_.alibi_slopes) || bias_ || present(p_.score_code);
    if (moved) best = simd_.scale_max(scores, n, 1.0f);
    const auto at_query = static_cast<std::size_t>(i);
    best = std::max(max_[at_query], best);
    if (best > max_[at_query]) {
      const double old = std::exp(static_cast<double>(max_[at_query]) - static_cast<double>(best));
      sum_[at_query] *= old;
      float* out = out_.data() + i * stride_;
      if (old > 0.0) {
        simd_.scale(out, stride_, static_cast<float>(old));
      } else {
        std::fill_n(out, stride_, 0.0f);
      }
      max_[at_query] = best;
    }
    sum_[at_query] += static_cast<double>(simd_.exp_sum(scores, n, best == kNothing ? 0 : best));
  }

  void finish(const VarlenBlock& b, std::int64_t head, std::int64_t i) const {
    const auto at_query = static_cast<std::size_t>(i);
    const std::int64_t t = b.sequence.query + b.first + i;
    auto* o = at<VarlenBits>(p_.o, t, head);
    float& lse = *at<float>(p_.lse, t, head);
    if (!any_[at_query]) {
      std::fill_n(o, size_v_, VarlenBits{0});
      lse = kNothing;
      return;
    }
    const double shift = max_[at_query] == kNothing ? 0.0 : static_cast<double>(max_[at_query]);
    simd_.to_bf16(out_.data() + i * stride_, static_cast<float>(1.0 / sum_[at_query]), size_v_, o);
    lse = static_cast<float>(shift + std::log(sum_[at_query]));
  }

  const as_varlen_attention_params& p_;
  const PositionBias& bias_;
  const std::int64_t size_, size_v_, stride_, group_;
  const simd::Kernels& simd_ = simd::kernels();
  std::vector<float> values_, scores_, max_, out_;
  std::vector<double> sum_;
  std::vector<SeenKeys> seen_;
  std::vector<bool> any_;  // queries that have met a key
  bool masked_ = false;    // the tile has keys that not every query sees
};

// Tokens begin .. end - 1 see nothing.
void clear_tokens(const as_varlen_attention_params& p, std::int64_t begin, std::int64_t end) {
  for (std::int64_t t = begin; t < end; ++t) {
    for (std::int64_t h = 0; h < p.q.shape[1]; ++h) {
      std::fill_n(at<VarlenBits>(p.o, t, h), p.o.shape[2], VarlenBits{0});
      *at<float>(p.lse, t, h) = kNothing;
    }
  }
}

}  // namespace

void varlen_attention(const as_varlen_attention_params& p, const as_call* call, Check& check) {
  if (!check_params(p, true, check)) return;
  const std::int64_t heads = p.q.shape[1];
  std::vector<VarlenBlock> blocks;
  for (std::int64_t n = 0; n + 1 < p.cu_seqlens.shape[0]; ++n) {
    const VarlenSequence s = sequence_of(p, n);
    for (std::int64_t first = 0; first < s.queries; first += kVarlenBlock) {
      blocks.push_back({s, n, first, std::min(kVarlenBlock, s.queries - first)});
    }
    clear_tokens(p, s.query + s.queries, *at<std::int32_t>(p.cu_seqlens, n + 1));
  }
  // Tokens behind the last sequence.
  clear_tokens(p, *at<std::int32_t>(p.cu_seqlens, p.cu_seqlens.shape[0] - 1), p.q.shape[0]);
  const PositionBias bias(p.position_bias, p.bias_distance, p.causal);
  parallel_for(call, static_cast<std::int64_t>(blocks.size()) * heads, 1,
               [&](std::int64_t begin, std::int64_t end) {
                 VarlenWorker worker(p, bias);
                 for (std::int64_t item = begin; item < end; ++item) {
                   worker.attend(blocks[static_cast<std::size_t>(item / heads)], item % heads);
                 }
               });
}

}  // namespace attnscope::cpu
