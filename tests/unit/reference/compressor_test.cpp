#include <cmath>

#include "reference/rope.h"
#include "tests/unit/reference/lane_test.h"
#include "tests/unit/reference/plain_codec.h"

namespace attnscope::reference {
namespace compressor_test {

constexpr int kDim = 128;  // the indexer's compressor: same code, small rows

// State rows of one request, with value(j) in the first-half and second-half channels of C, and
// zero scores; then compress_insert for the given positions.
struct Compressor {
  Compressor(int ratio_, int tokens_)
      : ratio(ratio_),
        coff(ratio_ == 4 ? 2 : 1),
        tokens(tokens_),
        width(2 * coff * kDim),
        state(static_cast<std::size_t>(tokens_ * width), 0.0),
        weight(kDim, 1.0),
        entries(static_cast<std::size_t>((tokens_ / ratio_ + 1) * kDim), kNaN),
        row(static_cast<std::size_t>(tokens_ * kDim), kNaN),
        p(new_params<as_compress_insert_params>()) {
    for (int t = 0; t < tokens; ++t) {
      positions.push_back(t);
      slots.push_back((t + 1) % ratio == 0 ? t / ratio : -1);
      token_to_req.push_back(0);
    }
    p.state = logical(state, AS_RECORD_STATE, width, width);
    p.table = over(table, {1, 1});
    p.token_to_req = over(token_to_req, {tokens});
    p.positions = over(positions, {tokens});
    p.slots = over(slots, {tokens});
    p.weight = over(weight, {kDim});
    p.rope = compress_rope();
    p.row = over(row, {tokens, kDim});
    p.cache = logical(entries, AS_RECORD_INDEX_FP8, kDim, kDim);
    p.ratio = ratio;
    p.eps = 1e-6;
  }

  // Channel k of C or Z (offset coff*kDim) of token t.
  double& at_state(int t, int k) { return state[index_of(t, width, k)]; }

  // What the pooled value of a channel must have been: undoes the norm of a row in which every
  // channel but 0 and 1 pooled to zero. Channel 1 pools to 1 in every entry.
  double pooled0(int entry) const {
    const double* e = entries.data() + entry * kDim;
    return e[0] / e[1];
  }
  // Makes channel 1 pool to 1.
  void set_unit_channel() {
    for (int t = 0; t < tokens; ++t) {
      for (int half = 0; half < coff; ++half) at_state(t, half * kDim + 1) = 1;
    }
  }

