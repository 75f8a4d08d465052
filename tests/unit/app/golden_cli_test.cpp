// attnscope golden, as people and build servers call it: run, list, review, accept, prune.
#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>

#include "app/reports/golden_review.h"
#include "app/text/git_commit.h"
#include "engine/opcase/case_file.h"
#include "tests/unit/app/cli_fixture.h"

namespace attnscope {
namespace golden_cli_test {

using nlohmann::json;

constexpr const char* kNorm = R"({"format": "attnscope-golden", "version": 1, "about": "a norm",
  "op": "attn_norm", "cases": [{"name": "one", "lengths": [4]}]})";

class GoldenCliTest : public CliTest {
 protected:
  void SetUp() override {
    CliTest::SetUp();
    write("norm.golden.json", kNorm);
  }
  Outcome golden(std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), "golden");
    arguments.insert(arguments.end(), {"--goldens", folder_.string()});
    return run(arguments);
  }
  // With lines typed at its prompt.
  Outcome typed(const std::string& lines, std::vector<std::string> arguments) {
    std::istringstream in(lines);
    std::streambuf* before = std::cin.rdbuf(in.rdbuf());
    Outcome outcome = golden(std::move(arguments));
    std::cin.rdbuf(before);
    std::cin.clear();
    return outcome;
  }
  bool exists(const char* name) { return std::filesystem::exists(path(name)); }
  void accept_first() {
    EXPECT_EQ(golden({"run"}).code, 1);
    EXPECT_EQ(golden({"accept", "norm", "--reason", "first"}).code, 0);
  }
  // The accepted values are other than any lane's.
  void spoil() {
    std::string text = read(path("norm.accepted.json"));
    const std::size_t at = text.find("\"values\":[") + 10;
    text.replace(at, text.find(',', at) - at, "123.5");
    write("norm.accepted.json", text);
  }
  std::vector<std::string> files() {
    std::vector<std::string> names;
    for (const auto& f : std::filesystem::directory_iterator(folder_)) {
      names.push_back(f.path().filename().string() + " " + read(f.path().string()));
    }
    std::sort(names.begin(), names.end());
    return names;
  }
};

TEST_F(GoldenCliTest, ANewOneIsPendingUntilItIsAccepted) {
  Outcome out = golden({"run"});
  EXPECT_EQ(out.code, 1);
  EXPECT_NE(out.out.find("1 goldens: 1 new"), std::string::npos) << out.out;
  EXPECT_TRUE(exists("norm.received.json"));
  out = golden({"accept", "norm", "--reason", "first values"});
  EXPECT_EQ(out.code, 0) << out.err;
  EXPECT_FALSE(exists("norm.received.json"));
  const json accepted = json::parse(read(path("norm.accepted.json")));
  EXPECT_EQ(accepted["origin"]["reason"], "first values");
  EXPECT_TRUE(accepted["origin"]["machine"].contains("GPU"));
  EXPECT_TRUE(accepted["origin"]["machine"].contains("driver"));
  out = golden({"run"});
  EXPECT_EQ(out.code, 0) << out.out;
  EXPECT_NE(out.out.find("1 passed"), std::string::npos);
}

