#include <cmath>

#include "tests/unit/reference/lane_test.h"
#include "tests/unit/reference/plain_codec.h"

namespace attnscope::reference {
namespace attention_test {

// One call with its own memory. Rows are plain float64 values; every row starts as NaN so that a
// test sees when one is read that should not be.
struct Attention {
  Attention(int tokens, int heads, int rows, int width, int extra_rows = 0, int extra_width = 0)
      : t(tokens),
        h(heads),
        q(static_cast<std::size_t>(tokens * heads * 512), 0.0),
        rows_(static_cast<std::size_t>(rows * 512), kNaN),
        extra_rows_(static_cast<std::size_t>(extra_rows * 512), kNaN),
        indices(static_cast<std::size_t>(tokens * width), -1),
        topk_length(static_cast<std::size_t>(tokens), 0),
        extra_indices(static_cast<std::size_t>(tokens * extra_width), -1),
        extra_topk_length(static_cast<std::size_t>(tokens), 0),
        sinks(static_cast<std::size_t>(heads), -std::numeric_limits<float>::infinity()),
        o(q.size(), -7.0),
        lse(static_cast<std::size_t>(tokens * heads), -7.0),
        p(new_params<as_sparse_attention_params>()) {
    p.q = over(q, {t, h, 512});
    p.cache = logical(rows_, AS_RECORD_LATENT, 512, 512);
    p.indices = over(indices, {t, width});
    p.topk_length = over(topk_length, {t});
    if (extra_rows > 0) {
      p.extra_cache = logical(extra_rows_, AS_RECORD_LATENT, 512, 512);
      p.extra_indices = over(extra_indices, {t, extra_width});
      p.extra_topk_length = over(extra_topk_length, {t});
    }
    p.sinks = over(sinks, {h});
    p.o = over(o, {t, h, 512});
    p.lse = over(lse, {t, h});
    p.scale = 1 / std::sqrt(512.0);
  }

  void set_row(int row, double value) { std::fill_n(rows_.begin() + row * 512, 512, value); }
  double out(int token, int head, int dim = 0) const {
    return o[index_of(token * h + head, 512, dim)];
  }
  double lse_of(int token, int head) const { return lse[index_of(token, h, head)]; }

