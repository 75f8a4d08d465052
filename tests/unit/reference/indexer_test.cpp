#include <algorithm>
#include <cmath>
#include <cstring>

#include "reference/rope.h"
#include "tests/unit/reference/lane_test.h"
#include "tests/unit/reference/plain_codec.h"

namespace attnscope::reference {
namespace indexer_test {

struct Topk {
  Topk(Doubles scores_, Int32s lens_, int k)
      : scores(std::move(scores_)),
        lens(std::move(lens_)),
        indices(lens.size() * static_cast<std::size_t>(k), -9) {
    auto p = new_params<as_indexer_topk_params>();
    const auto t = static_cast<std::int64_t>(lens.size());
    p.logits = over(scores, {t, static_cast<std::int64_t>(scores.size()) / t});
    p.lens = over(lens, {t});
    p.indices = over(indices, {t, k});
    run(sim_lane(), AS_OP_INDEXER_TOPK, p);
  }
  Doubles scores;
  Int32s lens, indices;
};

TEST(IndexerTopk, BestEntriesInAscendingOrder) {
  EXPECT_EQ(Topk({1, 5, 3, 4, 2}, {5}, 3).indices, (Int32s{1, 2, 3}));
  EXPECT_EQ(Topk({1, 5, 3, 4, 2}, {5}, 1).indices, (Int32s{1}));
}

TEST(IndexerTopk, ShortRowsAreFilledWithMinusOne) {
  EXPECT_EQ(Topk({1, 5, 3, 9, 9, 9}, {2, 0}, 3).indices, (Int32s{0, 1, -1, -1, -1, -1}));
}

TEST(IndexerTopk, TheLowestEntryWinsATie) {
  EXPECT_EQ(Topk({2, 7, 2, 2, 7, 2}, {6}, 4).indices, (Int32s{0, 1, 2, 4}));
  EXPECT_EQ(Topk({-0.0, 0.0, -0.0, 0.0}, {4}, 2).indices, (Int32s{0, 1}));
}

TEST(IndexerTopk, NaNNeverWinsOverANumber) {
  EXPECT_EQ(Topk({kNaN, -kInf, kNaN, 1, -5}, {5}, 3).indices, (Int32s{1, 3, 4}));
  EXPECT_EQ(Topk({kNaN, -kInf, kNaN, 1, -5}, {5}, 4).indices, (Int32s{0, 1, 3, 4}));
  EXPECT_EQ(Topk({kNaN, kNaN}, {2}, 1).indices, (Int32s{0}));
}

TEST(Sample, GreedyWithTiesAndNaN) {
  auto p = new_params<as_sample_params>();
  Doubles logits = {1,    3,    3,    0,    kNaN,  -1,   -kInf, -1,
                    kNaN, kNaN, kNaN, kNaN, -kInf, kNaN, -kInf, kNaN};
  Int32s tokens(4, -9);
  p.logits = over(logits, {4, 4});
  p.tokens = over(tokens, {4});
  run(exact_lane(), AS_OP_SAMPLE, p);
  EXPECT_EQ(tokens, (Int32s{1, 1, -1, 0}));
}

// Queries and scores of a small indexer through both formats.
struct Indexer {
  static constexpr int kTokens = 5;
  static constexpr int kHeads = 3;
  static constexpr int kEntries = 9;

  Indexer()
      : q_raw(normal(kTokens * kHeads * 128, 1)),
        weights_raw(normal(kTokens * kHeads, 2)),
        keys(normal(kEntries * 128, 3)),
        q_row(q_raw.size(), kNaN),
        p(new_params<as_indexer_q_params>()),
        lp(new_params<as_indexer_logits_params>()) {
    round_to_bf16(q_raw.data(), static_cast<std::int64_t>(q_raw.size()));
    round_to_bf16(weights_raw.data(), static_cast<std::int64_t>(weights_raw.size()));
    round_to_bf16(keys.data(), static_cast<std::int64_t>(keys.size()));
    p.q_raw = over(q_raw, {kTokens, kHeads, 128});
    p.weights_raw = over(weights_raw, {kTokens, kHeads});
    p.positions = over(positions, {kTokens});
    p.rope = compress_rope();
    p.q_row = over(q_row, {kTokens, kHeads, 128});
    p.weights = over(weights, {kTokens, kHeads});
    p.format = AS_RECORD_INDEX_FP8;
    lp.weights = p.weights;
    lp.table = over(table, {2, 1});
    lp.token_to_req = over(token_to_req, {kTokens});
    lp.lens = over(lens, {kTokens});
    lp.logits = over(logits, {kTokens, 6});
  }

