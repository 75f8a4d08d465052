// why, plan, what-if, sweep and profiles by the command line: what they print, in what form, and
// how they end when something is wrong.
#include <fmt/format.h>

#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "tests/unit/app/cli_fixture.h"

namespace attnscope {
namespace {

using nlohmann::json;

class LookCommands : public CliTest {
 protected:
  void SetUp() override {
    CliTest::SetUp();
    scenario_ = write("q.json", R"({"version": 1, "name": "q",
      "model": {"preset": "tiny", "layers": [0, 1]}, "pool_blocks": 100, "decode_steps": 1,
      "requests": [{"name": "a", "text_file": "manual.md", "tokens": 40, "max_new_tokens": 2}]})");
  }
  void fails(const std::vector<std::string>& arguments, int code,
             const std::vector<std::string>& parts) {
    const Outcome outcome = run(arguments);
    EXPECT_EQ(outcome.code, code) << arguments[0] << ": " << outcome.err;
    for (const std::string& part : parts) {
      EXPECT_NE(outcome.err.find(part), std::string::npos) << part << " missing: " << outcome.err;
    }
  }
  static json parsed(const Outcome& outcome) {
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    return json::parse(outcome.out, nullptr, false);
  }

  std::string scenario_;
};

TEST_F(LookCommands, PlanPrintsTheSplitsOfAStep) {
  const std::vector<std::string> plan = {"plan", scenario_, "0/1/sparse_attention", "--profile",
                                         "vllm,attention_plan=flashmla,multiprocessors=8"};
  const auto with = [&](std::vector<std::string> more) {
    more.insert(more.begin(), plan.begin(), plan.end());
    return run(more);
  };
  const json all = parsed(with({"--json"}));
  EXPECT_EQ(all["type"], "C4A");
  EXPECT_EQ(all["rows"], 40);
  // 37 tokens see an entry: two tiles, 7 with what a row costs; three see none: (37 * 7 + 3 * 6) /
  // 8 rounded up, and 5, are the budget of a multiprocessor.
  std::map<int, int> cost;
  for (const json& split : all["splits"]) {
    cost[split["part"]] += split["end"].get<int>() - split["begin"].get<int>() + 5;
  }
  EXPECT_EQ(cost.size(), 8u);
  for (const auto& [part, of_part] : cost) EXPECT_LE(of_part, 40) << part;
  const Outcome text = with({"--token", "39", "--rows", "1"});
  EXPECT_EQ(text.code, 0) << text.err;
  EXPECT_NE(text.out.find("40 rows in "), std::string::npos) << text.out;
  EXPECT_NE(text.out.find("Row 39: 2 tiles"), std::string::npos) << text.out;
  fails({"plan", scenario_, "0/1/sparse_attention"}, 3, {"no plan", "attention_plan=flashmla"});
  std::vector<std::string> beyond = plan;
  beyond.insert(beyond.end(), {"--token", "40"});
  fails(beyond, 3, {"token 40", "0 to 39"});
}

TEST_F(LookCommands, WhyAddsUpToTheOutput) {
  const json all = parsed(run({"why", scenario_, "0/1/sparse_attention", "--token", "39", "--head",
                               "3", "--dim", "500", "--json"}));
  double masses = 0, sum = 0;
  int windows = 0, entries = 0, sinks = 0;
  for (const json& c : all["contributions"]) {
    if (c["status"] != "contributed") continue;
    masses += c["weight"].get<double>();
    sum += c["partial"].get<double>();
    windows += c["kind"] == "window" ? 1 : 0;
    entries += c["kind"] == "entry" ? 1 : 0;
    sinks += c["kind"] == "sink" ? 1 : 0;
  }
  EXPECT_NEAR(masses, 1, 1e-4);
  EXPECT_EQ(windows, 40);  // all tokens so far
  EXPECT_EQ(entries, 10);  // and every fourth
  EXPECT_EQ(sinks, 1);
  EXPECT_NEAR(sum, all["sum"].get<double>(), 1e-6);
  EXPECT_NEAR(sum, all["output"].get<double>(), 2e-2 * std::abs(sum));

  const Outcome text = run({"why", scenario_, "0/1/sparse_attention", "--rows", "3"});
  EXPECT_NE(text.out.find("ref.sim"), std::string::npos) << text.out;
  EXPECT_NE(text.out.find("and 48 more (--rows)"), std::string::npos) << text.out;
  const Outcome entry = run({"why", scenario_, "0/1/sparse_attention", "--entry", "2"});
  EXPECT_NE(entry.out.find("position 11"), std::string::npos) << entry.out;
  EXPECT_NE(entry.out.find("position 4"), std::string::npos) << entry.out;
}

// Rows of a full layer have no window around them, and a model without sinks lists none.
TEST_F(LookCommands, WhyOfAFullLayerListsRows) {
  const json all = parsed(run({"why", "tiny-llama", "5/2/paged_attention", "--json"}));
  std::set<std::int64_t> positions;
  for (const json& c : all["contributions"]) {
    EXPECT_EQ(c["kind"], "row");
    positions.insert(c["row"].get<std::int64_t>());
  }
  // Each position once, those of the prefix that another request computed too.
  const auto position = all["position"].get<std::int64_t>();
  EXPECT_EQ(std::ssize(positions), position + 1);
  EXPECT_EQ(*positions.begin(), 0);
  EXPECT_EQ(*positions.rbegin(), position);
}

// Entries of a prefix that another request computed are entries of this one.
TEST_F(LookCommands, WhyNumbersRowsOfASharedPrefixAsTheRequestDoes) {
  const json all = parsed(run({"why", "shared_prefix", "6/1/sparse_attention", "--json"}));
  std::set<std::int64_t> read, left_out;
  for (const json& c : all["contributions"]) {
    if (c["kind"] != "entry") continue;
    (c["status"] == "contributed" ? read : left_out).insert(c["row"].get<std::int64_t>());
  }
  ASSERT_FALSE(read.empty());
  EXPECT_EQ(*read.begin(), 0);
  for (const std::int64_t entry : left_out) EXPECT_FALSE(read.contains(entry)) << entry;
}

TEST_F(LookCommands, WhyNamesWhatIsNotThere) {
  fails({"why", scenario_, "0/9/sparse_attention"}, 3, {"layer 9 does not run", "0, 1"});
  fails({"why", scenario_, "0/1/indexer"}, 3, {"there is no op", "did you mean"});
  fails({"why", scenario_, "nowhere"}, 3, {"nowhere"});
  fails({"why", scenario_, "0/1/sparse_attention", "--token", "40"}, 3, {"40"});
  fails({"why", scenario_, "0/1/sparse_attention", "--head", "8"}, 3, {"8"});
  fails({"why", scenario_, "0/1/sparse_attention", "--slot", "1", "--entry", "1"}, 2, {"--slot"});
  fails({"why", "tiny-llama", "1/1/paged_attention", "--slot", "1", "--cache", "swa"}, 2, {"k, v"});
  fails({"why", path("absent.json"), "0/1/sparse_attention"}, 3, {"absent.json"});
}

// Alone it would choose nothing: the value of another request's token would be taken for its own.
TEST_F(LookCommands, ARequestIsNamedWithWhatOfItIsMeant) {
  for (const char* command : {"why", "what-if"}) {
    fails({command, scenario_, "0/1/sparse_attention", "--request", "a"}, 2,
          {"--request requires --position"});
  }
}

// Known before anything runs: the step is never reached.
TEST_F(LookCommands, WhyKnowsItsCacheBeforeItRuns) {
  const std::string at = "99999/1/sparse_attention";
  fails({"why", scenario_, at, "--cache", "paged"}, 2,
        {"--cache paged: the model has no such cache", "swa, main, state, index, index_state"});
  fails({"why", "tiny-llama", at, "--cache", "swa"}, 2, {"caches: k, v"});
  fails({"why", scenario_, "99999/0/sparse_attention", "--slot", "1", "--cache", "main"}, 3,
        {"layer 0 of tiny has no main cache"});
}

TEST_F(LookCommands, WhatIfNamesTheChangeThatRemovesTheError) {
  const Outcome sound = run({"what-if", scenario_, "0/1/sparse_attention"});
  EXPECT_EQ(sound.code, 0) << sound.err;
  EXPECT_NE(sound.out.find("there is no error to remove"), std::string::npos) << sound.out;
  const Outcome bug = run({"what-if", scenario_, "0/1/sparse_attention", "--lane",
                           "sparse_attention=mutant:sink_scaled"});
  EXPECT_EQ(bug.code, 1) << bug.err;
  EXPECT_NE(bug.out.find("The error goes away with: no sink. Right as well: fp32 accumulation; "
                         "lane cpu."),
            std::string::npos)
      << bug.out;
  EXPECT_NE(bug.out.find(" alone: the same bits as in its batch"), std::string::npos);
  const Outcome one = run({"what-if", scenario_, "0/1/compress_insert", "--token", "39"});
  EXPECT_NE(one.out.find("token 39 alone: the same bits as in its batch"), std::string::npos)
      << one.out;
  fails({"what-if", scenario_, "0/1/wo_b", "--token", "40"}, 3, {"token 40", "0 to 39"});
  const Outcome after = run({"what-if", scenario_, "0/1/sparse_attention", "--lane",
                             "sparse_attention=mutant:sink_scaled", "--after"});
  EXPECT_EQ(after.code, 1) << after.err;
  EXPECT_GT(after.out.size(), bug.out.size());
  EXPECT_NE(after.out.find("and all later ops of its kind changed"), std::string::npos);
  fails({"what-if", scenario_, "0/1/sparse_attention", "--with", "nobody"}, 2, {"nobody"});
}

// Of an op with two outputs, what is counted is elements of the one that is named.
TEST_F(LookCommands, WhatIfCountsElementsOfItsTap) {
  const json found = json::parse(run({"what-if", scenario_, "0/1/sparse_attention", "--lane",
                                      "sparse_attention=mutant:sink_scaled", "--json"})
                                     .out,
                                 nullptr, false);
  const json& ran = found["changes"][0]["introduced"];
  EXPECT_EQ(ran["tap"], "o");
  EXPECT_EQ(ran["elements"], 40 * 8 * 512);  // and none of lse
  EXPECT_LE(ran["beyond"], ran["elements"]);
}

TEST_F(LookCommands, WhatIfGoesOnToTheEnd) {
  const Outcome outcome = run({"what-if", scenario_, "0/0/sparse_attention", "--lane",
                               "sparse_attention=mutant:sink_scaled", "--after", "--change",
                               "no sink", "--change", "window alone", "--json"});
  ASSERT_EQ(outcome.code, 1) << outcome.err;
  const json after = json::parse(outcome.out, nullptr, false)["after"];
  ASSERT_EQ(after["changes"].size(), 3u) << outcome.out;
  EXPECT_EQ(after["changes"][1]["change"], "no sink");
  for (const json& change : after["changes"]) {
    ASSERT_EQ(change["steps"].size(), 2u);
    EXPECT_EQ(change["steps"][0]["step"], 0);
  }
  const auto drift = [&](std::size_t i) {
    return after["changes"][i]["steps"][0]["from_sim"].get<double>();
  };
  EXPECT_LT(drift(1), drift(0) / 10);
  EXPECT_GT(drift(2), drift(0) / 10);
  EXPECT_NE(after["sentence"].get<std::string>().find("goes away with: no sink"),
            std::string::npos);
  fails({"what-if", scenario_, "0/1/wo_b", "--after", "--change", "no sink"}, 2,
        {"no sink", "lane cpu"});
  fails({"what-if", scenario_, "0/1/wo_b", "--once"}, 2, {"--after"});
}

// Who mistypes a reference is told of references.
TEST_F(LookCommands, SuggestionsForLanesKnowTheReferences) {
  fails({"run", scenario_, "--lane", "ref.sin"}, 2, {"did you mean ref.sim?", "--references"});
  fails({"run", scenario_, "--lane", "ref.exact"}, 2, {"not a kernel", "--references"});
  fails({"run", scenario_, "--lane", "mutant:lse_with_sinc"}, 2, {"mutant:lse_with_sink"});
  const std::string file = (folder_ / "a.json").string();
  ASSERT_EQ(run({"case", "save", scenario_, "--at", "0/1/sparse_attention", "-o", file}).code, 0);
  fails({"case", "run", file, "--lane", "ref.exat"}, 2, {"did you mean ref.exact"});
}

// A window that starts one token late is wrong from position 127 on, and not before.
TEST_F(LookCommands, WhyFindsTheFirstGuiltyOpOfAToken) {
  const std::string two = write("two.json", R"({"version": 1, "name": "two", "token_budget": 128,
      "model": {"preset": "tiny", "layers": [0, 1]}, "pool_blocks": 100, "decode_steps": 1,
      "requests": [{"name": "a", "text_file": "manual.md", "tokens": 140, "max_new_tokens": 2},
                   {"name": "b", "text_file": "manual.md", "tokens": 20, "max_new_tokens": 2}]})");
  const std::string late = "swa_index=mutant:window_off_by_one";
  const auto why = [&](const std::string& of, const char* request, int position, int code,
                       const std::string& lane) {
    std::vector<std::string> words = {
        "why", of, "--request", request, "--position", std::to_string(position), "--json"};
    if (!lane.empty()) words.insert(words.end(), {"--lane", lane});
    const Outcome out = run(words);
    EXPECT_EQ(out.code, code) << out.out << out.err;
    return json::parse(out.out, nullptr, false);
  };
  const json right = why(two, "a", 100, 0, late);
  EXPECT_EQ(right["own"], nullptr);
  EXPECT_EQ(right["before"], nullptr);
  const json wrong = why(two, "a", 130, 1, late);
  EXPECT_EQ(wrong["step"], 1);
  EXPECT_EQ(wrong["own"]["op"], "swa_index");
  EXPECT_EQ(wrong["own"]["tap"], "indices");
  EXPECT_EQ(wrong["own"]["token"], wrong["token"]);
  EXPECT_EQ(wrong["own"]["elements"], 256);  // of its two groups
  EXPECT_EQ(wrong["before"]["position"], 127);
  // The other request is short of a window, its rows are right in the same steps.
  EXPECT_EQ(why(two, "b", 20, 0, late)["own"], nullptr);