// More than a repository's golden may take: its values lie elsewhere, or are made anew.
TEST_F(GoldenCliTest, ALargeOneKeepsARecordHereAndItsValuesElsewhere) {
  std::filesystem::remove(path("norm.golden.json"));
  write("big.golden.json", R"({"format": "attnscope-golden", "version": 1, "about": "much",
    "scenario": "early", "steps": 2, "rows": 8, "samples": 4000,
    "taps": [{"op": "attn_norm"}, {"op": "slot_mapping"}]})");
  const std::string there = path("there"), elsewhere = path("elsewhere");
  const auto only_file = [](const std::string& folder) {
    const auto begin = std::filesystem::directory_iterator(folder);
    return begin->path().string();
  };
  EXPECT_EQ(golden({"run", "--large", there}).code, 1);
  ASSERT_EQ(golden({"accept", "big", "--reason", "first", "--large", there}).code, 0);
  EXPECT_LE(read(path("big.accepted.json")).size(), kSmallGolden);
  EXPECT_NE(read(path("big.accepted.json")).find(kLargeGoldenFormat), std::string::npos);
  const std::string values = only_file(there);
  EXPECT_GT(read(values).size(), kSmallGolden);
  Outcome out = golden({"run", "--ci", "--large", there});
  EXPECT_EQ(out.code, 0) << out.out;
  EXPECT_EQ(out.out.find("not on this machine"), std::string::npos) << out.out;

  // Another machine: what is exact holds, and the next runs have values again.
  out = golden({"run", "--ci", "--json", "--large", elsewhere});
  EXPECT_EQ(out.code, 0) << out.out;
  EXPECT_NE(out.out.find("are not on this machine: a run without --ci"), std::string::npos)
      << out.out;
  EXPECT_FALSE(exists("elsewhere"));
  out = golden({"run", "--json", "--large", elsewhere});
  EXPECT_EQ(out.code, 0) << out.out;
  EXPECT_NE(out.out.find("made anew, for the runs to come"), std::string::npos) << out.out;
  out = golden({"run", "--json", "--large", elsewhere});
  EXPECT_EQ(out.code, 0) << out.out;
  EXPECT_EQ(out.out.find("not on this machine"), std::string::npos) << out.out;

  // Values that differ fail, wherever they come from; a file of others is damaged.
  for (const std::string& folder : {elsewhere, there}) {
    std::string text = read(only_file(folder));
    const std::size_t at = text.find("\"values\":[") + 10;
    text.replace(at, text.find(',', at) - at, "123.5");
    std::ofstream(only_file(folder)) << text;
    EXPECT_EQ(golden({"run", "--ci", "--large", folder}).code, folder == there ? 3 : 1);
  }
  // Other integers fail without any values.
  std::string record = read(path("big.accepted.json"));
  const std::size_t at = record.find("\"integers\": \"") + 13;
  record[at] = record[at] == '0' ? '1' : '0';
  write("big.accepted.json", record);
  out = golden({"run", "--ci", "--json", "--large", path("nowhere")});
  EXPECT_EQ(out.code, 1);
  EXPECT_NE(out.out.find("taps of integers are others than"), std::string::npos) << out.out;
}

TEST_F(GoldenCliTest, AFailureKeepsWhatWasReceivedAndCiWritesNothing) {
  accept_first();
  spoil();
  const auto before = files();
  Outcome out = golden({"run", "--ci"});
  EXPECT_EQ(out.code, 1);
  EXPECT_EQ(files(), before);
  EXPECT_NE(out.out.find("was 123.5"), std::string::npos) << out.out;
  EXPECT_EQ(golden({"run", "--lane", "cpu"}).code, 1) << "another lane is looked at, not kept";
  EXPECT_EQ(files(), before);
  EXPECT_EQ(golden({"run"}).code, 1);
  EXPECT_TRUE(exists("norm.received.json"));
  out = golden({"list"});
  EXPECT_NE(out.out.find("pending   norm"), std::string::npos) << out.out;
}

TEST_F(GoldenCliTest, APassingRunTakesBackWhatWasPending) {
  accept_first();
  const std::string good = read(path("norm.accepted.json"));
  spoil();
  golden({"run"});
  ASSERT_TRUE(exists("norm.received.json"));
  write("norm.accepted.json", good);
  EXPECT_EQ(golden({"run"}).code, 0);
  EXPECT_FALSE(exists("norm.received.json"));
}

TEST_F(GoldenCliTest, ReviewShowsBothSidesAndDoesWhatIsTyped) {
  accept_first();
  spoil();
  golden({"run"});
  Outcome out = typed("s\n", {"review"});
  EXPECT_EQ(out.code, 0);
  EXPECT_NE(out.out.find("y of one is wrong: element"), std::string::npos) << out.out;
  EXPECT_NE(out.out.find("accepted: \"first\""), std::string::npos) << out.out;
  EXPECT_NE(out.out.find("123.5"), std::string::npos);
  EXPECT_NE(out.out.find("0 accepted, 0 rejected, 1 skipped; 1 pending"), std::string::npos);
  // No reason, no such key, more, then a decision.
  out = typed("a\nx\nm\na the weights are new\n", {"review"});
  EXPECT_NE(out.out.find("accepting needs a reason"), std::string::npos) << out.out;
  EXPECT_NE(out.out.find("'x' is none of these"), std::string::npos);
  EXPECT_NE(out.out.find("1 accepted"), std::string::npos);
  EXPECT_EQ(json::parse(read(path("norm.accepted.json")))["origin"]["reason"],
            "the weights are new");
  EXPECT_EQ(golden({"run"}).code, 0);
  spoil();
  golden({"run"});
  out = typed("r\n", {"review"});
  EXPECT_NE(out.out.find("1 rejected, 0 skipped; 0 pending"), std::string::npos) << out.out;
  EXPECT_FALSE(exists("norm.received.json"));
  EXPECT_EQ(golden({"run", "--ci"}).code, 1) << "a rejected change still fails";
  golden({"run"});
  for (const char* lines : {"q\n", ""}) {  // quit, and the end of what is typed
    EXPECT_NE(typed(lines, {"review"}).out.find("1 pending"), std::string::npos);
  }
}

