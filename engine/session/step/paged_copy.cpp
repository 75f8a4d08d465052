// The weights of paged_attention, recomputed.
#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "engine/model/numbers.h"
#include "engine/session/step/attention_copy.h"
#include "engine/session/step/distance_bias.h"
#include "kernels/cpu/codec.h"
#include "kernels/cpu/kv_codes.h"
#include "kernels/cpu/mask_code.h"
#include "kernels/cpu/parallel.h"
#include "kernels/params/row_format.h"
#include "kernels/params/tensor_view.h"

namespace attnscope {
namespace {

// A row in logical form as numbers.
void values_of(const as_cache& cache, const as_tensor& scales, const std::uint8_t* row,
               std::vector<float>& out) {
  if (cpu::is_coded(cache.record)) return cpu::decode_kv_row(cache, scales, row, out.data());
  cpu::decode_row(cache.record, cache.width, row, row, out.data());
}

class PagedWeights {
 public:
  PagedWeights(const as_paged_attention_params& params, const std::vector<std::int32_t>& rows)
      : p_(params), rows_(rows), dims_(p_.q.shape[2]) {
    out_.heads = p_.q.shape[1];
    for (const std::int32_t token : rows_) {
      const auto [first, end] = seen(token);
      out_.window = std::max(out_.window, end - first);
    }
  }

  AttentionCopy run(const as_threads* threads) {
    const std::int64_t kept = to_count(rows_.size()), cells = kept * out_.heads * out_.window;
    out_.slots.assign(to_size(kept * out_.window), -1);
    out_.logits.assign(to_size(cells), std::numeric_limits<float>::quiet_NaN());
    out_.weights.assign(to_size(cells), 0);
    out_.sink_mass.assign(to_size(kept * out_.heads), 0);
    out_.window_len.assign(to_size(kept), 0);
    out_.extra_len.assign(to_size(kept), 0);
    for (std::int64_t h = 0; h < out_.heads; ++h) {
      out_.sinks.push_back(present(p_.sinks) ? *at<float>(p_.sinks, h)
                                             : -std::numeric_limits<float>::infinity());
    }
    std::vector<float> errors(to_size(kept), 0);
    cpu::parallel_for(threads, kept, 1, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i) errors[to_size(i)] = weigh(i);
    });
    for (const float error : errors) out_.lse_error = std::max(out_.lse_error, error);
    return std::move(out_);
  }

 private:
  // The rows of its request that a token sees: [first, end).
  std::pair<std::int64_t, std::int64_t> seen(std::int32_t token) const {
    const std::int32_t request = *at<std::int32_t>(p_.token_to_req, token);
    if (request < 0 || request >= p_.table.shape[0]) return {0, 0};
    const std::int64_t position = *at<std::int64_t>(p_.positions, token);
    std::int64_t end = *at<std::int32_t>(p_.seq_lens, request);
    if (p_.causal != 0) end = std::min(end, position + 1);
    std::int64_t first = p_.window > 0 ? std::max<std::int64_t>(0, position - p_.window + 1) : 0;
    if (p_.chunk > 0) first = std::max<std::int64_t>(first, position / p_.chunk * p_.chunk);
    if (present(p_.first_rows)) {
      first = std::max<std::int64_t>(first, *at<std::int32_t>(p_.first_rows, request));
    }
    return {std::min(first, end), std::max(first, end)};
  }

  // -1 where the table does not name one.
  std::int64_t slot_of(std::int32_t request, std::int64_t row) const {
    const std::int64_t rows = p_.k_cache.rows_per_block;
    if (rows < 1 || row / rows >= p_.table.shape[1]) return -1;
    const std::int64_t block = *at<std::int32_t>(p_.table, request, row / rows);
    return block > 0 && block < p_.k_cache.data.shape[0] ? block * rows + row % rows : -1;
  }

  // As a mask counts them: the token's place, and that of the first row of its request.
  std::pair<std::int64_t, std::int64_t> places_of(std::int32_t token) const {
    const std::int32_t request = *at<std::int32_t>(p_.token_to_req, token);
    const std::int64_t position = *at<std::int64_t>(p_.positions, token);
    const std::int64_t place = present(p_.places) ? *at<std::int64_t>(p_.places, token) : position;
    const auto begin = [request](const as_tensor& starts) -> std::int64_t {
      return present(starts) && request >= 0 ? *at<std::int32_t>(starts, request) : 0;
    };
    return {place - begin(p_.query_starts), place - position - begin(p_.row_starts)};
  }

