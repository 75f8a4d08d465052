// AS_OP_CROSS_BATCH: steps with whole prompts, with decoders alone, with both; several groups,
// padding; what is refused.
#include <cstring>

#include "kernels/params/paged_params.h"
#include "tests/property/checks.h"

namespace attnscope::properties {
namespace cross_property_test {

void fill_cross(const CrossCase& c, Random& random, Memory* memory, as_cross_batch_params* p) {
  Tokens tokens = last_tokens(c.lengths, c.queries);
  for (int i = 0; i < 2; ++i) {  // padding
    tokens.token_to_req.push_back(-1);
    tokens.positions.push_back(0);
  }
  const std::int64_t n = tokens.size();
  std::vector<std::int64_t> slots;
  for (std::int64_t i = 0; i < c.groups * n; ++i) slots.push_back(16 + below(random, 1 << 20));
  p->positions = memory->ints64(tokens.positions);
  p->token_to_req = memory->ints(tokens.token_to_req, {n});
  const std::vector<std::int32_t> lens(c.source.begin(), c.source.end());
  p->source_lens = memory->ints(lens, {static_cast<std::int64_t>(lens.size())});
  const as_tensor all = memory->ints64(slots);
  p->slots = make_tensor(static_cast<std::int64_t*>(all.data), {c.groups, n});
  p->source_to_req = memory->make(AS_I32, {n});
  p->target_to_req = memory->make(AS_I32, {n});
  p->source_slots = memory->make(AS_I64, {n});
  p->target_slots = memory->make(AS_I64, {n});
  p->group = static_cast<std::int32_t>(c.group);
}

}  // namespace cross_property_test

Report check_cross_batch(const Lane& lane, const CrossCase& c) {
  Report report(case_seed("cross batch " + c.name));
  Random random(report.seed());
  Memory memory;
  OpParams engine;
  auto& p = engine.init<as_cross_batch_params>(AS_OP_CROSS_BATCH);
  cross_property_test::fill_cross(c, random, &memory, &p);
  if (!run(lane, engine, &report)) return report;
  memory.check_guards(&report);
  judge_integers(engine, &memory, &report);
  // Every token is on one side, padding on none.
  for (std::int64_t t = 0; t < p.positions.shape[0]; ++t) {
    const bool source = *at<std::int32_t>(p.source_to_req, t) >= 0;
    const bool target = *at<std::int32_t>(p.target_to_req, t) >= 0;
    const bool padding = *at<std::int32_t>(p.token_to_req, t) < 0;
    if ((source ? 1 : 0) + (target ? 1 : 0) != (padding ? 0 : 1)) {
      report.fail("target_to_req", "a token is on both sides, or on none");
    }
  }
  return report;
}

namespace cross_property_test {

class CrossBatchProperty : public testing::TestWithParam<CrossCase> {};

TEST_P(CrossBatchProperty, EqualsBothReferences) {
  const Report report = check_cross_batch(*cpu::lane(), GetParam());
  EXPECT_TRUE(report.ok()) << report;
}

const CrossCase kCrossCases[] = {
    {"no_tokens", {0, 0}, {0, 4}},
    {"prompts", {12, 30, 2}, {10, 29, 1}, 30},
    {"decoders", {12, 30, 2}, {10, 29, 1}, 1},
    {"no_source", {12, 3}, {0, 0}, 12},
    {"source_alone", {12, 3}, {12, 9}, 12},
    {"both", {40, 12, 77}, {39, 2, 50}, 9, 3, 2},
};
INSTANTIATE_TEST_SUITE_P(Shapes, CrossBatchProperty, testing::ValuesIn(kCrossCases),
                         name_of<CrossCase>);

TEST(CrossBatchRandom, EqualsBothReferences) {
  Random random(case_seed("cross batch sizes"));
  for (int i = 0; i < 60; ++i) {
    CrossCase c{"random_" + std::to_string(i), {}, {}};
    for (std::int64_t r = 1 + below(random, 6); r > 0; --r) {
      c.lengths.push_back(below(random, 50));
      c.source.push_back(below(random, 60));
    }
    c.queries = 1 + below(random, 50);
    c.groups = 1 + below(random, 3);
    c.group = below(random, c.groups);
    const Report report = check_cross_batch(*cpu::lane(), c);
    ASSERT_TRUE(report.ok()) << report;
  }
}

TEST(CrossBatchRefusals, SayWhatAndWhatIsAllowed) {
  struct Refused {
    const char* says;
    void (*spoil)(as_cross_batch_params&);
  };
  const Refused kRefused[] = {
      {"group is 2; slots has rows 0 to 1", [](as_cross_batch_params& p) { p.group = 2; }},
      {"group is -1", [](as_cross_batch_params& p) { p.group = -1; }},
      {"token_to_req[1] is 2; source_lens has requests 0 to 1",
       [](as_cross_batch_params& p) { *at<std::int32_t>(p.token_to_req, 1) = 2; }},
      {"source_slots", [](as_cross_batch_params& p) { p.source_slots.dtype = AS_I32; }},
  };
  for (const Refused& one : kRefused) {
    Random random(1);
    Memory memory;
    OpParams engine;
    auto& p = engine.init<as_cross_batch_params>(AS_OP_CROSS_BATCH);
    fill_cross({"refused", {12, 5}, {8, 3}, 4, 2, 1}, random, &memory, &p);
    one.spoil(p);
    as_error error{};
    EXPECT_NE(cpu::lane()->ops[AS_OP_CROSS_BATCH](engine.data(), nullptr, &error), AS_OK);
    EXPECT_NE(std::strstr(error.message, one.says), nullptr) << error.message;
  }
}

}  // namespace cross_property_test
}  // namespace attnscope::properties
