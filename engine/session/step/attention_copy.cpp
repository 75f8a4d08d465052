#include "engine/session/step/attention_copy.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>

#include "engine/model/numbers.h"
#include "kernels/cpu/codec.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/simd/simd.h"
#include "kernels/params/row_access.h"
#include "kernels/params/row_format.h"
#include "kernels/params/tensor_view.h"

namespace attnscope {
namespace {

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
constexpr std::int64_t kColumnChunk = 64;  // columns decoded and multiplied at once
constexpr std::int64_t kHeadsAtOnce = 8;   // that a thread weighs at least

// Fills the slots that one list reads for one token; returns how many columns it counts.
std::int32_t fill_slots(const as_tensor& indices, const as_tensor& lens, const as_cache& cache,
                        std::int64_t token, std::int64_t* slots) {
  if (!present(indices)) return 0;
  const std::int64_t total = cache.data.shape[0] * cache.rows_per_block;
  const std::int64_t len =
      std::clamp<std::int64_t>(*at<std::int32_t>(lens, token), 0, indices.shape[1]);
  for (std::int64_t k = 0; k < len; ++k) {
    const std::int32_t slot = *at<std::int32_t>(indices, token, k);
    if (slot >= 0 && slot < total) slots[k] = slot;
  }
  return static_cast<std::int32_t>(len);
}

// A record whose parts are e4m3 with UE8M0 or fp32 scales, or bf16, as values.
void decode_record(const as_row_layout& l, const std::uint8_t* row, float* out) {
  for (std::int32_t i = 0; i < l.format->num_parts; ++i) {
    const as_row_part& part = l.format->parts[i];
    const as_part_span span = as_part_in_row(&l, 0, i);
    for (std::int64_t k = 0; k < span.num_scales; ++k) {
      float scale = 0;
      if (part.scale == AS_CODE_F32) {
        std::memcpy(&scale, row + span.scales + 4 * k, sizeof(scale));
      } else {
        scale = cpu::ue8m0_to_float(row[span.scales + k]);
      }
      cpu::simd::kernels().decode_e4m3(row + span.elements + k * part.block, scale, part.block,
                                       out + span.first + k * part.block);
    }
    for (std::int64_t k = 0; part.code == AS_CODE_BF16 && k < span.count; ++k) {
      std::uint16_t bits;
      std::memcpy(&bits, row + span.elements + 2 * k, sizeof(bits));
      out[span.first + k] = cpu::bf16_to_float(bits);
    }
  }
}

class Attention {
 public:
  Attention(const as_sparse_attention_params& params, const std::vector<std::int32_t>& rows,
            const as_threads* threads)
      : p_(params), rows_(rows), threads_(threads) {
    out_.heads = p_.q.shape[1];
    out_.window = p_.indices.shape[1];
    out_.extra = present(p_.extra_indices) ? p_.extra_indices.shape[1] : 0;
    columns_ = out_.window + out_.extra;
  }

  AttentionCopy run() {
    const std::int64_t kept = static_cast<std::int64_t>(rows_.size());
    const std::int64_t cells = kept * out_.heads * columns_;
    out_.slots.assign(to_size(kept * columns_), -1);
    out_.logits.assign(to_size(cells), kNaN);
    out_.weights.assign(to_size(cells), 0);
    out_.sink_mass.assign(to_size(kept * out_.heads), 0);
    for (std::int64_t h = 0; h < out_.heads; ++h) {
      out_.sinks.push_back(present(p_.sinks) ? *at<float>(p_.sinks, h) : -kInfinity);
    }
    for (std::int64_t i = 0; i < kept; ++i) {
      const std::int64_t token = rows_[to_size(i)];
      std::int64_t* slots = out_.slots.data() + i * columns_;
      out_.window_len.push_back(fill_slots(p_.indices, p_.topk_length, p_.cache, token, slots));
      out_.extra_len.push_back(fill_slots(p_.extra_indices, p_.extra_topk_length, p_.extra_cache,
                                          token, slots + out_.window));
    }
    read_queries();
    const std::int64_t chunks = (columns_ + kColumnChunk - 1) / kColumnChunk;
    cpu::parallel_for(threads_, kept * chunks, 1, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t job = begin; job < end; ++job)
        logits(job / chunks, job % chunks * kColumnChunk);
    });
    std::vector<float> errors(to_size(kept * out_.heads));
    cpu::parallel_for(threads_, kept * out_.heads, kHeadsAtOnce,
                      [&](std::int64_t begin, std::int64_t end) {
                        for (std::int64_t job = begin; job < end; ++job)
                          errors[to_size(job)] = weigh(job / out_.heads, job % out_.heads);
                      });
    for (const float error : errors) out_.lse_error = std::max(out_.lse_error, error);
    return std::move(out_);
  }

