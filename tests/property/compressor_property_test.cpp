// AS_OP_COMPRESSOR_STATE, AS_OP_INDEXER_COMPRESSOR_STATE, AS_OP_COMPRESS_INSERT and
// AS_OP_INDEXER_COMPRESS_INSERT, with a chunk border anywhere in a window.
#include <algorithm>
#include <cmath>

#include "tests/property/checks.h"

namespace attnscope::properties {
namespace {

// One sequence of state rows and entries, computed in two calls.
class Compressor {
 public:
  Compressor(const Lane& lane, const CompressCase& c, Report* report)
      : lane_(lane),
        c_(c),
        report_(report),
        random_(report->seed()),
        dim_(c.record == AS_RECORD_LATENT ? AS_HEAD_DIM : AS_INDEX_DIM),
        half_((c.ratio == 4 ? 2 : 1) * dim_),
        state_(AS_RECORD_STATE, static_cast<std::int32_t>(2 * half_), c.lengths, c.state_pages,
               random_),
        cache_(c.record, static_cast<std::int32_t>(dim_), entries(), c.pages, random_) {
    ape_ = memory_.normals(AS_F32, {c.ratio, half_}, random_, c.score_scale);
    weight_ = memory_.normals(AS_BF16, {dim_}, random_);
  }

  // Positions first..last-1 of every request.
  void chunk(std::int64_t first, std::int64_t last) {
    tokens_ = {};
    for (std::size_t r = 0; r < c_.lengths.size(); ++r) {
      std::int64_t needed = -1;  // first position that a window of this chunk reaches
      for (std::int64_t p = first; p < std::min(last, c_.lengths[r]); ++p) {
        tokens_.token_to_req.push_back(static_cast<std::int32_t>(r));
        tokens_.positions.push_back(p);
        if (needed < 0 && (p + 1) % c_.ratio == 0) needed = p + 1 - half_ / dim_ * c_.ratio;
      }
      if (needed > 0) state_.drop_below(static_cast<std::int64_t>(r), needed);
    }
    tokens_.token_to_req.push_back(-1);  // padding
    tokens_.positions.push_back(0);
    positions_ = memory_.ints64(tokens_.positions);
    save_state();
    if (report_->ok()) insert();
    memory_.check_guards(report_);
  }

 private:
  std::vector<std::int64_t> entries() const {
    std::vector<std::int64_t> n = c_.lengths;
    for (std::int64_t& length : n) length /= c_.ratio;
    return n;
  }

  void save_state() {
    const bool latent = c_.record == AS_RECORD_LATENT;
    OpParams engine;
    auto& p = engine.init<as_compressor_state_params>(latent ? AS_OP_COMPRESSOR_STATE
                                                             : AS_OP_INDEXER_COMPRESSOR_STATE);
    p.proj = memory_.normals(AS_F32, {tokens_.size(), 2 * half_}, random_, 1.0f, 2);
    for (std::int64_t t = 0; t < tokens_.size(); ++t) {
      for (std::int64_t k = half_; k < 2 * half_; ++k) *at<float>(p.proj, t, k) *= c_.score_scale;
    }
    p.ape = ape_;
    p.positions = positions_;
    std::vector<std::int64_t> slots;
    std::vector<std::int64_t> rows;
    for (std::size_t t = 0; t < tokens_.positions.size(); ++t) {
      const std::int64_t r = tokens_.token_to_req[t];
      slots.push_back(r < 0 ? -1 : state_.slot(r, tokens_.positions[t]));
      rows.push_back(r < 0 ? -1 : state_.row(r, tokens_.positions[t]));
    }
    p.slots = memory_.ints64(slots);
    p.state = state_.paged();
    p.ratio = c_.ratio;
    const std::vector<unsigned char> before = state_.slab();
    if (!run(lane_, engine, report_)) return;

    OpParams sim = engine;
    auto& s = sim.get<as_compressor_state_params>();
    const RowsOut out = rows_out(p.state, p.slots, false, &memory_);
    s.state = out.cache;
    s.slots = out.slots;
    if (!run(*reference::sim_lane(), sim, report_)) return;
    // One fp32 sum: the same bits.
    judge_slab(state_, before, p.slots, s.state.data, report_);
    for (std::size_t t = 0; t + 1 < slots.size(); ++t) {
      state_.adopt(tokens_.token_to_req[t], tokens_.positions[t]);
    }

    OpParams exact = engine;
    auto& e = exact.get<as_compressor_state_params>();
    e.state = state_.values();
    e.slots = memory_.ints64(rows);
    if (!run(*reference::exact_lane(), exact, report_)) return;
    for (std::size_t t = 0; t + 1 < slots.size(); ++t) {
      const std::vector<double> row = state_.decoded(slots[t]);
      const double* value = at<double>(e.state.data, rows[t]);
      for (std::int64_t k = 0; k < 2 * half_; ++k) {
        const double difference = std::fabs(row[static_cast<std::size_t>(k)] - value[k]);
        if (difference <= 0x1p-24 * std::fabs(value[k])) continue;
        return report_->fail("state against ref.exact", "more than half a step of fp32");
      }
    }
  }

