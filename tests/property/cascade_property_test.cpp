// Cascade attention of requests with a common prefix: the queries of all requests over the prefix
// in one sequence, each request's own rest by itself, both states merged. The states that are
// merged are of the same query. What comes out is attention of each request over all of its keys.
#include <cmath>
#include <cstring>

#include "kernels/params/helper_params.h"
#include "kernels/params/paged_params.h"
#include "tests/property/checks.h"

namespace attnscope::properties {
namespace {

struct CascadeCase {
  std::string name;
  std::int64_t prefix;
  std::vector<std::int64_t> rests;  // keys behind the prefix; a request has one query, its last
};

void PrintTo(const CascadeCase& c, std::ostream* out) { *out << c.name; }

const CascadeCase kCascades[] = {
    {"one_request", 64, {9}},
    {"rests_of_all_lengths", 200, {1, 63, 64, 65, 3}},
    {"no_rest", 96, {0, 5, 0}},
    {"no_prefix", 0, {4, 70}},
};

// 100 tokens in common are 6 whole blocks of 16: 96 are found, 4 are computed again.
static_assert(100 / 16 * 16 == 96);

class CascadeProperty : public testing::TestWithParam<CascadeCase> {};

constexpr std::int64_t kCascadeHeads = 4, kCascadeKvHeads = 2, kCascadeSize = 64;

as_varlen_attention_params& call_of(OpParams& params, const as_tensor& q, const as_tensor& k,
                                    const as_tensor& v, Memory& memory) {
  auto& p = params.init<as_varlen_attention_params>(AS_OP_VARLEN_ATTENTION);
  p.q = q, p.k = k, p.v = v;
  p.o = memory.make(AS_BF16, {q.shape[0], kCascadeHeads, kCascadeSize}, 3);
  p.lse = memory.make(AS_F32, {q.shape[0], kCascadeHeads}, 1);
  p.scale = 0.125;
  p.window_left = p.window_right = -1;
  return p;
}

as_tensor rows_from(const as_tensor& t, std::int64_t first, std::int64_t count) {
  as_tensor part = t;
  part.data = static_cast<char*>(t.data) + first * t.stride[0] * 2;
  part.shape[0] = count;
  return part;
}

void copy_rows(const as_tensor& from, std::int64_t row, std::int64_t count, const as_tensor& to,
               std::int64_t at_row) {
  const std::size_t bytes = kCascadeKvHeads * kCascadeSize * sizeof(bf16_t);
  for (std::int64_t i = 0; i < count; ++i) {
    std::memcpy(at<bf16_t>(to, at_row + i), at<bf16_t>(from, row + i), bytes);
  }
}

TEST_P(CascadeProperty, IsAttentionOverAllKeys) {
  const CascadeCase& c = GetParam();
  Report report(case_seed("cascade " + c.name));
  Random random(report.seed());
  Memory memory;
  const auto requests = static_cast<std::int64_t>(c.rests.size());
  std::vector<std::int32_t> rests = {0}, whole = {0}, queries = {0};
  for (const std::int64_t rest : c.rests) {
    rests.push_back(rests.back() + static_cast<std::int32_t>(rest));
    whole.push_back(whole.back() + static_cast<std::int32_t>(c.prefix + rest));
    queries.push_back(queries.back() + 1);
  }
  const as_tensor q = memory.normals(AS_BF16, {requests, kCascadeHeads, kCascadeSize}, random);
  const std::int64_t rows = c.prefix + rests.back();  // the prefix once, then the rests
  const as_tensor k = memory.normals(AS_BF16, {rows, kCascadeKvHeads, kCascadeSize}, random);
  const as_tensor v = memory.normals(AS_BF16, {rows, kCascadeKvHeads, kCascadeSize}, random);

  OpParams common, own, all;
  auto& prefix = call_of(common, q, rows_from(k, 0, c.prefix), rows_from(v, 0, c.prefix), memory);
  const auto batch = static_cast<std::int32_t>(requests);
  prefix.cu_seqlens = memory.ints({0, batch}, {2});
  prefix.cu_seqlens_k = memory.ints({0, static_cast<std::int32_t>(c.prefix)}, {2});
  auto& rest = call_of(own, q, rows_from(k, c.prefix, rests.back()),
                       rows_from(v, c.prefix, rests.back()), memory);
  rest.cu_seqlens = memory.ints(queries, {requests + 1});
  rest.cu_seqlens_k = memory.ints(rests, {requests + 1});
  ASSERT_TRUE(run(*cpu::lane(), common, &report)) << report;
  ASSERT_TRUE(run(*cpu::lane(), own, &report)) << report;
  OpParams merged;
  auto& m = merged.init<as_merge_states_params>(AS_OP_MERGE_STATES);
  m.a = prefix.o, m.lse_a = prefix.lse, m.b = rest.o, m.lse_b = rest.lse;
  m.out = memory.make(AS_BF16, {requests, kCascadeHeads, kCascadeSize}, 3);
  m.lse = memory.make(AS_F32, {requests, kCascadeHeads}, 1);
  ASSERT_TRUE(run(*cpu::lane(), merged, &report)) << report;

  const as_tensor all_k = memory.make(AS_BF16, {whole.back(), kCascadeKvHeads, kCascadeSize});
  const as_tensor all_v = memory.make(AS_BF16, {whole.back(), kCascadeKvHeads, kCascadeSize});
  for (std::size_t r = 0; r < c.rests.size(); ++r) {
    for (const auto& [from, to] : {std::pair{&k, &all_k}, {&v, &all_v}}) {
      copy_rows(*from, 0, c.prefix, *to, whole[r]);
      copy_rows(*from, c.prefix + rests[r], c.rests[r], *to, whole[r] + c.prefix);
    }
  }
  auto& full = call_of(all, q, all_k, all_v, memory);
  full.cu_seqlens = memory.ints(queries, {requests + 1});
  full.cu_seqlens_k = memory.ints(whole, {requests + 1});
  OpParams right = with_own_outputs(all, &memory);
  ASSERT_TRUE(run(*reference::exact_lane(), right, &report)) << report;
  const auto& e = right.get<as_varlen_attention_params>();
  // Both parts and the result are rounded to bf16.
  judge_bound(
      "out", m.out, e.o, nullptr,
      [](std::int64_t, std::int64_t, double value) {
        return 4 * kBf16Half * (std::fabs(value) + 1);
      },
      &report);
  judge_bound(
      "lse", m.lse, e.lse, nullptr,
      [](std::int64_t, std::int64_t, double value) { return 1e-5 + 2e-6 * std::fabs(value); },
      &report);
  EXPECT_TRUE(report.ok()) << report;
}

INSTANTIATE_TEST_SUITE_P(Prefixes, CascadeProperty, testing::ValuesIn(kCascades),
                         name_of<CascadeCase>);

// A context dealt out to two ranks by halves, causal: queries of the first half see nothing of the
// second, whose state is empty and changes no byte; those of the second see all of the first, and
// their own half causally. States that are merged are of the same query.
TEST(ContextOfTwoRanks, IsCausalAttentionOverAllOfIt) {
  constexpr std::int64_t kHalf = 40;
  Report report(case_seed("two ranks"));
  Random random(report.seed());
  Memory memory;
  const as_tensor q = memory.normals(AS_BF16, {2 * kHalf, kCascadeHeads, kCascadeSize}, random);
  const as_tensor k = memory.normals(AS_BF16, {2 * kHalf, kCascadeKvHeads, kCascadeSize}, random);
  const as_tensor v = memory.normals(AS_BF16, {2 * kHalf, kCascadeKvHeads, kCascadeSize}, random);
  const auto attended = [&](std::int64_t first_query, std::int64_t first_key, bool local,
                            OpParams& params) -> as_varlen_attention_params& {
    auto& p = call_of(params, rows_from(q, first_query, kHalf), rows_from(k, first_key, kHalf),
                      rows_from(v, first_key, kHalf), memory);
    p.cu_seqlens = memory.ints({0, kHalf}, {2});
    p.causal = local ? 1 : 0;
    return p;
  };
  OpParams all;
  auto& full = call_of(all, q, k, v, memory);
  full.cu_seqlens = memory.ints({0, 2 * kHalf}, {2});
  full.causal = 1;
  ASSERT_TRUE(run(*reference::exact_lane(), all, &report)) << report;
  for (const std::int64_t rank : {0, 1}) {
    const std::int64_t own = rank * kHalf, other = (1 - rank) * kHalf;
    OpParams near, far, merged;
    auto& local = attended(own, own, true, near);
    auto& remote = attended(own, other, false, far);
    const std::vector<double> nothing = {AS_MASK_NUMBER, 0};
    if (other > own) remote.mask_code = make_tensor(nothing.data(), {1, 2});
    ASSERT_TRUE(run(*cpu::lane(), near, &report)) << report;
    ASSERT_TRUE(run(*cpu::lane(), far, &report)) << report;
    auto& m = merged.init<as_merge_states_params>(AS_OP_MERGE_STATES);
    m.a = remote.o, m.lse_a = remote.lse, m.b = local.o, m.lse_b = local.lse;
    m.out = memory.make(AS_BF16, {kHalf, kCascadeHeads, kCascadeSize});
    m.lse = memory.make(AS_F32, {kHalf, kCascadeHeads});
    ASSERT_TRUE(run(*cpu::lane(), merged, &report)) << report;
    for (std::int64_t t = 0; t < kHalf; ++t) {
      for (std::int64_t h = 0; h < kCascadeHeads; ++h) {
        if (rank == 0) {
          EXPECT_EQ(*at<float>(remote.lse, t, h), -kInfinity);
          EXPECT_EQ(std::memcmp(at<bf16_t>(m.out, t, h), at<bf16_t>(local.o, t, h),
                                kCascadeSize * sizeof(bf16_t)),
                    0);
        }
        EXPECT_NEAR(*at<float>(m.lse, t, h), *at<float>(full.lse, own + t, h), 1e-4);
        for (std::int64_t d = 0; d < kCascadeSize; ++d) {
          const double right = cpu::bf16_to_float(at<bf16_t>(full.o, own + t, h)[d].bits);
          const double given = cpu::bf16_to_float(at<bf16_t>(m.out, t, h)[d].bits);
          ASSERT_NEAR(given, right, 0x1p-6) << "rank " << rank << ", token " << t;
        }
      }
    }
  }
}

}  // namespace
}  // namespace attnscope::properties
