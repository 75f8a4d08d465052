// sparse_attention: micro cases, float64 over odd shapes, poisoned rows, holes in lists.
#include <algorithm>
#include <limits>
#include <numeric>
#include <span>

#include "tests/unit/kernels/support.h"

namespace attnscope::kernel_tests {
namespace attention_test {

constexpr float kInf = std::numeric_limits<float>::infinity();

// Two caches full of NaN; rows that lists name get values.
struct Attention {
  std::int64_t tokens, heads, window, extra;
  Array<bf16_t> q, o;
  Array<std::int32_t> indices, topk_length, extra_indices, extra_topk_length;
  Array<float> sinks, lse;
  PagedCache cache, extra_cache;
  Random random{41};

  Attention(std::int64_t t, std::int64_t h, std::int64_t w, std::int64_t k)
      : tokens(t),
        heads(h),
        window(w),
        extra(k),
        q({t, h, 512}),
        o({t, h, 512}, to_bf16(55.0f)),
        indices({t, w}, -1),
        topk_length({t}),
        extra_indices({t, std::max<std::int64_t>(k, 1)}, -1),
        extra_topk_length({t}),
        sinks({h}),
        lse({t, h}, 55.0f),
        cache(AS_RECORD_LATENT, 512, 64, t * w / 64 + 2),
        extra_cache(AS_RECORD_LATENT, 512, 2, t * k / 2 + 2) {
    fill_normal(q, random);
    fill_normal(sinks, random);
    std::fill(cache.bytes().begin(), cache.bytes().end(), 0xff);
    std::fill(extra_cache.bytes().begin(), extra_cache.bytes().end(), 0xff);
  }

  void put_row(PagedCache& to, std::int64_t slot) {
    std::vector<float> row(512);
    for (float& v : row) v = cpu::round_bf16(normal(random));
    to.put(slot, row.data());
  }
  // n entries at scattered slots; entries of the list behind them stay garbage.
  void fill_window(std::int64_t t, std::int32_t n) {
    topk_length[t] = n;
    for (std::int64_t k = 0; k < window; ++k) {
      const std::int64_t slot = k < n ? (t * window + (k * 37) % window) : 1 << 30;
      indices[t * window + k] = static_cast<std::int32_t>(slot);
      if (k < n) put_row(cache, slot);
    }
  }
  void fill_extra(std::int64_t t, std::int32_t n) {
    extra_topk_length[t] = n;
    for (std::int64_t k = 0; k < n; ++k) {
      extra_indices[t * extra + k] = static_cast<std::int32_t>(t * extra + k);
      put_row(extra_cache, t * extra + k);
    }
  }

  as_sparse_attention_params params() {
    auto p = make_params<as_sparse_attention_params>();
    p.q = q.tensor;
    p.cache = cache.view();
    p.indices = indices.tensor;
    p.topk_length = topk_length.tensor;
    if (extra > 0) {
      p.extra_cache = extra_cache.view();
      p.extra_indices = extra_indices.tensor;
      p.extra_topk_length = extra_topk_length.tensor;
    }
    p.sinks = sinks.tensor;
    p.o = o.tensor;
    p.lse = lse.tensor;
    p.scale = 1.0 / std::sqrt(512.0);
    return p;
  }

  // All values and the LSE in float64.
  void check() {
    for (std::int64_t t = 0; t < tokens; ++t) {
      std::vector<std::vector<float>> rows;
      for (std::int64_t k = 0; k < topk_length[t]; ++k) {
        if (indices[t * window + k] >= 0) rows.push_back(cache.get(indices[t * window + k]));
      }
      for (std::int64_t k = 0; extra > 0 && k < extra_topk_length[t]; ++k) {
        const std::int32_t slot = extra_indices[t * extra + k];
        if (slot >= 0) rows.push_back(extra_cache.get(slot));
      }
      for (std::int64_t h = 0; h < heads; ++h) check_head(t, h, rows);
    }
  }