  void insert() {
    const bool latent = c_.record == AS_RECORD_LATENT;
    OpParams engine;
    auto& p = engine.init<as_compress_insert_params>(latent ? AS_OP_COMPRESS_INSERT
                                                            : AS_OP_INDEXER_COMPRESS_INSERT);
    std::vector<std::int64_t> slots;
    for (std::size_t t = 0; t < tokens_.positions.size(); ++t) {
      const std::int64_t position = tokens_.positions[t];
      const bool emits = tokens_.token_to_req[t] >= 0 && (position + 1) % c_.ratio == 0;
      slots.push_back(emits ? cache_.slot(tokens_.token_to_req[t], position / c_.ratio) : -1);
    }
    p.state = state_.paged();
    p.table = state_.table();
    p.token_to_req = memory_.ints(tokens_.token_to_req, {tokens_.size()});
    p.positions = positions_;
    p.slots = memory_.ints64(slots);
    p.weight = weight_;
    p.rope = compressed_rope();
    p.row = memory_.make(AS_BF16, {tokens_.size(), dim_}, 1);
    p.cache = cache_.paged();
    p.eps = 1e-6;
    p.ratio = c_.ratio;
    p.hadamard = c_.hadamard + c_.round_rotated;
    p.round_pooled = c_.round_pooled;
    const std::vector<unsigned char> before = cache_.slab();
    if (!run(lane_, engine, report_)) return;
    for (std::int64_t t = 0; t < tokens_.size(); ++t) {
      if (slots[static_cast<std::size_t>(t)] < 0 && at<bf16_t>(p.row, t)->bits != 0xffff) {
        report_->fail("row", "the row of a token that emits nothing was written");
      }
    }

    OpParams sim = with_own_outputs(engine, &memory_);
    auto& s = sim.get<as_compress_insert_params>();
    const RowsOut out = rows_out(p.cache, p.slots, false, &memory_);
    s.state = state_.logical();
    s.table = state_.logical_table();
    s.cache = out.cache;
    s.slots = out.slots;
    if (!run(*reference::sim_lane(), sim, report_)) return;
    judge(engine, sim, "row", report_);

    OpParams given = sim;
    auto& g = given.get<as_compress_insert_params>();
    g.row = p.row;
    g.rows_given = 1;
    g.cache = rows_out(p.cache, p.slots, false, &memory_).cache;
    if (!run(*reference::sim_lane(), given, report_)) return;
    judge_slab(cache_, before, p.slots, g.cache.data, report_);

    OpParams exact = with_own_outputs(sim, &memory_);
    auto& e = exact.get<as_compress_insert_params>();
    e.state = state_.values();
    e.cache = rows_out(p.cache, p.slots, true, &memory_).cache;
    if (run(*reference::exact_lane(), exact, report_)) judge_exact(p, e, slots);
  }

  // Of a row before quantisation. Pooled and normed values rounded to bf16 are off by three half
  // steps (one of them through the norm's factor); the rotation by the fp32 angle's error, below
  // 2^-11 for positions below 4096. A rotation mixes a pair, the Hadamard transform the whole row.
  double row_bound(const double* row, std::int64_t column) const {
    double length = 0;
    double largest = 0;
    for (std::int64_t i = 0; i < dim_; ++i) {
      length += row[i] * row[i];
      largest = std::max(largest, std::fabs(row[i]));
    }
    length = std::sqrt(length);
    const double value = std::fabs(row[column]);
    const double* pair = row + column - column % 2;
    double mixed = value;
    if (column >= dim_ - AS_ROPE_DIM) mixed = std::hypot(pair[0], pair[1]);
    if (c_.hadamard) mixed = length;
    return 2 * kBf16Half * value + 0x1p-14 * largest + 0x1p-11 * mixed +
           (c_.round_pooled ? 0x1p-7 * mixed : 0) + (c_.round_rotated ? 0x1p-8 * mixed : 0);
  }

