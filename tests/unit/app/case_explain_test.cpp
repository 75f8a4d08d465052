// Why a call came out wrong, from the command line: of a case, of a lane run on it, of the first
// wrong call of a run.
#include <nlohmann/json.hpp>

#include "app/wiring/case_lane.h"
#include "app/wiring/wiring.h"
#include "engine/explain/explain_case.h"
#include "engine/io/json_file.h"
#include "engine/opcase/case_file.h"
#include "kernels/params/attention_params.h"
#include "tests/unit/app/cli_fixture.h"

namespace attnscope {
namespace case_explain_test {

class CaseExplain : public CliTest {
 protected:
  void SetUp() override {
    CliTest::SetUp();
    case_ = path("a.json");
    ASSERT_EQ(run({"case", "save", "early", "--at", "1/1/sparse_attention", "-o", case_}).code, 0);
  }
  std::string case_;
};

TEST_F(CaseExplain, ARightCallHasNothingToExplain) {
  const Outcome out = run({"case", "explain", case_});
  EXPECT_EQ(out.code, 0) << out.err;
  EXPECT_NE(out.out.find("nothing to explain"), std::string::npos) << out.out;
}

TEST_F(CaseExplain, WhatWasSavedIsCounted) {
  const Outcome one =
      run({"case", "save", "early", "--at", "1/1/q_rope_kv_insert", "-o", path("insert.json")});
  EXPECT_NE(one.out.find("6 tensors, 1 cache, "), std::string::npos) << one.out;
}

TEST_F(CaseExplain, ALaneGetsItsPatternAndItsMistake) {
  const Outcome out = run({"case", "explain", case_, "--lane", "mutant:lse_in_base_2"});
  EXPECT_EQ(out.code, 1) << out.err;
  EXPECT_NE(out.out.find("lse: all wrong values are 1.4427 times the right ones: log2(e)"),
            std::string::npos)
      << out.out;
  EXPECT_NE(out.out.find("mutant:lse_in_base_2 gives the same output: The LSE is a logarithm in"),
            std::string::npos)
      << out.out;
  const Outcome as_json = run({"case", "explain", case_, "--lane", "mutant:sink_scaled", "--json"});
  const auto why = nlohmann::json::parse(as_json.out, nullptr, false);
  ASSERT_TRUE(why.is_object()) << as_json.out;
  EXPECT_EQ(why["format"], "attnscope-case-explain");
  EXPECT_EQ(why["taps"][0]["tap"], "o");
  EXPECT_EQ(why["taps"][0]["findings"][0]["kind"], "row_ratio");
  EXPECT_EQ(why["hypotheses"][0]["lane"], "mutant:sink_scaled");
  EXPECT_EQ(why["hypotheses"][0]["same_output"], true);
  EXPECT_GT(why["tried"], 10);
  EXPECT_EQ(why["left"], 0);
}

// Mistakes that leave this call right do not give the entries that were taken for the best ones.
TEST_F(CaseExplain, AWrongSelectionIsNotWhatARightOneNearlyIs) {
  const std::string kept = path("topk.json");
  ASSERT_EQ(run({"case", "save", "selective", "--at", "1/1/indexer_topk", "-o", kept}).code, 0);
  const Outcome out = run({"case", "explain", kept, "--lane", "mutant:topk_takes_first", "--json"});
  const auto why = nlohmann::json::parse(out.out, nullptr, false);
  ASSERT_TRUE(why.is_object()) << out.out << out.err;
  ASSERT_EQ(why["hypotheses"].size(), 1) << out.out;
  EXPECT_EQ(why["hypotheses"][0]["lane"], "mutant:topk_takes_first");
}

// Mistakes that a pattern alone does not name are named by trying them.
TEST_F(CaseExplain, ScalesSinksAndTurnsAreKnownMistakes) {
  const std::string insert = path("insert.json");
  ASSERT_EQ(run({"case", "save", "early", "--at", "1/1/q_rope_kv_insert", "-o", insert}).code, 0);
  const std::pair<const std::string*, const char*> bugs[] = {
      {&case_, "sink_missing"},      {&case_, "scale_of_no_rope"}, {&case_, "scale_of_base_2"},
      {&insert, "rope_turned_back"}, {&insert, "codes_cut_off"},
  };
  for (const auto& [kept, name] : bugs) {
    const std::string lane = std::string("mutant:") + name;
    const Outcome out = run({"case", "explain", *kept, "--lane", lane, "--json"});
    const auto why = nlohmann::json::parse(out.out, nullptr, false);
    ASSERT_TRUE(why.is_object()) << name << out.out << out.err;
    ASSERT_FALSE(why["hypotheses"].empty()) << name;
    EXPECT_EQ(why["hypotheses"][0]["lane"], lane) << out.out;
    EXPECT_EQ(why["hypotheses"][0]["same_output"], true) << name;
  }
}

TEST_F(CaseExplain, RowsOfACacheHavePlacesToo) {
  const std::string insert = path("insert.json");
  ASSERT_EQ(run({"case", "save", "early", "--at", "1/1/q_rope_kv_insert", "-o", insert}).code, 0);
  Outcome out = run({"case", "explain", insert, "--lane", "mutant:codes_cut_off"});
  EXPECT_NE(out.out.find("codes of all blocks, no scale"), std::string::npos) << out.out;
  out = run({"case", "explain", insert, "--lane", "mutant:scale_rounded_down"});
  EXPECT_NE(out.out.find("codes of all blocks, all scales\n"), std::string::npos) << out.out;
  out = run({"case", "explain", insert, "--lane", "mutant:rope_turned_back"});
  EXPECT_NE(out.out.find("kv_row: "), std::string::npos) << out.out;
  EXPECT_EQ(out.out.find("cache: "), std::string::npos) << "it follows from kv_row: " << out.out;
  out = run({"case", "explain", insert, "--lane", "mutant:last_row_not_written"});
  EXPECT_NE(out.out.find(" bytes are wrong: token 55; every byte of the row"), std::string::npos)
      << out.out;
  EXPECT_NE(out.out.find("as where nobody has written"), std::string::npos) << out.out;
}

// The CPU lane, with another number at one place in every call.
std::int32_t unsteady(const void* params, const as_call* call, as_error* error) {
  static const LaneRegistry lanes = all_lanes();
  static int calls = 0;
  const std::int32_t status = lanes.find("cpu")->ops[AS_OP_SPARSE_ATTENTION](params, call, error);
  *static_cast<float*>(static_cast<const as_sparse_attention_params*>(params)->lse.data) +=
      static_cast<float>(++calls);
  return status;
}

TEST_F(CaseExplain, ALaneThatIsNotDeterministicIsSaidToBe) {
  const LaneRegistry lanes = all_lanes();
  const auto tolerances = Tolerances::load();
  ASSERT_TRUE(tolerances);
  auto kept = read_case(case_);
  ASSERT_TRUE(kept) << kept.error().text();
  const CaseRunOptions options = case_options(lanes, kept->op, *tolerances, nullptr);
  const std::string text = unsteady_text(*kept, {"plugin:mine", unsteady, false}, options);
  EXPECT_NE(text.find("plugin:mine is not deterministic"), std::string::npos) << text;
  EXPECT_NE(text.find("1 of 448 elements of lse"), std::string::npos) << text;

  const auto cpu = find_case_lane(lanes, "cpu", kept->op);
  ASSERT_TRUE(cpu);
  EXPECT_EQ(unsteady_text(*kept, *cpu, options), "");
  const auto other = find_case_lane(lanes, "mutant:lse_in_base_2", kept->op);
  ASSERT_TRUE(other);
  EXPECT_NE(unsteady_text(*kept, *other, options).find("was another build"), std::string::npos);

  Explanation why;
  why.hypotheses.wrong = 1;
  why.unsteady = text;
  EXPECT_EQ(why.causes().front(), text);
}

TEST_F(CaseExplain, BadInputIsNamed) {
  Outcome out = run({"case", "explain", case_, "--lane", "mutant:relu_missing"});
  EXPECT_EQ(out.code, 2);
  EXPECT_NE(out.err.find("has no op sparse_attention"), std::string::npos) << out.err;
  out = run({"case", "explain", path("none.json")});
  EXPECT_EQ(out.code, 3);
  EXPECT_NE(out.err.find("none.json"), std::string::npos) << out.err;
}

TEST_F(CaseExplain, ARunSaysItOfItsFirstWrongCall) {
  const std::string report = path("r.json");
  const Outcome out = run({"run", "early", "--steps", "2", "--references", "sim", "--lane",
                           "mutant:lse_in_base_2", "--report", report});
  EXPECT_EQ(out.code, 1) << out.err;
  EXPECT_NE(out.out.find("mutant:lse_in_base_2 gives the same output"), std::string::npos)
      << out.out;
  const auto why = nlohmann::json::parse(*read_text_file(report))["why"];
  EXPECT_EQ(why["op"], "sparse_attention");
  EXPECT_GT(why["wrong_elements"], 0);
  const Outcome sound = run({"run", "early", "--steps", "1", "--references", "sim", "--json"});
  EXPECT_TRUE(nlohmann::json::parse(sound.out)["why"].is_null());
}

}  // namespace case_explain_test
}  // namespace attnscope