TEST_F(GoldenCliTest, ADamagedOneKeepsNoOtherFromReview) {
  write("first.golden.json", kNorm);
  write("first.received.json", "{");
  EXPECT_EQ(golden({"run", "norm"}).code, 1);
  Outcome out = typed("a looks right\ns\na the first values\n", {"review"});
  EXPECT_EQ(out.code, 0) << out.err;
  EXPECT_NE(out.out.find("first.received.json"), std::string::npos) << out.out;
  EXPECT_NE(out.out.find("1 accepted, 0 rejected, 1 skipped; 1 pending"), std::string::npos)
      << out.out;
  out = typed("r\n", {"review"});
  EXPECT_NE(out.out.find("1 rejected"), std::string::npos) << out.out;
  EXPECT_FALSE(exists("first.received.json"));
}

TEST(GoldenSides, AreWhereTheTwoDiffer) {
  GoldenTap a, b;
  a.sets = {"0-9", "0-9", "0-4,6"};
  b.sets = {"0-9", "0-9", "0-5"};
  GoldenReviewTap tap{{}, &a, &b, {}};
  auto sides = golden_sides(tap, 9);
  ASSERT_EQ(sides.size(), 1u);
  EXPECT_EQ(sides[0].what, "row 2");
  EXPECT_EQ(sides[0].accepted, "0-4,6");
  EXPECT_EQ(sides[0].received, "0-5");
  a = b = GoldenTap();
  a.parts = {{"11", ""}, {"22", ""}, {"33", ""}};
  b.parts = {{"11", ""}, {"23", ""}, {"34", ""}};
  EXPECT_EQ(golden_sides(tap, 9).size(), 2u);
  sides = golden_sides(tap, 1);
  ASSERT_EQ(sides.size(), 1u);
  EXPECT_EQ(sides[0].accepted + sides[0].received, "2223");
  a.numbers = {1, 2, 3};
  b.numbers = {1, 2};
  sides = golden_sides(tap, 9);
  ASSERT_EQ(sides.size(), 1u) << "numbers say more than their checksums";
  EXPECT_EQ(sides[0].what + " " + sides[0].accepted + " " + sides[0].received, "element 2 3 none");
  tap.received = nullptr;
  EXPECT_EQ(golden_sides(tap, 9)[0].received, "none");
  // Of a side that is alone all is told that is kept of it.
  a = GoldenTap();
  a.stats.emplace();
  a.stats->max = 4;
  a.at = {7};
  a.values = {0.5};
  sides = golden_sides(tap, 9);
  ASSERT_EQ(sides.size(), 6u);
  EXPECT_EQ(sides[2].what + " " + sides[2].accepted + " " + sides[2].received, "max 4 none");
  EXPECT_EQ(sides[5].what + " " + sides[5].accepted, "element 7 0.5");
  EXPECT_EQ(golden_sides(tap, 3).size(), 3u);
}

// A figure of a range of rows fails a golden as an element does.
TEST(GoldenSides, NameFiguresOfRanges) {
  GoldenTap a, b;
  a.stats.emplace();
  b.stats.emplace();
  a.ranges = {{0, 1, 2}, {0, 1, 3}};
  b.ranges = {{0, 1, 2}, {0, 1, 4}};
  const auto deltas = golden_deltas(a, b, 8);
  ASSERT_EQ(deltas.size(), 1u);
  EXPECT_EQ(deltas[0].what, "max of range 2/2");
  EXPECT_EQ(deltas[0].received, 4);
}

