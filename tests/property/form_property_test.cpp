// Cases of paged_attention under masks, behind rows of another side, and in two passes: cut where
// earlier steps end, or behind a common prefix that is read once for the tokens of all requests.
// Both references, which know no passes, agree, and where a call is cut is what the tables and
// positions say.
#include <cstring>

#include "kernels/cpu/paged_forms.h"
#include "kernels/cpu/thread_pool.h"
#include "tests/property/checks.h"

namespace attnscope::properties {

// Masks and score functions of a user, with what they may stand beside.
std::vector<PagedCase> masked_cases() {
  std::vector<PagedCase> cases(8, {"", {129, 300, 90}, 3, 8, 2});
  for (PagedCase& c : cases) c.causal = 0;
  cases[0].name = "mask_prefix_lm";
  cases[0].mask = "prefix_lm(60)";
  cases[0].queries = 80;
  cases[1].name = "mask_documents_splits";
  cases[1].mask = "document(30, 64, 129)";
  cases[1].splits = 3;
  cases[2].name = "mask_with_holes";
  cases[2].mask = "causal && kv_idx % 3 != q_idx % 2";
  cases[2].queries = 40;
  cases[3].name = "mask_by_head_and_request";
  cases[3].mask = "head % 2 == 0 ? sliding(20) : request == 1 || kv_idx % 5 == 0";
  cases[4].name = "mask_that_hides_all";
  cases[4].mask = "0";
  cases[5].name = "mask_rows_that_see_nothing";
  cases[5].mask = "q_idx % 4 != 1 && causal";
  cases[5].queries = 20;
  cases[5].sinks = true;
  cases[6].name = "mask_and_score_beside_window";
  cases[6].causal = 1;
  cases[6].window = 50;
  cases[6].mask = "kv_idx % 2 == 0 || kv_idx == q_idx";
  cases[6].score = "score - (head + 1) * 0.01 * (q_idx - kv_idx)";
  cases[7].name = "score_alone_f16";
  cases[7].causal = 1;
  cases[7].score = "soft_cap(3)";
  cases[7].record = AS_RECORD_F16;
  return cases;
}

// Masks whose places are not those of rows and positions: over the batch of chunks, across from a
// decoder to its source, in a decoder behind its source.
std::vector<PagedCase> placed_cases() {
  std::vector<PagedCase> cases(6, {"", {129, 300, 90}, 40, 8, 2});
  const char* const holes = "kv_idx % 3 != 0 || kv_idx == q_idx || q_idx - kv_idx == 7";
  cases[0].name = "mask_over_chunks";
  cases[0].mask = holes;
  cases[1].name = "mask_and_score_over_chunks_splits";
  cases[1].mask = "head % 2 == 0 ? kv_idx % 5 != 1 : kv_idx >= 100";
  cases[1].score = "score - 0.01 * (head + 1) * (kv_idx % 50)";
  cases[1].splits = 3;
  cases[2].name = "score_alone_over_chunks";
  cases[2].score = "score + 0.02 * (kv_idx % 50) - 0.001 * q_idx";
  for (std::size_t i = 0; i < 3; ++i) {
    cases[i].chunk = 64;
    cases[i].local = true;
  }
  cases[3].name = "mask_across";
  cases[3].mask = "kv_idx <= 2 * q_idx && (head % 2 == 0 || kv_idx % 3 != 0)";
  cases[3].score = "score + 0.02 * (kv_idx % 7) - 0.001 * q_idx";
  cases[3].causal = 0;
  cases[3].query_start = 20;
  cases[4].name = "mask_across_that_hides_all";
  cases[4].mask = "kv_idx < q_idx - 300";
  cases[4].causal = 0;
  cases[4].query_start = 5;
  cases[5].name = "mask_behind_a_source";
  cases[5].mask = holes;
  cases[5].first = 30;
  cases[5].query_start = cases[5].row_start = 30;
  cases[5].buckets = 16;
  cases[5].distance = 40;
  return cases;
}

// ALiBi alone, behind a cap, beside a sink, over chunks, both ways in time, over splits and groups.
std::vector<PagedCase> alibi_cases() {
  std::vector<PagedCase> cases(8, {"", {257, 1, 0, 90}, 3, 8, 2, 64, 64, 16});
  cases[0].name = "alibi_alone";
  cases[1].name = "alibi_window_cap_sink";
  cases[1].window = 50;
  cases[1].soft_cap = 3;
  cases[1].sinks = true;
  cases[2].name = "alibi_not_causal";
  cases[2].causal = 0;
  cases[3].name = "alibi_splits";
  cases[3].splits = 5;
  cases[4].name = "alibi_chunks_local";
  cases[4].chunk = 32;
  cases[4].local = true;
  cases[5].name = "alibi_prefill_of_12_heads";
  cases[5].queries = 90;
  cases[5].heads = 12;
  cases[5].kv_heads = 4;
  cases[6].name = "alibi_far";
  cases[6].lengths = {9000};
  cases[6].queries = 2;
  cases[7].name = "alibi_f16_one_head";
  cases[7].heads = cases[7].kv_heads = 1;
  cases[7].record = AS_RECORD_F16 | AS_RECORD_HND;
  for (PagedCase& c : cases) c.alibi = c.name == "alibi_far" ? 0.01f : 0.7f;
  return cases;
}

// Rows that stand before what a request sees, and biases by distance: of a decoder behind its
// source, of cross attention without either, with splits, over pages of other layouts.
std::vector<PagedCase> sided_cases() {
  std::vector<PagedCase> cases(8, {"", {129, 300, 90}, 3, 8, 2});
  cases[0].name = "first_rows";
  cases[0].first = 40;
  cases[1].name = "first_rows_splits";
  cases[1].first = 100;
  cases[1].splits = 3;
  cases[2].name = "first_rows_leave_none";
  cases[2].first = 129;
  cases[3].name = "bias_causal";
  cases[4].name = "bias_both_ways";
  cases[4].causal = 0;
  cases[5].name = "bias_behind_source";
  cases[5].first = 37;
  cases[5].queries = 40;
  cases[5].lengths = {80, 130, 78};
  cases[6].name = "bias_cap_f16_heads_apart";
  cases[6].soft_cap = 3;
  cases[6].record = AS_RECORD_F16 | AS_RECORD_HND;
  cases[7].name = "bias_alibi_splits";
  cases[7].alibi = 0.3f;
  cases[7].splits = 4;
  for (std::size_t i = 3; i < cases.size(); ++i) {
    cases[i].buckets = i % 2 == 0 ? 32 : 16;
    cases[i].distance = i % 2 == 0 ? 128 : 40;
  }
  return cases;
}

std::vector<PagedCase> formed_cases() {
  const auto of = [](const char* name, std::int32_t form, std::vector<std::int64_t> lengths,
                     std::int64_t queries, std::int64_t common) {
    PagedCase c{name, std::move(lengths), queries, 8, 2};
    c.form = form;
    c.common = common;
    return c;
  };
  constexpr std::int32_t kMerged = AS_PAGED_MERGED, kCascade = AS_PAGED_CASCADE;
  std::vector<PagedCase> cases = {
      of("merged_decode", kMerged, {129, 300, 90}, 1, 0),
      of("merged_prefill", kMerged, {129, 300, 90}, 70, 0),
      of("merged_nothing_before", kMerged, {20, 1, 0, 33}, 33, 0),
      of("merged_window", kMerged, {129, 300, 90}, 5, 0),
      of("merged_chunks", kMerged, {129, 300, 90}, 20, 0),
      of("merged_mask", kMerged, {129, 300, 90}, 20, 0),
      of("merged_behind_source", kMerged, {129, 300, 90}, 5, 0),
      of("cascade_decode", kCascade, {129, 300, 100}, 1, 96),
      of("cascade_prefill", kCascade, {129, 300, 180}, 30, 96),
      of("cascade_of_many", kCascade, std::vector<std::int64_t>(40, 67), 3, 64),
      of("cascade_all_but_own_tokens", kCascade, {97, 97}, 1, 96),
      of("cascade_none_in_common", kCascade, {129, 300, 90}, 2, 0),
      of("cascade_of_one", kCascade, {200}, 7, 0),
      of("cascade_longer_than_computed", kCascade, {129, 110, 112}, 20, 96),
      of("cascade_cap_alibi_sinks_splits", kCascade, {129, 300, 100}, 2, 96),
      of("cascade_f16_heads_apart", kCascade, {129, 300, 100}, 2, 96),
      of("cascade_71_heads", kCascade, {129, 300, 100}, 2, 96),
      of("cascade_of_codes", kCascade, {129, 300, 100}, 2, 96),
      of("cascade_far_scores", kCascade, {129, 700, 100}, 2, 96),
      of("cascade_score_by_request", kCascade, {129, 300, 100}, 2, 96),
  };
  for (PagedCase& c : cases) {
    if (c.name == "merged_window") c.window = 50;
    if (c.name == "merged_chunks") c.chunk = 64;
    if (c.name == "merged_mask") c.causal = 0, c.mask = "causal && kv_idx % 3 != q_idx % 2";
    if (c.name == "merged_behind_source") c.first = 37;
    if (c.name == "cascade_cap_alibi_sinks_splits") {
      c.soft_cap = 3, c.alibi = 0.3f, c.sinks = true, c.splits = 3;
    }
    if (c.name == "cascade_f16_heads_apart") c.record = AS_RECORD_F16 | AS_RECORD_HND;
    if (c.name == "cascade_71_heads") c.heads = 71, c.kv_heads = 1;
    if (c.name == "cascade_of_codes") c.record = AS_RECORD_FP8_TOKEN_HEAD, c.gap = 32;
    if (c.name == "cascade_far_scores") c.q_scale = 30;
    if (c.name == "cascade_score_by_request") c.score = "score + request * (kv_idx % 7)";
  }
  return cases;
}

namespace {

class PagedFormProperty : public testing::TestWithParam<PagedCase> {};

TEST_P(PagedFormProperty, MatchesBothReferences) {
  const Report report = check_paged_attention(*cpu::lane(), GetParam());
  EXPECT_TRUE(report.ok()) << report;
}
INSTANTIATE_TEST_SUITE_P(Forms, PagedFormProperty, testing::ValuesIn(formed_cases()),
                         name_of<PagedCase>);

// Requests with tables and the positions of their tokens; the last token is padding.
struct CutCall {
  CutCall(std::int32_t form, const std::vector<std::vector<std::int32_t>>& tables,
          const std::vector<std::vector<std::int64_t>>& positions) {
    p.form = form;
    p.k_cache.addressing = AS_PAGED;
    p.k_cache.rows_per_block = 16;
    std::vector<std::int32_t> ids, owners;
    std::vector<std::int64_t> places;
    for (std::size_t r = 0; r < tables.size(); ++r) {
      ids.insert(ids.end(), tables[r].begin(), tables[r].end());
      places.insert(places.end(), positions[r].begin(), positions[r].end());
      owners.insert(owners.end(), positions[r].size(), static_cast<std::int32_t>(r));
    }
    places.push_back(0);
    owners.push_back(-1);
    const auto tokens = static_cast<std::int64_t>(owners.size());
    p.q = memory.make(AS_BF16, {tokens, 1, 8});
    p.table = memory.ints(ids, {static_cast<std::int64_t>(tables.size()),
                                static_cast<std::int64_t>(tables[0].size())});
    p.token_to_req = memory.ints(owners, {tokens});
    p.positions = memory.ints64(places);
    std::vector<std::int32_t> held;
    for (const auto& own : positions) {
      held.push_back(own.empty() ? 0 : static_cast<std::int32_t>(std::ranges::max(own) + 1));
    }
    p.seq_lens = memory.ints(held, {static_cast<std::int64_t>(held.size())});
  }
  cpu::ContextCuts cuts() const { return cpu::context_cuts(p); }
  Memory memory;
  as_paged_attention_params p{};
};

using Rows = std::vector<std::int64_t>;

TEST(PagedCuts, LieWhereEarlierStepsEnd) {
  const CutCall call(AS_PAGED_MERGED, {{4, 5, 6}, {7, 8, -1}, {1, 2, 3}}, {{41, 40, 42}, {0}, {}});
  EXPECT_EQ(call.cuts().rows, (Rows{40, 0, 0}));
  EXPECT_EQ(call.cuts().shared, -1);
  const CutCall plain(AS_PAGED_ONE_PASS, {{4, 5, 6}}, {{41}});
  EXPECT_EQ(plain.cuts().rows, (Rows{0}));
}

TEST(PagedCuts, OfACascadeLieBehindWhatAllHaveInCommon) {
  // 100 tokens in common are 6 whole blocks of 16.
  const std::vector<std::int32_t> prefix = {9, 4, 5, 7, 2, 3};
  const auto table = [&](std::int32_t own) {
    std::vector<std::int32_t> ids = prefix;
    ids.push_back(own);
    return ids;
  };
  const CutCall three(AS_PAGED_CASCADE, {table(20), table(21), table(22)}, {{99}, {98, 97}, {110}});
  EXPECT_EQ(three.cuts().rows, (Rows{96, 96, 96}));
  EXPECT_EQ(three.cuts().shared, 0);
  // Who has no token in the call does not count, and who has one alone shares with nobody.
  auto other = table(22);
  other[1] = 30;
  const CutCall absent(AS_PAGED_CASCADE, {other, table(20), table(21)}, {{}, {99}, {98}});
  EXPECT_EQ(absent.cuts().rows, (Rows{96, 96, 96}));
  EXPECT_EQ(absent.cuts().shared, 1);
  const CutCall alone(AS_PAGED_CASCADE, {table(20), table(21)}, {{99}, {}});
  EXPECT_EQ(alone.cuts().shared, -1);
  const CutCall differs(AS_PAGED_CASCADE, {other, table(20)}, {{99}, {98}});
  EXPECT_EQ(differs.cuts().rows, (Rows{16, 16}));
  // Blocks that a request writes in this very step are not read whole by all.
  const CutCall computes(AS_PAGED_CASCADE, {table(20), table(21)}, {{99}, {40, 41}});
  EXPECT_EQ(computes.cuts().rows, (Rows{32, 32}));
  const CutCall begins(AS_PAGED_CASCADE, {table(20), table(21)}, {{99}, {0, 1}});
  EXPECT_EQ(begins.cuts().shared, -1);
}

TEST(PagedCuts, RowsThatARequestDoesNotHaveAreNotInCommon) {
  for (const std::int32_t held : {40, 0, -1}) {
    CutCall call(AS_PAGED_CASCADE, {{4, 5, 6, 7}, {4, 5, 6, 7}}, {{200}, {200}});
    std::vector<std::int32_t> lengths(2, held);
    call.p.seq_lens = call.memory.ints(lengths, {2});
    EXPECT_EQ(call.cuts().rows, (held == 40 ? Rows{32, 32} : Rows{0, 0})) << held;
    call.p.form = AS_PAGED_MERGED;
    EXPECT_EQ(call.cuts().rows, (held == 40 ? Rows{40, 40} : Rows{0, 0})) << held;
  }
}

TEST(PagedCuts, ACascadeBesideWhatHidesRowsIsRefused) {
  for (const char* what : {"window", "causal"}) {
    PagedCase c{"refused", {129, 300}, 2, 8, 2};
    c.form = AS_PAGED_CASCADE;
    if (std::string_view(what) == "window") c.window = 20;
    if (std::string_view(what) == "causal") c.causal = 0;
    const Report report = check_paged_attention(*cpu::lane(), c);
    EXPECT_NE(testing::PrintToString(report).find("(cascade) beside a window"), std::string::npos)
        << what << report;
  }
}

}  // namespace
}  // namespace attnscope::properties
