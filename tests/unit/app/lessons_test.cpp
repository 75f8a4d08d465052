#include "app/workbench/lessons.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <set>

#include "app/views/error_view.h"
#include "app/workbench/workbench.h"
#include "engine/family/models.h"
#include "kernels/mutants/mutants.h"

namespace attnscope {
namespace lessons_test {

TEST(Lessons, AreOfBugsThatCanBePlanted) {
  const auto& lanes = mutants::lanes();
  std::set<std::string> symptoms;
  for (const Lesson* each : all_lessons()) {
    const Lesson& lesson = *each;
    const auto lane = std::find_if(lanes.begin(), lanes.end(), [&](const Lane& l) {
      return std::string("mutant:") + lesson.name == l.name;
    });
    ASSERT_NE(lane, lanes.end()) << lesson.name;
    for (int op = 0; op < AS_OP_COUNT; ++op) {
      EXPECT_EQ(lane->ops[op] != nullptr, op == lesson.op) << lesson.name;
    }
    EXPECT_EQ(find_lesson(lesson.name), &lesson);
    symptoms.insert(lesson.symptom);
    for (const char* text : {lesson.symptom, lesson.change, lesson.why_here, lesson.in_service}) {
      EXPECT_GT(std::strlen(text), 15u) << lesson.name;
    }
    // The menu does not give the op away.
    EXPECT_EQ(std::string(lesson.symptom).find(as_op_find(lesson.op)->name), std::string::npos);
  }
  EXPECT_GE(lessons("deepseek_v4").size(), 8u);
  EXPECT_GE(lessons("dense").size(), 3u);
  EXPECT_TRUE(lessons("another").empty());
  EXPECT_EQ(symptoms.size(), all_lessons().size());
  EXPECT_EQ(find_lesson("nothing"), nullptr);
}

std::set<std::string> offered(const char* name) {
  std::set<std::string> names;
  for (const Lesson* lesson : lessons(*preset(name))) names.insert(lesson->name);
  return names;
}

// A bug that cannot show itself in a model is no riddle there.
TEST(Lessons, AreOfWhatTheModelHas) {
  using Names = std::set<std::string>;
  EXPECT_EQ(offered("tiny-t5"), Names{"values_of_key_pages"}) << "no rotary, groups, window";
  EXPECT_EQ(offered("tiny-gemma"), (Names{"rope_style_swapped", "kv_group_off_by_one",
                                          "window_inclusive", "values_of_key_pages"}));
  EXPECT_FALSE(offered("tiny-llama").contains("window_inclusive"));
  EXPECT_TRUE(offered("tiny-llama").contains("rope_style_swapped"));
  EXPECT_FALSE(offered("tiny-v3").contains("index_bias_lost")) << "it has no indexer";
  EXPECT_TRUE(offered("tiny-v3.2").contains("index_bias_lost"));
  EXPECT_FALSE(offered("tiny-v3.2").contains("mla_own_row_unseen")) << "what is selected alone";
  EXPECT_EQ(offered("tiny").size(), lessons("deepseek_v4").size());
  ModelConfig window = *preset("tiny", std::vector<int>{0});
  for (const Lesson* lesson : lessons(window)) {
    EXPECT_NE(lesson->op, AS_OP_COMPRESS_INSERT) << lesson->name;
    EXPECT_NE(lesson->op, AS_OP_INDEXER_TOPK) << lesson->name;
  }
}

// What is wrong first, in words; empty where nothing is.
std::string wrong_in(const Snapshot& snapshot) {
  const TapResult* wrong = first_wrong(snapshot);
  if (wrong == nullptr) return {};
  return fmt::format("step {}, layer {}, {}.{}: {}", wrong->step, wrong->layer,
                     as_op_find(wrong->op)->name, wrong->tap, wrong->note);
}

// In the app: every bug is found in the op that has it, and the card has its facts.
void find_all(const Scenario& scenario, const char* family) {
  Workbench bench({});
  RunSetup setup;
  setup.scenario = scenario;
  setup.references = References::kSim;
  bench.open(setup, true);
  bench.wait_idle();
  ASSERT_NE(bench.snapshot(), nullptr);
  EXPECT_EQ(wrong_in(*bench.snapshot()), "") << "healthy before";
  for (const Lesson& lesson : lessons(family)) {
    SCOPED_TRACE(lesson.name);
    bench.plant(lesson.name);
    bench.wait_idle();
    const TapResult* wrong = first_wrong(*bench.snapshot());
    ASSERT_NE(wrong, nullptr);
    EXPECT_EQ(wrong->op, lesson.op);
    const auto pages = lesson_pages(lesson, *bench.snapshot(), *wrong);
    ASSERT_EQ(pages.size(), 4u);
    EXPECT_NE(pages[0].text.find(fmt::format("Step {}", wrong->step)), std::string::npos);
    EXPECT_NE(pages[1].text.find(as_op_find(lesson.op)->name), std::string::npos);
    EXPECT_NE(pages[1].text.find("other"), std::string::npos) << "no other op is blamed";
    EXPECT_NE(pages[2].text.find(wrong->tap), std::string::npos);
    EXPECT_NE(pages[2].text.find("is wrong at"), std::string::npos) << pages[2].text;
    const bool rows = wrong->tap == "cache" || wrong->tap == "state";
    EXPECT_EQ(pages[2].panel, std::string(rows ? "bytes" : "tensor")) << wrong->tap;
    EXPECT_NE(pages[3].text.find(lesson.change), std::string::npos);
    bench.remove_planted();
    bench.wait_idle();
    EXPECT_EQ(wrong_in(*bench.snapshot()), "") << "healthy again";
  }
}

// A bug that shows a step later than it was planted: that step is computed anew when it goes.
TEST(Lessons, ABugThatIsTakenOutLeavesNothingBehind) {
  Workbench bench({});
  RunSetup setup;
  setup.scenario = *load_scenario("default");
  setup.scenario.model = *preset("tiny", {0, 1});
  setup.scenario.model.index_topk = 128;
  setup.scenario.requests[0].tokens.resize(600);
  setup.scenario.requests[1].tokens.resize(300);
  setup.references = References::kSim;
  bench.open(setup, true);
  bench.wait_idle();
  const std::int64_t planted = bench.snapshot()->steps.back()->step;
  bench.plant("overlap_half_lost");
  bench.wait_idle();
  const TapResult* wrong = first_wrong(*bench.snapshot());
  ASSERT_NE(wrong, nullptr);
  const std::int64_t shown = wrong->step;
  EXPECT_GT(shown, planted);
  EXPECT_EQ(bench.cursor().step, shown);
  bench.remove_planted();
  bench.wait_idle();
  EXPECT_EQ(wrong_in(*bench.snapshot()), "");
  EXPECT_EQ(bench.cursor().step, shown);
  EXPECT_EQ(bench.snapshot()->steps.back()->step, shown);
  EXPECT_NE(bench.op(), nullptr) << "what was looked at is there again";
}

TEST(Lessons, EveryPlantedBugIsFoundAndExplained) {
  Scenario scenario = *load_scenario("default");
  scenario.model = *preset("tiny", {0, 1, 2});  // a layer of each type
  find_all(scenario, "deepseek_v4");
}
TEST(Lessons, SoAreThoseOfDenseAttention) { find_all(*load_scenario("tiny-gemma"), "dense"); }

}  // namespace lessons_test
}  // namespace attnscope
