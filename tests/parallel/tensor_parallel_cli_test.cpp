// --tp and --rank: what the commands print and keep, and what they say to wrong numbers.
#include <nlohmann/json.hpp>

#include "engine/capture/capture.h"
#include "engine/io/json_file.h"
#include "tests/unit/app/cli_fixture.h"

namespace attnscope {
namespace tensor_parallel_cli_test {

class TensorParallelCli : public CliTest {
 protected:
  std::string scenario(const std::string& extra = "") const {
    return write("s.json", R"({"version": 1, "model": {"preset": "tiny"}, "pool_blocks": 200,)" +
                               extra + R"("token_budget": 64, "decode_steps": 2,
      "requests": [{"name": "a", "text": "One rank of two has half of the heads.",
                    "max_new_tokens": 4}]})");
  }
};

TEST_F(TensorParallelCli, ARunIsThatOfOneRank) {
  const Outcome table = run({"run", scenario(), "--tp", "2", "--rank", "1", "--references", "sim"});
  EXPECT_EQ(table.code, 0) << table.out << table.err;
  EXPECT_NE(table.out.find("model tiny, rank 1 of 2"), std::string::npos) << table.out;

  const Outcome json =
      run({"run", scenario(), "--tp", "2", "--references", "none", "--json", "--steps", "1"});
  const auto report = nlohmann::json::parse(json.out);
  EXPECT_EQ(report.at("model").at("heads"), 4);
  EXPECT_EQ(report.at("model").at("o_groups"), 1);
  EXPECT_EQ(report.at("model").at("tensor_parallel"), nlohmann::json({{"size", 2}, {"rank", 0}}));
  for (const auto& tap : report.at("steps").at(0).at("taps")) {
    if (tap.at("op") == "sparse_attention" && tap.at("tap") == "lse") {
      EXPECT_EQ(tap.at("shape").at(1), 4);
    }
  }
}

TEST_F(TensorParallelCli, AScenarioMaySayIt) {
  const std::string path = scenario(R"("tensor_parallel": {"size": 2, "rank": 1},)");
  const Outcome own = run({"run", path, "--references", "none", "--steps", "1"});
  EXPECT_NE(own.out.find("tiny, rank 1 of 2"), std::string::npos) << own.out << own.err;
  const Outcome other = run({"run", path, "--references", "none", "--steps", "1", "--rank", "0"});
  EXPECT_NE(other.out.find("tiny, rank 0 of 2"), std::string::npos) << other.out << other.err;
  const Outcome whole = run({"run", path, "--references", "none", "--steps", "1", "--tp", "1"});
  EXPECT_NE(whole.out.find("model tiny ·"), std::string::npos) << whole.out << whole.err;
}

TEST_F(TensorParallelCli, WrongNumbersAreNamed) {
  const std::string path = scenario();
  const auto error = [&](std::vector<std::string> options, int code) {
    options.insert(options.begin(), {"run", path});
    const Outcome outcome = run(options);
    EXPECT_EQ(outcome.code, code) << outcome.err;
    return outcome.err;
  };
  const std::string heads = error({"--tp", "3"}, 3);
  EXPECT_NE(heads.find("tensor_parallel.size: 3 ranks do not divide the 8 heads of tiny"),
            std::string::npos)
      << heads;
  EXPECT_NE(heads.find("allowed: 1, 2"), std::string::npos) << heads;
  const std::string groups = error({"--tp", "4"}, 3);
  EXPECT_NE(groups.find("the 2 output groups of tiny"), std::string::npos) << groups;
  const std::string rank = error({"--tp", "2", "--rank", "2"}, 3);
  EXPECT_NE(rank.find("tensor_parallel.rank: there is no rank 2 among 2"), std::string::npos)
      << rank;
  const std::string alone = error({"--rank", "1"}, 3);
  EXPECT_NE(alone.find("--tp N"), std::string::npos) << alone;
  error({"--tp", "0"}, 2);
  error({"--tp", "two"}, 2);
  error({"--tp", "2", "--rank", "-1"}, 2);
}

// What a rank of a dense model gives is kept, compared, asked and taken apart as on one rank.
TEST_F(TensorParallelCli, ARankOfADenseModelIsOneForEveryCommand) {
  const auto command = [&](std::vector<std::string> words, int code = 0) {
    const Outcome outcome = run(words);
    EXPECT_EQ(outcome.code, code) << words[0] << ": " << outcome.out << outcome.err;
    return outcome.out;
  };
  const std::string first = path("a.acap"), second = path("b.acap"), other = path("c.acap");
  const auto record = [&](const std::string& to, const char* rank) {
    command({"record", "tiny-mqa", "--tp", "2", "--rank", rank, "--steps", "2", "--level", "full",
             "--references", "sim", "-o", to});
  };
  record(first, "1");
  record(second, "1");
  record(other, "0");
  EXPECT_NE(command({"show", first, "--verify"}).find("tiny-mqa, rank 1 of 2"), std::string::npos);
  command({"diff", first, second});
  const Outcome ranks = run({"diff", first, other});
  EXPECT_EQ(ranks.code, 3);
  EXPECT_NE(ranks.err.find("rank 1 of 2"), std::string::npos) << ranks.err;

  // The page of the rank alone: 48 rows of one KV head of 128 in bf16, K and V of a layer or two.
  auto opened = Capture::open(first);
  ASSERT_TRUE(opened) << opened.error().text();
  EXPECT_EQ((*opened)->info()->block_stride, (*opened)->info()->layout.block_stride);
  EXPECT_EQ((*opened)->info()->layout.specs.size(), 8u);

  const std::string kept = path("case.json");
  command({"case", "save", "tiny-mqa", "--tp", "2", "--rank", "1", "--at", "1/1/paged_attention",
           "-o", kept});
  command({"case", "run", kept, "--lane", "cpu"});
  const std::string asked =
      command({"what-if", "tiny-llama", "2/1/paged_attention", "--tp", "2", "--rank", "1"});
  EXPECT_NE(asked.find("fp32 accumulation"), std::string::npos) << asked;
  command({"what-if", "tiny-llama", "2/1/paged_attention", "--tp", "2", "--after", "--steps", "2",
           "--change", "fp32 accumulation"});
}

TEST_F(TensorParallelCli, ACaptureSaysWhichRankItIsOf) {
  const std::string capture = path("rank.acap");
  const Outcome recorded = run({"record", scenario(), "--tp", "2", "--rank", "1", "-o", capture,
                                "--level", "full", "--references", "sim", "--steps", "1"});
  EXPECT_EQ(recorded.code, 0) << recorded.err;
  auto opened = Capture::open(capture);
  ASSERT_TRUE(opened) << opened.error().text();
  EXPECT_EQ((*opened)->index().model.parallel, (TensorParallel{2, 1}));
  EXPECT_EQ((*opened)->index().model.heads, 4);
  const Outcome shown = run({"show", capture});
  EXPECT_NE(shown.out.find("tiny, rank 1 of 2"), std::string::npos) << shown.out;

  // Captures from before there were ranks lack the field; impossible ranks are damage.
  const std::string index = capture + "/index.json";
  auto json = nlohmann::json::parse(read(index));
  json.at("model").at("parallel").at("rank") = 2;
  ASSERT_TRUE(write_text_file(index, json.dump(1)));
  const auto damaged = Capture::open(capture);
  ASSERT_FALSE(damaged);
  EXPECT_NE(damaged.error().text().find("parallel"), std::string::npos) << damaged.error().text();
  json.at("model").erase("parallel");
  ASSERT_TRUE(write_text_file(index, json.dump(1)));
  const auto older = Capture::open(capture);
  ASSERT_TRUE(older) << older.error().text();
  EXPECT_EQ((*older)->index().model.parallel, TensorParallel{});
}

}  // namespace tensor_parallel_cli_test
}  // namespace attnscope
