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
  // And what is wrong with it.
  ASSERT_EQ(why["taps"][0]["findings"].size(), 1) << out.out;
  EXPECT_EQ(why["taps"][0]["findings"][0]["kind"], "whole");
  const std::string said = why["taps"][0]["findings"][0]["sentence"];
  EXPECT_NE(said.find("token "), std::string::npos) << said;
}

// Mistakes that a pattern alone does not name are named by trying them; where the call tells them
// apart, of no other is it said that it gives the same output.
TEST_F(CaseExplain, OneMistakeEachGivesTheSameOutput) {
  const auto saved = [&](const char* scenario, const std::string& at) {
    std::string file = path(at.substr(at.rfind('/') + 1) + ".json");
    EXPECT_EQ(run({"case", "save", scenario, "--at", at, "-o", file}).code, 0) << at;
    return file;
  };
  const std::string insert = saved("early", "1/1/q_rope_kv_insert");
  const std::string entries = saved("selective", "4/1/sparse_attention");
  const std::string back = saved("early", "1/1/inverse_rope");
  const std::string query = saved("early", "1/1/indexer_q");
  const std::string window = saved("selective", "1/-/swa_index");
  const std::string slots = saved("selective", "1/1/topk_to_slots");
  const std::pair<const std::string*, const char*> bugs[] = {
      {&case_, "sink_missing"},
      {&case_, "sink_twice"},
      {&case_, "sink_of_base_2"},
      {&case_, "scale_of_no_rope"},
      {&case_, "scale_of_base_2"},
      {&case_, "weights_of_base_2"},
      {&case_, "scores_without_rope"},
      {&case_, "codes_read_as_fnuz"},
      {&case_, "scale_bias_short"},
      {&case_, "scale_of_two_blocks"},
      {&case_, "scale_of_first_block"},
      {&entries, "last_window_tile_lost"},
      {&entries, "part_of_tile_lost"},
      {&insert, "rope_turned_back"},
      {&insert, "codes_cut_off"},
      {&insert, "rope_of_token_before"},
      {&insert, "rope_of_token_behind"},
      {&insert, "key_rope_of_token_before"},
      {&back, "inverse_rope_of_token_before"},
      {&query, "index_query_rope_before"},
      {&window, "window_block_before"},
      {&slots, "topk_block_before"},
  };
  for (const auto& [kept, name] : bugs) {
    const std::string lane = std::string("mutant:") + name;
    const Outcome out = run({"case", "explain", *kept, "--lane", lane, "--json"});
    const auto why = nlohmann::json::parse(out.out, nullptr, false);
    ASSERT_TRUE(why.is_object()) << name << out.out << out.err;
    ASSERT_FALSE(why["hypotheses"].empty()) << name;
    EXPECT_EQ(why["hypotheses"][0]["lane"], lane) << out.out;
    EXPECT_EQ(why["hypotheses"][0]["same_output"], true) << name;
    for (std::size_t i = 1; i < why["hypotheses"].size(); ++i) {
      EXPECT_EQ(why["hypotheses"][i]["same_output"], false) << name << out.out;
    }
  }
}

// Of one tile that is selected the last is all of them: both mistakes are told.
TEST_F(CaseExplain, ALostTileOfOneIsTheSelectionIgnored) {
  const std::string kept = path("entries.json");
  ASSERT_EQ(run({"case", "save", "selective", "--at", "4/1/sparse_attention", "-o", kept}).code, 0);
  const Outcome out = run({"case", "explain", kept, "--lane", "mutant:last_entries_lost"});
  for (const char* part :
       {"mutant:last_entries_lost gives the same output: The last tile of 64",
        "mutant:selection_ignored gives the same output", "2 mistakes give the same output"}) {
    EXPECT_NE(out.out.find(part), std::string::npos) << part << out.out;
  }
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