TEST_F(GoldenCliTest, AcceptingNeedsAReasonAndSomethingPending) {
  golden({"run"});
  EXPECT_EQ(golden({"accept", "norm"}).code, 2);
  EXPECT_EQ(golden({"accept", "norm", "--reason", "  "}).code, 2);
  EXPECT_EQ(golden({"accept", "norm", "--reason", std::string(300, 'x')}).code, 2);
  EXPECT_EQ(golden({"accept", "norm", "--reason", "two\nlines"}).code, 2);
  EXPECT_EQ(golden({"accept", "--reason", "whom?"}).code, 2);
  EXPECT_EQ(golden({"accept", "norm", "--all", "--reason", "both"}).code, 2);
  EXPECT_EQ(golden({"accept", "../norm", "--reason", "x"}).code, 2);
  EXPECT_EQ(golden({"accept", "--all", "--reason", "fine"}).code, 0);
  const Outcome out = golden({"accept", "norm", "--reason", "again"});
  EXPECT_EQ(out.code, 3);
  EXPECT_NE(out.err.find("attnscope golden run norm"), std::string::npos) << out.err;
}

TEST_F(GoldenCliTest, AnotherDefinitionOrPromptMakesValuesStale) {
  accept_first();
  std::string text = kNorm;
  write("norm.golden.json", text.replace(text.find("[4]"), 3, "[5]"));
  Outcome out = golden({"run"});
  EXPECT_EQ(out.code, 1);
  EXPECT_NE(out.out.find("its definition has changed"), std::string::npos) << out.out;
  // What was received before the definition changed once more is not accepted.
  write("norm.golden.json", kNorm);
  out = golden({"accept", "norm", "--reason", "x", "--force"});
  EXPECT_EQ(out.code, 3);
  EXPECT_NE(out.err.find("before its definition changed"), std::string::npos) << out.err;
}

TEST_F(GoldenCliTest, OrphansFailAndPruneTakesTheirValues) {
  accept_first();
  write("gone.accepted.json", read(path("norm.accepted.json")));
  write("gone.received.json", "{}");
  write("stray.json", "{}");
  Outcome out = golden({"run"});
  EXPECT_EQ(out.code, 1);
  EXPECT_NE(out.out.find("1 passed; 3 orphans"), std::string::npos) << out.out;
  EXPECT_EQ(golden({"list"}).code, 1);
  out = golden({"prune"});
  EXPECT_EQ(out.code, 1) << "a stray scenario stays, and says so";
  EXPECT_FALSE(exists("gone.accepted.json"));
  EXPECT_FALSE(exists("gone.received.json"));
  EXPECT_TRUE(exists("stray.json"));
  EXPECT_TRUE(exists("norm.accepted.json"));
  std::filesystem::remove(path("stray.json"));
  EXPECT_EQ(golden({"prune"}).code, 0);
  EXPECT_EQ(golden({"run"}).code, 0);
}

TEST_F(GoldenCliTest, ReportsHoldTheFailureAndTheLoosenedBounds) {
  accept_first();
  spoil();
  std::string text = kNorm;
  text.insert(
      text.rfind('}'),
      R"(, "tolerances": [{"class": "dense", "row_max": 0.5, "reason": "<why> & \"so\""}])");
  write("norm.golden.json", text);
  const Outcome out = golden({"run", "--ci", "--json", "--junit", path("r.xml"), "--html",
                              path("r.html"), "--report", path("r.txt")});
  EXPECT_EQ(out.code, 1);
  const json report = json::parse(out.out);
  EXPECT_EQ(report["format"], "attnscope-golden-report");
  EXPECT_EQ(report["counts"]["failed"], 1);
  EXPECT_EQ(report["goldens"][0]["findings"][0]["verdict"], "wrong");
  EXPECT_EQ(report["goldens"][0]["loosened"][0]["bound"], "class dense: row_max 0.5");
  EXPECT_EQ(json::parse(read(path("r.txt")))["goldens"][0]["name"], "norm");
  const std::string junit = read(path("r.xml"));
  EXPECT_NE(junit.find("tests=\"1\" failures=\"1\" errors=\"0\" skipped=\"0\""), std::string::npos);
  EXPECT_NE(junit.find("<testcase classname=\"golden\" name=\"norm\""), std::string::npos);
  const std::string html = read(path("r.html"));
  EXPECT_NE(html.find("<svg"), std::string::npos);
  EXPECT_NE(html.find("&lt;why&gt; &amp; &quot;so&quot;"), std::string::npos);
  EXPECT_EQ(html.find("<script"), std::string::npos);
  EXPECT_EQ(html.find("http"), std::string::npos) << "nothing is fetched";
}