  // q as codes of p.format, and the keys as records of it.
  void use_codes() {
    const bool fp8 = p.format == AS_RECORD_INDEX_FP8;
    codes.assign(kTokens * kHeads * (fp8 ? 128 : 64), 0xEE);
    p.q = over(codes, {kTokens, kHeads, fp8 ? 128 : 64});
    if (!fp8) p.q_scale = over(scales, {kTokens, kHeads, 4});
    const std::size_t bytes = fp8 ? 132 : 68;
    records.assign(kEntries * bytes, 0);
    for (std::size_t c = 0; c < kEntries; ++c) {
      Byte* payload = records.data() + c * bytes;
      encode_record(p.format, 128, keys.data() + c * 128, payload, payload + bytes - 4);
    }
    lp.q = p.q;
    lp.q_scale = p.q_scale;
    lp.cache = logical(records, p.format, 128, static_cast<std::int64_t>(bytes));
  }
  void use_values() {
    q_values.assign(q_raw.size(), kNaN);
    p.q = over(q_values, {kTokens, kHeads, 128});
    p.q_scale = no_tensor();
    lp.q = p.q;
    lp.q_scale = no_tensor();
    lp.cache = logical(keys, AS_RECORD_INDEX_FP8, 128, 128);
  }

  Doubles q_raw, weights_raw, keys, q_row, q_values;
  Doubles weights = Doubles(kTokens * kHeads, kNaN);
  Int64s positions = {0, 7, 8, 23, 24};
  Int32s table = {0, 3};
  Int32s token_to_req = {0, 0, 1, 1, -1};
  Int32s lens = {0, 2, 2, 6, 0};
  Doubles logits = Doubles(kTokens * 6, -7.0);
  std::vector<Byte> codes, records;
  std::vector<Byte> scales = std::vector<Byte>(kTokens * kHeads * 4);
  as_indexer_q_params p;
  as_indexer_logits_params lp;
};

TEST(IndexerQ, Fp8CodesAndFoldedScale) {
  Indexer x;
  x.use_codes();
  run(sim_lane(), AS_OP_INDEXER_Q, x.p);
  const auto f = rope_frequencies(compress_rope());
  for (std::size_t i = 0; i < Indexer::kTokens * Indexer::kHeads; ++i) {
    Doubles row(x.q_raw.begin() + static_cast<std::ptrdiff_t>(i) * 128,
                x.q_raw.begin() + static_cast<std::ptrdiff_t>(i + 1) * 128);
    const RopeRow turn = rope_row(f, x.positions[i / Indexer::kHeads], false);
    for (std::size_t k = 0; k < 32; ++k) {
      const double a = row[64 + 2 * k], b = row[65 + 2 * k];
      row[64 + 2 * k] = a * turn.cos[k] - b * turn.sin[k];
      row[65 + 2 * k] = a * turn.sin[k] + b * turn.cos[k];
    }
    round_to_bf16(row.data(), 128);
    const int e = fp8_scale_exponent(abs_max(row.data(), 128));
    for (std::size_t k = 0; k < 128; ++k) {
      EXPECT_EQ(x.q_row[i * 128 + k], row[k]);
      EXPECT_EQ(x.codes[i * 128 + k], e4m3_code(std::ldexp(row[k], -e)));
    }
    const auto raw = static_cast<float>(x.weights_raw[i]);
    const float step = raw * std::ldexp(1.0F, e) * static_cast<float>(1 / std::sqrt(128.0));
    EXPECT_EQ(x.weights[i], step * static_cast<float>(1 / std::sqrt(3.0)));
  }
}

TEST(IndexerQ, Mxfp4WeightsCarryNoScale) {
  Indexer x;
  x.p.format = AS_RECORD_INDEX_MXFP4;
  x.use_codes();
  run(sim_lane(), AS_OP_INDEXER_Q, x.p);
  for (std::size_t i = 0; i < x.weights.size(); ++i) {
    const float step =
        static_cast<float>(x.weights_raw[i]) * static_cast<float>(1 / std::sqrt(128.0));
    EXPECT_EQ(x.weights[i], step * static_cast<float>(1 / std::sqrt(3.0)));
    Byte codes[64];
    Byte scales[4];
    encode_mxfp4(x.q_row.data() + i * 128, 128, codes, scales);
    EXPECT_EQ(std::memcmp(codes, x.codes.data() + i * 64, 64), 0);
    EXPECT_EQ(std::memcmp(scales, x.scales.data() + i * 4, 4), 0);
  }
}

// The transform is orthogonal: it keeps every product of a query with itself and its neighbours.
TEST(IndexerQ, HadamardKeepsProducts) {
  Indexer plain, turned;
  turned.p.hadamard = 1;
  for (Indexer* x : {&plain, &turned}) {
    x->use_values();
    run(exact_lane(), AS_OP_INDEXER_Q, x->p);
  }
  const auto product = [](const Doubles& q, std::size_t a, std::size_t b) {
    double sum = 0;
    for (std::size_t k = 0; k < 128; ++k) sum += q[a * 128 + k] * q[b * 128 + k];
    return sum;
  };
  EXPECT_NE(plain.q_values, turned.q_values);
  for (std::size_t i = 0; i + 1 < Indexer::kTokens * Indexer::kHeads; ++i) {
    EXPECT_NEAR(product(plain.q_values, i, i), product(turned.q_values, i, i), 1e-11);
    EXPECT_NEAR(product(plain.q_values, i, i + 1), product(turned.q_values, i, i + 1), 1e-11);
  }
}

TEST(IndexerQ, GivenRowsAreQuantisedAsTheyAre) {
  Indexer x;
  x.use_codes();
  run(sim_lane(), AS_OP_INDEXER_Q, x.p);
  const std::vector<Byte> codes = x.codes;
  const Doubles weights = x.weights;
  x.use_codes();
  x.p.rows_given = 1;
  x.p.q_raw = x.p.positions = no_tensor();
  run(sim_lane(), AS_OP_INDEXER_Q, x.p);
  EXPECT_EQ(x.codes, codes);
  EXPECT_EQ(x.weights, weights);
}

// Scores of each form against the sum written out over decoded queries and keys.
TEST(IndexerLogits, EqualTheFormula) {
  for (int form = 0; form < 3; ++form) {
    Indexer x;
    x.p.format = form == 1 ? AS_RECORD_INDEX_MXFP4 : AS_RECORD_INDEX_FP8;
    const Lane* lane = form == 2 ? exact_lane() : sim_lane();
    form == 2 ? x.use_values() : x.use_codes();
    run(lane, AS_OP_INDEXER_Q, x.p);
    run(lane, AS_OP_INDEXER_LOGITS, x.lp);
    for (int t = 0; t < Indexer::kTokens; ++t) {
      for (int c = 0; c < 6; ++c) {
        const double logit = x.logits[index_of(t, 6, c)];
        if (c >= x.lens[static_cast<std::size_t>(t)]) {
          EXPECT_EQ(logit, -7);  // not written
          continue;
        }
        const int row =
            x.table[static_cast<std::size_t>(x.token_to_req[static_cast<std::size_t>(t)])] + c;
        Doubles key(x.keys.begin() + row * 128, x.keys.begin() + (row + 1) * 128);
        if (form < 2) {
          const int bytes = form == 0 ? 132 : 68;
          Byte* payload = x.records.data() + row * bytes;
          decode_record(x.p.format, 128, payload, payload + bytes - 4, key.data());
        }
        double sum = 0;
        for (int j = 0; j < Indexer::kHeads; ++j) {
          const int i = t * Indexer::kHeads + j;
          Doubles q(128);
          if (form == 0) {
            for (int k = 0; k < 128; ++k) {
              q[static_cast<std::size_t>(k)] = e4m3_value(x.codes[index_of(i, 128, k)]);
            }
          } else if (form == 1) {
            decode_mxfp4(x.codes.data() + i * 64, x.scales.data() + i * 4, 128, q.data());
          } else {
            q.assign(x.q_values.begin() + i * 128, x.q_values.begin() + (i + 1) * 128);
          }
          double dot = 0;
          for (std::size_t k = 0; k < 128; ++k) dot += q[k] * key[k];
          sum += std::max(dot, 0.0) * x.weights[static_cast<std::size_t>(i)];
        }
        EXPECT_NEAR(logit, sum, 1e-6 * std::fabs(sum) + 1e-9) << form;
      }
    }
  }
}

// The quantised scores stay near the unquantised ones.
TEST(IndexerLogits, FormsAgree) {
  Indexer exact;
  exact.use_values();
  run(exact_lane(), AS_OP_INDEXER_Q, exact.p);
  run(exact_lane(), AS_OP_INDEXER_LOGITS, exact.lp);
  for (const std::int32_t format : {AS_RECORD_INDEX_FP8, AS_RECORD_INDEX_MXFP4}) {
    Indexer sim;
    sim.p.format = format;
    sim.use_codes();
    run(sim_lane(), AS_OP_INDEXER_Q, sim.p);
    run(sim_lane(), AS_OP_INDEXER_LOGITS, sim.lp);
    double difference = 0;
    double size = 0;
    for (std::size_t i = 0; i < sim.logits.size(); ++i) {
      difference += std::pow(sim.logits[i] - exact.logits[i], 2);
      if (exact.logits[i] != -7) size += std::pow(exact.logits[i], 2);
    }
    EXPECT_LT(difference, size * (format == AS_RECORD_INDEX_FP8 ? 0.01 : 0.1));
    EXPECT_GT(difference, 0);
  }
}

TEST(IndexerLogits, RefusesEntriesBeyondTheCache) {
  Indexer x;
  x.use_codes();
  run(sim_lane(), AS_OP_INDEXER_Q, x.p);
  x.table[1] = 4;
  expect_refused(AS_OP_INDEXER_LOGITS, x.lp, {"indexer_logits", "cache 9", "0 to 8"});
}

}  // namespace indexer_test
}  // namespace attnscope::reference