  // A row that was lost is the fault of the token that owned it, and concerns those behind it.
  const std::string lost = "q_rope_kv_insert=mutant:last_row_not_written";
  EXPECT_EQ(why(two, "a", 127, 1, lost)["own"]["beyond"], 584);
  const json reads = why(two, "a", 130, 1, lost);
  EXPECT_EQ(reads["own"], nullptr);
  EXPECT_EQ(reads["before"]["op"], "q_rope_kv_insert");
  EXPECT_EQ(reads["before"]["position"], 127);

  // Captures say the same, as far as they have values.
  const std::string full = path("full.acap"), tables = path("tables.acap");
  run({"record", two, "-o", full, "--level", "full", "--rows", "all", "--lane", late});
  EXPECT_EQ(why(full, "a", 100, 0, "")["own"], nullptr);
  EXPECT_EQ(why(full, "a", 130, 1, "")["own"], wrong["own"]);
  run({"record", two, "-o", tables, "--lane", "sparse_attention=mutant:sink_scaled"});
  const json step = why(tables, "0", 130, 1, "");
  EXPECT_EQ(step["kept"], false);
  EXPECT_EQ(step["own"]["token"], -1);
  EXPECT_NE(step["lines"][0].get<std::string>().find("is not known"), std::string::npos);

