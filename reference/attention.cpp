// Sparse attention with sink over window rows and compressed rows.
//
// Tokens are taken in blocks whose lists overlap (a prefill chunk's windows do), so that the rows
// of a block are decoded once and both products are large matrix products. Every token still sums
// over its own list only.
#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <vector>

#include "kernels/layout/records.h"
#include "reference/matmul.h"
#include "reference/ops.h"
#include "reference/rows.h"
#include "reference/tensors.h"

namespace attnscope::reference {

namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr std::int64_t kMaxBlockTokens = 64;
constexpr std::int64_t kMaxLogits = std::int64_t{8} << 20;  // of one block: 64 MB
// A block may hold this much more than its longest list: beyond, most products would be unused.
constexpr double kMaxUnion = 1.5;
constexpr std::int64_t kGrain = 16;  // rows or queries of a thread at least

// One cache with its lists, and which of its rows the current block holds.
class Source {
 public:
  Source(const as_cache& cache, const as_tensor& indices, const as_tensor& lens,
         std::int64_t tokens, const char* cache_name, const char* indices_name,
         const char* lens_name)
      : cache_(cache, cache_name, AS_RECORD_LATENT, AS_HEAD_DIM),
        indices_(indices, indices_name, {tokens, kAny}),
        lens_(lens, lens_name, {tokens}),
        lens_name_(lens_name),
        column_of_(static_cast<std::size_t>(cache_.rows()), -1) {}

  // The valid rows of token t, in list order.
  void list(std::int64_t t, std::vector<std::int64_t>* rows) const {
    rows->clear();
    check_index(std::max<std::int64_t>(lens_.get(t), 0), indices_.size(1) + 1, lens_name_, t);
    for (std::int64_t k = 0; k < lens_.get(t); ++k) {
      const std::int64_t row = indices_.get(t, k);
      if (row < 0) continue;
      check_index(row, cache_.rows(), "slot", t);
      rows->push_back(row);
    }
  }

  std::int64_t count_new(const std::vector<std::int64_t>& rows) const {
    std::int64_t n = 0;
    for (std::int64_t row : rows) n += column_of_[static_cast<std::size_t>(row)] < 0;
    return n;
  }

  // Column of a row in the block; a new one is the next.
  std::int64_t column(std::int64_t row, std::int64_t t, std::int64_t* width) {
    std::int64_t& column = column_of_[static_cast<std::size_t>(row)];
    if (column < 0) {
      column = (*width)++;
      held_.push_back({row, t, column});
    }
    return column;
  }

  // Decodes the block's rows of this cache to their columns, and begins a new block.
  void decode(double* block) {
    for_rows(static_cast<std::int64_t>(held_.size()), kGrain,
             [&](std::int64_t first, std::int64_t last) {
               for (std::int64_t i = first; i < last; ++i) {
                 const Held& h = held_[static_cast<std::size_t>(i)];
                 cache_.load(h.row, h.token, block + h.column * AS_HEAD_DIM);
               }
             });
    for (const Held& h : held_) column_of_[static_cast<std::size_t>(h.row)] = -1;
    held_.clear();
  }

 private:
  CacheRows cache_;
  Integers indices_;
  Integers lens_;
  const char* lens_name_;
  std::vector<std::int64_t> column_of_;
  struct Held {
    std::int64_t row, token, column;
  };
  std::vector<Held> held_;
};

bool all_finite(const std::vector<double>& values) {
  for (double value : values) {
    if (!std::isfinite(value)) return false;
  }
  return true;
}

class Attention {
 public:
  Attention(const as_sparse_attention_params& p, const Precision& precision)
      : precision_(precision),
        scale_(p.scale),
        q_(p.q, "q", {kAny, kAny, AS_HEAD_DIM}),
        heads_(q_.size(1)),
        sinks_(FloatRows(p.sinks, "sinks", {heads_}).load_all()),
        o_(p.o, "o", {tokens(), heads_, AS_HEAD_DIM}),
        lse_(p.lse, "lse", {tokens(), heads_}),
        window_(p.cache, p.indices, p.topk_length, tokens(), "cache", "indices", "topk_length") {
    if (p.extra_cache.record != AS_RECORD_NONE && present(p.extra_indices)) {
      extra_ =
          std::make_unique<Source>(p.extra_cache, p.extra_indices, p.extra_topk_length, tokens(),
                                   "extra_cache", "extra_indices", "extra_topk_length");
    }
  }

  void run() {
    for (std::int64_t first = 0; first < tokens();) {
      collect(first, kMaxBlockTokens);
      // A row that is not finite must reach only the tokens that list it, which 0 * NaN in a shared
      // product would not do.
      if (columns_.size() > 1 && !all_finite(rows_)) collect(first, 1);
      attend(first);
      first += static_cast<std::int64_t>(columns_.size());
    }
  }

 private:
  std::int64_t tokens() const { return q_.size(0); }

