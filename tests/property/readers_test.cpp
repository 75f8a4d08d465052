// Readers against both references: sparse attention and indexer logits over odd caches and lists.
#include <climits>
#include <cmath>
#include <limits>

#include "kernels/cpu/codec.h"
#include "kernels/layout/records.h"
#include "tests/property/paged.h"

namespace attnscope::property {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();

struct AttentionShape {
  std::int64_t length;   // rows of the window cache per request
  std::int64_t entries;  // rows of the extra cache, 0 = no extra cache
  int heads;
  int window_rows, extra_rows;  // rows per block
  int queries;                  // tokens per request
};

void PrintTo(const AttentionShape& s, std::ostream* out) {
  *out << "length " << s.length << ", entries " << s.entries << ", heads " << s.heads << ", pages "
       << s.window_rows << "/" << s.extra_rows << ", queries " << s.queries;
}

// Fills row t of a slot list and of its logical twin: random rows of the request, -1 inside,
// duplicates, garbage beyond the length.
void make_list(Random& random, const PagedRows& rows, std::int64_t request, std::int64_t available,
               std::int64_t len, std::int64_t t, Owned<std::int32_t>& slots,
               Owned<std::int32_t>& logical) {
  const std::int64_t width = slots.tensor.shape[1];
  for (std::int64_t k = 0; k < width; ++k) {
    auto& slot = *at<std::int32_t>(slots.tensor, t, k);
    auto& row = *at<std::int32_t>(logical.tensor, t, k);
    slot = INT_MAX - static_cast<int>(k);  // never read
    row = -1;
    if (k >= len) continue;
    slot = -1;
    if (available == 0 || random() % 8 == 0) continue;
    const auto p = static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(available));
    slot = static_cast<std::int32_t>(rows.slot(request, p));
    row = static_cast<std::int32_t>(rows.row(request, p));
  }
}

class Attention : public testing::TestWithParam<AttentionShape> {
 protected:
  // Runs the op on a lane and both references, compares o and lse; false when a tap is beyond.
  bool agrees(const as_lane& lane, bool expect) {
    const AttentionShape s = GetParam();
    Random random(static_cast<std::uint64_t>(s.length * 131 + s.heads * 7 + s.queries));
    // Room for rows that nobody lists: they stay NaN.
    const std::int64_t unused = 3;
    PagedRows window(AS_RECORD_LATENT, 512, s.window_rows, {s.length, s.length + unused}, random);
    PagedRows extra(AS_RECORD_LATENT, 512, s.extra_rows, {s.entries, s.entries}, random);
    window.fill(random);
    extra.fill(random);
    const std::int64_t tokens = 2 * s.queries, heads = s.heads;
    const std::int64_t width = 128, extra_width = 192;
    Owned<bf16_t> q({tokens, heads, 512});
    q.data = random_bf16(random, tokens * heads * 512);
    q.tensor.data = q.data.data();
    Owned<std::int32_t> slots({tokens, width}), rows({tokens, width}), lens({tokens});
    Owned<std::int32_t> more({tokens, extra_width}), more_rows({tokens, extra_width}),
        more_lens({tokens});
    for (std::int64_t t = 0; t < tokens; ++t) {
      const std::int64_t request = t / s.queries;
      const bool empty = t == 1;  // a row with no valid entry at all
      const std::int64_t n = empty ? 0 : std::min(width, s.length - (t % 3));
      lens.data[static_cast<std::size_t>(t)] =
          static_cast<std::int32_t>(std::max<std::int64_t>(0, n));
      make_list(random, window, request, s.length, n, t, slots, rows);
      const std::int64_t m = empty || s.entries == 0 ? 0 : std::min(extra_width, s.entries + 2);
      more_lens.data[static_cast<std::size_t>(t)] = static_cast<std::int32_t>(m);
      make_list(random, extra, request, s.entries, m, t, more, more_rows);
    }
    const float kinds[] = {0.0f, -kInf, 3.0f, kInf, 80.0f, -80.0f, 1e4f, 6.5f};
    Owned<float> sinks({heads});
    for (std::int64_t h = 0; h < heads; ++h) sinks.data[static_cast<std::size_t>(h)] = kinds[h % 8];
    Owned<bf16_t> o({tokens, heads, 512}, bf16_t{0x7FC0});
    Owned<float> lse({tokens, heads}, NAN);
    OpParams params;
    auto& p = params.init<as_sparse_attention_params>(AS_OP_SPARSE_ATTENTION);
    p.q = q.tensor;
    p.cache = window.paged();
    p.indices = slots.tensor;
    p.lens = lens.tensor;
    if (s.entries > 0) {
      p.extra_cache = extra.paged();
      p.extra_indices = more.tensor;
      p.extra_lens = more_lens.tensor;
    }
    p.sinks = sinks.tensor;
    p.o = o.tensor;
    p.lse = lse.tensor;
    p.scale = 1 / std::sqrt(512.0);
    run(lane, params);
    bool all = true;
    for (const as_lane* reference : {&sim(), &exact()}) {
      Owned<double> ro({tokens, heads, 512}), rlse({tokens, heads});
      OpParams twin = params;
      auto& r = twin.get<as_sparse_attention_params>();
      r.cache = window.logical();
      r.indices = rows.tensor;
      if (s.entries > 0) {
        r.extra_cache = extra.logical();
        r.extra_indices = more_rows.tensor;
      }
      r.o = ro.tensor;
      r.lse = rlse.tensor;
      run(*reference, twin);
      const Comparison co = check(params, "o", o.tensor, ro.tensor);
      const Comparison cl = check(params, "lse", lse.tensor, rlse.tensor);
      all = all && co.within && cl.within;
      if (expect) {
        EXPECT_WITHIN(co);
        EXPECT_WITHIN(cl);
      }
    }
    if (expect && tokens > 1) {  // the empty row
      for (std::int64_t h = 0; h < heads; ++h) {
        EXPECT_EQ(*at<float>(lse.tensor, 1, h), kInf);
        EXPECT_EQ(cpu::bf16_to_float(at<bf16_t>(o.tensor, 1, h)->bits), 0.0f);
      }
    }
    return all;
  }
};

