// AS_OP_INDEXER_Q and AS_OP_INDEXER_LOGITS, FP8 and MXFP4.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "tests/property/checks.h"

namespace attnscope::properties {
namespace {

constexpr std::int64_t kDim = AS_INDEX_DIM;

// An index query's codes as values; FP8 codes stand for themselves.
void decode_query(std::int32_t record, const as_tensor& q, const as_tensor& scale, std::int64_t t,
                  std::int64_t j, float* out) {
  const float unit = 1.0f;
  const auto* scales = record == AS_RECORD_INDEX_MXFP4
                           ? at<unsigned char>(scale, t, j)
                           : reinterpret_cast<const unsigned char*>(&unit);
  cpu::decode_row(record, kDim, at<unsigned char>(q, t, j), scales, out);
}

std::int64_t code_bytes(std::int32_t record) {
  return record == AS_RECORD_INDEX_MXFP4 ? kDim / 2 : kDim;
}

struct QueryCase {
  std::string name;
  std::int32_t format = AS_RECORD_INDEX_FP8;
  std::vector<std::int64_t> lengths;
  std::int64_t queries = 1;
  std::int64_t heads = 1;
  bool hadamard = false;
  bool round_rotated = false;
  float scale = 1.0f;
};
void PrintTo(const QueryCase& c, std::ostream* out) { *out << c.name; }

class IndexerQProperty : public testing::TestWithParam<QueryCase> {};

TEST_P(IndexerQProperty, MatchesBothReferences) {
  const QueryCase& c = GetParam();
  Report report(case_seed("indexer_q " + c.name));
  Random random(report.seed());
  Memory memory;
  const Tokens tokens = last_tokens(c.lengths, c.queries);
  const std::int64_t n = tokens.size();
  OpParams engine;
  auto& p = engine.init<as_indexer_q_params>(AS_OP_INDEXER_Q);
  p.q_raw = memory.normals(AS_BF16, {n, c.heads, kDim}, random, c.scale, 6);
  p.weights_raw = memory.normals(AS_BF16, {n, c.heads}, random, 1.0f, 1);
  p.positions = memory.ints64(tokens.positions);
  p.rope = compressed_rope();
  p.q_row = memory.make(AS_BF16, {n, c.heads, kDim}, 2);
  p.q = memory.make(AS_U8, {n, c.heads, code_bytes(c.format)}, 3);
  const bool fp4 = c.format == AS_RECORD_INDEX_MXFP4;
  if (fp4) p.q_scale = memory.make(AS_U8, {n, c.heads, 4}, 1);
  p.weights = memory.make(AS_F32, {n, c.heads}, 1);
  p.format = c.format;
  p.hadamard = c.hadamard + c.round_rotated;
  ASSERT_TRUE(run(*cpu::lane(), engine, &report)) << report;
  memory.check_guards(&report);

  const OpParams sim = with_own_outputs(engine, &memory);
  ASSERT_TRUE(run(*reference::sim_lane(), sim, &report)) << report;
  judge(engine, sim, "q_row", &report);
  OpParams given = with_own_outputs(engine, &memory);
  auto& g = given.get<as_indexer_q_params>();
  g.q_row = p.q_row;
  g.rows_given = 1;
  ASSERT_TRUE(run(*reference::sim_lane(), given, &report)) << report;
  judge(engine, given, "q", &report);
  if (fp4) judge(engine, given, "q_scale", &report);
  judge(engine, given, "weights", &report);

  OpParams exact = with_own_outputs(engine, &memory);
  auto& e = exact.get<as_indexer_q_params>();
  e.q = memory.make(AS_F64, {n, c.heads, kDim});
  e.q_scale = no_tensor();
  ASSERT_TRUE(run(*reference::exact_lane(), exact, &report)) << report;
  // One rounding to bf16 and the fp32 angle; the transform spreads the latter over the row.
  const auto row_bound = [&](std::int64_t row, std::int64_t column) {
    const double* values = static_cast<const double*>(e.q.data) + row * kDim;
    double mixed = 0;
    if (c.hadamard) {
      for (std::int64_t i = 0; i < kDim; ++i) mixed = std::hypot(mixed, values[i]);
    } else if (column >= kDim - AS_ROPE_DIM) {
      const std::int64_t even = column - column % 2;
      mixed = std::hypot(values[even], values[even + 1]);
    }
    return 2 * kBf16Half * std::fabs(values[column]) + 0x1p-11 * mixed +
           (c.round_rotated ? 0x1p-8 * mixed : 0) + 0x1p-133;
  };
  judge_bound(
      "q_row against ref.exact", p.q_row, e.q_row, nullptr,
      [&](std::int64_t row, std::int64_t column, double) { return row_bound(row, column); },
      &report);
  // Query times head weight: the FP8 scale sits in the weight.
  as_tensor ours = memory.make(AS_F64, {n, c.heads, kDim});
  as_tensor theirs = memory.make(AS_F64, {n, c.heads, kDim});
  std::vector<float> query(kDim);
  for (std::int64_t i = 0; i < n * c.heads; ++i) {
    const std::int64_t t = i / c.heads;
    const std::int64_t j = i % c.heads;
    decode_query(c.format, p.q, p.q_scale, t, j, query.data());
    for (std::int64_t d = 0; d < kDim; ++d) {
      *at<double>(ours, t, j, d) =
          double{query[static_cast<std::size_t>(d)]} * double{*at<float>(p.weights, t, j)};
      *at<double>(theirs, t, j, d) = *at<double>(e.q, t, j, d) * *at<double>(e.weights, t, j);
    }
  }
  judge_bound(
      "query times weight against ref.exact", ours, theirs, nullptr,
      [&](std::int64_t row, std::int64_t column, double) {
        const double* values = static_cast<const double*>(e.q.data) + row * kDim;
        const double off = row_bound(row, column);
        const double amax = block_amax(c.format, column, values) * (1 + 2 * kBf16Half) + off;
        const double weight = std::fabs(element(e.weights, row / c.heads, row % c.heads));
        const double value = std::fabs(values[column]) + off;
        return weight * (1 + 1e-6) *
               (off + quantisation_step(c.format, column, value, amax) + 1e-6 * value);
      },
      &report);
  EXPECT_TRUE(report.ok()) << report;
}

const QueryCase kQueryCases[] = {
    {"fp8_no_tokens", kFp8, {0}, 1, 8},
    {"fp8_one_head", kFp8, {1, 3, 0, 4}, 5, 1},
    {"fp8_64_heads", kFp8, {128, 2050}, 2, 64},
    {"fp8_hadamard", kFp8, {127, 129, 2051}, 5, 8, true},
    {"fp8_tiny", kFp8, {255}, 2, 8, false, false, 1e-7f},
    {"fp8_zero_hadamard", kFp8, {256}, 2, 8, true, false, 0.0f},
    {"mxfp4_no_tokens", kMxfp4, {0, 0}, 2, 64},
    {"mxfp4_one_head", kMxfp4, {1, 127}, 5, 1, true},
    {"mxfp4_64_heads", kMxfp4, {129, 2051}, 2, 64, true},
    {"mxfp4_rounded_throughout", kMxfp4, {129, 2051, 4}, 5, 64, true, true},
    {"fp8_rounded_throughout", kFp8, {127, 2051}, 3, 8, true, true},
    {"mxfp4_plain", kMxfp4, {3, 255, 256}, 5, 8},
    {"mxfp4_large", kMxfp4, {2050}, 1, 8, false, false, 1e6f},
    {"mxfp4_zero", kMxfp4, {4}, 1, 8, false, false, 0.0f},
};
INSTANTIATE_TEST_SUITE_P(Shapes, IndexerQProperty, testing::ValuesIn(kQueryCases),
                         name_of<QueryCase>);

}  // namespace

Report check_logits(const Lane& lane, const LogitsCase& c) {
  Report report(case_seed("logits " + c.name));
  Random random(report.seed());
  Memory memory;
  TwinCache keys(c.record, kDim, c.entries, c.pages, random);
  keys.put_all(random);
  std::vector<std::int32_t> token_to_req;
  std::vector<std::int32_t> lens;
  std::int64_t columns = c.spare_columns;
  for (std::size_t r = 0; r < c.entries.size(); ++r) {
    for (std::int64_t i = c.queries - 1; i >= 0; --i) {
      token_to_req.push_back(static_cast<std::int32_t>(r));
      lens.push_back(static_cast<std::int32_t>(std::max<std::int64_t>(c.entries[r] - i, 0)));
    }
    columns = std::max(columns, c.entries[r] + c.spare_columns);
  }
  token_to_req.push_back(-1);  // padding
  lens.push_back(0);
  const auto n = static_cast<std::int64_t>(lens.size());

  // Queries and their unquantised twins; head weights of both signs, so that scores cancel.
  const bool fp4 = c.record == AS_RECORD_INDEX_MXFP4;
  OpParams engine;
  auto& p = engine.init<as_indexer_logits_params>(AS_OP_INDEXER_LOGITS);
  p.q = memory.make(AS_U8, {n, c.heads, code_bytes(c.record)}, 1);
  if (fp4) p.q_scale = memory.make(AS_U8, {n, c.heads, 4}, 1);
  p.weights = memory.make(AS_F32, {n, c.heads}, 2);
  as_tensor exact_q = memory.make(AS_F64, {n, c.heads, kDim});
  as_tensor exact_weights = memory.make(AS_F64, {n, c.heads});
  std::vector<float> query(kDim);
  for (std::int64_t i = 0; i < n * c.heads; ++i) {
    const std::int64_t t = i / c.heads;
    const std::int64_t j = i % c.heads;
    for (float& v : query) v = cpu::round_bf16(normal(random));
    std::copy(query.begin(), query.end(), at<double>(exact_q, t, j));
    unsigned char scales[4];
    cpu::quantise_row(c.record, kDim, query.data(), at<unsigned char>(p.q, t, j), scales);
    const float weight = normal(random) / static_cast<float>(c.heads);
    *at<double>(exact_weights, t, j) = double{weight};
    *at<float>(p.weights, t, j) = weight;
    if (fp4) {
      std::memcpy(at<unsigned char>(p.q_scale, t, j), scales, sizeof(scales));
    } else {
      float scale = 0;
      std::memcpy(&scale, scales, sizeof(scale));
      *at<float>(p.weights, t, j) *= scale;  // a power of two
    }
  }
  p.weights.reserved = c.scores;
  p.cache = keys.paged();
  p.table = keys.table();
  p.token_to_req = memory.ints(token_to_req, {n});
  p.lens = memory.ints(lens, {n});
  p.logits = memory.make(AS_F32, {n, columns}, 1);
  if (!run(lane, engine, &report)) return report;
  memory.check_guards(&report);
  for (std::int64_t t = 0; t < n; ++t) {
    for (std::int64_t k = lens[static_cast<std::size_t>(t)]; k < columns; ++k) {
      std::uint32_t bits = 0;
      std::memcpy(&bits, at<float>(p.logits, t, k), sizeof(bits));
      if (bits != 0xffffffffu) report.fail("logits", "a column beyond the length was written");
    }
  }

  if (c.scores == AS_SCORES_E4M3) {
    OpParams plain = engine;
    auto& as_fp32 = plain.get<as_indexer_logits_params>();
    as_fp32.weights.reserved = AS_SCORES_FP32;
    as_fp32.logits = memory.make(AS_F32, {n, columns}, 1);
    if (!run(lane, plain, &report)) return report;
    Report equal(report.seed());
    judge_equal("logits as in fp32", p.logits, as_fp32.logits, &equal);
    if (c.as_fp32 && !equal.ok()) return equal;
    if (!c.as_fp32 && equal.ok()) report.fail("logits", "no code was multiplied as it is");
  }

  OpParams sim = with_own_outputs(engine, &memory);
  auto& s = sim.get<as_indexer_logits_params>();
  s.cache = keys.logical();
  s.table = keys.logical_table();
  if (!run(*reference::sim_lane(), sim, &report)) return report;
  judge_all(engine, sim, &report);

  OpParams exact = with_own_outputs(sim, &memory);
  auto& e = exact.get<as_indexer_logits_params>();
  e.q = exact_q;
  e.q_scale = no_tensor();
  e.weights = exact_weights;
  e.cache = keys.values();
  if (!run(*reference::exact_lane(), exact, &report)) return report;
  // A ReLU does not enlarge a difference, so a score moves by at most the sum of |weight| times
  // the movement of its head's dot product.
  judge_bound(
      "logits against ref.exact", p.logits, e.logits, nullptr,
      [&](std::int64_t t, std::int64_t entry, double) -> double {
        if (entry >= lens[static_cast<std::size_t>(t)]) return INFINITY;
        const std::int64_t r = token_to_req[static_cast<std::size_t>(t)];
        const std::vector<double> stored = keys.decoded(keys.slot(r, entry));
        const double* key = at<double>(e.cache.data, keys.row(r, entry));
        double bound = 1e-30;
        std::vector<float> codes(kDim);
        for (std::int64_t j = 0; j < c.heads; ++j) {
          decode_query(c.record, p.q, p.q_scale, t, j, codes.data());
          const double* q = at<double>(exact_q, t, j);
          double dot = 0;
          double quantised = 0;
          double sizes = 0;
          for (std::size_t d = 0; d < codes.size(); ++d) {
            dot += q[d] * key[d];
            quantised += double{codes[d]} * stored[d];
            sizes += std::fabs(double{codes[d]} * stored[d]);
          }
          const double weight = *at<double>(exact_weights, t, j);
          quantised *= double{*at<float>(p.weights, t, j)};
          if (c.scores == AS_SCORES_E4M3 && !fp4) {
            bound += 0x1p-12 * sizes * std::fabs(double{*at<float>(p.weights, t, j)});
          }
          bound += std::fabs(quantised - weight * dot) +
                   (c.scores == AS_SCORES_BF16 ? 0x1p-6 : 1e-5) * std::fabs(quantised);
        }
        return bound;
      },
      &report);
  return report;
}

namespace {

class IndexerLogitsProperty : public testing::TestWithParam<LogitsCase> {};

TEST_P(IndexerLogitsProperty, MatchesBothReferences) {
  const Report report = check_logits(*cpu::lane(), GetParam());
  EXPECT_TRUE(report.ok()) << report;
}

const LogitsCase kLogitsCases[] = {
    {"fp8_no_keys", kFp8, {0, 0}, 2, 8},
    {"fp8_short", kFp8, {1, 3, 0, 4}, 5, 8, {64, 0}},
    {"fp8_window_edges", kFp8, {127, 128, 129}, 2, 64, {53, 12}},
    {"fp8_one_head", kFp8, {255, 256}, 5, 1, {1, 444}},
    {"fp8_long", kFp8, {2050, 2051}, 1, 8, {64, 192}, 0},
    {"fp8_odd_pages", kFp8, {64, 65, 63}, 2, 8, {3, 0}},
    {"mxfp4_no_keys", kMxfp4, {0}, 1, 64},
    {"mxfp4_short", kMxfp4, {4, 0, 3, 1}, 5, 64, {2, 7}},
    {"mxfp4_window_edges", kMxfp4, {127, 128, 129}, 2, 8, {61, 1}},
    {"mxfp4_one_head", kMxfp4, {256, 255}, 5, 1, {64, 0}, 40},
    {"mxfp4_long", kMxfp4, {2051, 2050}, 1, 8, {64, 256}},
    {"mxfp4_bf16_scores", kMxfp4, {129, 3, 0}, 3, 64, {64, 0}, 5, AS_SCORES_BF16},
    {"fp8_bf16_scores", kFp8, {300, 64}, 2, 8, {53, 4}, 5, AS_SCORES_BF16},
    {"fp8_e4m3_scores", kFp8, {300, 64}, 2, 64, {64, 448}, 5, AS_SCORES_E4M3},
    {"mxfp4_e4m3_scores", kMxfp4, {129, 3}, 2, 64, {64, 0}, 5, AS_SCORES_E4M3},
};
INSTANTIATE_TEST_SUITE_P(Shapes, IndexerLogitsProperty, testing::ValuesIn(kLogitsCases),
                         name_of<LogitsCase>);

}  // namespace
}  // namespace attnscope::properties
