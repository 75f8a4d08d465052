// attnscope blocks ..: what it prints, its exit codes, bad files.
#include <fmt/format.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/unit/app/cli_fixture.h"

namespace attnscope {
namespace blocks_cli_test {

using nlohmann::json;

class BlocksCli : public CliTest {
 protected:
  static Outcome run(std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), "blocks");
    return CliTest::run(std::move(arguments));
  }
};

TEST_F(BlocksCli, SimulatePrintsTheRow) {
  const Outcome o = run({"simulate", "g23", "--json"});
  ASSERT_EQ(o.code, 0) << o.err;
  const json row = json::parse(o.out);
  EXPECT_EQ(row["name"], "G23");
  EXPECT_EQ(row["profile"], "A");
  EXPECT_EQ(row["steps"], 828);
  EXPECT_EQ(row["final_digest"], "7298a6bfa1d9f802");
  EXPECT_EQ(row["queue_digest"], "3cd8a0cf6a700ff5");
  EXPECT_EQ(row["checkpoints"]["800"], "45feae5de734c7da");
  for (const char* key : {"hit_tokens", "lookups", "alloc_none", "preemptions", "evictions",
                          "aborted", "scheduled_tokens", "min_free", "max_hash_entries",
                          "common_prefix_steps", "max_common_prefix_blocks"}) {
    EXPECT_TRUE(row[key].is_number_integer()) << key;
  }
  const Outcome text = run({"simulate", "g7", "--profile", "A", "--check"});
  EXPECT_EQ(text.code, 0) << text.err;
  EXPECT_NE(text.out.find("fbea498e505095c7"), std::string::npos);
  EXPECT_NE(text.out.find("all invariants hold"), std::string::npos);
  EXPECT_NE(text.out.find(" decisions are those of the plain model"), std::string::npos);
}

// Four families of prompts rarely run alone: in few steps do all requests begin alike.
TEST_F(BlocksCli, CommonPrefixOfAllRequests) {
  const Outcome o = run({"simulate", "g13", "--json"});
  ASSERT_EQ(o.code, 0) << o.err;
  EXPECT_EQ(json::parse(o.out)["common_prefix_steps"], 16);
  EXPECT_EQ(json::parse(o.out)["max_common_prefix_blocks"], 11);
  const std::string file = write("common.jsonl",
                                 R"({"format":"attnscope-blocks-replay","version":1,"groups":[
{"kind":"full","block_size":16}],"blocks":81,"token_budget":256,"max_seqs":16})");
  std::string text = read(file);
  std::erase(text, '\n');
  text += R"(
{"call":"add","id":0,"prompt_range":[0,49],"max_tokens":5}
{"call":"schedule","expect":{"common_prefix":[4]}}
{"call":"results","tokens":{"0":[9]}}
{"call":"add","id":1,"prompt_range":[0,55],"max_tokens":5}
{"call":"schedule","expect":{"common_prefix":[3]}}
{"call":"abort","id":0}
{"call":"schedule","expect":{"common_prefix":[4]}}
)";
  const Outcome replayed = run({"replay", write("common.jsonl", text)});
  EXPECT_EQ(replayed.code, 0) << replayed.err;
}

TEST_F(BlocksCli, SimulateWritesEvents) {
  const std::string file = path("events.jsonl");
  ASSERT_EQ(run({"simulate", "g7", "--events", file}).code, 0);
  std::ifstream in(file);
  std::int64_t preempted = 0;
  for (std::string line; std::getline(in, line);) {
    preempted += json::parse(line)["event"] == "preempt" ? 1 : 0;
  }
  EXPECT_EQ(preempted, 33);
}

TEST_F(BlocksCli, BadWorkloadsAreNamed) {
  EXPECT_EQ(run({"simulate", "nowhere"}).code, 3);
  EXPECT_EQ(run({"simulate", "g1", "--profile", "B"}).code, 2);
  EXPECT_EQ(run({}).code, 2);
  const std::string file = write("w.json", R"({"groups": [], "blocks": "many"})");
  const Outcome o = run({"simulate", file});
  EXPECT_EQ(o.code, 3);
  EXPECT_NE(o.err.find("blocks"), std::string::npos);
  // A pool that can never hold the first request: an error, not an endless run.
  const std::string small = write(
      "small.json", R"({"groups": [{"kind": "full", "block_size": 16}], "blocks": 3, "seed": 1,
        "requests": 4, "S": 50, "T": 120, "O": 6, "token_budget": 256, "max_seqs": 4,
        "max_model_len": 400})");
  const Outcome stuck = run({"simulate", small});
  EXPECT_EQ(stuck.code, 3);
  EXPECT_NE(stuck.err.find("request 0"), std::string::npos) << stuck.err;
}