  // What-if goes there by itself.
  const Outcome what_if = run({"what-if", two, "--request", "a", "--position", "139", "--lane",
                               "sparse_attention=mutant:sink_scaled"});
  EXPECT_EQ(what_if.code, 1) << what_if.err;
  EXPECT_NE(what_if.out.find("\n1/0/sparse_attention\n"), std::string::npos) << what_if.out;
  EXPECT_NE(what_if.out.find("goes away with: no sink"), std::string::npos) << what_if.out;
  EXPECT_NE(what_if.out.find("token 11 alone"), std::string::npos) << what_if.out;
  const Outcome sound = run({"what-if", two, "--request", "b", "--position", "3"});
  EXPECT_EQ(sound.code, 0) << sound.err;
  EXPECT_NE(sound.out.find("is right for this token"), std::string::npos) << sound.out;
  EXPECT_NE(
      run({"what-if", full, "--request", "a", "--position", "130"}).out.find("what-if " + two),
      std::string::npos);

  // With a place the position is one of that step.
  const json value = parsed(
      run({"why", two, "1/1/sparse_attention", "--request", "a", "--position", "139", "--json"}));
  EXPECT_EQ(value["position"], 139);
  EXPECT_EQ(value["token"], 11);
  const char* const op = "1/1/sparse_attention";
  fails({"why", two, op, "--request", "a", "--position", "3"}, 3,
        {"does not compute", "128 to 139"});
  fails({"why", two, "--request", "a", "--position", "300"}, 3, {"0 to 140"});
  fails({"why", two, "--request", "c", "--position", "3"}, 2, {"requests: a, b"});
  fails({"why", two, "--request", "a"}, 2, {"--request requires --position or --entry"});
  fails({"why", two}, 2, {"a place is needed", "--position"});
  fails({"what-if", two}, 2, {"a place is needed", "--position"});
  fails({"why", two, "--position", "3", "--token", "3"}, 2, {"--token excludes --position"});
  fails({"why", full, op}, 3, {"is a capture", "--request"});
  const auto of_capture = [&](const std::string& file, std::vector<std::string> more) {
    std::vector<std::string> words = {"why", file, "--request", "a", "--position", "3"};
    words.insert(words.end(), more.begin(), more.end());
    return words;
  };
  fails(of_capture(full, {"--lane", late}), 2, {"is a capture", "leave out --lane"});
  const std::string plain = path("plain.acap");
  run({"record", two, "-o", plain, "--references", "none", "--level", "full", "--steps", "1"});
  fails(of_capture(plain, {}), 3, {"nothing was compared", "--references sim"});
}