 private:
  void read_queries() {
    queries_.resize(rows_.size() * to_size(out_.heads * dims_));
    float* to = queries_.data();
    for (const std::int32_t token : rows_) {
      for (std::int64_t h = 0; h < out_.heads; ++h) {
        const auto* from = at<bf16_t>(p_.q, token, h);
        for (std::int64_t d = 0; d < dims_; ++d) *to++ = cpu::bf16_to_float(from[d].bits);
      }
    }
  }

  // Logits of the columns [first, first + kChunk) of one kept row that are read.
  void logits(std::int64_t i, std::int64_t first) {
    const std::int64_t last = std::min(columns_, first + kColumnChunk);
    const auto keys = std::make_unique_for_overwrite<float[]>(to_size(kColumnChunk * dims_));
    const as_row_layout layout = as_row_layout_of(p_.cache.record, p_.cache.width, 1, 1);
    std::vector<std::uint8_t> record(to_size(layout.row));
    std::int64_t read[kColumnChunk];
    std::int64_t n = 0;
    for (std::int64_t c = first; c < last; ++c) {
      const std::int64_t slot = out_.slots[to_size(i * columns_ + c)];
      if (slot < 0) continue;
      const as_cache& cache = c < out_.window ? p_.cache : p_.extra_cache;
      as_row_get(&cache, slot, record.data());
      decode_record(layout, record.data(), keys.get() + n * dims_);
      read[n++] = c - first;
    }
    if (n == 0) return;
    float* out = out_.logits.data() + i * out_.heads * columns_ + first;
    cpu::simd::kernels().gemm_f32(queries_.data() + i * out_.heads * dims_, dims_, out_.heads,
                                  keys.get(), dims_, n, dims_, out, columns_);
    const auto scale = static_cast<float>(p_.scale);
    for (std::int64_t h = 0; h < out_.heads; ++h) {
      float dots[kColumnChunk];
      float* row = out + h * columns_;
      std::copy_n(row, n, dots);
      std::fill_n(row, last - first, kNaN);
      for (std::int64_t k = 0; k < n; ++k) row[read[k]] = scale * dots[k];
    }
  }

  // Weights of one kept row and head; returns |recomputed - op's| LSE.
  float weigh(std::int64_t i, std::int64_t h) {
    const float* logit = out_.logits.data() + (i * out_.heads + h) * columns_;
    float* weight = out_.weights.data() + (i * out_.heads + h) * columns_;
    const std::int64_t* slots = out_.slots.data() + i * columns_;
    const double sink = out_.sinks[to_size(h)];
    float& mass = out_.sink_mass[to_size(i * out_.heads + h)];
    float largest = -kInfinity;
    for (std::int64_t c = 0; c < columns_; ++c) {
      if (slots[c] >= 0) largest = std::max(largest, logit[c]);
    }
    double sum = 0;  // without the sink, relative to the largest logit
    bool any = false;
    for (std::int64_t c = 0; c < columns_; ++c) {
      if (slots[c] < 0) continue;
      any = true;
      weight[c] = std::exp(logit[c] - largest);
      sum += weight[c];
    }
    const double lse = any ? largest + std::log(sum) : kInfinity;
    if (any) {
      // top keeps both exponents at or below 0.
      const double top = std::max<double>(largest, sink);
      const double of_sink = sink == top ? 1 : std::exp(sink - top);
      const double share = largest == top ? 1 : std::exp(largest - top);
      const double total = sum * share + of_sink;
      for (std::int64_t c = 0; c < columns_; ++c) {
        weight[c] = static_cast<float>(weight[c] * share / total);
      }
      mass = static_cast<float>(of_sink / total);
    } else {
      mass = sink > -kInfinity ? 1.0f : 0.0f;
    }
    const double own = *at<float>(p_.lse, rows_[to_size(i)], h);
    // Of a token that sees nothing ops differ in the sign.
    if (!any && std::isinf(own)) return 0;
    if (own == lse || (std::isnan(own) && std::isnan(lse))) return 0;
    const auto error = static_cast<float>(std::abs(own - lse));
    return std::isnan(error) ? kInfinity : error;
  }

