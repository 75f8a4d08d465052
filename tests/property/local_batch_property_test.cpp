// AS_OP_LOCAL_BATCH: sizes of chunks and blocks, requests with no, one and many tokens in a step,
// several groups, padding; what is refused.
#include <algorithm>
#include <climits>
#include <cstring>
#include <numeric>

#include "kernels/params/paged_params.h"
#include "tests/property/checks.h"

namespace attnscope::properties {
namespace local_batch_property_test {

// A batch of a case, its outputs not computed yet.
void fill_batch(const LocalCase& c, Random& random, Memory* memory, as_local_batch_params* p) {
  Tokens tokens = last_tokens(c.lengths, c.queries);
  for (int i = 0; i < 2; ++i) tokens.token_to_req.push_back(-1);  // padding
  const auto n = static_cast<std::int64_t>(tokens.token_to_req.size());
  const auto requests = static_cast<std::int64_t>(c.lengths.size());
  const std::int64_t columns = *std::ranges::max_element(c.lengths) / c.block_size + 2;
  std::vector<std::int32_t> starts = {0}, lens, ids(c.groups * requests * columns);
  std::iota(ids.begin(), ids.end(), 1);
  std::ranges::shuffle(ids, random);
  for (std::int64_t r = 0; r < requests; ++r) {
    const std::int64_t length = c.lengths[static_cast<std::size_t>(r)];
    starts.push_back(static_cast<std::int32_t>(starts.back() + std::min(c.queries, length)));
    lens.push_back(static_cast<std::int32_t>(length));
    // What no token of the step needs may be anything.
    const std::int64_t first = std::max<std::int64_t>(0, length - c.queries) / c.chunk * c.chunk;
    for (std::int64_t g = 0; g < c.groups; ++g) {
      for (std::int64_t column = 0; column < columns; ++column) {
        const bool seen = column >= first / c.block_size && column * c.block_size < length;
        if (!seen) ids[static_cast<std::size_t>((g * requests + r) * columns + column)] = INT_MIN;
      }
    }
  }
  p->tables = memory->ints(ids, {c.groups, requests, columns});
  p->query_start_loc = memory->ints(starts, {requests + 1});
  p->seq_lens = memory->ints(lens, {requests});
  p->token_to_req = memory->ints(tokens.token_to_req, {n});
  p->token_to_seq = memory->make(AS_I32, {n});
  p->local_positions = memory->make(AS_I64, {n});
  p->local_query_start_loc = memory->make(AS_I32, {n + 1});
  p->local_seq_lens = memory->make(AS_I32, {n});
  p->local_tables = memory->make(AS_I32, {c.groups, n, c.chunk / c.block_size}, 3);
  p->chunk = c.chunk;
  p->block_size = c.block_size;
}

}  // namespace local_batch_property_test

Report check_local_batch(const Lane& lane, const LocalCase& c) {
  Report report(case_seed("local batch " + c.name));
  Random random(report.seed());
  Memory memory;
  OpParams engine;
  auto& p = engine.init<as_local_batch_params>(AS_OP_LOCAL_BATCH);
  local_batch_property_test::fill_batch(c, random, &memory, &p);
  if (!run(lane, engine, &report)) return report;
  memory.check_guards(&report);
  judge_integers(engine, &memory, &report);
  return report;
}

namespace local_batch_property_test {

class LocalBatchProperty : public testing::TestWithParam<LocalCase> {};

TEST_P(LocalBatchProperty, EqualsBothReferences) {
  const Report report = check_local_batch(*cpu::lane(), GetParam());
  EXPECT_TRUE(report.ok()) << report;
}

const LocalCase kLocalCases[] = {
    {"no_tokens", {0, 0}, 1},
    {"first_tokens", {1, 3, 0, 4}, 5, 16, 32, 2},
    {"borders", {31, 32, 33, 0, 64, 65}, 1},
    {"over_borders", {31, 32, 33, 0, 64, 65}, 40},
    {"whole_prompts", {300, 1, 64}, 300},
    {"chunk_of_a_block", {47, 48, 49}, 20, 16, 16, 3},
    {"chunk_of_one", {5, 1, 0, 2}, 4, 1, 1},
    {"odd_blocks", {159, 160, 161, 53}, 60, 53, 159, 2},
    {"one_token_blocks", {70, 7, 8}, 9, 1, 7},
    {"chunk_longer_than_all", {100, 3}, 100, 16, 1024},
};
INSTANTIATE_TEST_SUITE_P(Shapes, LocalBatchProperty, testing::ValuesIn(kLocalCases),
                         name_of<LocalCase>);

// Any lengths, any queries.
TEST(LocalBatchRandom, EqualsBothReferences) {
  Random random(case_seed("local batch sizes"));
  for (int i = 0; i < 60; ++i) {
    LocalCase c{"random_" + std::to_string(i), {}};
    c.block_size = static_cast<std::int32_t>(1 + below(random, 20));
    c.chunk = c.block_size * static_cast<std::int32_t>(1 + below(random, 6));
    c.queries = 1 + below(random, 3 * c.chunk);
    c.groups = 1 + below(random, 3);
    for (std::int64_t r = 1 + below(random, 6); r > 0; --r) {
      c.lengths.push_back(below(random, 4 * c.chunk + 2));
    }
    const Report report = check_local_batch(*cpu::lane(), c);
    ASSERT_TRUE(report.ok()) << report;
  }
}

// Every sequence lies in one chunk, has its tokens side by side, and as many as the step has are
// counted.
TEST(LocalBatchSequences, AreTheTokensOfAStep) {
  Random random(case_seed("sequences"));
  Memory memory;
  OpParams engine;
  auto& p = engine.init<as_local_batch_params>(AS_OP_LOCAL_BATCH);
  fill_batch({"sequences", {70, 5, 64}, 50}, random, &memory, &p);
  as_error error{};
  ASSERT_EQ(cpu::lane()->ops[AS_OP_LOCAL_BATCH](engine.data(), nullptr, &error), AS_OK);
  const auto row = [](const as_tensor& t) {
    const auto* first = at<std::int32_t>(t);
    return std::vector<std::int32_t>(first, first + 5);
  };
  // 20-69 as 20-31, 32-63, 64-69; 0-4; 14-63 as 14-31, 32-63.
  EXPECT_EQ(row(p.local_query_start_loc), (std::vector<std::int32_t>{0, 12, 44, 50, 55}));
  EXPECT_EQ(row(p.local_seq_lens), (std::vector<std::int32_t>{32, 32, 6, 5, 32}));
  EXPECT_EQ(*at<std::int32_t>(p.local_query_start_loc, 5), 73);
  EXPECT_EQ(*at<std::int32_t>(p.local_seq_lens, 6), 0);
  EXPECT_EQ(*at<std::int32_t>(p.token_to_seq, 49), 2);
  EXPECT_EQ(*at<std::int64_t>(p.local_positions, 49), 5);
  EXPECT_EQ(*at<std::int32_t>(p.local_tables, 0, 2, 0), *at<std::int32_t>(p.tables, 0, 0, 4));
  EXPECT_EQ(*at<std::int32_t>(p.local_tables, 0, 2, 1), -1) << "it has rows in one block";
}

TEST(LocalBatchRefusals, SayWhatAndWhatToDo) {
  struct Refused {
    const char* says;
    void (*spoil)(as_local_batch_params&);
  };
  const Refused kRefused[] = {
      {"chunk is 8, block_size 16; a chunk has blocks of its own",
       [](as_local_batch_params& p) { p.chunk = 8; }},
      {"chunk is 24, block_size 16", [](as_local_batch_params& p) { p.chunk = 24; }},
      {"chunk", [](as_local_batch_params& p) { p.chunk = 0; }},
      {"seq_lens[0] is 3, the request has 5 tokens",
       [](as_local_batch_params& p) { *at<std::int32_t>(p.seq_lens, 0) = 3; }},
      {"tables has", [](as_local_batch_params& p) { *at<std::int32_t>(p.seq_lens, 1) = 9000; }},
      {"requests follow one another",
       [](as_local_batch_params& p) { *at<std::int32_t>(p.query_start_loc, 0) = 1; }},
      {"token_to_req[4] is 0; query_start_loc gives the token to 1",
       [](as_local_batch_params& p) { *at<std::int32_t>(p.query_start_loc, 1) = 4; }},
      {"query_start_loc ends before this token",
       [](as_local_batch_params& p) { *at<std::int32_t>(p.token_to_req, 11) = 1; }},
  };
  for (const Refused& one : kRefused) {
    Random random(1);
    Memory memory;
    OpParams engine;
    auto& p = engine.init<as_local_batch_params>(AS_OP_LOCAL_BATCH);
    fill_batch({"refused", {40, 33}, 5}, random, &memory, &p);
    one.spoil(p);
    as_error error{};
    EXPECT_NE(cpu::lane()->ops[AS_OP_LOCAL_BATCH](engine.data(), nullptr, &error), AS_OK);
    EXPECT_NE(std::strstr(error.message, one.says), nullptr) << error.message;
  }
}

}  // namespace local_batch_property_test
}  // namespace attnscope::properties