  int ratio, coff, tokens, width;
  Doubles state, weight, entries, row;
  Int32s table = {0};
  Int32s token_to_req;
  Int64s positions, slots;
  as_compress_insert_params p;
};

TEST(CompressInsert, OverlapOfRatio4) {
  Compressor c(4, 8);
  c.set_unit_channel();
  const double a[8] = {1, 2, 3, 5, 7, 11, 13, 17};       // first half
  const double b[8] = {19, 23, 29, 31, 37, 41, 43, 47};  // second half
  for (int t = 0; t < 8; ++t) {
    c.at_state(t, 0) = a[t];
    c.at_state(t, kDim) = b[t];
  }
  run(exact_lane(), AS_OP_INDEXER_COMPRESS_INSERT, c.p);
  EXPECT_NEAR(c.pooled0(0), (b[0] + b[1] + b[2] + b[3]) / 4, 1e-12);  // four rows only
  const double all = a[0] + a[1] + a[2] + a[3] + b[4] + b[5] + b[6] + b[7];
  EXPECT_NEAR(c.pooled0(1), all / 8, 1e-12);

  c.at_state(5, 2 * kDim + kDim) = std::log(3.0);  // score of token 5, second half, channel 0
  run(exact_lane(), AS_OP_INDEXER_COMPRESS_INSERT, c.p);
  EXPECT_NEAR(c.pooled0(1), (all + 2 * b[5]) / 10, 1e-12);
}

TEST(CompressInsert, MeanOfRatio128) {
  Compressor c(128, 256);
  c.set_unit_channel();
  for (int t = 0; t < 256; ++t) c.at_state(t, 0) = t;
  run(exact_lane(), AS_OP_INDEXER_COMPRESS_INSERT, c.p);
  EXPECT_NEAR(c.pooled0(0), 63.5, 1e-11);
  EXPECT_NEAR(c.pooled0(1), 191.5, 1e-11);
}

// The entry is rotated at the first position of its window.
TEST(CompressInsert, RotatesAtTheWindowsFirstPosition) {
  Compressor c(4, 8);
  for (int t = 0; t < 8; ++t) {
    for (int half = 0; half < 2; ++half) {
      for (int k = 0; k < kDim; ++k) c.at_state(t, half * kDim + k) = k % 2 == 0 ? 1 : 0;
    }
  }
  c.p.eps = 0;
  run(exact_lane(), AS_OP_INDEXER_COMPRESS_INSERT, c.p);
  const auto f = rope_frequencies(compress_rope());
  const double norm = std::sqrt(2.0);  // of a row whose even dims are 1
  for (std::size_t i = 0; i < 32; ++i) {
    EXPECT_NEAR(c.entries[64 + 2 * i], norm, 1e-12);  // entry 0: position 0
    EXPECT_NEAR(c.entries[kDim + 64 + 2 * i], norm * std::cos(4 * f[i]), 1e-12);
    EXPECT_NEAR(c.entries[kDim + 65 + 2 * i], norm * std::sin(4 * f[i]), 1e-12);
  }
}

TEST(CompressInsert, LeavesRowsOfOtherTokensAlone) {
  Compressor c(4, 8);
  c.set_unit_channel();
  run(exact_lane(), AS_OP_INDEXER_COMPRESS_INSERT, c.p);
  for (int t = 0; t < 8; ++t) {
    EXPECT_EQ(std::isnan(c.row[static_cast<std::size_t>(t * kDim)]), (t + 1) % 4 != 0) << t;
  }
  EXPECT_TRUE(std::isnan(c.entries[2 * kDim]));
}

TEST(CompressInsert, TableGivesTheFirstRowOfTheRequest) {
  Compressor c(4, 8);
  c.set_unit_channel();
  for (int t = 0; t < 8; ++t) c.at_state(t, kDim) = t;
  c.table = {0, 4};
  c.token_to_req.assign(8, 1);
  c.slots.assign(8, -1);
  c.slots[3] = 0;  // position 3 of request 1: state rows 4..7
  c.p.table = over(c.table, {2, 1});
  c.p.slots = over(c.slots, {8});
  c.p.token_to_req = over(c.token_to_req, {8});
  run(exact_lane(), AS_OP_INDEXER_COMPRESS_INSERT, c.p);
  EXPECT_NEAR(c.pooled0(0), (4 + 5 + 6 + 7) / 4.0, 1e-12);
}

TEST(CompressInsert, SimRowIsTheExactRowRoundedOnceAndQuantised) {
  for (const std::int32_t record : {AS_RECORD_INDEX_FP8, AS_RECORD_INDEX_MXFP4}) {
    Compressor c(4, 64);
    c.state = normal(c.state.size(), 5);
    for (double& v : c.state) v = round_to_fp32(v);
    c.p.state = logical(c.state, AS_RECORD_STATE, c.width, c.width);
    c.p.cache.record = record;
    run(exact_lane(), AS_OP_INDEXER_COMPRESS_INSERT, c.p);
    const Doubles exact = c.row;
    const std::int64_t bytes = record == AS_RECORD_INDEX_FP8 ? 132 : 68;
    std::vector<Byte> records(static_cast<std::size_t>(16 * bytes));
    c.p.cache = logical(records, record, kDim, bytes);
    run(sim_lane(), AS_OP_INDEXER_COMPRESS_INSERT, c.p);
    const std::int64_t payload_bytes = record == AS_RECORD_INDEX_FP8 ? 128 : 64;
    Doubles back(kDim);
    for (std::size_t entry = 0; entry < 16; ++entry) {
      Byte* payload = records.data() + entry * static_cast<std::size_t>(bytes);
      decode_record(record, kDim, payload, payload + payload_bytes, back.data());
      for (std::size_t k = 0; k < kDim; ++k) {
        const std::size_t i = (entry * 4 + 3) * kDim + k;
        // Only the fp32 RoPE table stands between the two before the rounding.
        EXPECT_NEAR(c.row[i], exact[i], std::fabs(exact[i]) * 0x1.02p-8 + 1e-5);
        EXPECT_EQ(c.row[i], round_to_bf16(c.row[i]));
        EXPECT_NEAR(back[k], c.row[i], record == AS_RECORD_INDEX_FP8 ? 0.25 : 1.0);
      }
    }
  }
}

TEST(CompressInsert, GivenRowsAreQuantisedAsTheyAre) {
  auto p = new_params<as_compress_insert_params>();
  Doubles rows = normal(2 * 512, 6);
  round_to_bf16(rows.data(), 2 * 512);
  Int64s slots = {-1, 0};
  std::vector<Byte> records(2 * 584, 0xEE);
  p.row = over(rows, {2, 512});
  p.slots = over(slots, {2});
  p.cache = logical(records, AS_RECORD_LATENT, 512, 584);
  p.rows_given = 1;
  run(sim_lane(), AS_OP_COMPRESS_INSERT, p);
  std::vector<Byte> expected(2 * 584, 0xEE);
  encode_record(AS_RECORD_LATENT, 512, rows.data() + 512, expected.data(), expected.data() + 576);
  EXPECT_EQ(records, expected);
}

TEST(CompressInsert, RoundPooledRoundsInBetween) {
  Compressor c(4, 8);
  c.state = normal(c.state.size(), 8);
  c.p.state = logical(c.state, AS_RECORD_STATE, c.width, c.width);
  Doubles rows[2];
  Doubles exact_rows[2];
  for (int round = 0; round < 2; ++round) {
    c.p.round_pooled = round;
    run(sim_lane(), AS_OP_INDEXER_COMPRESS_INSERT, c.p);
    rows[round] = Doubles(c.row.begin() + 3 * kDim, c.row.begin() + 4 * kDim);
    run(exact_lane(), AS_OP_INDEXER_COMPRESS_INSERT, c.p);
    exact_rows[round] = Doubles(c.row.begin() + 3 * kDim, c.row.begin() + 4 * kDim);
  }
  EXPECT_NE(rows[0], rows[1]);
  EXPECT_EQ(exact_rows[0], exact_rows[1]);
  for (std::size_t k = 0; k < kDim; ++k) {
    EXPECT_NEAR(rows[0][k], rows[1][k], 0.02 + std::fabs(rows[0][k]) * 0x1p-6);
  }
}

TEST(CompressInsert, HadamardRotatesTheWholeRow) {
  Compressor c(4, 4);
  for (int t = 0; t < 4; ++t) c.at_state(t, kDim) = 1;  // pooled = e_0
  c.p.eps = 0;
  c.p.hadamard = 1;
  run(exact_lane(), AS_OP_INDEXER_COMPRESS_INSERT, c.p);
  for (std::size_t k = 0; k < kDim; ++k)
    EXPECT_NEAR(c.entries[k], 1, 1e-12);  // sqrt(128)/sqrt(128)
}

TEST(CompressorState, AddsTheApeOfThePositionToTheScores) {
  auto p = new_params<as_compressor_state_params>();
  const int width = 4 * kDim;
  Doubles proj = normal(std::size_t{3} * width, 1);
  Doubles ape(4 * 2 * kDim);
  for (std::size_t i = 0; i < ape.size(); ++i) {
    const std::size_t row = i / (2 * kDim);
    ape[i] = static_cast<double>(row) * 10;
  }
  Int64s positions = {5, 6, 7};
  Int64s slots = {2, -1, 0};
  std::vector<float> state(std::size_t{3} * width, -1.0F);
  p.proj = over(proj, {3, width});
  p.ape = over(ape, {4, 2 * kDim});
  p.positions = over(positions, {3});
  p.slots = over(slots, {3});
  p.state = logical(state, AS_RECORD_STATE, width, width);
  p.ratio = 4;
  run(sim_lane(), AS_OP_COMPRESSOR_STATE, p);
  for (int k = 0; k < width; ++k) {
    const auto i = static_cast<std::size_t>(k);
    const auto w = static_cast<std::size_t>(width);
    const bool score = k >= 2 * kDim;
    EXPECT_EQ(state[2 * w + i], static_cast<float>(proj[i] + (score ? 10 : 0)));  // 5 mod 4
    EXPECT_EQ(state[i], static_cast<float>(proj[2 * w + i] + (score ? 30 : 0)));  // 7 mod 4
    EXPECT_EQ(state[w + i], -1);                                                  // untouched
  }
}

TEST(CompressInsert, RefusesASlotInTheMiddleOfAWindow) {
  Compressor c(4, 8);
  c.slots[4] = 1;
  expect_refused(AS_OP_INDEXER_COMPRESS_INSERT, c.p,
                 {"indexer_compress_insert", "token 4", "window of 4"});
  c.slots[4] = -1;
  c.p.ratio = 5;
  expect_refused(AS_OP_INDEXER_COMPRESS_INSERT, c.p, {"ratio is 5", "4, 128"});
}

}  // namespace compressor_test
}  // namespace attnscope::reference