  void judge_exact(const as_compress_insert_params& p, const as_compress_insert_params& e,
                   const std::vector<std::int64_t>& slots) {
    judge_bound(
        "row against ref.exact", p.row, e.row, slots.data(),
        [&](std::int64_t row, std::int64_t column, double) {
          return row_bound(at<double>(e.row, row), column);
        },
        report_);
    as_tensor read = memory_.make(AS_F64, {tokens_.size(), dim_});
    for (std::size_t t = 0; t < slots.size(); ++t) {
      if (slots[t] < 0) continue;
      const std::vector<double> row = cache_.decoded(slots[t]);
      std::copy(row.begin(), row.end(), at<double>(read, static_cast<std::int64_t>(t)));
    }
    judge_bound(
        "cache against ref.exact", read, e.cache.data, slots.data(),
        [&](std::int64_t row, std::int64_t column, double v) {
          const double* values = at<double>(e.cache.data, row);
          const double off = row_bound(values, column);
          const double amax = block_amax(c_.record, column, values);
          return off + quantisation_step(c_.record, column, std::fabs(v) + off,
                                         amax * (1 + 2 * kBf16Half) + off);
        },
        report_);
  }

  const Lane& lane_;
  const CompressCase& c_;
  Report* report_;
  Random random_;
  Memory memory_;
  std::int64_t dim_;
  std::int64_t half_;  // coff * d
  TwinCache state_;
  TwinCache cache_;
  as_tensor ape_;
  as_tensor weight_;
  Tokens tokens_;
  as_tensor positions_{};
};

}  // namespace

Report check_compress(const Lane& lane, const CompressCase& c) {
  Report report(case_seed("compress " + c.name));
  Compressor compressor(lane, c, &report);
  const std::int64_t longest = *std::max_element(c.lengths.begin(), c.lengths.end());
  compressor.chunk(0, c.split);
  if (report.ok()) compressor.chunk(c.split, longest);
  return report;
}

namespace {

class CompressProperty : public testing::TestWithParam<CompressCase> {};

TEST_P(CompressProperty, MatchesBothReferences) {
  const Report report = check_compress(*cpu::lane(), GetParam());
  EXPECT_TRUE(report.ok()) << report;
}

constexpr std::int32_t kLatent = AS_RECORD_LATENT;

const CompressCase kCompressCases[] = {
    {"no_tokens", 4, kLatent, {0, 0}, 0},
    {"too_short_to_emit", 4, kLatent, {3, 1}, 2, {4, 0}, {64, 0}},
    {"first_window", 4, kLatent, {4, 3, 5, 0}, 0, {4, 64}, {64, 0}},
    {"first_window_in_two_chunks", 4, kLatent, {4, 7, 8}, 2, {3, 4}, {1, 5}},
    {"border_inside_a_window", 4, kLatent, {127, 128, 129}, 90, {4, 0}, {64, 0}},
    {"border_at_a_window", 4, kLatent, {255, 0, 256}, 128, {61, 8}, {53, 1}, false, true},
    {"one_row_pages", 4, kLatent, {21, 16}, 11, {1, 0}, {1, 3}},
    {"scores_far_apart", 4, kLatent, {40}, 17, {2, 12}, {3, 9}, false, false, false, 40.0f},
    {"scores_equal", 4, kLatent, {40}, 18, {2, 12}, {3, 9}, false, false, false, 0.0f},
    {"long_fp8", 4, kFp8, {2050, 2051}, 2047, {4, 576}, {64, 192}},
    {"long_mxfp4", 4, kMxfp4, {2051}, 1, {8, 0}, {61, 1}},
    {"fp8_hadamard", 4, kFp8, {129, 3, 130}, 33, {4, 0}, {64, 0}, true},
    {"fp8_rounded", 4, kFp8, {127, 4}, 50, {53, 4}, {2, 7}, false, true},
    {"fp8_hadamard_rounded", 4, kFp8, {256, 255}, 3, {3, 0}, {64, 0}, true, true},
    {"mxfp4_hadamard", 4, kMxfp4, {129, 12}, 127, {2, 0}, {3, 11}, true},
    {"mxfp4_rounded", 4, kMxfp4, {128, 131}, 129, {4, 0}, {53, 0}, false, true},
    {"mxfp4_hadamard_rounded", 4, kMxfp4, {65}, 6, {4, 0}, {64, 0}, true, true},
    {"mxfp4_rounded_throughout", 4, kMxfp4, {65, 260}, 6, {4, 0}, {64, 0}, true, true, true},
    {"c128_short", 128, kLatent, {127, 1}, 3, {8, 0}, {2, 0}},
    {"c128_first_window", 128, kLatent, {128, 129, 4}, 0, {8, 64}, {2, 560}},
    {"c128_border_inside", 128, kLatent, {255, 256, 300}, 200, {61, 4}, {1, 0}},
    {"c128_border_at_the_end", 128, kLatent, {256, 257}, 255, {53, 0}, {3, 2}, false, true},
    {"c128_scores_far_apart", 128, kLatent, {384}, 129, {8, 0}, {2, 0}, false, false, false, 20.0f},
};
INSTANTIATE_TEST_SUITE_P(Shapes, CompressProperty, testing::ValuesIn(kCompressCases),
                         name_of<CompressCase>);

}  // namespace
}  // namespace attnscope::properties
