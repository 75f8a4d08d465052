// The split view of two runs without its looks: a token is found in both, the op where they part is
// named, lists and tables are beside each other.
#include "app/workbench/capture_compare.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>

#include "app/reports/capture_record.h"
#include "app/views/compare_view.h"
#include "app/views/pair_steps.h"
#include "app/wiring/wiring.h"
#include "engine/family/models.h"
#include "tests/unit/app/small_scenario.h"

namespace attnscope {
namespace capture_compare_test {

namespace fs = std::filesystem;

class CompareTest : public testing::Test {
 protected:
  void SetUp() override {
    setenv("ATTNSCOPE_ASSETS", ATTNSCOPE_SOURCE_DIR "/assets", 1);
    folder_ = fs::temp_directory_path() / ("attnscope-compare-test-" + std::to_string(getpid()));
    fs::create_directories(folder_);
  }
  void TearDown() override { fs::remove_all(folder_); }

  std::string record(const std::string& name, const Scenario& scenario,
                     const std::vector<std::string>& lanes = {"cpu"}) {
    RecordOptions options;
    options.run.session.references = References::kNone;
    options.run.session.threads = 2;
    options.run.session.lanes = lanes;
    options.run.steps = 8;
    options.rows = 0;
    options.capture.level = CaptureLevel::kFull;
    std::string path = (folder_ / name).string();
    const auto result = record_scenario(scenario, all_lanes(), options, path, nullptr);
    EXPECT_TRUE(result) << result.error().text();
    return path;
  }
  static RunSetup setup(const std::vector<std::string>& lanes = {"cpu"}) {
    RunSetup out;
    out.scenario = small_scenario();
    out.lanes = lanes;
    out.references = References::kNone;
    return out;
  }

