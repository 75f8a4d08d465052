// The weights of varlen_attention, recomputed.
#include <algorithm>
#include <cmath>

#include "engine/model/numbers.h"
#include "engine/session/step/attention_copy.h"
#include "engine/session/step/distance_bias.h"
#include "kernels/cpu/codec.h"
#include "kernels/cpu/mask_code.h"
#include "kernels/cpu/parallel.h"
#include "kernels/params/tensor_view.h"

namespace attnscope {
namespace {

// What one query sees: keys [first, end) of its sequence, which begins at row `key`.
struct PackedReach {
  std::int64_t place = 0, key = 0, first = 0, end = 0, sequence = 0;
};

class PackedWeights {
 public:
  PackedWeights(const as_varlen_attention_params& params, const std::vector<std::int32_t>& rows)
      : p_(params), rows_(rows) {
    out_.heads = p_.q.shape[1];
    for (const std::int32_t token : rows_) {
      const PackedReach reach = reach_of(token);
      out_.window = std::max(out_.window, reach.end - reach.first);
    }
  }

  AttentionCopy run(const as_threads* threads) {
    const std::int64_t kept = to_count(rows_.size()), cells = kept * out_.heads * out_.window;
    out_.slots.assign(to_size(kept * out_.window), -1);
    out_.logits.assign(to_size(cells), std::numeric_limits<float>::quiet_NaN());
    out_.weights.assign(to_size(cells), 0);
    out_.sink_mass.assign(to_size(kept * out_.heads), 0);
    out_.sinks.assign(to_size(out_.heads), -std::numeric_limits<float>::infinity());
    out_.window_len.assign(to_size(kept), 0);
    out_.extra_len.assign(to_size(kept), 0);
    std::vector<float> errors(to_size(kept), 0);
    cpu::parallel_for(threads, kept, 1, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i) errors[to_size(i)] = weigh(i);
    });
    for (const float error : errors) out_.lse_error = std::max(out_.lse_error, error);
    return std::move(out_);
  }

 private:
  PackedReach reach_of(std::int32_t token) const {
    const as_tensor& keys = present(p_.cu_seqlens_k) ? p_.cu_seqlens_k : p_.cu_seqlens;
    for (std::int64_t n = 0; n + 1 < p_.cu_seqlens.shape[0]; ++n) {
      const std::int64_t begin = *at<std::int32_t>(p_.cu_seqlens, n);
      const std::int64_t end = *at<std::int32_t>(p_.cu_seqlens, n + 1);
      if (token < begin || token >= end) continue;
      const std::int64_t used = present(p_.token_to_req) ? used_of(begin, end) : end - begin;
      if (token - begin >= used) return {};
      PackedReach reach;
      reach.sequence = n;
      reach.key = *at<std::int32_t>(keys, n);
      reach.end = *at<std::int32_t>(keys, n + 1) - reach.key;
      if (used < end - begin) reach.end = used;
      reach.place = reach.end - used + token - begin;
      std::int64_t behind = reach.end;
      if (p_.causal != 0) behind = reach.place + 1;
      if (p_.window_right >= 0) behind = std::min(behind, reach.place + p_.window_right + 1);
      reach.end = std::clamp<std::int64_t>(behind, 0, reach.end);
      if (p_.window_left >= 0) {
        reach.first = std::clamp<std::int64_t>(reach.place - p_.window_left, 0, reach.end);
      }
      return reach;
    }
    return {};
  }

  // Tokens of a sequence before its padding.
  std::int64_t used_of(std::int64_t begin, std::int64_t end) const {
    std::int64_t used = 0;
    while (begin + used < end && *at<std::int32_t>(p_.token_to_req, begin + used) >= 0) ++used;
    return used;
  }

  // Of one kept row; the worst |recomputed - op's| LSE.
  float weigh(std::int64_t i) {
    const std::int32_t token = rows_[to_size(i)];
    const PackedReach reach = reach_of(token);
    const std::int64_t count = reach.end - reach.first;
    out_.window_len[to_size(i)] = static_cast<std::int32_t>(count);
    float worst = 0;
    for (std::int64_t c = 0; c < count; ++c) {
      out_.slots[to_size(i * out_.window + c)] = reach.key + reach.first + c;
    }
    for (std::int64_t h = 0; h < out_.heads; ++h) {
      worst = std::max(worst, weigh_head(i, h, token, reach));
    }
    return worst;
  }

  float weigh_head(std::int64_t i, std::int64_t h, std::int32_t token, const PackedReach& reach) {
    const std::int64_t count = reach.end - reach.first, cell = (i * out_.heads + h) * out_.window;
    const std::int64_t kv_head = h / (out_.heads / p_.k.shape[1]);
    const auto* q = at<bf16_t>(p_.q, token, h);
    double largest = -kInfinity, sum = 0;
    for (std::int64_t c = 0; c < count; ++c) {
      const auto* k = at<bf16_t>(p_.k, reach.key + reach.first + c, kv_head);
      float dot = 0;
      for (std::int64_t d = 0; d < p_.q.shape[2]; ++d) {
        dot += cpu::bf16_to_float(q[d].bits) * cpu::bf16_to_float(k[d].bits);
      }
      double logit = p_.scale * static_cast<double>(dot);
      if (p_.soft_cap > 0) logit = p_.soft_cap * std::tanh(logit / p_.soft_cap);
      if (present(p_.alibi_slopes)) {
        logit -= static_cast<double>(*at<float>(p_.alibi_slopes, h)) *
                 static_cast<double>(std::abs(reach.place - reach.first - c));
      }
      if (present(p_.position_bias)) {
        logit += distance_bias(p_.position_bias, p_.bias_distance, p_.causal != 0,
                               reach.first + c - reach.place, h);
      }
      logit = user_logit(p_.mask_code, p_.score_code,
                         {reach.place, reach.first + c, h, reach.sequence}, logit);
      out_.logits[to_size(cell + c)] = static_cast<float>(logit);
      largest = std::max(largest, logit);
    }
    if (!(largest > -kInfinity)) return 0;
    for (std::int64_t c = 0; c < count; ++c) {
      sum += std::exp(static_cast<double>(out_.logits[to_size(cell + c)]) - largest);
    }
    for (std::int64_t c = 0; c < count; ++c) {
      const double share =
          std::exp(static_cast<double>(out_.logits[to_size(cell + c)]) - largest) / sum;
      out_.weights[to_size(cell + c)] = static_cast<float>(share);
    }
    const double own = static_cast<double>(*at<float>(p_.lse, token, h));
    const double error = std::abs(own - (largest + std::log(sum)));
    return std::isnan(error) ? std::numeric_limits<float>::infinity() : static_cast<float>(error);
  }

  const as_varlen_attention_params& p_;
  const std::vector<std::int32_t>& rows_;
  AttentionCopy out_;
};

}  // namespace

AttentionCopy copy_attention(const as_varlen_attention_params& params,
                             const std::vector<std::int32_t>& rows, const as_threads* threads) {
  return PackedWeights(params, rows).run(threads);
}

}  // namespace attnscope
