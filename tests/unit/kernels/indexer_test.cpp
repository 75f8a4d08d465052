// indexer_q and indexer_logits.
#include <limits>
#include <numeric>

#include "tests/unit/kernels/support.h"

namespace attnscope::kernel_tests {
namespace indexer_test {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

struct Queries {
  std::int64_t tokens, heads, bytes;
  Array<bf16_t> q_raw, weights_raw, q_row;
  Array<std::int64_t> positions;
  Array<std::uint8_t> q, q_scale;
  Array<float> weights;
  Rope rope{3000};
  std::int32_t format;

  Queries(std::int32_t record, std::int64_t t, std::int64_t j)
      : tokens(t),
        heads(j),
        bytes(record == AS_RECORD_INDEX_FP8 ? 128 : 64),
        q_raw({t, j, 128}),
        weights_raw({t, j}),
        q_row({t, j, 128}),
        positions({t}),
        q({t, j, bytes}),
        q_scale({t, j, 4}),
        weights({t, j}),
        format(record) {
    Random random(31);
    fill_normal(q_raw, random, 2.0f);
    fill_normal(weights_raw, random);
    for (std::int64_t i = 0; i < t; ++i) positions[i] = (i * 997) % 3000;
  }
  as_indexer_q_params params() {
    auto p = make_params<as_indexer_q_params>();
    p.q_raw = q_raw.tensor;
    p.weights_raw = weights_raw.tensor;
    p.positions = positions.tensor;
    p.rope = rope.view();
    p.q_row = q_row.tensor;
    p.q = q.tensor;
    p.q_scale = q_scale.tensor;
    p.weights = weights.tensor;
    p.format = format;
    return p;
  }
};

TEST(IndexerQ, RotatedRowsAreQuantisedAndScalesFoldedIntoWeights) {
  for (std::int32_t format : {AS_RECORD_INDEX_FP8, AS_RECORD_INDEX_MXFP4}) {
    for (std::int32_t hadamard : {AS_HADAMARD_OFF, AS_HADAMARD_ON, AS_HADAMARD_ROUNDED}) {
      Queries s(format, 3, 5);
      auto p = s.params();
      p.hadamard = hadamard;
      EXPECT_OK(run(AS_OP_INDEXER_Q, p));
      for (std::int64_t item = 0; item < 15; ++item) {
        const float* turn = at<float>(s.rope.view().table, s.positions[item / 5]);
        std::vector<double> x(128);
        for (std::int64_t i = 0; i < 128; ++i) {
          x[i] = static_cast<double>(to_float(s.q_raw[item * 128 + i]));
        }
        for (std::size_t i = 0; i < 32; ++i) {
          const double e = x[64 + 2 * i], o = x[65 + 2 * i];
          const double c = static_cast<double>(turn[i]), n = static_cast<double>(turn[32 + i]);
          x[64 + 2 * i] = e * c - o * n;
          x[65 + 2 * i] = e * n + o * c;
        }
        if (hadamard == AS_HADAMARD_ROUNDED) {
          for (double& v : x) v = static_cast<double>(cpu::round_bf16(v));
        }
        if (hadamard != 0) {
          std::vector<double> y(128, 0.0);
          for (std::size_t a = 0; a < 128; ++a) {
            for (std::size_t b = 0; b < 128; ++b) {
              y[a] += __builtin_parityll(a & b) != 0 ? -x[b] : x[b];
            }
            y[a] /= std::sqrt(128.0);
          }
          x = y;
        }
        std::vector<float> row(128);
        for (std::int64_t i = 0; i < 128; ++i) {
          const bf16_t got = s.q_row[item * 128 + i];
          row[i] = to_float(got);
          ASSERT_TRUE(bf16_steps(got, x[i]) <= 1 ||
                      std::fabs(static_cast<double>(row[i]) - x[i]) < 1e-5)
              << i;
        }
        unsigned char payload[128], scales[4];
        cpu::quantise_row(format, 128, row.data(), payload, scales);
        const auto bytes = static_cast<std::size_t>(s.bytes);
        EXPECT_EQ(std::memcmp(payload, &s.q[item * s.bytes], bytes), 0);
        float scale = 1.0f;
        if (format == AS_RECORD_INDEX_FP8) {
          std::memcpy(&scale, scales, 4);
        } else {
          EXPECT_EQ(std::memcmp(scales, &s.q_scale[item * 4], 4), 0);
        }
        const float w = to_float(s.weights_raw[item]) * scale *
                        static_cast<float>(1.0 / std::sqrt(128.0)) *
                        static_cast<float>(1.0 / std::sqrt(5.0));
        EXPECT_EQ(s.weights[item], w);
      }
    }
  }
}

TEST(IndexerQ, RowsGivenGiveTheSameBytes) {
  Queries made(AS_RECORD_INDEX_FP8, 4, 8), given(AS_RECORD_INDEX_FP8, 4, 8);
  EXPECT_OK(run(AS_OP_INDEXER_Q, made.params()));
  auto p = given.params();
  p.q_raw = p.positions = no_tensor();
  p.q_row = made.q_row.tensor;
  p.rows_given = 1;
  EXPECT_OK(run(AS_OP_INDEXER_Q, p));
  EXPECT_EQ(made.q.values, given.q.values);
  EXPECT_EQ(made.weights.values, given.weights.values);
}

// Two requests with tables of their own, padding in between, a cache whose other rows are NaN.
struct Logits {
  static constexpr std::int64_t kRows = 64;
  std::int64_t tokens, heads, width;
  Queries queries;
  Array<std::int32_t> table, token_to_req, lens;
  PagedCache cache;
  Array<float> logits;