// Blocks that move are of no token's rows, and those who meet them later are not their makers.
TEST_F(LookCommands, WhyNamesWrongMovesOfBlocks) {
  const auto why = [](const char* lane) {
    return std::vector<std::string>{"why",        "swap", "--request", "c",
                                    "--position", "55",   "--lane",    lane};
  };
  const Outcome out = run(why("swap_out=mutant:half_block_sent"));
  EXPECT_NE(out.out.find("wrong in an earlier step, and whether it is for this request is not "
                         "known: step 17, swap_out"),
            std::string::npos)
      << out.out << out.err;
  fails(why("swap_in=mutant:half_block_back"), 3,
        {"never computes position 55", "0 to 54", "no numbers, which ended it"});
}

// A prefix that another request computed has its ops there.
TEST_F(LookCommands, WhySaysWhoComputedAPrefix) {
  const std::string shared = write("shared.json", R"({"version": 1, "name": "shared",
      "model": {"preset": "tiny", "layers": [0]}, "pool_blocks": 200, "decode_steps": 1,
      "token_budget": 300, "serving": {"prefix_caching": true, "profile": "M"}, "requests": [
        {"name": "a", "text_file": "manual.md", "tokens": 300, "max_new_tokens": 4},
        {"name": "b", "text_file": "manual.md", "tokens": 300, "max_new_tokens": 2,
         "arrival_step": 1}]})");
  fails({"why", shared, "--request", "b", "--position", "3"}, 3,
        {"never computes position 3", "256 to", "another request"});
}