  // The block that starts at token `first`: columns_[i] lists the rows of token first + i.
  void collect(std::int64_t first, std::int64_t max_tokens) {
    columns_.clear();
    std::int64_t longest = 0, width = 0;
    std::vector<std::int64_t> window_rows;
    std::vector<std::int64_t> extra_rows;
    for (std::int64_t t = first; t < std::min(first + max_tokens, tokens()); ++t) {
      window_.list(t, &window_rows);
      std::int64_t held = width + window_.count_new(window_rows);
      if (extra_) {
        extra_->list(t, &extra_rows);
        held += extra_->count_new(extra_rows);
      }
      longest =
          std::max(longest, static_cast<std::int64_t>(window_rows.size() + extra_rows.size()));
      const bool too_wide = static_cast<double>(held) > kMaxUnion * static_cast<double>(longest);
      if (t > first && (too_wide || (t - first + 1) * heads_ * held > kMaxLogits)) break;
      std::vector<std::int64_t>& columns = columns_.emplace_back();
      for (std::int64_t row : window_rows) columns.push_back(window_.column(row, t, &width));
      for (std::int64_t row : extra_rows) columns.push_back(extra_->column(row, t, &width));
    }
    rows_.resize(static_cast<std::size_t>(width * AS_HEAD_DIM));
    window_.decode(rows_.data());
    if (extra_) extra_->decode(rows_.data());
  }

  void attend(std::int64_t first) {
    const auto block_tokens = static_cast<std::int64_t>(columns_.size());
    const std::int64_t queries = block_tokens * heads_;
    const std::int64_t width = static_cast<std::int64_t>(rows_.size()) / AS_HEAD_DIM;
    out_.resize(static_cast<std::size_t>(queries * AS_HEAD_DIM));
    if (width == 0) std::ranges::fill(out_, 0.0);
    logits_.resize(static_cast<std::size_t>(queries * width));
    if (width > 0) {
      query_.resize(out_.size());
      for_rows(queries, kGrain, [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t i = begin; i < end; ++i) {
          q_.load(first * heads_ + i, query_.data() + i * AS_HEAD_DIM);
        }
      });
      matmul_transposed(query_.data(), rows_.data(), logits_.data(), queries, width, AS_HEAD_DIM,
                        precision_.fp32_sums);
    }
    std::vector<double> lse(static_cast<std::size_t>(queries));
    for_rows(queries, kGrain, [&](std::int64_t begin, std::int64_t end) {
      std::vector<double> exponents;
      for (std::int64_t i = begin; i < end; ++i) {
        lse[static_cast<std::size_t>(i)] = softmax(columns_[static_cast<std::size_t>(i / heads_)],
                                                   sinks_[static_cast<std::size_t>(i % heads_)],
                                                   logits_.data() + i * width, width, &exponents);
      }
    });
    precision_.fp32(lse.data(), queries);
    for (std::int64_t i = 0; i < block_tokens; ++i) {
      lse_.store(first + i, lse.data() + i * heads_);
    }
    if (width > 0) {
      matmul(logits_.data(), rows_.data(), out_.data(), queries, AS_HEAD_DIM, width,
             precision_.fp32_sums);
    }
    for_rows(queries, kGrain, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i) {
        precision_.bf16(out_.data() + i * AS_HEAD_DIM, AS_HEAD_DIM);
        o_.store(first * heads_ + i, out_.data() + i * AS_HEAD_DIM);
      }
    });
  }

  // Turns one row of products into probabilities, zero outside `columns`, and returns the LSE
  // (without the sink). A column listed twice counts twice.
  double softmax(const std::vector<std::int64_t>& columns, double sink, double* row,
                 std::int64_t width, std::vector<double>* exponents) const {
    exponents->clear();
    double max = -kInfinity;
    for (std::int64_t c : columns) {
      exponents->push_back(scale_ * row[c]);
      max = std::fmax(max, exponents->back());
    }
    std::fill_n(row, width, 0.0);
    if (columns.empty()) return kInfinity;
    if (max == -kInfinity) max = 0;
    double sum = 0;
    for (double& l : *exponents) {
      l = std::exp(l - max);
      sum = precision_.sum(sum + l);
    }
    const double denominator = sum + std::exp(sink - max);
    for (std::size_t k = 0; k < columns.size(); ++k) {
      row[columns[k]] += (*exponents)[k] / denominator;
    }
    return max + std::log(sum);
  }

  Precision precision_;
  double scale_;
  FloatRows q_;
  std::int64_t heads_;
  std::vector<double> sinks_;
  FloatRows o_;
  FloatRows lse_;
  Source window_;
  std::unique_ptr<Source> extra_;  // none in SWA-only layers

  std::vector<std::vector<std::int64_t>> columns_;
  std::vector<double> rows_;  // [width,512] distinct rows of the block
  std::vector<double> query_;
  std::vector<double> logits_;
  std::vector<double> out_;
};

}  // namespace

void sparse_attention(const as_sparse_attention_params& p, const Precision& precision) {
  Attention(p, precision).run();
}

}  // namespace attnscope::reference