TEST_P(Attention, AgreesWithBothReferences) { agrees(cpu_lane(), true); }

TEST_P(Attention, MutantsDoNot) {
  if (GetParam().length < 3 || GetParam().heads < 8) GTEST_SKIP() << "too little to go wrong";
  EXPECT_FALSE(agrees(mutant("mutant:sink_scaled"), false));
  EXPECT_FALSE(agrees(mutant("mutant:lse_with_sink"), false));
}

INSTANTIATE_TEST_SUITE_P(
    Shapes, Attention,
    testing::Values(AttentionShape{0, 0, 1, 64, 64, 1}, AttentionShape{1, 0, 8, 64, 2, 2},
                    AttentionShape{3, 1, 8, 3, 2, 1}, AttentionShape{4, 3, 64, 1, 53, 2},
                    AttentionShape{127, 4, 8, 64, 64, 5}, AttentionShape{128, 127, 1, 61, 2, 2},
                    AttentionShape{129, 128, 8, 53, 64, 2}, AttentionShape{255, 129, 64, 2, 61, 1},
                    AttentionShape{256, 255, 8, 64, 64, 5}, AttentionShape{2050, 512, 1, 64, 64, 2},
                    AttentionShape{2051, 513, 8, 69, 3, 1}, AttentionShape{200, 0, 64, 64, 64, 2}));

// ---- indexer logits
// ------------------------------------------------------------------------------

struct LogitsShape {
  std::vector<std::int64_t> entries;  // per request
  int heads, rows, queries;
  std::int32_t record;
};