// Planted bugs of the indexer, in the scenario that the plugin guide names for it: also those that
// nothing shows where all entries are selected.
TEST_F(LookCommands, TheSelectiveScenarioShowsBugsOfTheIndexer) {
  EXPECT_EQ(run({"run", "selective", "--references", "sim"}).code, 0);
  for (const auto& [lane, op] : std::map<std::string, std::string>{
           {"topk_takes_first", "indexer_topk"},
           {"relu_missing", "indexer_logits"},
           {"overlap_halves_swapped", "indexer_compress_insert"},
       }) {
    const Outcome bug = run({"run", "selective", "--references", "sim", "--lane",
                             fmt::format("{}=mutant:{}", op, lane)});
    EXPECT_EQ(bug.code, 1) << lane << bug.err;
    EXPECT_NE(bug.out.find("blamed: " + op), std::string::npos) << lane << bug.out;
  }
}

TEST_F(LookCommands, SweepGoesOverEveryValue) {
  const json sweep = parsed(run({"sweep", scenario_, "--vary", "prompt=30..33", "--decode-steps",
                                 "1", "--metric", "wrong,drift", "--json"}));
  ASSERT_EQ(sweep["rows"].size(), 4u);
  for (int i = 0; i < 4; ++i) {
    const json& row = sweep["rows"][static_cast<std::size_t>(i)];
    EXPECT_EQ(row["prompt"], std::to_string(30 + i));
    EXPECT_EQ(row["wrong"], 0);
    EXPECT_GT(row["drift"], 0);
  }
  // A fault that depends on the length modulo 4 shows in some of them.
  const Outcome bug = run({"sweep", scenario_, "--vary", "prompt=30,31", "--decode-steps", "0",
                           "--lane", "sparse_attention=mutant:sink_scaled"});
  EXPECT_EQ(bug.code, 1) << bug.err;
  EXPECT_NE(bug.out.find("wrong (sparse_attention)"), std::string::npos) << bug.out;
  const json switches =
      parsed(run({"sweep", scenario_, "--vary", "switch=none,ratio0_yarn,q_norm=bf16",
                  "--decode-steps", "0", "--json"}));
  EXPECT_EQ(switches["rows"].size(), 3u);
  // The median share of the sink grows with every sink, and both sides follow it.
  const json sinks = parsed(run({"sweep", scenario_, "--vary", "sink=-4..4", "--metric",
                                 "sink,wrong", "--decode-steps", "0", "--json"}));
  ASSERT_EQ(sinks["rows"].size(), 9u);
  for (std::size_t i = 0; i < 9; ++i) {
    EXPECT_EQ(sinks["rows"][i]["wrong"], 0);
    if (i == 0) continue;
    EXPECT_GT(sinks["rows"][i]["sink"], sinks["rows"][i - 1]["sink"]);
  }
  EXPECT_LT(sinks["rows"][0]["sink"], 0.1);
  EXPECT_GT(sinks["rows"][8]["sink"], 0.9);
  fails({"sweep", scenario_, "--vary", "sink=0,x"}, 2, {"sink=x", "such as sink=-4..4"});
  fails({"sweep", scenario_, "--vary", "sink=2e4"}, 2, {"10000"});
  fails({"sweep", scenario_, "--vary", "promt=3"}, 2, {"no such parameter", "prompt"});
  fails({"sweep", scenario_, "--vary", "prompt"}, 2, {"no values"});
  fails({"sweep", scenario_, "--vary", "prompt=9..3"}, 2, {"is no range"});
  fails({"sweep", scenario_, "--vary", "prompt=-9223372036854775808..9223372036854775807"}, 2,
        {"is no range", "at most 4096"});
  fails({"sweep", scenario_, "--vary", "prompt=41"}, 2, {"1 to 40"});
  fails({"sweep", scenario_, "--vary", "topk=65"}, 3, {"multiples of 64"});
  fails({"sweep", scenario_, "--vary", "switch=all"}, 2, {"no switch is called", "hadamard"});
  fails({"sweep", scenario_, "--vary", "switch=q_norm"}, 2, {"q_norm", "bf16_factor"});
  fails({"sweep", scenario_, "--vary", "switch=hadamard=maybe"}, 2, {"off, on"});
  fails({"sweep", scenario_, "--vary", "prompt=30", "--metric", "foo"}, 2, {"no such metric"});
}

