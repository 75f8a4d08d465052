// What the Plan panel says of a step: bars, load and the splits of one row; and where there is no
// plan, or one that cannot be.
#include "app/views/plan_view.h"

#include <algorithm>
#include <numeric>

#include "kernels/params/attention_params.h"
#include "tests/unit/app/trace_session.h"

namespace attnscope {
namespace plan_view_test {

Scenario planned_scenario(const char* profile) {
  Scenario scenario = small_scenario(260, 8);
  scenario.model.switches = *profile_switches(profile);
  return scenario;
}

class PlanViews : public ::testing::TestWithParam<const char*> {};

INSTANTIATE_TEST_SUITE_P(Rules, PlanViews, ::testing::Values("flashmla", "own"),
                         [](const auto& p) { return p.param; });

TEST_P(PlanViews, ShowEverySplitOfEveryRow) {
  const std::string profile = std::string("vllm,multiprocessors=16,attention_plan=") + GetParam();
  auto session = small_session(References::kNone, planned_scenario(profile.c_str()));
  run_steps(*session, 7);
  const SessionParts& parts = session->parts();
  const StepMetadata& m = session->metadata();
  for (int layer = 0; layer < parts.config.num_layers(); ++layer) {
    SCOPED_TRACE(layer);
    const PlanView view = plan_view(parts.config, parts.layout, m, layer, 0);
    ASSERT_EQ(view.why_empty, "");
    EXPECT_EQ(view.rule, GetParam());
    EXPECT_EQ(view.rows, m.num_tokens_in_step());
    ASSERT_EQ(std::ssize(view.bars), view.splits);
    ASSERT_EQ(view.load.size(), 16u);
    EXPECT_EQ(view.busiest, *std::ranges::max_element(view.load));
    // Bars of a line follow one another; all tiles of a row are in its bars.
    std::vector<std::int64_t> loads(view.load.size(), 0), tiles(m.positions.size(), 0);
    for (const PlanBar& bar : view.bars) {
      EXPECT_EQ(bar.start, loads[static_cast<std::size_t>(bar.worker)]);
      loads[static_cast<std::size_t>(bar.worker)] += bar.tiles();
      EXPECT_EQ(bar.begin, tiles[static_cast<std::size_t>(bar.row)]);
      tiles[static_cast<std::size_t>(bar.row)] = bar.end;
    }
    EXPECT_EQ(loads, view.load);
    const std::int64_t all = std::accumulate(loads.begin(), loads.end(), std::int64_t{0});
    EXPECT_DOUBLE_EQ(view.mean, static_cast<double>(all) / static_cast<double>(view.working));
    ASSERT_FALSE(view.selected.empty());
    EXPECT_EQ(view.bars[static_cast<std::size_t>(view.selected.back())].end, tiles[0]);
    EXPECT_NE(view.row_sentence.find("Row 0: "), std::string::npos) << view.row_sentence;
  }
}

TEST(PlanView, SentenceSaysHowEvenTheLoadIs) {
  auto session = small_session(References::kNone,
                               planned_scenario("vllm,attention_plan=flashmla,multiprocessors=8"));
  run_steps(*session, 1);
  // 64 rows of a prompt with a window of up to 64 tokens: one tile each, (1 + 5) * 64 / 8 + 5 = 53
  // for each part, which holds 8 rows and what is left of them no tile.
  const SessionParts& parts = session->parts();
  const PlanView view = plan_view(parts.config, parts.layout, session->metadata(), 0, 5);
  EXPECT_EQ(view.type, "SWA");
  EXPECT_EQ(view.sentence,
            "64 rows in 64 splits on 8 of 8 multiprocessors: the busiest works 8 tiles, mean 8.0; "
            "nothing is combined");
  EXPECT_EQ(view.row_sentence, "Row 5: 1 tile in one split, written without combining");
}

TEST(PlanView, SaysWhyThereIsNone) {
  auto session = small_session();
  run_steps(*session, 1);
  const SessionParts& parts = session->parts();
  const PlanView off = plan_view(parts.config, parts.layout, session->metadata(), 0, 0);
  EXPECT_TRUE(off.off);
  EXPECT_NE(off.why_empty.find("attention_plan=flashmla"), std::string::npos);

  ModelConfig asked = parts.config;
  asked.switches.attention_plan = AS_PLAN_OWN;
  const PlanView missing = plan_view(asked, parts.layout, session->metadata(), 0, 0);
  EXPECT_FALSE(missing.off);
  EXPECT_NE(missing.why_empty.find("not made yet"), std::string::npos) << missing.why_empty;
}

// Of a damaged recording.
TEST(PlanView, RefusesSplitsThatCannotBe) {
  auto session = small_session(References::kNone, planned_scenario("vllm,attention_plan=flashmla"));
  run_steps(*session, 1);
  const SessionParts& parts = session->parts();
  for (const StepTensor::Kind kind :
       {StepTensor::Kind::kPlanSplits, StepTensor::Kind::kPlanCounts}) {
    for (const std::int32_t value : {-7, 1 << 30}) {
      StepMetadata m = session->metadata();
      const auto tensor = std::ranges::find(m.own, kind, &StepTensor::kind);
      std::ranges::fill(tensor->numbers, value);
      const PlanView view = plan_view(parts.config, parts.layout, m, 1, 0);
      EXPECT_NE(view.why_empty.find("cannot be"), std::string::npos) << value;
      EXPECT_TRUE(view.bars.empty());
    }
  }
}

}  // namespace plan_view_test
}  // namespace attnscope