TEST_F(BlocksCli, ReplayComparesAndRefuses) {
  const std::string head =
      R"({"format":"attnscope-blocks-replay","version":1,"groups":[{"kind":"full",)"
      R"("block_size":16}],"blocks":11,"token_budget":100,"max_seqs":4})"
      "\n";
  const std::string good =
      write("good.jsonl", head + R"({"call":"schedule","expect":{"free":10}})");
  EXPECT_EQ(run({"replay", good}).code, 0);
  const Outcome differs =
      run({"replay", write("bad.jsonl", head + R"({"call":"schedule","expect":{"free":9}})")});
  EXPECT_EQ(differs.code, 1);
  EXPECT_NE(differs.err.find("line 2: free: expected 9, found 10"), std::string::npos);
  const Outcome broken =
      run({"replay", write("broken.jsonl", head + "{\"call\":\"schedule\"}\n{\"call\":")});
  EXPECT_EQ(broken.code, 3);
  EXPECT_NE(broken.err.find("line 3"), std::string::npos);
  EXPECT_EQ(broken.out, "");
}

// What tells prompts apart, steps in flight and resets are judged too.
TEST_F(BlocksCli, ReplayJudgesEveryDecision) {
  const std::string head =
      R"({"format":"attnscope-blocks-replay","version":1,"groups":[{"kind":"full",)"
      R"("block_size":16}],"blocks":31,"token_budget":100,"max_seqs":4,"steps_in_flight":2})";
  const auto add = [](int id, const std::string& more) {
    return fmt::format(R"({{"call":"add","id":{},"prompt_range":[0,49],"max_tokens":3{}}})"
                       "\n",
                       id, more);
  };
  const std::string calls =
      add(0, R"(,"salt":"a")") + add(1, R"(,"adapter":"b","priority":1)") +
      "{\"call\":\"schedule\"}\n{\"call\":\"schedule\"}\n" +
      "{\"call\":\"results\",\"tokens\":{\"0\":[7],\"1\":[8]}}\n" + add(2, R"(,"salt":"a")") +
      add(3, R"(,"skip_lookup":true)") + "{\"call\":\"schedule\"}\n" +
      "{\"call\":\"abort\",\"id\":1}\n{\"call\":\"reset\",\"preempt_running\":true}\n";
  const Outcome o = run({"replay", write("good.jsonl", head + "\n" + calls)});
  EXPECT_EQ(o.code, 0) << o.err;
  EXPECT_NE(o.err.find(" decisions are those of the plain model"), std::string::npos) << o.err;
  const Outcome media =
      run({"replay",
           write("media.jsonl", head + "\n" +
                                    add(0, R"(,"media":[{"identifier":"x","offset":20,"length":9},)"
                                           R"({"identifier":"y","offset":28,"length":2}])"))});
  EXPECT_EQ(media.code, 3);
  EXPECT_NE(media.err.find("\"y\" begins before \"x\" ends"), std::string::npos) << media.err;
  const Outcome again =
      run({"replay", write("again.jsonl", head + "\n" + add(0, "") +
                                              "{\"call\":\"schedule\"}\n{\"call\":\"abort\","
                                              "\"id\":0}\n" +
                                              add(0, ""))});
  EXPECT_EQ(again.code, 3);
  EXPECT_NE(again.err.find("request 0 is in step 0, whose results are not in"), std::string::npos)
      << again.err;
}

TEST_F(BlocksCli, LayoutAndEvents) {
  const Outcome o = run({"layout", "v4-flash", "--gpu-memory", "40", "--json"});
  ASSERT_EQ(o.code, 0) << o.err;
  const json report = json::parse(o.out);
  EXPECT_EQ(report["num_blocks"], 42853);
  EXPECT_EQ(report["request_blocks"], 7450);
  const json& values = report["activations"];
  EXPECT_EQ(values["tokens"], report["token_budget"]);
  EXPECT_LE(values["bytes"], values["bytes_on_streams"]);
  EXPECT_LT(values["bytes_on_streams"], values["bytes_apart"]);
  const Outcome text = run({"layout", "v4-flash", "--profile", "M"});
  EXPECT_EQ(text.code, 0);
  EXPECT_NE(text.out.find("values between ops, "), std::string::npos) << text.out;
  EXPECT_EQ(run({"layout", "nowhere"}).code, 3);
  const Outcome rank = run({"layout", "tiny-llama", "--tp", "2", "--json"});
  ASSERT_EQ(rank.code, 0) << rank.err;
  EXPECT_EQ(json::parse(rank.out)["model"], "tiny-llama, rank 0 of 2");
  const Outcome three = run({"layout", "tiny-llama", "--tp", "3"});
  EXPECT_EQ(three.code, 3);
  EXPECT_NE(three.err.find("--tp 3: 3 ranks do not divide the 8 heads"), std::string::npos)
      << three.err;
  const Outcome events = run({"events",
                              write("e.json", R"([1.5,[["BlockStored",["a","b"],null,[1],16],)"
                                              R"(["BlockRemoved",["a"]]]])"),
                              "--json"});
  ASSERT_EQ(events.code, 0) << events.err;
  EXPECT_EQ(json::parse(events.out)["groups"][0]["blocks"], 1);
  EXPECT_EQ(run({"events", write("f.json", "[1,[[\"What\"]]]")}).code, 3);
}

}  // namespace blocks_cli_test
}  // namespace attnscope
