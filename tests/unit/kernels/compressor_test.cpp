// compressor_state and compress_insert: micro cases by hand, random cases in float64, all records.
#include <limits>
#include <numeric>

#include "tests/unit/kernels/support.h"

namespace attnscope::kernel_tests {
namespace compressor_test {

struct Case {
  std::int32_t ratio;
  std::int32_t record;
  bool hadamard = false;
  bool round_pooled = false;
};

// One request of `tokens` tokens, all in this step, table columns mapped to scattered blocks.
struct Compressor {
  Case c;
  std::int64_t tokens, dim, coff, width, rows;
  Array<std::int32_t> table, token_to_req;
  Array<std::int64_t> positions, state_slots, slots;
  PagedCache state, cache;
  Array<bf16_t> weight, row;
  Rope rope;

  Compressor(const Case& which, std::int64_t n)
      : c(which),
        tokens(n),
        dim(which.record == AS_RECORD_LATENT ? 512 : 128),
        coff(which.ratio == 4 ? 2 : 1),
        width(coff * dim),
        rows(which.ratio == 4 ? 4 : 8),
        table({2, n / rows + 1}),
        token_to_req({n}, 1),
        positions({n}),
        state_slots({n}),
        slots({n}, -1),
        state(AS_RECORD_STATE, static_cast<std::int32_t>(2 * width),
              static_cast<std::int32_t>(rows), 2 * (n / rows + 1) + 1),
        cache(which.record, static_cast<std::int32_t>(dim), 2, n / which.ratio / 2 + 2),
        weight({dim}),
        row({n, dim}, to_bf16(99.0f)),
        rope(n + 1) {
    Random random(21);
    const std::int64_t columns = n / rows + 1;
    for (std::int64_t i = 0; i < columns; ++i) {
      table[columns + i] = static_cast<std::int32_t>(2 * (columns - i));  // backwards
    }
    std::iota(positions.values.begin(), positions.values.end(), 0);
    for (std::int64_t t = 0; t < n; ++t) {
      state_slots[t] = table[columns + t / rows] * rows + t % rows;
      if ((t + 1) % c.ratio == 0) slots[t] = 2 + t / c.ratio;
    }
    fill_normal(weight, random);
  }

  float* state_row(std::int64_t position) {
    return reinterpret_cast<float*>(state.row(state_slots[position]).payload);
  }

  as_compress_insert_params params() {
    auto p = make_params<as_compress_insert_params>();
    p.state = state.view();
    p.table = table.tensor;
    p.token_to_req = token_to_req.tensor;
    p.positions = positions.tensor;
    p.slots = slots.tensor;
    p.weight = weight.tensor;
    p.rope = rope.view();
    p.row = row.tensor;
    p.cache = cache.view();
    p.eps = 1e-6;
    p.ratio = c.ratio;
    p.hadamard = c.hadamard ? 1 : 0;
    p.round_pooled = c.round_pooled ? 1 : 0;
    return p;
  }

  // Pooled values of the entry that position p ends, in float64.
  std::vector<double> pooled(std::int64_t p) {
    std::vector<double> y(static_cast<std::size_t>(dim));
    for (std::int64_t k = 0; k < dim; ++k) {
      double weights = 0.0, sum = 0.0;
      for (std::int64_t q = std::max<std::int64_t>(p + 1 - coff * c.ratio, 0); q <= p; ++q) {
        const std::int64_t channel = coff == 2 && q > p - c.ratio ? dim + k : k;
        const double e = std::exp(static_cast<double>(state_row(q)[width + channel]));
        weights += e;
        sum += e * static_cast<double>(state_row(q)[channel]);
      }
      y[k] = sum / weights;
    }
    return y;
  }