  fs::path folder_;
};

TEST_F(CompareTest, ASessionBesideACaptureOfTheSameIsEqualAndTheCopyGoes) {
  const std::string path = record("a.acap", small_scenario());
  Workbench bench({});
  bench.open(setup(), false);
  bench.wait_idle();
  bench.run_until("some steps", [](const Session& s) { return s.cursor().step >= 8; });
  bench.wait_idle();
  CompareSession compare;
  ASSERT_TRUE(compare.open(bench, path));
  EXPECT_FALSE(compare.open(bench, path)) << "one at a time";
  compare.wait();
  ASSERT_NE(compare.result(), nullptr) << compare.error();
  const RunPair& c = *compare.result();
  EXPECT_TRUE(c.diff.same()) << c.sentence();
  EXPECT_EQ(c.name_a, "the session, steps 0 to 7");
  EXPECT_NE(c.sentence().find("No op's output differs"), std::string::npos);
  EXPECT_EQ(c.verdict({3, 1, AS_OP_WO_B}), DiffVerdict::kEqual);
  EXPECT_FALSE(c.verdict({99, 1, AS_OP_WO_B})) << "no such step";
  EXPECT_TRUE(c.parted.empty());
  EXPECT_EQ(compared_text(&c, {3, 1, AS_OP_WO_B}), "beside " + path + ": same bits");
  const std::string copy = c.a->path();
  EXPECT_TRUE(fs::exists(copy));
  compare.close();
  EXPECT_FALSE(fs::exists(copy));
}

TEST_F(CompareTest, ATokenIsFoundInOtherStepsAndBlocks) {
  Scenario other = small_scenario();
  other.limits.token_budget = 41;
  const std::string a = record("a.acap", small_scenario()), b = record("b.acap", other);
  Workbench bench({});
  ASSERT_TRUE(bench.open_capture(a));
  CompareSession compare;
  ASSERT_TRUE(compare.open(bench, b));
  compare.wait();
  ASSERT_NE(compare.result(), nullptr) << compare.error();
  const RunPair& c = *compare.result();
  auto token = locate(c, 1, 0, 100);
  ASSERT_TRUE(token);
  ASSERT_NE(token->b, nullptr);
  EXPECT_EQ(token->position, 100);
  EXPECT_NE(token->a->step, token->b->step);
  EXPECT_EQ(token->b->metadata.positions[static_cast<std::size_t>(token->row_b)], 100);
  const Place place{1, 1, AS_OP_SPARSE_ATTENTION};
  const ComparedValues values = compared_values(*token, place, "o");
  EXPECT_EQ(values.rows, small_scenario().model.heads);
  EXPECT_EQ(values.columns, 512);
  EXPECT_LT(values.largest, 0.05);
  // One range for the colours of both sides.
  EXPECT_LT(values.low, values.high);
  for (std::int64_t row = 0; row < values.rows; ++row) {
    for (std::int64_t column = 0; column < values.columns; ++column) {
      for (const double v : {values.a(row, column), values.b(row, column)}) {
        ASSERT_GE(v, values.low);
        ASSERT_LE(v, values.high);
      }
    }
  }
  const ComparedLists lists = compared_lists(c, *token, 1);
  EXPECT_EQ(lists.sentence, "Window: 101 in both; selected entries: 25 in both.");
  EXPECT_EQ(lists.entries.size(), 126u);
  EXPECT_EQ(lists.entries[100].row, 100);
  const auto blocks = compared_blocks(c, *token);
  EXPECT_FALSE(blocks.empty());
  EXPECT_NE(compared_blocks_sentence(blocks).find("entries of the block tables: "),
            std::string::npos);
  EXPECT_EQ(compared_blocks_sentence({}), "This token's block tables were not recorded in both.");
  // Steps of other lengths: where the second was, the first is found.
  const PairSteps steps = pair_steps(c);
  EXPECT_EQ(steps.steps.size(), c.a->summaries().size());
  EXPECT_EQ(steps.steps[0].what, "-23 tokens, -7 blocks held in the second") << steps.sentence;
  EXPECT_EQ(step_in_first(c, token->b->step), token->a->step);
  EXPECT_EQ(step_in_first(c, 99), -1);
  EXPECT_EQ(locate(c, 99, 0, 1)->a, nullptr) << "no such step";
}

TEST_F(CompareTest, StepsOfAsManyTokensAreComparedByWhichTheyAre) {
  // Two requests change places: as many tokens in every step, but others.
  Scenario first = small_scenario();
  for (ScenarioRequest& request : first.requests) request.tokens.resize(100, 'x');
  first.serving.policy = SchedulePolicy::kPriority;
  Scenario other = first;
  first.requests[0].priority = -1;
  other.requests[2].priority = -1;
  const std::string a = record("a.acap", first), b = record("b.acap", other);
  for (const bool same : {false, true}) {
    Workbench bench({});
    ASSERT_TRUE(bench.open_capture(a));
    CompareSession compare;
    ASSERT_TRUE(compare.open(bench, same ? a : b));
    compare.wait();
    ASSERT_NE(compare.result(), nullptr) << compare.error();
    const PairSteps steps = pair_steps(*compare.result());
    ASSERT_FALSE(steps.steps.empty());
    EXPECT_EQ(steps.steps.front().what.empty(), same) << steps.steps.front().what;
    EXPECT_EQ(steps.sentence.ends_with("the same tokens and blocks in each."), same)
        << steps.sentence;
    EXPECT_EQ(steps.sentence.ends_with("but others from step 0 on."), !same) << steps.sentence;
  }
}

TEST_F(CompareTest, SampledTokensThatDifferAreNoSameTokens) {
  const std::string a = record("a.acap", small_scenario());
  const std::string b =
      record("b.acap", small_scenario(), {"cpu", "sample=mutant:sample_second_best"});
  Workbench bench({});
  ASSERT_TRUE(bench.open_capture(a));
  CompareSession compare;
  ASSERT_TRUE(compare.open(bench, b));
  compare.wait();
  ASSERT_NE(compare.result(), nullptr) << compare.error();
  const PairSteps steps = pair_steps(*compare.result());
  EXPECT_NE(steps.sentence.find("as many tokens and blocks in each, but others from step "),
            std::string::npos)
      << steps.sentence;
}

TEST_F(CompareTest, AttentionWithoutListsSaysSo) {
  const auto dense = load_scenario("tiny-llama");
  ASSERT_TRUE(dense);
  const std::string a = record("a.acap", *dense);
  Workbench bench({});
  ASSERT_TRUE(bench.open_capture(a));
  CompareSession compare;
  ASSERT_TRUE(compare.open(bench, a));
  compare.wait();
  ASSERT_NE(compare.result(), nullptr) << compare.error();
  const auto token = locate(*compare.result(), 2, 0, -1);
  ASSERT_TRUE(token);
  const ComparedLists lists = compared_lists(*compare.result(), *token, 1);
  EXPECT_TRUE(lists.entries.empty());
  EXPECT_EQ(lists.sentence,
            "paged_attention reads the rows of a request through its block table: a token has no "
            "list of them.");
}

TEST_F(CompareTest, WhereTheyPartIsNamedAndFound) {
  const std::string a = record("a.acap", small_scenario());
  const std::string b =
      record("b.acap", small_scenario(), {"cpu", "swa_index=mutant:window_off_by_one"});
  Workbench bench({});
  ASSERT_TRUE(bench.open_capture(a));
  CompareSession compare;
  ASSERT_TRUE(compare.open(bench, b));
  compare.wait();
  ASSERT_NE(compare.result(), nullptr) << compare.error();
  const RunPair& c = *compare.result();
  ASSERT_TRUE(c.diff.first);
  EXPECT_NE(c.sentence().find("swa_index"), std::string::npos);
  const Place first = c.diff.first->op.a;
  EXPECT_EQ(c.find(first)->verdict, DiffVerdict::kOrigin);
  EXPECT_EQ(c.verdict(first), DiffVerdict::kOrigin);
  EXPECT_EQ(c.parted.at({first.step, first.layer}), DiffVerdict::kOrigin);
  EXPECT_TRUE(std::ranges::any_of(c.parted, [](const auto& cell) {
    return cell.first.second >= 0 && cell.second == DiffVerdict::kInherited;
  })) << "layers compute from another window";
  EXPECT_NE(compared_text(&c, first).find("begins here; indices: "), std::string::npos)
      << compared_text(&c, first);
  // The element that is furthest apart, of all tokens of the step.
  const auto worst = worst_place(c, first, "indices");
  ASSERT_TRUE(worst);
  const auto there = locate(c, first.step, worst->request, worst->position);
  ASSERT_TRUE(there);
  const ComparedValues apart = compared_values(*there, first, "indices");
  EXPECT_GT(apart.differing, 0);
  EXPECT_GE(apart.worst_row, 0);
  EXPECT_FALSE(worst_place(c, {first.step, 0, AS_OP_ATTN_NORM}, "y")) << "they are the same";
  const OpDiff* next = c.next(first);
  ASSERT_NE(next, nullptr);
  EXPECT_NE(next->a, first);
  auto token = locate(c, first.step, 0, -1);
  ASSERT_TRUE(token);
  const auto ops = compared_ops(c, *token);
  const auto at = std::ranges::find(ops, first, &ComparedOp::place);
  ASSERT_NE(at, ops.end());
  EXPECT_EQ(at->verdict, DiffVerdict::kOrigin);
  EXPECT_EQ(at->lane_b, "mutant:window_off_by_one");
  ASSERT_NE(at->worst, nullptr);
  EXPECT_EQ(at->worst->tap, "indices");
  EXPECT_EQ(ops.front().verdict, DiffVerdict::kUnknown) << "schedules are not compared as tensors";
  const std::string text = compare_sentence(c, *token, first);
  EXPECT_NE(text.find("the inputs agree and indices does not"), std::string::npos) << text;
  // The oldest position of a full window is missing in the second.
  auto full = locate(c, 3, 0, -1);
  ASSERT_TRUE(full);
  const ComparedLists lists = compared_lists(c, *full, 0);
  EXPECT_NE(lists.sentence.find("1 in the first alone"), std::string::npos) << lists.sentence;
}

TEST_F(CompareTest, OneThatRunsCanBeStopped) {
  const std::string a = record("a.acap", small_scenario());
  Workbench bench({});
  ASSERT_TRUE(bench.open_capture(a));
  CompareSession compare;
  ASSERT_TRUE(compare.open(bench, a));
  compare.close();
  EXPECT_FALSE(compare.running());
  EXPECT_EQ(compare.result(), nullptr);
  EXPECT_EQ(compare.error(), "") << "who stopped it knows";
  auto tolerances = Tolerances::load();
  ASSERT_TRUE(tolerances);
  auto one = Capture::open(a), other = Capture::open(a);
  int asked = 0;
  const auto stopped =
      diff_captures(**one, **other, *tolerances, [&](double) { return ++asked < 3; });
  ASSERT_FALSE(stopped);
  EXPECT_EQ(stopped.error().code, AS_USAGE);
  EXPECT_EQ(asked, 3);
}

TEST_F(CompareTest, WhatCannotBeComparedIsSaid) {
  Workbench bench({});
  CompareSession compare;
  EXPECT_FALSE(compare.open(bench, (folder_ / "none.acap").string()));
  Scenario wide = small_scenario();
  wide.model = *preset("tiny", {0, 1});
  const std::string a = record("a.acap", small_scenario()), b = record("b.acap", wide);
  ASSERT_TRUE(bench.open_capture(a));
  EXPECT_FALSE(compare.open(bench, (folder_ / "none.acap").string()));
  ASSERT_TRUE(compare.open(bench, b));
  compare.wait();
  EXPECT_EQ(compare.result(), nullptr);
  const auto said = [&](const std::string& text) {
    EXPECT_NE(compare.error().find(text), std::string::npos) << compare.error();
  };
  said(
      "other dimensions or layers: hidden size 128 and 512; heads 4 and 8; layers 0, 1, 2, 3 and "
      "0,");
  // Nobody knows the copy of a session by the name that it has meanwhile.
  bench.open(setup(), true);
  bench.wait_idle();
  ASSERT_TRUE(compare.open(bench, b));
  compare.wait();
  said("the session, steps 0 to ");
}

TEST_F(CompareTest, ARecordingIsMadeBesideTheSessionAndCanBeStopped) {
  Workbench bench({});
  EXPECT_FALSE(bench.record((folder_ / "x.acap").string(), CaptureLevel::kTables));
  bench.open(setup(), false);
  bench.wait_idle();
  const std::string path = (folder_ / "r.acap").string();
  ASSERT_TRUE(bench.record(path, CaptureLevel::kTables));
  EXPECT_FALSE(bench.record(path, CaptureLevel::kTables)) << "one at a time";
  ASSERT_TRUE(bench.recording());
  EXPECT_EQ(bench.recording()->second, path);
  bench.wait_idle();
  EXPECT_FALSE(bench.recording());
  EXPECT_NE(bench.messages().back().text.find("steps recorded in " + path), std::string::npos);
  auto capture = Capture::open(path);
  ASSERT_TRUE(capture);
  EXPECT_TRUE((*capture)->complete());

  const std::string stopped = (folder_ / "s.acap").string();
  ASSERT_TRUE(bench.record(stopped, CaptureLevel::kFull));
  bench.cancel();
  bench.wait_idle();
  EXPECT_NE(bench.messages().back().text.find("Recording stopped"), std::string::npos);
  auto part = Capture::open(stopped);
  EXPECT_TRUE(!part || !(*part)->complete());
}

}  // namespace capture_compare_test
}  // namespace attnscope