class Logits : public testing::TestWithParam<LogitsShape> {
 protected:
  bool agrees(const as_lane& lane, bool expect) {
    const LogitsShape& s = GetParam();
    Random random(static_cast<std::uint64_t>(s.heads * 31 + s.rows));
    PagedRows keys(s.record, 128, s.rows, s.entries, random);
    keys.fill(random);
    const auto requests = static_cast<std::int64_t>(s.entries.size());
    const std::int64_t tokens = requests * s.queries, heads = s.heads;
    const bool fp4 = s.record == AS_RECORD_INDEX_MXFP4;
    const std::int64_t bytes = fp4 ? 64 : 128;
    Owned<std::uint8_t> q({tokens, heads, bytes}), scale({tokens, heads, 4}, 127);
    for (std::uint8_t& code : q.data) {
      code = static_cast<std::uint8_t>(random());
      if (!fp4 && (code & 0x7F) == 0x7F) code = 0;  // NaN codes are not queries
    }
    for (std::uint8_t& e : scale.data) e = static_cast<std::uint8_t>(120 + random() % 10);
    Owned<float> weights({tokens, heads});
    weights.data = random_f32(random, tokens * heads);
    weights.tensor.data = weights.data.data();
    Owned<std::int32_t> request_of({tokens}), lens({tokens});
    std::int64_t width = 1;
    for (std::int64_t t = 0; t < tokens; ++t) {
      const std::int64_t r = t / s.queries;
      const std::int64_t n =
          s.entries[static_cast<std::size_t>(r)] - (s.queries - 1 - t % s.queries);
      request_of.data[static_cast<std::size_t>(t)] = static_cast<std::int32_t>(r);
      lens.data[static_cast<std::size_t>(t)] =
          static_cast<std::int32_t>(std::max<std::int64_t>(0, n));
      width = std::max(width, n + 3);
    }
    Owned<float> logits({tokens, width}, -12345.0f);
    OpParams params;
    auto& p = params.init<as_indexer_logits_params>(AS_OP_INDEXER_LOGITS);
    p.q = q.tensor;
    if (fp4) p.q_scale = scale.tensor;
    p.weights = weights.tensor;
    p.cache = keys.paged();
    p.table = keys.table();
    p.request_of = request_of.tensor;
    p.lens = lens.tensor;
    p.logits = logits.tensor;
    run(lane, params);
    TapMask mask;
    mask.lens = lens.data.data();
    bool all = true;
    for (const as_lane* reference : {&sim(), &exact()}) {
      Owned<double> expected({tokens, width}, NAN);
      OpParams twin = params;
      auto& r = twin.get<as_indexer_logits_params>();
      r.cache = keys.logical();
      r.table = keys.logical_table();
      r.logits = expected.tensor;
      run(*reference, twin);
      const Comparison c = check(params, "logits", logits.tensor, expected.tensor, mask);
      all = all && c.within;
      if (expect) EXPECT_WITHIN(c);
    }
    for (std::int64_t t = 0; t < tokens; ++t) {
      for (std::int64_t c = lens.data[static_cast<std::size_t>(t)]; c < width; ++c) {
        EXPECT_EQ(*at<float>(logits.tensor, t, c), -12345.0f) << "column beyond the length written";
      }
    }
    return all;
  }
};

TEST_P(Logits, AgreeWithBothReferences) { agrees(cpu_lane(), true); }

TEST_P(Logits, WithoutReluTheyDoNot) { EXPECT_FALSE(agrees(mutant("mutant:relu_missing"), false)); }

INSTANTIATE_TEST_SUITE_P(Shapes, Logits,
                         testing::Values(LogitsShape{{1, 3, 4}, 64, 64, 1, AS_RECORD_INDEX_FP8},
                                         LogitsShape{
                                             {127, 128, 129}, 8, 53, 2, AS_RECORD_INDEX_FP8},
                                         LogitsShape{{255, 7}, 64, 2, 5, AS_RECORD_INDEX_FP8},
                                         LogitsShape{{512, 513}, 1, 61, 1, AS_RECORD_INDEX_FP8},
                                         LogitsShape{{2051}, 8, 64, 2, AS_RECORD_INDEX_FP8},
                                         LogitsShape{{1, 256, 63}, 8, 64, 1, AS_RECORD_INDEX_MXFP4},
                                         LogitsShape{{129, 64}, 64, 3, 2, AS_RECORD_INDEX_MXFP4}));

}  // namespace
}  // namespace attnscope::property