  std::vector<double> expected(std::int64_t p) {
    std::vector<double> y = pooled(p);
    const auto round = [&] {
      if (!c.round_pooled) return;
      for (double& v : y) v = static_cast<double>(cpu::round_bf16(static_cast<float>(v)));
    };
    round();
    double squares = 0.0;
    for (double v : y) squares += v * v;
    const double factor = 1.0 / std::sqrt(squares / static_cast<double>(dim) + 1e-6);
    for (std::int64_t k = 0; k < dim; ++k)
      y[k] *= factor * static_cast<double>(to_float(weight[k]));
    round();
    const float* turn = at<float>(rope.view().table, p + 1 - c.ratio);
    for (std::int64_t i = 0; i < 32; ++i) {
      double& even = y[dim - 64 + 2 * i];
      double& odd = y[dim - 64 + 2 * i + 1];
      const double e = even, o = odd;
      const double cosine = static_cast<double>(turn[i]), sine = static_cast<double>(turn[32 + i]);
      even = e * cosine - o * sine;
      odd = e * sine + o * cosine;
    }
    if (c.hadamard) {
      std::vector<double> x(y.size(), 0.0);
      for (std::size_t a = 0; a < 128; ++a) {
        for (std::size_t b = 0; b < 128; ++b) x[a] += __builtin_parityll(a & b) != 0 ? -y[b] : y[b];
        x[a] /= std::sqrt(128.0);
      }
      y = x;
    }
    return y;
  }
};

TEST(CompressorState, SavesValuesAndGatesWithBias) {
  Random random(20);
  for (std::int32_t ratio : {4, 128}) {
    const std::int64_t width = 64;
    Array<float> proj({6, 2 * width}), ape({ratio, width});
    fill_normal(proj, random);
    fill_normal(ape, random);
    Array<std::int64_t> positions({6}, {0, 3, 4, 127, 128, 1001}), slots({6}, {5, -1, 3, 2, 9, 4});
    PagedCache state(AS_RECORD_STATE, 2 * width, 4, 3);
    const std::vector<unsigned char> before = state.bytes();
    auto p = make_params<as_compressor_state_params>();
    p.proj = proj.tensor;
    p.ape = ape.tensor;
    p.positions = positions.tensor;
    p.slots = slots.tensor;
    p.state = state.view();
    p.ratio = ratio;
    EXPECT_OK(run(AS_OP_COMPRESSOR_STATE, p));
    EXPECT_TRUE(state.guards_intact());
    for (std::int64_t t = 0; t < 6; ++t) {
      if (slots[t] < 0) continue;
      const std::vector<float> row = state.get(slots[t]);
      for (std::int64_t k = 0; k < width; ++k) {
        ASSERT_EQ(row[k], proj[t * 2 * width + k]);
        ASSERT_EQ(row[width + k],
                  proj[t * 2 * width + width + k] + ape[positions[t] % ratio * width + k]);
      }
    }
    // Slots 0 and 1 belong to nobody and stay as they were.
    EXPECT_TRUE(std::equal(before.begin(), before.begin() + 2 * 8 * width, state.bytes().begin()));
  }
}

// Micro cases: dim 0 carries the numbers; a norm weight of one and a row that is elsewhere constant
// make the ratio of two dims visible after the norm.
struct Micro : Compressor {
  explicit Micro(const Case& which, std::int64_t n) : Compressor(which, n) {
    for (bf16_t& w : weight.values) w = to_bf16(1.0f);
    for (std::int64_t t = 0; t < n; ++t) {
      for (std::int64_t k = 0; k < 2 * width; ++k) state_row(t)[k] = k < width ? 1.0f : 0.0f;
      state_row(t)[0] = static_cast<float>(t + 1);                           // a_t
      if (coff == 2) state_row(t)[dim] = static_cast<float>(100 * (t + 1));  // b_t
    }
  }
  // Pooled dim 0 relative to dim 1, whose pooled value is 1.
  double first(std::int64_t p) {
    EXPECT_OK(run(AS_OP_COMPRESS_INSERT, params()));
    return static_cast<double>(to_float(row[p * dim])) /
           static_cast<double>(to_float(row[p * dim + 1]));
  }
};

TEST(CompressInsert, MicroCasesOfTheOverlap) {
  Micro plain({4, AS_RECORD_LATENT}, 8);
  EXPECT_NEAR(plain.first(3), 250.0, 250.0 / 128);  // mean of b0..b3
  EXPECT_NEAR(plain.first(7), (1 + 2 + 3 + 4 + 500 + 600 + 700 + 800) / 8.0, 326.0 / 128);
  Micro gated({4, AS_RECORD_LATENT}, 8);
  gated.state_row(5)[gated.width + gated.dim] = std::log(3.0f);
  EXPECT_NEAR(gated.first(7), (1 + 2 + 3 + 4 + 500 + 3 * 600 + 700 + 800) / 10.0, 381.0 / 128);
}

TEST(CompressInsert, MicroCaseOfRatio128) {
  Micro mean({128, AS_RECORD_LATENT}, 128);
  EXPECT_NEAR(mean.first(127), 64.5, 64.5 / 128);
}

TEST(CompressInsert, RandomWindowsWithinOneUlpAndBytesExact) {
  const Case cases[] = {{4, AS_RECORD_LATENT},
                        {4, AS_RECORD_LATENT, false, true},
                        {128, AS_RECORD_LATENT},
                        {4, AS_RECORD_INDEX_FP8},
                        {4, AS_RECORD_INDEX_FP8, true},
                        {4, AS_RECORD_INDEX_MXFP4},
                        {4, AS_RECORD_INDEX_MXFP4, true, true}};
  for (const Case& which : cases) {
    Compressor s(which, which.ratio == 4 ? 22 : 300);
    Random random(22);
    for (std::int64_t t = 0; t < s.tokens; ++t) {
      for (std::int64_t k = 0; k < 2 * s.width; ++k) s.state_row(t)[k] = 2.0f * normal(random);
    }
    EXPECT_OK(run(AS_OP_COMPRESS_INSERT, s.params()));
    EXPECT_TRUE(s.cache.guards_intact());
    PagedCache expected(which.record, static_cast<std::int32_t>(s.dim), 2,
                        s.tokens / which.ratio / 2 + 2);
    for (std::int64_t t = 0; t < s.tokens; ++t) {
      if (s.slots[t] < 0) {
        for (std::int64_t k = 0; k < s.dim; ++k) ASSERT_EQ(to_float(s.row[t * s.dim + k]), 99.0f);
        continue;
      }
      const std::vector<double> y = s.expected(t);
      std::vector<float> row(static_cast<std::size_t>(s.dim));
      double largest = 0.0;
      for (double v : y) largest = std::max(largest, std::fabs(v));
      for (std::int64_t k = 0; k < s.dim; ++k) {
        row[k] = to_float(s.row[t * s.dim + k]);
        const double slack = largest * 1e-6;  // where the rotation or transform cancels
        ASSERT_TRUE(bf16_steps(s.row[t * s.dim + k], y[k]) <= 1 ||
                    std::fabs(static_cast<double>(row[k]) - y[k]) <= slack)
            << t << " " << k << " " << row[k] << " " << y[k];
      }
      expected.put(s.slots[t], row.data());
    }
    EXPECT_EQ(s.cache.bytes(), expected.bytes());
  }
}

TEST(CompressInsert, RowsOutsideTheWindowNeverLeak) {
  for (std::int32_t ratio : {4, 128}) {
    Compressor clean({ratio, AS_RECORD_LATENT}, ratio == 4 ? 12 : 256);
    Compressor dirty({ratio, AS_RECORD_LATENT}, ratio == 4 ? 12 : 256);
    Random random(23);
    const float nan = std::numeric_limits<float>::quiet_NaN();
    const std::int64_t oldest = clean.tokens - clean.coff * ratio;
    for (std::int64_t t = 0; t < clean.tokens; ++t) {
      for (std::int64_t k = 0; k < 2 * clean.width; ++k) {
        const float value = normal(random);
        clean.state_row(t)[k] = value;
        // Before the last window, and in the channels that the window does not use.
        const bool unused = ratio == 4 && (k / clean.dim % 2 == 1) == (t < oldest + ratio);
        dirty.state_row(t)[k] = t < oldest || unused ? nan : value;
      }
      if (t + 1 < clean.tokens) clean.slots[t] = dirty.slots[t] = -1;
    }
    EXPECT_OK(run(AS_OP_COMPRESS_INSERT, clean.params()));
    EXPECT_OK(run(AS_OP_COMPRESS_INSERT, dirty.params()));
    EXPECT_EQ(clean.cache.bytes(), dirty.cache.bytes());
  }
}

TEST(CompressInsert, LogicalStateAndRowsGivenGiveTheSameBytes) {
  const Case which = {4, AS_RECORD_INDEX_FP8};
  Compressor s(which, 16), logical(which, 16), given(which, 16);
  Random random(24);
  Array<float> rows({20, 2 * s.width});
  for (std::int64_t t = 0; t < 16; ++t) {
    for (std::int64_t k = 0; k < 2 * s.width; ++k) {
      rows[(t + 3) * 2 * s.width + k] = s.state_row(t)[k] = normal(random);
    }
  }
  EXPECT_OK(run(AS_OP_INDEXER_COMPRESS_INSERT, s.params()));
  auto p = logical.params();
  Array<std::int32_t> first_rows({2, 1}, {0, 3});
  p.table = first_rows.tensor;
  p.state.addressing = AS_LOGICAL;
  p.state.rows_per_block = 0;
  p.state.data = rows.tensor;
  EXPECT_OK(run(AS_OP_INDEXER_COMPRESS_INSERT, p));
  EXPECT_EQ(s.cache.bytes(), logical.cache.bytes());
  auto q = make_params<as_compress_insert_params>();
  q.slots = given.slots.tensor;
  q.row = s.row.tensor;
  q.cache = given.cache.view();
  q.ratio = 4;
  q.rows_given = 1;
  EXPECT_OK(run(AS_OP_INDEXER_COMPRESS_INSERT, q));
  EXPECT_EQ(s.cache.bytes(), given.cache.bytes());
}

}  // namespace compressor_test
}  // namespace attnscope::kernel_tests