  int t, h;
  Doubles q, rows_, extra_rows_;
  Int32s indices, topk_length, extra_indices, extra_topk_length;
  std::vector<float> sinks;
  Doubles o, lse;
  as_sparse_attention_params p;
};

class BothLanes : public testing::TestWithParam<bool> {
 protected:
  const Lane* lane() const { return GetParam() ? exact_lane() : sim_lane(); }
};
INSTANTIATE_TEST_SUITE_P(SparseAttention, BothLanes, testing::Bool(), [](const auto& lane) {
  return std::string(lane.param ? "Exact" : "Sim");
});

TEST_P(BothLanes, SinkOfOneEntryWithLogitZero) {
  Attention a(1, 4, 1, 2);
  a.set_row(0, 3);
  a.indices[0] = 0;
  a.topk_length[0] = 1;
  a.sinks = {0.0F, -std::numeric_limits<float>::infinity(), std::numeric_limits<float>::infinity(),
             1e30F};
  a.p.sinks = over(a.sinks, {4});
  run(lane(), AS_OP_SPARSE_ATTENTION, a.p);
  EXPECT_EQ(a.out(0, 0), 1.5);
  EXPECT_EQ(a.out(0, 1), 3);
  EXPECT_EQ(a.out(0, 2), 0);
  EXPECT_EQ(a.out(0, 3), 0);
  for (int h = 0; h < 4; ++h) EXPECT_EQ(a.lse_of(0, h), 0);  // the sink is not in the LSE
}

TEST_P(BothLanes, ASinkIsADecayFactorAndAPartOfTheLse) {
  const float inf = std::numeric_limits<float>::infinity();
  const std::vector<float> sinks = {-inf, inf, 0.0F, 3.0F, -80.0F, 80.0F};
  const auto run_with = [&](const std::vector<float>& values, const char* which) {
    Attention a(1, 6, 3, 3);
    for (int row = 0; row < 3; ++row) {
      a.set_row(row, 0.5 + row);
      a.indices[static_cast<std::size_t>(row)] = row;
    }
    std::fill(a.q.begin(), a.q.end(), 0.25);
    a.topk_length = {3};
    a.sinks = values;
    a.p.sinks = over(a.sinks, {6});
    SCOPED_TRACE(which);
    run(lane(), AS_OP_SPARSE_ATTENTION, a.p);
    return a;
  };
  const Attention without = run_with(std::vector<float>(6, -inf), "without");
  const Attention with = run_with(sinks, "with");
  for (int h = 0; h < 6; ++h) {
    const double lse = without.lse_of(0, h), sink = sinks[static_cast<std::size_t>(h)];
    EXPECT_EQ(with.lse_of(0, h), lse);
    const double decay = 1 / (1 + std::exp(sink - lse));
    const double top = std::max(sink, lse), low = std::min(sink, lse);
    const double merged = std::isinf(sink) ? top : top + std::log1p(std::exp(low - top));
    EXPECT_NEAR(std::exp(lse - merged), decay, 1e-12) << sink;
    const double whole = without.out(0, h);
    EXPECT_NEAR(with.out(0, h), whole * decay, whole * (GetParam() ? 1e-12 : 1.0 / 128)) << sink;
    if (std::isinf(sink)) {
      EXPECT_EQ(with.out(0, h), sink < 0 ? whole : 0.0);
    }
  }
}

TEST_P(BothLanes, SinkOfTwoEntries) {
  Attention a(1, 1, 2, 2);
  a.set_row(0, 3);
  a.set_row(1, 5);
  a.indices = {1, 0};
  a.topk_length[0] = 2;
  a.sinks[0] = std::log(2.0F);
  run(lane(), AS_OP_SPARSE_ATTENTION, a.p);
  EXPECT_NEAR(a.out(0, 0), 2, 1e-7);
  EXPECT_NEAR(a.lse_of(0, 0), std::log(2.0), 1e-7);
}

TEST_P(BothLanes, RowWithoutValidEntries) {
  Attention a(3, 2, 2, 2);
  a.indices = {0, 1, -1, -1, 1, 1};
  a.topk_length = {0, 2, 0};
  run(lane(), AS_OP_SPARSE_ATTENTION, a.p);
  for (double value : a.o) EXPECT_EQ(value, 0);
  for (double value : a.lse) EXPECT_EQ(value, kInf);
}

// Entries beyond topk_length, -1 entries and unlisted rows hold NaN, which must stay where it is.
TEST_P(BothLanes, OnlyListedRowsAreRead) {
  Attention a(2, 1, 6, 4);
  a.set_row(2, 1);
  a.set_row(4, 3);
  a.indices = {2, -1, 4, 0, 4, 1, 1, 1};
  a.topk_length = {3, 1};
  run(lane(), AS_OP_SPARSE_ATTENTION, a.p);
  EXPECT_EQ(a.out(0, 0), 2);
  EXPECT_EQ(a.out(1, 0), 3);
}

// A token that does list a NaN row must not spoil its neighbours, whose blocks hold that row.
TEST_P(BothLanes, NaNReachesOnlyTheTokensThatListIt) {
  Attention a(3, 2, 8, 4);
  for (int row = 0; row < 7; ++row) a.set_row(row, row);
  for (int t = 0; t < 3; ++t) {
    for (int k = 0; k < 4; ++k) a.indices[index_of(t, 4, k)] = k + t;
    a.topk_length[static_cast<std::size_t>(t)] = 4;
  }
  a.indices[7] = 7;
  run(lane(), AS_OP_SPARSE_ATTENTION, a.p);
  EXPECT_EQ(a.out(0, 0), 1.5);
  EXPECT_TRUE(std::isnan(a.out(1, 0)));
  EXPECT_EQ(a.out(2, 1), 3.5);
}

TEST_P(BothLanes, AnEntryListedTwiceCountsTwice) {
  Attention a(1, 1, 2, 3);
  a.set_row(0, 3);
  a.set_row(1, 6);
  a.indices = {0, 1, 0};
  a.topk_length[0] = 3;
  run(lane(), AS_OP_SPARSE_ATTENTION, a.p);
  EXPECT_NEAR(a.out(0, 0), 4, 1e-12);
}

// Against a sum written out for one token and head at a time, over two caches.
TEST_P(BothLanes, EqualsTheFormula) {
  const int tokens = 70;
  const int heads = 3;
  Attention a(tokens, heads, 100, 20, 30, 10);
  a.q = normal(a.q.size(), 1);
  a.p.q = over(a.q, {tokens, heads, 512});
  a.rows_ = normal(a.rows_.size(), 2);
  a.p.cache = logical(a.rows_, AS_RECORD_LATENT, 512, 512);
  a.extra_rows_ = normal(a.extra_rows_.size(), 3);
  a.p.extra_cache = logical(a.extra_rows_, AS_RECORD_LATENT, 512, 512);
  a.sinks = {0.5F, -2.0F, 3.0F};
  a.p.sinks = over(a.sinks, {heads});
  std::mt19937 random(4);
  for (int t = 0; t < tokens; ++t) {
    // First half: sliding windows; second half: scattered lists, as of many requests.
    for (int k = 0; k < 20; ++k) {
      a.indices[index_of(t, 20, k)] = t < 35 ? t + k : static_cast<int>(random() % 100);
    }
    for (int k = 0; k < 10; ++k) {
      a.extra_indices[index_of(t, 10, k)] = static_cast<int>(random() % 31) - 1;
    }
    a.topk_length[static_cast<std::size_t>(t)] = 1 + t % 20;
    a.extra_topk_length[static_cast<std::size_t>(t)] = t % 11;
  }
  run(lane(), AS_OP_SPARSE_ATTENTION, a.p);

  const double tolerance = GetParam() ? 1e-12 : 0x1p-8;
  for (int t = 0; t < tokens; ++t) {
    for (int h = 0; h < heads; ++h) {
      const double* q = a.q.data() + (t * heads + h) * 512;
      double denominator = 0;
      Doubles sum(512, 0.0);
      const auto add = [&](const Doubles& rows, int row) {
        double dot = 0;
        for (int d = 0; d < 512; ++d) dot += q[d] * rows[index_of(row, 512, d)];
        const double e = std::exp(dot * a.p.scale);
        denominator += e;
        for (int d = 0; d < 512; ++d) {
          sum[static_cast<std::size_t>(d)] += e * rows[index_of(row, 512, d)];
        }
      };
      for (int k = 0; k < a.topk_length[static_cast<std::size_t>(t)]; ++k) {
        add(a.rows_, a.indices[index_of(t, 20, k)]);
      }
      for (int k = 0; k < a.extra_topk_length[static_cast<std::size_t>(t)]; ++k) {
        const int row = a.extra_indices[index_of(t, 10, k)];
        if (row >= 0) add(a.extra_rows_, row);
      }
      EXPECT_NEAR(a.lse_of(t, h), std::log(denominator), GetParam() ? 1e-12 : 1e-5);
      denominator += std::exp(static_cast<double>(a.sinks[static_cast<std::size_t>(h)]));
      for (int d = 0; d < 512; d += 37) {
        const double expected = sum[static_cast<std::size_t>(d)] / denominator;
        ASSERT_NEAR(a.out(t, h, d), expected, tolerance * std::fmax(1, std::fabs(expected)));
      }
    }
  }
}

TEST(SparseAttentionSim, ReadsRecordsAndRoundsOnce) {
  Doubles row = normal(512, 9);
  round_to_bf16(row.data(), 512);
  std::vector<Byte> records(2 * 584, 0xFF);
  encode_record(AS_RECORD_LATENT, 512, row.data(), records.data() + 584, records.data() + 1160);
  Doubles decoded(512);
  decode_record(AS_RECORD_LATENT, 512, records.data() + 584, records.data() + 1160, decoded.data());

  Attention a(1, 1, 1, 1);
  a.p.cache = logical(records, AS_RECORD_LATENT, 512, 584);
  a.indices[0] = 1;
  a.topk_length[0] = 1;
  a.sinks[0] = 0;
  std::vector<bf16_t> o(512);
  a.p.o = over(o, {1, 1, 512});
  run(sim_lane(), AS_OP_SPARSE_ATTENTION, a.p);
  for (std::size_t d = 0; d < 512; ++d) {
    EXPECT_EQ(o[d].bits, bf16_bits(decoded[d] / 2));
  }
}

TEST(SparseAttention, RefusesRowsOutsideTheCache) {
  Attention a(1, 1, 2, 2);
  a.indices = {5, 0};
  a.topk_length[0] = 1;
  expect_refused(AS_OP_SPARSE_ATTENTION, a.p, {"sparse_attention", "slot 5", "0 to 1"});
  a.indices[0] = 0;
  a.topk_length[0] = 3;
  expect_refused(AS_OP_SPARSE_ATTENTION, a.p, {"topk_length 3", "0 to 2"});
}

}  // namespace attention_test
}  // namespace attnscope::reference
