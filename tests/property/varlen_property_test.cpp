// AS_OP_VARLEN_ATTENTION: packed sequences of any length, empty ones too, both ways in time,
// windows on both sides, head sizes, groups of heads, keys of their own. Rows that no query sees
// hold NaN.
#include <cmath>
#include <cstring>

#include "kernels/cpu/thread_pool.h"
#include "kernels/params/paged_params.h"
#include "tests/property/checks.h"

namespace attnscope::properties {
namespace {

std::vector<std::int32_t> starts_of(const std::vector<std::int64_t>& lengths) {
  std::vector<std::int32_t> starts = {0};
  for (const std::int64_t n : lengths) starts.push_back(starts.back() + static_cast<int>(n));
  return starts;
}

// Keys that some query of the sequence sees, counted one by one.
std::vector<bool> seen_by_any(const VarlenCase& c, std::int64_t queries, std::int64_t keys) {
  std::vector<bool> seen(static_cast<std::size_t>(keys), false);
  queries -= std::min(queries, c.padding);
  keys -= std::min(keys, c.padding);
  for (std::int64_t i = 0; i < queries; ++i) {
    const std::int64_t place = keys - queries + i;
    for (std::int64_t j = 0; j < keys; ++j) {
      const bool late = (c.causal != 0 && j > place) || (c.right >= 0 && j > place + c.right);
      const bool early = c.left >= 0 && j < place - c.left;
      if (!late && !early) seen[static_cast<std::size_t>(j)] = true;
    }
  }
  return seen;
}

}  // namespace

Report check_varlen(const Lane& lane, const VarlenCase& c) {
  Report report(case_seed("varlen " + c.name));
  Random random(report.seed());
  Memory memory;
  const std::vector<std::int64_t>& key_lengths = c.keys.empty() ? c.lengths : c.keys;
  const std::vector<std::int32_t> starts = starts_of(c.lengths),
                                  key_starts = starts_of(key_lengths);
  const std::int64_t known = starts.back(), tokens = known + c.behind;
  const std::int64_t rows = key_starts.back() + c.behind;
  const auto count = static_cast<std::int64_t>(starts.size());

  OpParams engine;
  auto& p = engine.init<as_varlen_attention_params>(AS_OP_VARLEN_ATTENTION);
  p.q = memory.normals(AS_BF16, {tokens, c.heads, c.size}, random, c.q_scale, 8);
  p.k = memory.make(AS_BF16, {rows, c.kv_heads, c.size}, 8);  // NaN
  p.v = memory.make(AS_BF16, {rows, c.kv_heads, c.size_v}, 3);
  for (std::size_t n = 0; n < c.lengths.size(); ++n) {
    const std::vector<bool> seen = seen_by_any(c, c.lengths[n], key_lengths[n]);
    for (std::size_t j = 0; j < seen.size(); ++j) {
      if (!seen[j]) continue;
      const std::int64_t row = key_starts[n] + static_cast<std::int64_t>(j);
      for (std::int64_t g = 0; g < c.kv_heads; ++g) {
        for (std::int64_t d = 0; d < c.size; ++d) {
          *at<bf16_t>(p.k, row, g, d) = to_bf16(normal(random));
        }
        for (std::int64_t d = 0; d < c.size_v; ++d) {
          *at<bf16_t>(p.v, row, g, d) = to_bf16(normal(random));
        }
      }
    }
  }
  p.cu_seqlens = memory.ints(starts, {count});
  if (!c.keys.empty()) p.cu_seqlens_k = memory.ints(key_starts, {count});
  if (c.alibi > 0) {
    p.alibi_slopes = memory.make(AS_F32, {c.heads});
    float slope = c.alibi;
    for (std::int64_t h = 0; h < c.heads; ++h, slope *= 2.0f / 3.0f) {
      *at<float>(p.alibi_slopes, h) = slope;
    }
  }
  if (c.buckets > 0) p.position_bias = memory.normals(AS_F32, {c.buckets, c.heads}, random, 1.0f);
  p.bias_distance = c.distance;
  std::vector<std::int32_t> owners(static_cast<std::size_t>(tokens), -1);
  for (std::size_t n = 0; n < c.lengths.size(); ++n) {
    std::fill(owners.begin() + starts[n],
              owners.begin() + std::max<std::int64_t>(starts[n], starts[n + 1] - c.padding),
              static_cast<std::int32_t>(n));
  }
  if (c.padding > 0) p.token_to_req = memory.ints(owners, {tokens});
  p.o = memory.make(AS_BF16, {tokens, c.heads, c.size_v}, 5);
  p.lse = memory.make(AS_F32, {tokens, c.heads}, 1);
  p.scale = 1 / std::sqrt(static_cast<double>(c.size));
  p.soft_cap = c.soft_cap;
  p.causal = c.causal;
  p.window_left = c.left;
  p.window_right = c.right;
  if (!run(lane, engine, &report)) return report;
  memory.check_guards(&report);
  for (std::int64_t t = 0; t < tokens; ++t) {
    if (t < known && (c.padding == 0 || owners[static_cast<std::size_t>(t)] >= 0)) continue;
    for (std::int64_t h = 0; h < c.heads; ++h) {
      if (*at<float>(p.lse, t, h) != -kInfinity) report.fail("lse", "a token behind is not -inf");
      if (at<bf16_t>(p.o, t, h)->bits != 0) report.fail("o", "a token behind is not 0");
    }
  }

  OpParams sim = with_own_outputs(engine, &memory);
  if (!run(*reference::sim_lane(), sim, &report)) return report;
  judge_all(engine, sim, &report);

  // Nothing is quantised: what differs from float64 is the order of sums and one rounding, and
  // weights where the lane rounds them, as for pages.
  const double of_weights = c.rounded_weights ? 4e-3 : 0;
  OpParams exact = with_own_outputs(sim, &memory);
  if (!run(*reference::exact_lane(), exact, &report)) return report;
  const auto& e = exact.get<as_varlen_attention_params>();
  judge_bound(
      "o against ref.exact", p.o, e.o, nullptr,
      [=](std::int64_t, std::int64_t, double value) {
        return 2 * kBf16Half * std::fabs(value) + 2e-5 + of_weights;
      },
      &report);
  judge_bound(
      "lse against ref.exact", p.lse, e.lse, nullptr,
      [](std::int64_t, std::int64_t, double value) { return 1e-5 + 2e-6 * std::fabs(value); },
      &report);
  return report;
}

// Every head size that vision models have, each with another mask; keys of their own lengths, as
// cross attention has them: fewer and more than queries, and none.
std::vector<VarlenCase> varlen_cases() {
  std::vector<VarlenCase> cases = {
      {"no_sequence", {}},
      {"empty_sequences", {0, 0, 0}, {}, 2, 4, 2},
      {"one_token", {1}},
      {"empty_between", {5, 0, 70, 0, 0, 1, 33, 0}, {}, 3, 4, 2},
      {"tokens_behind", {20, 7}, {}, 9, 4, 4},
      {"causal_long", {300, 17}, {}, 0, 4, 1, 64, 64, 1},
      {"window_both", {150, 3}, {}, 0, 4, 2, 64, 64, 0, 12, 5},
      {"window_own_alone", {40}, {}, 0, 2, 2, 32, 32, 0, 0, 0},
      {"window_right_alone", {90}, {}, 0, 4, 2, 64, 64, 0, -1, 7},
      {"window_causal", {200}, {}, 0, 4, 2, 64, 64, 1, 31, -1},
      {"values_narrower", {70, 9}, {}, 1, 4, 2, 192, 128},
      {"values_wider", {70, 9}, {}, 1, 4, 2, 40, 96},
      {"mqa_71", {50, 31}, {}, 0, 71, 1, 64, 64},
      {"cross", {5, 40, 1}, {90, 7, 33}, 1, 4, 2},
      {"cross_no_keys", {5, 12}, {0, 20}, 1, 4, 2},
      {"cross_no_queries", {0, 12}, {50, 20}, 1, 4, 2},
      {"cross_causal", {5, 40, 7}, {90, 12, 7}, 0, 4, 2, 64, 64, 1},
      {"cross_window", {30, 10}, {60, 10}, 0, 4, 2, 64, 64, 0, 3, 9},
      {"largest_heads", {66}, {}, 0, 2, 1, 512, 512},
  };
  int i = 0;
  for (const std::int64_t size : {64, 72, 80, 96, 128, 256}) {
    VarlenCase c{"d" + std::to_string(size), {130, 1, 64, 0, 65}, {}, i % 3, 6, i % 2 == 0 ? 6 : 2};
    c.size = c.size_v = size;
    if (i % 3 == 1) c.left = 20 + i;
    if (i % 3 == 1) c.right = 9;
    cases.push_back(std::move(c));
    ++i;
  }
  VarlenCase cap{"soft_cap", {90, 4}, {}, 0, 4, 2};
  cap.soft_cap = 5;
  cap.q_scale = 4;
  cases.push_back(cap);
  VarlenCase alibi{"alibi", {90, 4, 300}, {}, 1, 12, 4};
  alibi.alibi = 0.7f;
  cases.push_back(alibi);
  alibi.name = "alibi_cross_cap";
  alibi.keys = {30, 4, 310};
  alibi.soft_cap = 3;
  cases.push_back(alibi);
  VarlenCase bias{"bias_both_ways", {90, 4, 300}, {}, 1, 8, 4};
  bias.buckets = 32;
  bias.distance = 128;
  cases.push_back(bias);
  bias.name = "bias_causal_padding";
  bias.causal = 1;
  bias.padding = 3;
  cases.push_back(bias);
  VarlenCase padding{"padding", {90, 2, 0, 70, 5}, {}, 2, 4, 2};
  padding.padding = 5;
  cases.push_back(padding);
  VarlenCase far{"scores_far_apart", {200}, {}, 0, 4, 2};
  far.q_scale = 30;
  cases.push_back(far);
  return cases;
}

namespace {

class VarlenProperty : public testing::TestWithParam<VarlenCase> {};

TEST_P(VarlenProperty, MatchesBothReferences) {
  const Report report = check_varlen(*cpu::lane(), GetParam());
  EXPECT_TRUE(report.ok()) << report;
}
INSTANTIATE_TEST_SUITE_P(Shapes, VarlenProperty, testing::ValuesIn(varlen_cases()),
                         name_of<VarlenCase>);

struct VarlenCall {
  VarlenCall() {
    Random random(11);
    p = {};
    p.head = {sizeof(p), AS_PARAMS_VERSION};
    p.q = memory.normals(AS_BF16, {340, 4, 64}, random);
    p.k = memory.normals(AS_BF16, {340, 2, 64}, random);
    p.v = memory.normals(AS_BF16, {340, 2, 64}, random);
    p.cu_seqlens = memory.ints({0, 300, 300, 340}, {4});
    p.o = memory.make(AS_BF16, {340, 4, 64});
    p.lse = memory.make(AS_F32, {340, 4});
    p.scale = 0.125;
    p.window_left = p.window_right = -1;
  }
  std::int32_t run(as_error* error, int threads = 1) {
    cpu::ThreadPool pool(threads);
    as_call call{};
    call.struct_size = sizeof(call);
    call.threads = pool.handle();
    return cpu::lane()->ops[AS_OP_VARLEN_ATTENTION](&p, &call, error);
  }
  Memory memory;
  as_varlen_attention_params p;
};

TEST(VarlenThreads, GiveTheSameBytes) {
  VarlenCall call;
  as_tensor first{};
  for (const int threads : {1, 2, 7}) {
    call.p.o = call.memory.make(AS_BF16, {340, 4, 64});
    as_error error{};
    ASSERT_EQ(call.run(&error, threads), AS_OK) << error.message;
    if (first.data == nullptr) first = call.p.o;
    EXPECT_EQ(std::memcmp(first.data, call.p.o.data, tensor_bytes(first)), 0) << threads;
  }
}

// T5's own buckets, 32 up to a distance of 128: how many distances each has, seen by a query behind
// 199 keys whose scores are all 0 but for one bucket's bias.
TEST(VarlenBias, HasTheBucketsOfT5) {
  const std::vector<int> kSizes = {1, 1, 1, 1, 1, 1, 1, 1, 4, 4, 7, 9, 14, 18, 27, 109};
  for (std::size_t bucket = 0; bucket < 32; ++bucket) {
    for (const bool behind : {false, true}) {
      Memory memory;
      as_varlen_attention_params p{};
      p.head = {sizeof(p), AS_PARAMS_VERSION};
      const std::int64_t queries = behind ? 200 : 1;
      p.q = memory.make(AS_BF16, {queries, 1, 16});
      p.k = memory.make(AS_BF16, {200, 1, 16});
      p.v = memory.make(AS_BF16, {200, 1, 16});
      for (const as_tensor* t : {&p.q, &p.k, &p.v}) std::memset(t->data, 0, tensor_bytes(*t));
      p.cu_seqlens = memory.ints({0, static_cast<std::int32_t>(queries)}, {2});
      p.cu_seqlens_k = memory.ints({0, 200}, {2});
      p.position_bias = memory.make(AS_F32, {32, 1});
      for (std::size_t n = 0; n < 32; ++n) {
        *at<float>(p.position_bias, static_cast<std::int64_t>(n), 0) = n == bucket ? 40.0f : 0.0f;
      }
      p.bias_distance = 128;
      p.o = memory.make(AS_BF16, {queries, 1, 16});
      p.lse = memory.make(AS_F32, {queries, 1});
      p.scale = 1;
      p.window_left = p.window_right = -1;
      for (const Lane* lane : {cpu::lane(), reference::sim_lane()}) {
        as_error error{};
        ASSERT_EQ(lane->ops[AS_OP_VARLEN_ATTENTION](&p, nullptr, &error), AS_OK) << error.message;
        // Of the first query all keys stand behind: buckets 17 to 31, and the first for itself.
        const std::size_t side = bucket % 16;
        const bool there = behind ? bucket == 0 || (bucket > 16) : bucket < 16;
        const double keys = there ? kSizes[side] : 0;
        EXPECT_NEAR(*at<float>(p.lse, 0, 0), std::log(keys * std::exp(40.0) + 200 - keys), 1e-4)
            << lane->name << ", bucket " << bucket;
      }
    }
  }
}

// A sequence gives the same bytes whatever lies beside it in the batch.
TEST(VarlenBesideOthers, GivesTheSameBytes) {
  VarlenCall call, alone;
  alone.p.q = call.p.q;
  for (as_tensor* t : {&alone.p.q, &alone.p.k, &alone.p.v, &alone.p.o, &alone.p.lse}) {
    t->shape[0] = 40;
  }
  const auto part = [](const as_tensor& t) {
    as_tensor from = t;
    from.data = static_cast<char*>(t.data) + 300 * t.stride[0] * as_dtype_size(t.dtype);
    from.shape[0] = 40;
    return from;
  };
  alone.p.q = part(call.p.q);
  alone.p.k = part(call.p.k);
  alone.p.v = part(call.p.v);
  alone.p.cu_seqlens = alone.memory.ints({0, 40}, {2});
  as_error error{};
  ASSERT_EQ(call.run(&error), AS_OK) << error.message;
  ASSERT_EQ(alone.run(&error), AS_OK) << error.message;
  for (std::int64_t t = 0; t < 40; ++t) {
    EXPECT_EQ(std::memcmp(at<bf16_t>(call.p.o, 300 + t), at<bf16_t>(alone.p.o, t), 4 * 64 * 2), 0);
  }
}

TEST(VarlenParams, WhatIsWrongIsNamed) {
  const auto refused = [](const std::string& text, auto change) {
    VarlenCall call;
    change(call);
    as_error error{};
    EXPECT_EQ(call.run(&error), AS_BAD_INPUT);
    EXPECT_NE(std::string(error.message).find(text), std::string::npos) << error.message;
    // The references say no as well.
    as_error theirs{};
    EXPECT_EQ(reference::sim_lane()->ops[AS_OP_VARLEN_ATTENTION](&call.p, nullptr, &theirs),
              AS_BAD_INPUT)
        << text;
  };
  refused("cu_seqlens[0] is 1", [](VarlenCall& c) {
    c.p.cu_seqlens = c.memory.ints({1, 300, 300, 340}, {4});
  });
  refused("cu_seqlens[2] is 299", [](VarlenCall& c) {
    c.p.cu_seqlens = c.memory.ints({0, 300, 299, 340}, {4});
  });
  refused("cu_seqlens[3] is 341", [](VarlenCall& c) {
    c.p.cu_seqlens = c.memory.ints({0, 300, 300, 341}, {4});
  });
  refused("cu_seqlens_k[3] is 341", [](VarlenCall& c) {
    c.p.cu_seqlens_k = c.memory.ints({0, 300, 300, 341}, {4});
  });
  refused("must be a multiple", [](VarlenCall& c) {
    c.p.k = c.memory.make(AS_BF16, {340, 3, 64});
    c.p.v = c.memory.make(AS_BF16, {340, 3, 64});
  });
}

}  // namespace
}  // namespace attnscope::properties