  // Of one kept row; the worst |recomputed - op's| LSE.
  float weigh(std::int64_t i) {
    const std::int32_t token = rows_[to_size(i)];
    const auto [first, end] = seen(token);
    const std::int64_t count = end - first, columns = out_.window;
    out_.window_len[to_size(i)] = static_cast<std::int32_t>(count);
    const std::int64_t per_head = out_.heads / as_cache_heads(&p_.k_cache);
    const std::int64_t position = *at<std::int64_t>(p_.positions, token);
    const auto [query_place, first_place] = places_of(token);
    std::int64_t* slots = out_.slots.data() + i * columns;
    std::vector<std::uint8_t> row;
    std::vector<float> keys(to_size(p_.k_cache.width));
    for (std::int64_t c = 0; c < count; ++c) {
      slots[c] = slot_of(*at<std::int32_t>(p_.token_to_req, token), first + c);
      if (slots[c] < 0) continue;
      // The row that is read, which of first tokens is another one than that in the slot.
      const WideRow wide =
          wide_row(p_, p_.k_wide, *at<std::int32_t>(p_.token_to_req, token), first + c);
      const as_cache& cache = wide.slot < 0 ? p_.k_cache : p_.k_wide;
      row.resize(to_size(as_cache_row_bytes(&cache)));
      as_row_get(&cache, wide.slot < 0 ? slots[c] : wide.slot, row.data());
      values_of(cache, p_.k_scale, row.data(), keys);
      for (std::int64_t h = 0; h < out_.heads; ++h) {
        const auto* q = at<bf16_t>(p_.q, token, h);
        float dot = 0;
        for (std::int64_t d = 0; d < dims_; ++d) {
          dot += cpu::bf16_to_float(q[d].bits) * keys[to_size(h / per_head * dims_ + d)];
        }
        double logit = p_.scale * static_cast<double>(dot);
        if (p_.soft_cap > 0) logit = p_.soft_cap * std::tanh(logit / p_.soft_cap);
        if (present(p_.alibi_slopes)) {
          const auto apart = static_cast<double>(std::abs(position - (first + c)));
          logit -= static_cast<double>(*at<float>(p_.alibi_slopes, h)) * apart;
        }
        if (present(p_.position_bias)) {
          logit += distance_bias(p_.position_bias, p_.bias_distance, p_.causal != 0,
                                 first + c - position, h);
        }
        const std::int32_t request = *at<std::int32_t>(p_.token_to_req, token);
        const cpu::MaskPlace place = {query_place, first_place + first + c, h, request};
        logit = user_logit(p_.mask_code, p_.score_code, place, logit);
        out_.logits[to_size((i * out_.heads + h) * columns + c)] = static_cast<float>(logit);
      }
    }
    float worst = 0;
    for (std::int64_t h = 0; h < out_.heads; ++h) worst = std::max(worst, share_out(i, h, token));
    return worst;
  }

  float share_out(std::int64_t i, std::int64_t h, std::int32_t token) {
    const std::int64_t columns = out_.window, cell = i * out_.heads + h;
    const float* logit = out_.logits.data() + cell * columns;
    float* weight = out_.weights.data() + cell * columns;
    const std::int64_t* slots = out_.slots.data() + i * columns;
    const double sink = static_cast<double>(out_.sinks[to_size(h)]);
    double largest = -kInfinity, sum = 0;
    for (std::int64_t c = 0; c < columns; ++c) {
      if (slots[c] >= 0) largest = std::max(largest, static_cast<double>(logit[c]));
    }
    if (!(std::max(largest, sink) > -kInfinity)) return 0;
    // A sink may lie far above every logit, and one of +inf takes all: the sum of the logits alone
    // is relative to the largest of them.
    const double top = sink == kInfinity ? largest : std::max(largest, sink);
    for (std::int64_t c = 0; c < columns && largest > -kInfinity; ++c) {
      if (slots[c] < 0) continue;
      const double share = std::exp(static_cast<double>(logit[c]) - largest);
      weight[c] = static_cast<float>(share);
      sum += share;
    }
    const double scale = largest > -kInfinity ? std::exp(largest - top) : 0;
    const double of_sink = sink == kInfinity ? kInfinity : std::exp(sink - top);
    const double total = sum * scale + of_sink;
    for (std::int64_t c = 0; c < columns; ++c) {
      weight[c] = static_cast<float>(static_cast<double>(weight[c]) * scale / total);
    }
    out_.sink_mass[to_size(cell)] = sink == kInfinity ? 1.0f : static_cast<float>(of_sink / total);
    const double lse = sum > 0 ? largest + std::log(sum) : -kInfinity;
    const double own = static_cast<double>(*at<float>(p_.lse, token, h));
    if (own == lse) return 0;
    const double error = std::abs(own - lse);
    return std::isnan(error) ? std::numeric_limits<float>::infinity() : static_cast<float>(error);
  }

  const as_paged_attention_params& p_;
  const std::vector<std::int32_t>& rows_;
  const std::int64_t dims_;
  AttentionCopy out_;
};

}  // namespace

WideRow wide_row(const as_paged_attention_params& p, const as_cache& cache, std::int32_t request,
                 std::int64_t row) {
  if (row >= p.wide_tokens || cache.rows_per_block < 1) return {};
  const std::int64_t column = row / cache.rows_per_block;
  if (column >= p.wide_table.shape[1]) return {};
  const std::int64_t block = *at<std::int32_t>(p.wide_table, request, column);
  if (block <= 0 || block >= cache.data.shape[0]) return {};
  return {block * cache.rows_per_block + row % cache.rows_per_block};
}

AttentionCopy copy_attention(const as_paged_attention_params& params,
                             const std::vector<std::int32_t>& rows, const as_threads* threads) {
  return PagedWeights(params, rows).run(threads);
}

}  // namespace attnscope