// Any key of the scenario, and columns that tell rows from each other.
TEST_F(LookCommands, SweepVariesKeysOfTheScenario) {
  const auto sweep = [&](const std::string& vary) {
    return parsed(run({"sweep", scenario_, "--vary", vary, "--decode-steps", "0", "--json"}));
  };
  for (const char* vary :
       {"token_budget=16,40", "max_seqs=1..2", "model.seed=1,2", "serving.policy=fcfs,priority"}) {
    SCOPED_TRACE(vary);
    const json rows = sweep(vary).at("rows");
    ASSERT_EQ(rows.size(), 2u);
    for (const json& row : rows) {
      EXPECT_EQ(row.at("wrong"), 0);
      EXPECT_GT(row.at("changed"), 0);
      EXPECT_LT(row.at("changed"), 0.5);
      EXPECT_GE(row.at("worst_share"), row.at("changed"));
      EXPECT_TRUE(row.at("worst_op").is_string());
    }
    // Chunks and weights change numbers; the one request is served alike by any policy.
    const std::string key = vary;
    const bool same = key.starts_with("max_seqs") || key.starts_with("serving");
    EXPECT_EQ(rows[0].at("drift") == rows[1].at("drift"), same);
  }
  const Outcome text = run({"sweep", scenario_, "--vary", "decode_steps=0,1"});
  EXPECT_NE(text.out.find("worst op"), std::string::npos) << text.out;
  fails({"sweep", scenario_, "--vary", "token_budget=0"}, 3, {"token_budget=0", "from 1 to"});
  fails({"sweep", scenario_, "--vary", "serving.polcy=fcfs"}, 3, {"polcy"});
  fails({"sweep", scenario_, "--vary", "requests[9].tokens=3"}, 2, {"no place of this name"});
  fails({"sweep", scenario_, "--vary", "name=x"}, 2, {"no such parameter", "any key"});
}