  const as_sparse_attention_params& p_;
  const std::vector<std::int32_t>& rows_;
  const as_threads* threads_;
  const std::int64_t dims_ = p_.q.shape[2];
  std::int64_t columns_ = 0;
  std::vector<float> queries_;  // [kept, heads, D]
  AttentionCopy out_;
};

RowsRead rows_of(const as_cache& cache, std::vector<std::int64_t> slots) {
  RowsRead rows;
  std::ranges::sort(slots);
  slots.erase(std::unique(slots.begin(), slots.end()), slots.end());
  if (!slots.empty() && slots.front() < 0) slots.erase(slots.begin());
  rows.slots = std::move(slots);
  rows.steps.assign(rows.slots.size(), -1);
  rows.row_bytes = as_cache_row_bytes(&cache);
  rows.bytes.resize(rows.slots.size() * to_size(rows.row_bytes));
  std::uint8_t* to = rows.bytes.data();
  for (const std::int64_t slot : rows.slots) {
    as_row_get(&cache, slot, to);
    to += rows.row_bytes;
  }
  return rows;
}

}  // namespace

AttentionCopy copy_attention(const as_sparse_attention_params& params,
                             const std::vector<std::int32_t>& rows, const as_threads* threads) {
  return Attention(params, rows, threads).run();
}

void copy_rows_read(const as_sparse_attention_params& params, AttentionCopy* copy) {
  const std::int64_t columns = copy->window + copy->extra;
  std::vector<std::int64_t> window, extra;
  for (std::size_t i = 0; i < copy->slots.size(); ++i) {
    const bool of_window = static_cast<std::int64_t>(i) % columns < copy->window;
    (of_window ? window : extra).push_back(copy->slots[i]);
  }
  copy->window_rows = rows_of(params.cache, std::move(window));
  if (copy->extra > 0) copy->extra_rows = rows_of(params.extra_cache, std::move(extra));
}

void copy_rows_read(const as_paged_attention_params& params, AttentionCopy* copy) {
  copy->window_rows = rows_of(params.v_cache, copy->slots);
  if (params.wide_tokens == 0) return;
  std::vector<std::int64_t> first;
  const std::size_t cache = offsetof(as_paged_attention_params, v_wide);
  RowAccess::for_each(&params, *RowAccess::find(AS_OP_PAGED_ATTENTION, cache),
                      [&](const RowVisit& v) { first.push_back(v.slot); });
  copy->extra_rows = rows_of(params.v_wide, std::move(first));
}

std::int64_t attention_bytes(const AttentionCopy& copy) {
  const std::size_t fours = copy.window_len.size() + copy.extra_len.size() + copy.logits.size() +
                            copy.weights.size() + copy.sink_mass.size() + copy.sinks.size();
  std::size_t rows = 0;
  for (const RowsRead* read : {&copy.window_rows, &copy.extra_rows}) {
    rows +=
        read->bytes.size() + read->slots.size() * (sizeof(read->slots[0]) + sizeof(read->steps[0]));
  }
  return static_cast<std::int64_t>(rows + fours * sizeof(float) +
                                   copy.slots.size() * sizeof(copy.slots[0]));
}

}  // namespace attnscope