// Lane and class of a tap choose its bounds.
TEST_F(GoldenCliTest, AnotherLaneOrClassOfATapIsAFailure) {
  accept_first();
  const std::string file = path("norm.accepted.json"), good = read(file);
  const auto changed = [&](const std::string& from, const std::string& to) {
    std::string text = good;
    const std::size_t at = text.find(from, text.find("\"taps\""));
    ASSERT_NE(at, std::string::npos) << from;
    write("norm.accepted.json", text.replace(at, from.size(), to));
  };
  changed(R"("lane":"cpu")", R"("lane":"cuda")");
  Outcome out = golden({"run", "--ci"});
  EXPECT_EQ(out.code, 1) << out.out;
  EXPECT_NE(out.out.find("was computed on lane cuda, is cpu"), std::string::npos) << out.out;
  changed(R"("rule":"dense")", R"("rule":"logits")");
  out = golden({"run", "--ci"});
  EXPECT_EQ(out.code, 1) << out.out;
  EXPECT_NE(out.out.find("its tolerance class was logits, is dense"), std::string::npos) << out.out;
}

TEST_F(GoldenCliTest, WhereValuesWereAcceptedIsSaidWhereItIsElsewhere) {
  accept_first();
  EXPECT_EQ(golden({"run", "--ci"}).out.find("accepted elsewhere"), std::string::npos);
  json values = json::parse(read(path("norm.accepted.json")));
  values["origin"]["program"] = "attnscope 0.0.9";
  values["origin"]["machine"]["SIMD"] = "sse7";
  values["origin"]["machine"]["board"] = "green";
  values["origin"]["machine"].erase("GPU");
  write("norm.accepted.json", values.dump());
  const Outcome out = golden({"run", "--ci", "--report", path("report.json")});
  EXPECT_EQ(out.code, 0) << out.out;
  for (const char* line :
       {"  norm: program was attnscope 0.0.9, is attnscope ", "  norm: SIMD was sse7, is ",
        "  norm: board was green, is not said", "  norm: GPU was not said, is "}) {
    EXPECT_NE(out.out.find(line), std::string::npos) << line << "\n" << out.out;
  }
  const json report = json::parse(read(path("report.json")));
  EXPECT_EQ(report["goldens"][0]["origin"].size(), 4u) << report["goldens"][0]["origin"];
}

TEST_F(GoldenCliTest, AMutantIsCaughtByName) {
  accept_first();
  const Outcome out = golden({"run", "--lane", "mutant:norm_weight_plus_one"});
  EXPECT_EQ(out.code, 1);
  EXPECT_NE(out.out.find("y of one is wrong"), std::string::npos) << out.out;
  EXPECT_EQ(golden({"run", "--lane", "mutant:none_such"}).code, 2);
}

TEST_F(GoldenCliTest, ScenariosBesideTheGoldenAreFound) {
  write("tiny.json", R"({"version": 1, "model": {"preset": "tiny", "layers": [0], "seed": 1},
    "pool_blocks": 64, "requests": [{"name": "a", "text": "some words", "max_new_tokens": 3}]})");
  write("layer.golden.json", R"({"format": "attnscope-golden", "version": 1, "about": "a layer",
    "scenario": "tiny", "steps": 2, "taps": [{"op": "schedule"}, {"op": "residual"}]})");
  Outcome out = golden({"run", "layer"});
  EXPECT_NE(out.out.find("1 new"), std::string::npos) << out.out << out.err;
  EXPECT_EQ(golden({"accept", "layer", "--reason", "first"}).code, 0);
  EXPECT_EQ(golden({"run", "layer"}).code, 0);
  // The same scenario with another prompt: not a kernel's fault, and said so.
  std::string scenario = read(path("tiny.json"));
  write("tiny.json", scenario.replace(scenario.find("some"), 4, "more"));
  out = golden({"run", "layer"});
  EXPECT_EQ(out.code, 1);
  EXPECT_NE(out.out.find("the text of a prompt, is another"), std::string::npos) << out.out;
  // A definition whose taps no op of the run has.
  write("layer.golden.json", R"({"format": "attnscope-golden", "version": 1, "about": "a layer",
    "scenario": "tiny", "steps": 1, "taps": [{"op": "indexer_topk"}]})");
  out = golden({"run", "layer"});
  EXPECT_EQ(out.code, 3);
  EXPECT_NE(out.out.find("no op that runs has the taps"), std::string::npos) << out.out;
}

