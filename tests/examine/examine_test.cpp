// The examiner of plugins: a right one keeps every clause, and each carelessness of
// tests/plugin/careless.c is found under the clause that it forgets.
#include "engine/examine/examine.h"

#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <limits>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "app/wiring/plugins.h"
#include "app/wiring/wiring.h"
#include "kernels/layout/records.h"
#include "kernels/params/helper_params.h"
#include "kernels/params/indexer_params.h"
#include "kernels/params/tensor_view.h"
#include "tests/examine/verdicts.h"
#include "tests/unit/app/cli_fixture.h"

namespace attnscope {
namespace examine_test {

std::string library(const std::string& name) {
  return ATTNSCOPE_TEST_PLUGINS "/libplugin_" + name + ".so";
}

class ExamineTest : public CliTest {
 protected:
  void TearDown() override {
    EXPECT_TRUE(open_plugins({}));
    CliTest::TearDown();
  }
  // Verdict of a clause of an op, as the report has it.
  static nlohmann::json finding(const Outcome& out, const std::string& op,
                                const std::string& clause) {
    const auto report = nlohmann::json::parse(out.out, nullptr, false);
    if (report.is_discarded()) return {};
    for (const auto& f : report["clauses"]) {
      if (f["op"] == op && f["clause"] == clause) return f;
    }
    return {};
  }
  static std::string verdict(const Outcome& out, const std::string& op, const std::string& clause) {
    return finding(out, op, clause).value("verdict", "");
  }
};

TEST_F(ExamineTest, TheExampleKeepsEveryClauseThatReachesIt) {
  const Outcome out = run({"plugin", "check", library("example"), "--json"});
  EXPECT_EQ(out.code, 0) << out.out << out.err;
  for (const char* clause :
       {"ordinary", "page_ends", "holes", "behind_lens", "unlisted_nan", "high_blocks",
        "duplicates", "nothing_listed", "large_logits", "far_lse", "sinks", "every_code",
        "subnormals", "small_scales", "strides", "nan_neighbours", "alone", "poison", "twice"}) {
    EXPECT_EQ(verdict(out, "sparse_attention", clause), "kept") << clause << out.out;
  }
  EXPECT_EQ(verdict(out, "sparse_attention", "ties"), "not reached");
  EXPECT_EQ(verdict(out, "residual", "strides"), "kept");
  EXPECT_EQ(verdict(out, "residual", "holes"), "not reached");
}

struct Careless {
  const char* fault;
  const char* op;
  const char* clause;
  bool shows;  // on ordinary calls too
};

class CarelessTest : public ExamineTest, public testing::WithParamInterface<Careless> {};

TEST_P(CarelessTest, IsFoundUnderTheClauseThatItForgets) {
  const Careless& c = GetParam();
  const Outcome out = run({"plugin", "check", library(std::string("careless_") + c.fault), "--op",
                           c.op, "--keep", path("kept"), "--json"});
  EXPECT_EQ(out.code, 1) << out.err;
  const nlohmann::json found = finding(out, c.op, c.clause);
  EXPECT_EQ(found.value("verdict", ""), "broken") << out.out;
  EXPECT_FALSE(found.value("note", "").empty());
  EXPECT_EQ(verdict(out, c.op, "ordinary"), c.shows ? "broken" : "kept") << out.out;
  EXPECT_TRUE(std::filesystem::is_regular_file(found.value("case", ""))) << out.out;
}

INSTANTIATE_TEST_SUITE_P(
    Faults, CarelessTest,
    testing::Values(Careless{"HOLES", "sparse_attention", "holes", false},
                    Careless{"BEHIND_LENS", "sparse_attention", "behind_lens", false},
                    Careless{"DUPLICATES", "sparse_attention", "duplicates", false},
                    Careless{"NOTHING_LISTED", "sparse_attention", "nothing_listed", false},
                    Careless{"LARGE_LOGITS", "sparse_attention", "large_logits", false},
                    Careless{"SINKS", "sparse_attention", "sinks", false},
                    Careless{"EVERY_CODE", "sparse_attention", "every_code", true},
                    Careless{"SMALL_SCALES", "sparse_attention", "small_scales", false},
                    Careless{"STRIDES", "sparse_attention", "strides", false},
                    Careless{"NAN_NEIGHBOURS", "sparse_attention", "nan_neighbours", false},
                    Careless{"ALONE", "sparse_attention", "alone", false},
                    Careless{"POISON", "sparse_attention", "poison", false},
                    Careless{"TWICE", "sparse_attention", "twice", false},
                    Careless{"PAGE_ENDS", "sparse_attention", "page_ends", false},
                    Careless{"FAR_LSE", "sparse_attention", "far_lse", false},
                    Careless{"UNLISTED_NAN", "sparse_attention", "unlisted_nan", false},
                    Careless{"SUBNORMALS", "sparse_attention", "subnormals", false},
                    Careless{"HIGH_BLOCKS", "sparse_attention", "high_blocks", false},
                    Careless{"TIES", "indexer_topk", "ties", false},
                    Careless{"SCORES_BEHIND", "indexer_topk", "scores_behind", true},
                    Careless{"NOTHING_WRITTEN", "compressor_state", "nothing_written", false},
                    Careless{"PADS_LEFT", "pad_rows", "poison", false}),
    [](const auto& tested) { return std::string(tested.param.fault); });

// A kernel whose outputs change by themselves says nothing about what it read of them.
TEST_F(ExamineTest, OfUnsteadyOutputsNobodySaysWhatTheyFollowFrom) {
  const Outcome out =
      run({"plugin", "check", library("careless_TWICE"), "--op", "sparse_attention", "--json"});
  EXPECT_EQ(verdict(out, "sparse_attention", "twice"), "broken") << out.out;
  const nlohmann::json poison = finding(out, "sparse_attention", "poison");
  EXPECT_EQ(poison.value("verdict", ""), "not reached") << out.out;
  EXPECT_NE(poison.value("note", "").find("change from call to call"), std::string::npos) << poison;
}

// The kept case is the call that went wrong, with what should have come out.
TEST_F(ExamineTest, AKeptCaseRunsAndIsWrongAgain) {
  ASSERT_EQ(run({"plugin", "check", library("careless_HOLES"), "--op", "sparse_attention", "--keep",
                 path("kept")})
                .code,
            1);
  const std::string file = path("kept") + "/sparse_attention.holes.json";
  EXPECT_EQ(run({"case", "run", file, "--lane", "cpu"}).code, 0);
  EXPECT_EQ(
      run({"case", "run", file, "--plugin", library("careless_HOLES"), "--lane", "plugin:careless"})
          .code,
      1);
  const Outcome shown = run({"case", "show", file});
  EXPECT_NE(shown.out.find("q              bf16  [1,8,512]"), std::string::npos) << shown.out;
}

// Of 4 GiB the pages that rows lie in are there, and any other one ends the call.
TEST_F(ExamineTest, ARowThatIsNotThereIsNamed) {
  const Outcome out = run(
      {"plugin", "check", library("careless_HIGH_BLOCKS"), "--op", "sparse_attention", "--json"});
  const std::string note = finding(out, "sparse_attention", "high_blocks").value("note", "");
  EXPECT_NE(note.find("it read byte"), std::string::npos) << note;
  EXPECT_NE(note.find("of cache, where no row of the call lies"), std::string::npos) << note;
}

// The CPU lane, and then a look at every page of the block table.
std::int32_t looks_at_every_page(const void* params, const as_call* call, as_error* error) {
  static const LaneRegistry lanes = all_lanes();
  const std::int32_t status = lanes.find("cpu")->ops[AS_OP_INDEXER_LOGITS](params, call, error);
  const auto& p = *static_cast<const as_indexer_logits_params*>(params);
  for (std::int64_t r = 0; status == AS_OK && r < p.table.shape[0]; ++r) {
    for (std::int64_t c = 0; c < p.table.shape[1]; ++c) {
      const std::int64_t slot =
          std::int64_t{*at<std::int32_t>(p.table, r, c)} * p.cache.rows_per_block;
      float scale = 0;
      std::memcpy(&scale, as_cache_row(&p.cache, slot).scales, sizeof(scale));
      *at<float>(p.logits, 0, 0) += 0 * scale;  // NaN stays NaN
    }
  }
  return status;
}

TEST_F(ExamineTest, PagesOfATableThatHoldNoRowAreNotLookedAt) {
  EXPECT_EQ(verdicts_of(AS_OP_INDEXER_LOGITS, nullptr)["unread_pages"], ClauseVerdict::kKept);
  EXPECT_EQ(verdicts_of(AS_OP_INDEXER_LOGITS, looks_at_every_page)["unread_pages"],
            ClauseVerdict::kBroken);
}

// As if sums of e^LSE were taken without their largest one.
std::int32_t overflows(const void* params, const as_call* call, as_error* error) {
  static const LaneRegistry lanes = all_lanes();
  const std::int32_t status = lanes.find("cpu")->ops[AS_OP_MERGE_STATES](params, call, error);
  const auto& p = *static_cast<const as_merge_states_params*>(params);
  if (status == AS_OK && *at<float>(p.lse_a, 0, 0) > 88.7f) {
    *at<float>(p.lse, 0, 0) = std::numeric_limits<float>::infinity();
  }
  return status;
}

// As if a list ended with its first -1.
std::int32_t ends_at_holes(const void* params, const as_call* call, as_error* error) {
  static const LaneRegistry lanes = all_lanes();
  as_workspace_attention_params p = *static_cast<const as_workspace_attention_params*>(params);
  std::vector<std::int32_t> lens;
  for (std::int64_t t = 0; t < p.indices.shape[0]; ++t) {
    std::int32_t k = 0;
    while (k < *at<std::int32_t>(p.topk_length, t) && *at<std::int32_t>(p.indices, t, k) >= 0) ++k;
    lens.push_back(k);
  }
  p.topk_length.data = lens.data();
  return lanes.find("cpu")->ops[AS_OP_WORKSPACE_ATTENTION](&p, call, error);
}

TEST_F(ExamineTest, HelperOpsHaveCallsToo) {
  for (const as_op_id id : {AS_OP_MERGE_STATES, AS_OP_WORKSPACE_ATTENTION}) {
    for (const auto& [clause, verdict] : verdicts_of(id, nullptr)) {
      EXPECT_NE(verdict, ClauseVerdict::kBroken) << as_op_find(id)->name << " " << clause;
    }
  }
  auto merged = verdicts_of(AS_OP_MERGE_STATES, overflows);
  EXPECT_EQ(merged["ordinary"], ClauseVerdict::kKept);
  EXPECT_EQ(merged["far_lse"], ClauseVerdict::kBroken);
  auto listed = verdicts_of(AS_OP_WORKSPACE_ATTENTION, ends_at_holes);
  EXPECT_EQ(listed["ordinary"], ClauseVerdict::kKept);
  EXPECT_EQ(listed["behind_lens"], ClauseVerdict::kKept);
  EXPECT_EQ(listed["holes"], ClauseVerdict::kBroken);
}

// What it leaves alone does not come back from a process.
TEST_F(ExamineTest, BlocksAreCopiedInThisProcess) {
  const std::string careless = library("careless_NEGATIVE_TARGETS");
  const Outcome apart = run({"plugin", "check", careless, "--op", "copy_blocks", "--json"});
  EXPECT_EQ(apart.code, 0) << apart.err;
  EXPECT_EQ(verdict(apart, "copy_blocks", "holes"), "not reached") << apart.out;
  const std::string note = finding(apart, "copy_blocks", "holes").value("note", "");
  EXPECT_NE(note.find("--in-process"), std::string::npos) << note;
  const Outcome here = run({"plugin", "check", careless, "--op", "copy_blocks", "--json",
                            "--in-process", "--keep", path("kept")});
  EXPECT_EQ(here.code, 1) << here.err;
  EXPECT_EQ(verdict(here, "copy_blocks", "ordinary"), "kept") << here.out;
  EXPECT_EQ(verdict(here, "copy_blocks", "holes"), "broken") << here.out;
  const std::string file = path("kept") + "/copy_blocks.holes.json";
  EXPECT_EQ(run({"case", "run", file, "--lane", "cpu"}).code, 0);
}

// What a plugin says it cannot do is no broken promise; a crash is.
TEST_F(ExamineTest, ARefusalIsToldFromACrash) {
  const Outcome refuses = run({"plugin", "check", library("RETURN_ERROR"), "--json"});
  EXPECT_EQ(refuses.code, 0) << refuses.out;
  EXPECT_EQ(verdict(refuses, "residual", "ordinary"), "refused");
  EXPECT_NE(finding(refuses, "residual", "ordinary").value("note", "").find("I would rather not"),
            std::string::npos);
  const Outcome crashes = run({"plugin", "check", library("CRASH"), "--json"});
  EXPECT_EQ(crashes.code, 1);
  EXPECT_EQ(verdict(crashes, "residual", "ordinary"), "broken");
}

TEST_F(ExamineTest, AnOpThatThePluginHasNotIsAMistake) {
  const Outcome out = run({"plugin", "check", library("example"), "--op", "wo_b"});
  EXPECT_EQ(out.code, 2);
  EXPECT_NE(out.err.find("has no such op"), std::string::npos) << out.err;
  EXPECT_EQ(run({"plugin", "check", path("nothing.so")}).code, 3);
}

}  // namespace examine_test
}  // namespace attnscope