  Logits(std::int32_t record, std::vector<std::int32_t> visible, std::vector<std::int32_t> owner,
         std::int64_t j, std::int64_t n)
      : tokens(static_cast<std::int64_t>(visible.size())),
        heads(j),
        width(n),
        queries(record, tokens, j),
        table({2, n / kRows + 1}),
        token_to_req({tokens}, std::move(owner)),
        lens({tokens}, std::move(visible)),
        cache(record, 128, kRows, 2 * (n / kRows + 1) + 1),
        logits({tokens, n}, -77.0f) {
    EXPECT_OK(run(AS_OP_INDEXER_Q, queries.params()));
    const std::int64_t columns = n / kRows + 1;
    for (std::int64_t i = 0; i < 2 * columns; ++i) {
      table[i] = static_cast<std::int32_t>(2 * columns - i);
    }
    std::fill(cache.bytes().begin(), cache.bytes().end(), 0xff);  // NaN codes, NaN scales
    Random random(32);
    for (std::int64_t r = 0; r < 2; ++r) {
      std::int64_t longest = 0;
      for (std::int64_t t = 0; t < tokens; ++t) {
        if (token_to_req[t] == r) longest = std::max<std::int64_t>(longest, lens[t]);
      }
      for (std::int64_t c = 0; c < longest; ++c) {
        std::vector<float> key(128);
        for (float& v : key) v = cpu::round_bf16(normal(random));
        cache.put(slot(r, c), key.data());
      }
    }
  }
  std::int64_t slot(std::int64_t r, std::int64_t c) {
    return table[r * (width / kRows + 1) + c / kRows] * kRows + c % kRows;
  }
  as_indexer_logits_params params() {
    auto p = make_params<as_indexer_logits_params>();
    p.q = queries.q.tensor;
    p.q_scale = queries.q_scale.tensor;
    p.weights = queries.weights.tensor;
    p.cache = cache.view();
    p.table = table.tensor;
    p.token_to_req = token_to_req.tensor;
    p.lens = lens.tensor;
    p.logits = logits.tensor;
    return p;
  }
  double exact(std::int64_t t, std::int64_t c) {
    const std::vector<float> key = cache.get(slot(token_to_req[t], c));
    double score = 0.0;
    const unsigned char* one = reinterpret_cast<const unsigned char*>("\x00\x00\x80\x3f");
    for (std::int64_t j = 0; j < heads; ++j) {
      const std::int64_t item = t * heads + j;
      std::vector<float> q(128);
      const bool fp8 = queries.format == AS_RECORD_INDEX_FP8;
      cpu::decode_row(queries.format, 128, &queries.q[item * queries.bytes],
                      fp8 ? one : &queries.q_scale[item * 4], q.data());
      double dot = 0.0;
      for (std::size_t d = 0; d < 128; ++d) {
        dot += static_cast<double>(q[d]) * static_cast<double>(key[d]);
      }
      score += std::max(dot, 0.0) * static_cast<double>(queries.weights[item]);
    }
    return score;
  }
};

void expect_exact(Logits& s) {
  for (std::int64_t t = 0; t < s.tokens; ++t) {
    double largest = 0.0;
    for (std::int64_t c = 0; c < s.lens[t]; ++c)
      largest = std::max(largest, std::fabs(s.exact(t, c)));
    for (std::int64_t c = 0; c < s.width; ++c) {
      const float got = s.logits[t * s.width + c];
      if (c >= s.lens[t]) {
        ASSERT_EQ(got, -77.0f);  // not written
      } else {
        ASSERT_NEAR(static_cast<double>(got), s.exact(t, c), 2e-6 * largest) << t << " " << c;
      }
    }
  }
}

TEST(IndexerLogits, MatchesFloat64InBothFormats) {
  for (std::int32_t record : {AS_RECORD_INDEX_FP8, AS_RECORD_INDEX_MXFP4}) {
    for (std::int64_t heads : {1, 8, 64}) {
      Logits s(record, {0, 1, 63, 64, 65, 0, 0, 130, 131}, {0, 0, 0, 0, 0, -1, 1, 1, 1}, heads,
               140);
      EXPECT_OK(run(AS_OP_INDEXER_LOGITS, s.params()));
      expect_exact(s);
    }
  }
}

TEST(IndexerLogits, LongRowsAreCutIntoWorkItems) {
  Logits s(AS_RECORD_INDEX_FP8, {2049, 2050}, {1, 1}, 4, 2050);
  EXPECT_OK(run(AS_OP_INDEXER_LOGITS, s.params()));
  expect_exact(s);
}

TEST(IndexerLogits, RowsGiveTheSameBytesAloneAndInABatch) {
  Logits s(AS_RECORD_INDEX_FP8, {90, 90, 91, 91, 92}, {0, 0, 0, 0, 0}, 8, 100);
  EXPECT_OK(run(AS_OP_INDEXER_LOGITS, s.params()));
  for (std::int64_t t = 0; t < s.tokens; ++t) {
    Array<float> alone({1, 100}, kNan);
    auto p = s.params();
    p.q = make_tensor(&s.queries.q[t * 8 * 128], {1, 8, 128});
    p.weights = make_tensor(&s.queries.weights[t * 8], {1, 8});
    p.token_to_req = make_tensor(&s.token_to_req[t], {1});
    p.lens = make_tensor(&s.lens[t], {1});
    p.logits = alone.tensor;
    EXPECT_OK(run(AS_OP_INDEXER_LOGITS, p));
    for (std::int64_t c = 0; c < s.lens[t]; ++c) ASSERT_EQ(alone[c], s.logits[t * 100 + c]);
  }
}

TEST(IndexerLogits, ReadsLogicalRows) {
  Logits s(AS_RECORD_INDEX_FP8, {70, 80}, {0, 1}, 8, 100);
  EXPECT_OK(run(AS_OP_INDEXER_LOGITS, s.params()));
  const std::vector<float> paged = s.logits.values;
  std::vector<std::uint8_t> rows(200 * 132);
  for (std::int64_t r = 0; r < 2; ++r) {
    for (std::int64_t c = 0; c < 80; ++c) {
      const as_row_address from = s.cache.row(s.slot(r, c));
      std::memcpy(&rows[static_cast<std::size_t>((5 + 100 * r + c) * 132)], from.payload, 128);
      std::memcpy(&rows[static_cast<std::size_t>((5 + 100 * r + c) * 132 + 128)], from.scales, 4);
    }
  }
  Array<std::int32_t> first_rows({2, 1}, {5, 105});
  auto p = s.params();
  p.table = first_rows.tensor;
  p.cache.addressing = AS_LOGICAL;
  p.cache.rows_per_block = 0;
  p.cache.data = make_tensor(rows.data(), {200, 132});
  EXPECT_OK(run(AS_OP_INDEXER_LOGITS, p));
  EXPECT_EQ(s.logits.values, paged);
}

}  // namespace indexer_test
}  // namespace attnscope::kernel_tests