TEST_F(GoldenCliTest, SavedCasesOfOpsAreGoldensToo) {
  EXPECT_EQ(
      run({"case", "save", "early", "--at", "3/1/compress_insert", "-o", path("saved.json")}).code,
      0);
  write("saved_op.golden.json", R"({"format": "attnscope-golden", "version": 1, "about": "a case",
    "case": "saved"})");
  Outcome out = golden({"run", "saved_op"});
  EXPECT_NE(out.out.find("1 new"), std::string::npos) << out.out << out.err;
  EXPECT_EQ(golden({"accept", "saved_op", "--reason", "first"}).code, 0);
  out = golden({"run", "saved_op"});
  EXPECT_EQ(out.code, 0) << out.out << "a case that is named is no orphan";
  const json accepted = json::parse(read(path("saved_op.accepted.json")));
  ASSERT_EQ(accepted["taps"].size(), 2u) << "the row and what it is quantised to";
  EXPECT_EQ(accepted["taps"][1]["tap"], "cache");
  EXPECT_FALSE(accepted["taps"][1]["given"].empty());
  EXPECT_EQ(golden({"run", "saved_op", "--lane", "mutant:entry_norm_unweighted"}).code, 1);
  // Other inputs under the same name, files that are gone, a name that leads elsewhere.
  EXPECT_EQ(
      run({"case", "save", "early", "--at", "4/1/compress_insert", "-o", path("saved.json")}).code,
      0);
  EXPECT_NE(golden({"run", "saved_op"}).out.find("its case is another"), std::string::npos);
  std::filesystem::remove(*case_tensors(path("saved.json")));
  EXPECT_EQ(golden({"run", "saved_op"}).code, 3);
  write("saved_op.golden.json", R"({"format": "attnscope-golden", "version": 1, "about": "a case",
    "case": "../saved"})");
  out = golden({"run", "saved_op"});
  EXPECT_EQ(out.code, 3);
  EXPECT_NE(out.out.find("'../saved' is no name"), std::string::npos) << out.out;
}

TEST_F(GoldenCliTest, WhatTakesMoreThanAGoldenMayIsNotAccepted) {
  std::string text = kNorm;
  text.insert(text.rfind('}'), R"(, "samples": 4096)");
  text.replace(
      text.find("[4]}"), 4,
      R"([900], "new_tokens": 256}, {"name": "two", "lengths": [900], "new_tokens": 256})");
  write("norm.golden.json", text);
  golden({"run"});
  const Outcome out = golden({"accept", "norm", "--reason", "x"});
  EXPECT_EQ(out.code, 3);
  EXPECT_NE(out.err.find("a golden may take 65536"), std::string::npos) << out.err;
}

TEST_F(GoldenCliTest, BrokenFilesAreNamed) {
  accept_first();
  const std::string good = read(path("norm.accepted.json"));
  const auto says = [&](const char* what) {
    const Outcome out = golden({"run", "--ci"});
    EXPECT_EQ(out.code, 3);
    EXPECT_NE(out.out.find(what), std::string::npos) << out.out;
    EXPECT_NE(out.out.find("1 broken"), std::string::npos) << out.out;
    EXPECT_EQ(golden({"list"}).code, 3);
  };
  write("norm.accepted.json", good.substr(0, good.size() / 2));
  says("norm.accepted.json: line");
  std::string other = good;
  write("norm.accepted.json", other.replace(other.find("\"version\": 1"), 12, "\"version\": 7"));
  says("made by a newer program: version 7");
  other = good;
  write("norm.accepted.json", other.replace(other.find("\"norm\""), 6, "\"form\""));
  says("holds the values of 'form'");
  write("norm.accepted.json", good);
  write("norm.golden.json", "{\"format\": \"attnscope-golden\", \"version\": 1}");
  says("norm.golden.json: about: required key is missing");
  EXPECT_EQ(run({"golden", "run", "--goldens", path("nowhere")}).code, 3);
  EXPECT_EQ(run({"golden"}).code, 2);
  EXPECT_EQ(golden({"run", "other"}).code, 2);
}