TEST_F(LookCommands, ProfilesShowEverySwitch) {
  const json profiles = parsed(run({"profiles", scenario_, "--json"}));
  std::map<std::string, double> effect;
  for (const json& variant : profiles["variants"]) {
    double worst = 0;
    for (const json& layer : variant["layers"]) {
      worst = std::max(worst, layer["cosine"].get<double>());
    }
    effect[variant["switch"]] = worst;
  }
  // With few entries all are selected: the indexer's switches change nothing; the others do.
  EXPECT_EQ(effect.at("hadamard=on"), 0);
  EXPECT_EQ(effect.at("index_format=mxfp4"), 0);
  EXPECT_EQ(effect.at("vllm"), 0);
  EXPECT_GT(effect.at("ratio0_yarn=on"), 1e-6);
  EXPECT_GT(effect.at("round_pooled=on"), 1e-9);
  EXPECT_GT(effect.at("q_norm=bf16"), 1e-7);
  EXPECT_GT(effect.at("q_norm=bf16_factor"), 1e-9);
  EXPECT_EQ(effect.at("fp4_rule=down"), 0);     // no MXFP4 rows under vllm
  EXPECT_EQ(effect.at("scale_floor=1e-8"), 0);  // no block that small
  EXPECT_GT(effect.at("projections=fp8"), 1e-6);
  EXPECT_GT(effect.at("deepseek"), 1e-9);
  EXPECT_EQ(effect.at("round_rotated=on"), 0);  // no transform under vllm
  EXPECT_EQ(effect.at("index_scores=bf16"), 0);
  EXPECT_EQ(effect.at("index_scores=e4m3"), 0);  // a bound, no other number
  // Of frequencies it shows what they do where no short run goes: more the further away.
  for (const json& variant : profiles["variants"]) {
    if (variant["switch"] != "rope_frequencies=fp64") continue;
    const json& rotary = variant.at("rotary");
    ASSERT_EQ(rotary.size(), 5u);
    for (std::size_t i = 1; i < rotary.size(); ++i) {
      EXPECT_GT(rotary[i].at("difference"), rotary[i - 1].at("difference"));
    }
    EXPECT_LT(rotary[0].at("difference"), 1e-5);
    EXPECT_GT(rotary[3].at("difference"), 1e-4);  // position 65536
  }
  EXPECT_EQ(effect.count("rope_frequencies=fp64"), 1u);
  const Outcome other = run({"profiles", scenario_, "--profile", "deepseek"});
  EXPECT_EQ(other.code, 0) << other.err;
  EXPECT_NE(other.out.find("against profile deepseek"), std::string::npos);
  const json selects = parsed(run({"profiles", "tiny-v3.2", "--json"}));
  std::vector<std::string> tried;
  for (const json& variant : selects["variants"]) tried.push_back(variant["switch"]);
  EXPECT_EQ(tried, (std::vector<std::string>{"index_scores=bf16", "index_scores=e4m3", "vllm",
                                             "deepseek"}));
  fails({"profiles", scenario_, "--profile", "none"}, 2, {"none"});
  fails({"profiles", scenario_, "--profile", "vllm,sink=on"}, 2, {"sink", "scale_floor"});
}

}  // namespace
}  // namespace attnscope
