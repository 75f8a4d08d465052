// AS_OP_ATTENTION_PLAN: both rules, lengths of every kind, padding; the worked examples of
// FlashMLA's rule; what is refused; that attention follows the plan it is given.
#include <algorithm>
#include <functional>

#include "kernels/cpu/attention_plan_check.h"
#include "tests/property/checks.h"

namespace attnscope::properties {

void fill_plan(const PlanCase& c, Memory* memory, as_attention_plan_params* p) {
  const auto tokens = static_cast<std::int64_t>(c.window.size());
  p->window_lens = memory->ints(c.window, {tokens});
  if (!c.c4.empty()) p->c4_lens = memory->ints(c.c4, {tokens});
  if (!c.c128.empty()) p->c128_lens = memory->ints(c.c128, {tokens});
  p->rows = memory->make(AS_I32, {AS_PLAN_TYPES, tokens, 2});
  p->splits = memory->make(AS_I32, {AS_PLAN_TYPES, tokens + c.multiprocessors, AS_PLAN_COLUMNS});
  p->counts = memory->make(AS_I32, {AS_PLAN_TYPES, 2});
  p->top_k = c.top_k;
  p->heads = c.heads;
  p->multiprocessors = c.multiprocessors;
  p->rule = c.rule;
}

Report check_attention_plan(const Lane& lane, const PlanCase& c) {
  Report report(case_seed("attention plan " + c.name));
  Memory memory;
  OpParams engine;
  auto& p = engine.init<as_attention_plan_params>(AS_OP_ATTENTION_PLAN);
  fill_plan(c, &memory, &p);
  if (!run(lane, engine, &report)) return report;
  memory.check_guards(&report);
  judge_integers(engine, &memory, &report);
  return report;
}

namespace attention_plan_property_test {

std::vector<std::int32_t> times(std::size_t n, std::int32_t value) {
  return std::vector<std::int32_t>(n, value);
}

class AttentionPlanProperty : public testing::TestWithParam<PlanCase> {};

TEST_P(AttentionPlanProperty, EqualsBothReferences) {
  for (const std::int32_t rule : {AS_PLAN_OWN, AS_PLAN_FLASHMLA}) {
    PlanCase c = GetParam();
    c.rule = rule;
    const Report report = check_attention_plan(*cpu::lane(), c);
    EXPECT_TRUE(report.ok()) << report;
  }
}

const PlanCase kPlanCases[] = {
    {"no_tokens", {}},
    {"one_token", {1}},
    {"one_window", {128}},
    {"padding_alone", {0, 0, 0}, {0, 0, 0}},
    {"padding_between", {128, 0, 64, 0}, {512, 0, 17, 0}, {3, 0, 0, 0}},
    {"no_window_but_entries", {0, 128}, {100, 100}, {0, 1}},
    {"lengths_below_zero", {-5, 128}, {-1, -1}, {-7, 65}},
    {"borders_of_tiles", {63, 64, 65, 127, 128}, {0, 1, 63, 64, 65}, {128, 129, 1, 0, 64}},
    {"two_decodes", {128, 128}, {512, 512}, {40, 8192}},
    {"many_decodes", times(64, 128), times(64, 512), times(64, 700)},
    {"more_rows_than_parts", times(300, 128), times(300, 40), times(300, 1)},
    {"one_part", {128, 3, 128}, {512, 0, 100}, {5, 0, 1}, 2, 1},
    {"two_head_blocks", {128, 128, 9}, {512, 64, 2}, {0, 0, 0}, 2, 132, 128},
    {"odd_head_blocks", {128, 128}, {512, 512}, {9, 9}, 2, 7, 170},
    {"fewer_parts_than_head_blocks", {128, 128}, {512, 512}, {}, 2, 2, 200},
    {"small_selection", {128, 128}, {4000, 5}, {}, 2, 132, 64, 16},
    {"prompt_of_2000", times(2000, 128), times(2000, 512), times(2000, 15)},
};
INSTANTIATE_TEST_SUITE_P(Shapes, AttentionPlanProperty, testing::ValuesIn(kPlanCases),
                         name_of<PlanCase>);

// Every tile of every row in one split, in order; places one after another.
void expect_whole(const PlanCase& c, const as_attention_plan_params& p) {
  for (std::int64_t y = 0; y < AS_PLAN_TYPES; ++y) {
    std::int64_t n = 0, place = 0, combined = 0, last_part = 0;
    const bool absent = (y == 1 && c.c4.empty()) || (y == 2 && c.c128.empty());
    for (std::size_t t = 0; t < c.window.size(); ++t) {
      const std::int32_t entries = y == 0   ? 0
                                   : absent ? 0
                                   : y == 1 ? std::clamp(c.c4[t], 0, c.top_k)
                                            : std::max(c.c128[t], 0);
      const std::int32_t window = std::max(c.window[t], 0);
      const bool none = absent || (window == 0 && entries == 0);
      const std::int64_t tiles =
          none ? 0 : ceil_div(std::max(window, 1), AS_PLAN_TILE) + ceil_div(entries, AS_PLAN_TILE);
      const std::int32_t* row = at<std::int32_t>(p.rows, y, static_cast<std::int64_t>(t));
      ASSERT_EQ(row[0], n);
      combined += row[1] > 1 ? 1 : 0;
      std::int64_t done = 0;
      for (; n < row[0] + row[1]; ++n) {
        const std::int32_t* split = at<std::int32_t>(p.splits, y, n);
        ASSERT_EQ(split[AS_PLAN_ROW], static_cast<std::int32_t>(t));
        ASSERT_EQ(split[AS_PLAN_BEGIN], done);
        ASSERT_GT(split[AS_PLAN_END], done);
        ASSERT_EQ(split[AS_PLAN_PLACE], row[1] > 1 ? place++ : -1);
        ASSERT_GE(split[AS_PLAN_PART], last_part);
        last_part = split[AS_PLAN_PART];
        done = split[AS_PLAN_END];
      }
      ASSERT_EQ(done, tiles);
    }
    const std::int64_t blocks = ceil_div(c.heads, AS_PLAN_HEADS);
    const std::int64_t parts = std::max<std::int64_t>(1, c.multiprocessors / blocks);
    if (c.rule == AS_PLAN_FLASHMLA) {
      EXPECT_LT(last_part, parts);
    }
    EXPECT_LE(place, 2 * parts);
    EXPECT_EQ(*at<std::int32_t>(p.counts, y, 0), n);
    EXPECT_EQ(*at<std::int32_t>(p.counts, y, 1), combined);
    for (; n < p.splits.shape[1]; ++n) {
      EXPECT_EQ(*at<std::int32_t>(p.splits, y, n, AS_PLAN_ROW), -1);
    }
  }
}

TEST(AttentionPlanRandom, EqualsBothReferencesAndIsWhole) {
  Random random(case_seed("plan sizes"));
  for (int i = 0; i < 150; ++i) {
    PlanCase c{"random_" + std::to_string(i), {}};
    for (std::int64_t t = below(random, 90); t >= 0; --t) {
      c.window.push_back(static_cast<std::int32_t>(below(random, 129)));
      c.c4.push_back(static_cast<std::int32_t>(below(random, 900)));
      c.c128.push_back(static_cast<std::int32_t>(below(random, i % 9 == 0 ? 9000 : 130)));
    }
    if (i % 5 == 4) c.c4.clear();
    c.rule = i % 2 == 0 ? AS_PLAN_OWN : AS_PLAN_FLASHMLA;
    c.multiprocessors = static_cast<std::int32_t>(1 + below(random, 160));
    c.heads = static_cast<std::int32_t>(1 + below(random, 200));
    const Report report = check_attention_plan(*cpu::lane(), c);
    ASSERT_TRUE(report.ok()) << report;
    Memory memory;
    OpParams params;
    auto& p = params.init<as_attention_plan_params>(AS_OP_ATTENTION_PLAN);
    fill_plan(c, &memory, &p);
    as_error error{};
    ASSERT_EQ(cpu::lane()->ops[AS_OP_ATTENTION_PLAN](params.data(), nullptr, &error), AS_OK);
    expect_whole(c, p);
  }
}

// A plan, with its tensors.
struct Planned {
  explicit Planned(const PlanCase& c) {
    auto& p = params.init<as_attention_plan_params>(AS_OP_ATTENTION_PLAN);
    fill_plan(c, &memory, &p);
    as_error error{};
    EXPECT_EQ(cpu::lane()->ops[AS_OP_ATTENTION_PLAN](params.data(), nullptr, &error), AS_OK)
        << error.message;
  }
  const as_attention_plan_params& get() { return params.get<as_attention_plan_params>(); }
  // Splits before each row, and behind the last one.
  std::vector<std::int32_t> starts(std::int64_t type) {
    std::vector<std::int32_t> all;
    for (std::int64_t t = 0; t < get().rows.shape[1]; ++t) {
      all.push_back(*at<std::int32_t>(get().rows, type, t));
    }
    all.push_back(*at<std::int32_t>(get().counts, type));
    return all;
  }
  std::vector<std::int32_t> split(std::int64_t type, std::int64_t n) {
    const std::int32_t* values = at<std::int32_t>(get().splits, type, n);
    return {values, values + AS_PLAN_COLUMNS};
  }