TEST_F(GoldenCliTest, AFolderWithoutGoldensIsAnError) {
  std::filesystem::remove(path("norm.golden.json"));
  for (const auto& arguments : std::vector<std::vector<std::string>>{{"run", "--ci"}, {"run"}}) {
    const Outcome out = golden(arguments);
    EXPECT_EQ(out.code, 3) << out.out;
    EXPECT_NE(out.err.find(folder_.string() + ": holds no golden"), std::string::npos) << out.err;
    EXPECT_NE(out.err.find("--goldens FOLDER"), std::string::npos) << out.err;
  }
}

TEST_F(GoldenCliTest, WhatCannotBeKeptHidesNoFailure) {
  accept_first();
  spoil();
  // In the place of the file, so that root cannot write it either.
  std::filesystem::create_directory(path("norm.received.json"));
  const Outcome out = golden({"run"});
  EXPECT_EQ(out.code, 1) << out.out;
  EXPECT_NE(out.out.find("failed   norm"), std::string::npos) << out.out;
  EXPECT_NE(out.out.find("was 123.5"), std::string::npos) << out.out;
  EXPECT_NE(out.out.find("what was received could not be kept: " + path("norm.received.json")),
            std::string::npos)
      << out.out;
  EXPECT_EQ(out.out.find("received: "), std::string::npos) << out.out;
}

TEST_F(GoldenCliTest, ListAndReviewNameWhatCannotRun) {
  const auto broken = [&](const std::string& rest, const std::string& what) {
    write("norm.golden.json",
          R"({"format": "attnscope-golden", "version": 1, "about": "x", )" + rest + "}");
    const Outcome ran = golden({"run", "--ci"});
    EXPECT_EQ(ran.code, golden({"list"}).code) << ran.out << ran.err;
    EXPECT_NE(ran.out.find("broken   norm"), std::string::npos) << ran.out;
    for (const char* command : {"list", "review"}) {
      const Outcome out = golden({command});
      EXPECT_EQ(out.code, 3) << command;
      EXPECT_NE(out.out.find("broken    norm"), std::string::npos) << out.out;
      EXPECT_NE(out.out.find(what), std::string::npos) << out.out;
    }
  };
  broken(R"("scenario": "none_such", "steps": 1, "taps": [{"op": "attn_norm"}])", "none_such");
  broken(R"("case": "none_such")", "save it there: attnscope case save");
  write("norm.golden.json", kNorm);
  EXPECT_EQ(golden({"review"}).code, 0);
}

// cpu stands in for what a lane lacks: its values say nothing of the lane.
TEST_F(GoldenCliTest, ALaneWithoutTheOpIsNotTested) {
  accept_first();
  for (const char* lane : {"mutant:topk_one_short", "attn_norm=cpu"}) {
    const bool has = std::string(lane) == "attn_norm=cpu";
    const Outcome out = golden({"run", "--lane", lane});
    EXPECT_EQ(out.code, has ? 0 : 4) << out.out;
    EXPECT_EQ(out.out.find("has no attn_norm: nothing of it was tested") == std::string::npos, has)
        << out.out;
  }
}