  void check_head(std::int64_t t, std::int64_t h, const std::vector<std::vector<float>>& rows) {
    const bf16_t* query = &q[(t * heads + h) * 512];
    const bf16_t* got = &o[(t * heads + h) * 512];
    if (rows.empty()) {
      EXPECT_EQ(lse[t * heads + h], kInf);
      for (int d = 0; d < 512; ++d) ASSERT_EQ(got[d].bits, 0);
      return;
    }
    std::vector<double> logits;
    for (const auto& row : rows) {
      double dot = 0.0;
      for (std::size_t d = 0; d < 512; ++d) {
        dot += static_cast<double>(to_float(query[d])) * static_cast<double>(row[d]);
      }
      logits.push_back(dot / std::sqrt(512.0));
    }
    const double largest = *std::max_element(logits.begin(), logits.end());
    double sum = 0.0;
    for (double l : logits) sum += std::exp(l - largest);
    ASSERT_NEAR(static_cast<double>(lse[t * heads + h]), largest + std::log(sum), 2e-6);
    const double total = sum + std::exp(static_cast<double>(sinks[h]) - largest);
    for (std::size_t d = 0; d < 512; ++d) {
      double value = 0.0;
      for (std::size_t i = 0; i < rows.size(); ++i) {
        value += std::exp(logits[i] - largest) / total * static_cast<double>(rows[i][d]);
      }
      // Half a step of bf16, and a little for the sum.
      const double tolerance = std::fabs(value) / 256 + 1e-5;
      ASSERT_NEAR(static_cast<double>(to_float(got[d])), value, tolerance) << t << " " << h;
    }
  }
};

// One or two entries with logit 0 (the query is zero) and constant values.
double micro(const std::vector<float>& values, float sink) {
  Attention s(1, 1, 4, 0);
  for (bf16_t& v : s.q.values) v = to_bf16(0.0f);
  s.sinks[0] = sink;
  s.topk_length[0] = static_cast<std::int32_t>(values.size());
  for (std::size_t i = 0; i < values.size(); ++i) {
    const std::vector<float> row(512, values[i]);
    s.cache.put(static_cast<std::int64_t>(i), row.data());
    s.indices[static_cast<std::int64_t>(i)] = static_cast<std::int32_t>(i);
  }
  EXPECT_OK(run(AS_OP_SPARSE_ATTENTION, s.params()));
  EXPECT_NEAR(static_cast<double>(s.lse[0]), std::log(static_cast<double>(values.size())), 1e-7);
  for (bf16_t v : s.o.values) EXPECT_EQ(v.bits, s.o[0].bits);
  return static_cast<double>(to_float(s.o[0]));
}

TEST(SparseAttention, SinkMicroCases) {
  EXPECT_EQ(micro({3.0f}, 0.0f), 1.5);
  EXPECT_EQ(micro({3.0f}, -kInf), 3.0);
  EXPECT_EQ(micro({3.0f}, kInf), 0.0);
  EXPECT_EQ(micro({3.0f}, 200.0f), 0.0);  // beyond what fp32 exponents hold
  EXPECT_EQ(micro({1.0f, 3.0f}, std::log(2.0f)), 1.0);
}

TEST(SparseAttention, MatchesFloat64OverLengthsAndHeads) {
  for (std::int64_t heads : {1, 3, 8, 64, 65}) {
    Attention s(4, heads, 128, 130);
    const std::int32_t window_lens[] = {0, 1, 127, 128};
    const std::int32_t extra_topk_length[] = {0, 130, 64, 63};
    for (std::int64_t t = 0; t < 4; ++t) {
      s.fill_window(t, window_lens[t]);
      s.fill_extra(t, extra_topk_length[t]);
    }
    EXPECT_OK(run(AS_OP_SPARSE_ATTENTION, s.params()));
    s.check();
  }
}

TEST(SparseAttention, WindowOnly) {
  Attention s(3, 8, 128, 0);
  for (std::int32_t t = 0; t < 3; ++t) s.fill_window(t, 60 + 4 * t);
  EXPECT_OK(run(AS_OP_SPARSE_ATTENTION, s.params()));
  s.check();
}

TEST(SparseAttention, SelectedEntriesOnly) {
  Attention s(1, 8, 128, 512);
  s.fill_extra(0, 512);
  EXPECT_OK(run(AS_OP_SPARSE_ATTENTION, s.params()));
  s.check();
}

TEST(SparseAttention, HolesInListsAreSkipped) {
  Attention s(2, 8, 128, 64);
  s.fill_window(0, 100);
  s.fill_extra(0, 64);
  s.fill_window(1, 5);
  s.fill_extra(1, 3);
  for (std::int64_t k : {0, 3, 50, 99}) s.indices[k] = -1;
  for (std::int64_t k : {1, 63}) s.extra_indices[k] = -1;
  for (std::int64_t k = 0; k < 5; ++k) s.indices[128 + k] = -1;  // a list of holes only
  EXPECT_OK(run(AS_OP_SPARSE_ATTENTION, s.params()));
  s.check();
}

TEST(SparseAttention, PeakedAndFarApartLogits) {
  Attention s(1, 8, 128, 0);
  for (bf16_t& v : s.q.values) v = to_bf16(30.0f * to_float(v));  // logits of some hundreds
  s.fill_window(0, 128);
  EXPECT_OK(run(AS_OP_SPARSE_ATTENTION, s.params()));
  for (std::int64_t h = 0; h < 8; ++h) {
    EXPECT_TRUE(std::isfinite(s.lse[h]));
    for (std::int64_t d = 0; d < 512; ++d) ASSERT_TRUE(std::isfinite(to_float(s.o[h * 512 + d])));
  }
}

TEST(SparseAttention, ExtremeSinks) {
  Attention s(1, 4, 128, 0);
  s.fill_window(0, 77);
  s.sinks.values = {-kInf, kInf, 0.0f, 50.0f};
  EXPECT_OK(run(AS_OP_SPARSE_ATTENTION, s.params()));
  s.check();
}

// What a sink leaves of the output without one, in the two forms that kernels use: a decay factor,
// 1 / (1 + e^(sink - lse)), and e^(lse - merged) with the sink merged into the LSE.
TEST(SparseAttention, ASinkIsADecayFactorAndAPartOfTheLse) {
  const std::vector<float> sinks = {-kInf, kInf, 0.0f, 3.0f, -80.0f, 80.0f, 1.5f, -2.0f};
  Attention with(1, 8, 128, 64), without(1, 8, 128, 64);
  for (Attention* s : {&with, &without}) {
    s->fill_window(0, 77);
    s->fill_extra(0, 40);
  }
  without.sinks.values.assign(8, -kInf);
  with.sinks.values = sinks;
  EXPECT_OK(run(AS_OP_SPARSE_ATTENTION, with.params()));
  EXPECT_OK(run(AS_OP_SPARSE_ATTENTION, without.params()));
  for (std::int64_t h = 0; h < 8; ++h) {
    const double lse = without.lse[h], sink = sinks[static_cast<std::size_t>(h)];
    EXPECT_EQ(with.lse[h], without.lse[h]) << "the LSE is without the sink";
    const double decay = 1 / (1 + std::exp(sink - lse));
    const double merged = std::isinf(sink)
                              ? std::max(sink, lse)
                              : std::max(sink, lse) + std::log1p(std::exp(-std::fabs(sink - lse)));
    EXPECT_NEAR(std::exp(lse - merged), decay, 1e-12) << sink;
    for (std::int64_t d = 0; d < 512; ++d) {
      const double whole = to_float(without.o[h * 512 + d]), left = to_float(with.o[h * 512 + d]);
      ASSERT_NEAR(left, whole * decay, std::fabs(whole * decay) / 128 + 1e-7) << sink;
      if (std::isinf(sink)) {
        ASSERT_EQ(left, sink < 0 ? whole : 0.0) << sink;
      }
    }
  }
}

TEST(SparseAttention, TokensGiveTheSameBytesAloneAndInABatch) {
  Attention s(3, 16, 128, 64);
  for (std::int32_t t = 0; t < 3; ++t) {
    s.fill_window(t, 128 - t);
    s.fill_extra(t, 64 - t);
  }
  EXPECT_OK(run(AS_OP_SPARSE_ATTENTION, s.params()));
  for (std::int64_t t = 0; t < 3; ++t) {
    Array<bf16_t> o({1, 16, 512});
    Array<float> lse({1, 16});
    auto p = s.params();
    p.q = make_tensor(&s.q[t * 16 * 512], {1, 16, 512});
    p.indices = make_tensor(&s.indices[t * 128], {1, 128});
    p.topk_length = make_tensor(&s.topk_length[t], {1});
    p.extra_indices = make_tensor(&s.extra_indices[t * 64], {1, 64});
    p.extra_topk_length = make_tensor(&s.extra_topk_length[t], {1});
    p.o = o.tensor;
    p.lse = lse.tensor;
    EXPECT_OK(run(AS_OP_SPARSE_ATTENTION, p));
    EXPECT_EQ(std::memcmp(o.values.data(), &s.o[t * 16 * 512], 16 * 512 * 2), 0);
    EXPECT_TRUE(std::ranges::equal(std::as_bytes(std::span(lse.values)),
                                   std::as_bytes(std::span(&s.lse[t * 16], 16))));
  }
}

}  // namespace attention_test
}  // namespace attnscope::kernel_tests