  Memory memory;
  OpParams params;
};

// Two tokens of 10 tiles each, 132 multiprocessors, 64 heads: budgets of 6, a tile a part.
TEST(AttentionPlanExamples, TwoDecodesOfTenTiles) {
  Planned plan({"two", {128, 128}, {512, 512}});
  EXPECT_EQ(plan.starts(1), (std::vector<std::int32_t>{0, 10, 20}));
  for (std::int32_t n = 0; n < 20; ++n) {
    EXPECT_EQ(plan.split(1, n), (std::vector<std::int32_t>{n / 10, n % 10, n % 10 + 1, n, n}));
  }
  EXPECT_EQ(*at<std::int32_t>(plan.get().counts, 1, 1), 2);
}

// Even one window is split and combined.
TEST(AttentionPlanExamples, OneWindow) {
  Planned plan({"one", {128}});
  EXPECT_EQ(plan.starts(0), (std::vector<std::int32_t>{0, 2}));
  EXPECT_EQ(plan.split(0, 0), (std::vector<std::int32_t>{0, 0, 1, 0, 0}));
  EXPECT_EQ(plan.split(0, 1), (std::vector<std::int32_t>{0, 1, 2, 1, 1}));
}

// Budgets of 13: the same lists are cut elsewhere from token to token.
TEST(AttentionPlanExamples, SixtyFourDecodes) {
  Planned plan({"many", times(64, 128), times(64, 512)});
  const std::vector<std::int32_t> starts = plan.starts(1);
  EXPECT_EQ((std::vector<std::int32_t>{starts.begin(), starts.begin() + 9}),
            (std::vector<std::int32_t>{0, 2, 5, 7, 9, 12, 14, 16, 19}));
  EXPECT_EQ(starts.back(), 149);
}

// 20 tokens of 64 heads on 132 multiprocessors: one split of 10 tiles costs 160, 4 cost 3 * 16 + 25
// + 40, 5 cost 2 * 16 + 25 + 50, 6 are no shorter.
TEST(AttentionPlanExamples, OwnRule) {
  Planned plan({"own", times(20, 128), times(20, 512), {}, AS_PLAN_OWN});
  EXPECT_EQ(plan.starts(1)[1], 5);
  EXPECT_EQ(plan.split(1, 1), (std::vector<std::int32_t>{0, 2, 4, 1, 1}));
  EXPECT_EQ(*at<std::int32_t>(plan.get().counts, 1), 100);
  EXPECT_EQ(*at<std::int32_t>(plan.get().counts, 0), 20) << "two tiles cost less than combining";
}

// Tokens that fill up a batch change nothing for the others.
TEST(AttentionPlan, HeedsNoPadding) {
  for (const std::int32_t rule : {AS_PLAN_OWN, AS_PLAN_FLASHMLA}) {
    PlanCase c{"padding", {128, 40, 128}, {512, 10, 300}, {9, 0, 70}, rule};
    Planned alone(c);
    for (auto* lens : {&c.window, &c.c4, &c.c128}) lens->resize(8, 0);
    Planned padded(c);
    for (std::int64_t y = 0; y < AS_PLAN_TYPES; ++y) {
      const std::int32_t count = *at<std::int32_t>(alone.get().counts, y);
      EXPECT_EQ(*at<std::int32_t>(padded.get().counts, y), count);
      for (std::int64_t n = 0; n < count; ++n) EXPECT_EQ(padded.split(y, n), alone.split(y, n));
      for (std::int64_t t = 0; t < 3; ++t) {
        EXPECT_EQ(*at<std::int32_t>(padded.get().rows, y, t),
                  *at<std::int32_t>(alone.get().rows, y, t));
      }
      EXPECT_EQ(*at<std::int32_t>(padded.get().rows, y, 7, 1), 0);
    }
  }
}

TEST(AttentionPlan, RefusesWhatItCannotPlan) {
  const auto refusal = [](const std::function<void(as_attention_plan_params&)>& change) {
    Memory memory;
    OpParams params;
    auto& p = params.init<as_attention_plan_params>(AS_OP_ATTENTION_PLAN);
    fill_plan({"refused", {128, 128}, {512, 512}, {1, 1}}, &memory, &p);
    change(p);
    as_error error{};
    EXPECT_NE(cpu::lane()->ops[AS_OP_ATTENTION_PLAN](params.data(), nullptr, &error), AS_OK);
    EXPECT_NE(reference::sim_lane()->ops[AS_OP_ATTENTION_PLAN](params.data(), nullptr, nullptr),
              AS_OK);
    return std::string(error.message);
  };
  using P = as_attention_plan_params;
  EXPECT_NE(refusal([](P& p) { p.rule = AS_PLAN_NONE; }).find("rule"), std::string::npos);
  EXPECT_NE(refusal([](P& p) { p.rule = 3; }).find("rule"), std::string::npos);
  EXPECT_NE(refusal([](P& p) { p.heads = 0; }).find("heads"), std::string::npos);
  EXPECT_NE(refusal([](P& p) { p.top_k = -1; }).find("top_k"), std::string::npos);
  EXPECT_NE(refusal([](P& p) { p.multiprocessors = 0; }).find("multiprocessors"),
            std::string::npos);
  EXPECT_NE(refusal([](P& p) { --p.splits.shape[1]; }).find("splits"), std::string::npos);
  EXPECT_NE(refusal([](P& p) { p.counts.shape[0] = 2; }).find("counts"), std::string::npos);
  EXPECT_NE(refusal([](P& p) { p.c4_lens.shape[0] = 1; }).find("c4_lens"), std::string::npos);
}

// What attention asks of the plan that it is given.
TEST(AttentionPlan, AttentionRefusesWhatIsNoPlanOfItsLists) {
  using P = as_sparse_attention_params;
  const auto refusal = [](const std::function<void(P&)>& change) {
    Planned plan({"given", {128, 128}, {512, 512}});
    P p{};
    p.q = plan.memory.make(AS_BF16, {2, 1, AS_HEAD_DIM});
    p.indices = plan.memory.make(AS_I32, {2, 128});
    p.extra_indices = plan.memory.make(AS_I32, {2, 512});
    p.plan_rows = make_tensor(at<std::int32_t>(plan.get().rows, 1), {2, 2});
    p.plan_splits = make_tensor(at<std::int32_t>(plan.get().splits, 1), {134, AS_PLAN_COLUMNS});
    change(p);
    as_error error{};
    cpu::Check check(AS_OP_SPARSE_ATTENTION, &error);
    const bool fits = cpu::check_plan(p, true, check);
    EXPECT_EQ(check.status() == AS_OK, fits);
    return std::string(error.message);
  };
  const auto split = [](as_plan_column column, std::int32_t value) {
    return [=](P& p) { *at<std::int32_t>(p.plan_splits, 12, column) = value; };
  };
  const auto says = [](const std::string& message, const char* what) {
    EXPECT_NE(message.find(what), std::string::npos) << message;
  };
  EXPECT_EQ(refusal([](P&) {}), "");
  EXPECT_EQ(refusal([](P& p) { p.plan_rows = p.plan_splits = no_tensor(); }), "");
  says(refusal([](P& p) { p.plan_rows = no_tensor(); }), "plan_rows");
  says(refusal([](P& p) { p.plan_splits = no_tensor(); }), "plan_splits");
  says(refusal([](P& p) { p.plan_splits.shape[1] = 4; }), "plan_splits");
  says(refusal([](P& p) { p.plan_splits.shape[0] = 1; }), "rows of plan_splits");
  says(refusal([](P& p) { *at<std::int32_t>(p.plan_rows, 1, 1) = 200; }),
       "splits 10 to 209 of 134");
  says(refusal([](P& p) { *at<std::int32_t>(p.plan_rows, 0, 0) = -1; }), "gives token 0 splits -1");
  says(refusal(split(AS_PLAN_ROW, 0)), "plan_splits[12] is of token 0");
  says(refusal(split(AS_PLAN_BEGIN, -1)), "begins at tile -1");
  says(refusal(split(AS_PLAN_END, 1)), "ends before tile 1");
  says(refusal(split(AS_PLAN_END, 11)), "the lists have tiles 0 to 9");
  says(refusal(split(AS_PLAN_PLACE, -1)), "has place -1");
  says(refusal(split(AS_PLAN_PLACE, 264)), "0 to 263");
}

}  // namespace attention_plan_property_test
}  // namespace attnscope::properties