// Nor is one whose op the golden does not run, for all that its values hold.
TEST_F(GoldenCliTest, ALaneThatCarriesOutNoOpOfTheGoldenIsNotTested) {
  accept_first();
  write("tiny.json", R"({"version": 1, "model": {"preset": "tiny", "layers": [0], "seed": 1},
    "pool_blocks": 64, "requests": [{"name": "a", "text": "some words", "max_new_tokens": 3}]})");
  const std::string layer = R"({"format": "attnscope-golden", "version": 1, "about": "a layer",
    "scenario": "tiny", "steps": 2, "taps": [{"op": "schedule"}, {"op": "residual"}])";
  write("layer.golden.json", layer + "}");
  golden({"run", "layer"});
  ASSERT_EQ(golden({"accept", "layer", "--reason", "first"}).code, 0);
  const auto skipped = [&](const char* name, const char* lane, const char* why) {
    const Outcome out = golden({"run", name, "--lane", lane});
    EXPECT_EQ(out.code, 4) << lane << out.out << out.err;
    EXPECT_NE(out.out.find("1 skipped"), std::string::npos) << out.out;
    EXPECT_NE(out.out.find(why), std::string::npos) << out.out;
  };
  skipped("layer", "paged_attention=cpu",
          "--lane paged_attention=cpu: this model runs no op paged_attention: nothing of it was "
          "tested; its ops: schedule, ");
  skipped("layer", "mutant:scale_missing",
          "lane mutant:scale_missing ran no op: nothing of it was");
  skipped("norm", "residual=cpu", "--lane residual=cpu: this golden runs attn_norm alone");
  EXPECT_EQ(golden({"run", "layer", "--lane", "residual=cpu"}).code, 0);
  EXPECT_EQ(golden({"run", "layer", "--lane", "paged_attention=nobody"}).code, 2);
  // A definition that asks for it is wrong itself.
  write("layer.golden.json", layer + R"(, "lanes": ["paged_attention=cpu"]})");
  for (const char* command : {"run", "list"}) {
    const Outcome out = golden({command});
    EXPECT_EQ(out.code, 3) << out.out;
    EXPECT_NE(out.out.find("this model runs no op paged_attention"), std::string::npos) << out.out;
  }
}

TEST_F(GoldenCliTest, AReasonSaysWhatIsWrongWithIt) {
  golden({"run"});
  Outcome out = golden({"accept", "norm", "--reason", "two\nlines"});
  EXPECT_NE(out.err.find("the reason has 2 lines"), std::string::npos) << out.err;
  out = golden({"accept", "norm", "--reason", std::string(300, 'x')});
  EXPECT_NE(out.err.find("has 300 characters, at most 200"), std::string::npos) << out.err;
}

TEST_F(GoldenCliTest, MissingFilesSayWhereTheyWereLookedFor) {
  for (const auto& arguments : std::vector<std::vector<std::string>>{
           {"case", "run", "none.json"},
           {"case", "export", "--python", "none.json"},
           {"unpack", "none.tar.zst", "-o", path("x.acap")},
           {"golden", "list", "--goldens", folder_.string(), "--tolerances", "none.json"}}) {
    const Outcome out = run(arguments);
    EXPECT_EQ(out.code, 3) << arguments[0] << out.err;
    EXPECT_NE(out.err.find("it is looked for in " + std::filesystem::current_path().string()),
              std::string::npos)
        << out.err;
  }
  const Outcome out = run({"case", "run", path("nowhere/x.json")});
  EXPECT_NE(out.err.find("there is no folder " + path("nowhere")), std::string::npos) << out.err;
}

TEST_F(GoldenCliTest, TheCommitIsReadFromGitsFiles) {
  EXPECT_EQ(git_commit(folder_.string()), "");
  const std::string commit(40, 'a');
  std::filesystem::create_directories(folder_ / ".git/refs/heads");
  write(".git/HEAD", "ref: refs/heads/main\n");
  write(".git/packed-refs", "# pack-refs\n" + std::string(40, 'b') + " refs/heads/main\n");
  std::filesystem::create_directories(folder_ / "sub");
  EXPECT_EQ(git_commit((folder_ / "sub").string()), std::string(40, 'b'));
  write(".git/refs/heads/main", commit + "\n");
  EXPECT_EQ(git_commit(folder_.string()), commit);
  write(".git/HEAD", std::string(40, 'c') + "\n");
  EXPECT_EQ(git_commit(folder_.string()), std::string(40, 'c'));
  // A further working tree: its own HEAD, the branches of the first.
  std::filesystem::create_directories(folder_ / ".git/worktrees/two");
  write(".git/worktrees/two/HEAD", "ref: refs/heads/main\n");
  write(".git/worktrees/two/commondir", "../..\n");
  write("sub/.git", "gitdir: " + path(".git/worktrees/two") + "\n");
  EXPECT_EQ(git_commit((folder_ / "sub").string()), commit);
}

}  // namespace golden_cli_test
}  // namespace attnscope
