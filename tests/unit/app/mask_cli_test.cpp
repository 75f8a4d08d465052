// attnscope mask show: masks of models and of expressions, drawn as tiles.
#include <nlohmann/json.hpp>

#include "tests/unit/app/cli_fixture.h"

namespace attnscope {
namespace mask_cli_test {

class MaskCli : public CliTest {};

TEST_F(MaskCli, DrawsTheTilesOfAModelsLayers) {
  const Outcome done = run({"mask", "show", "tiny-gemma", "--tokens", "128"});
  ASSERT_EQ(done.code, 0) << done.err;
  for (const char* part :
       {"layers 0, 1, 2, 3, 4: sliding(32)", "layers 5: causal",
        "8 tiles of 32 queries and 64 keys: 2 empty and left out (25 %), 2 full and not asked",
        "8256 of 16384 pairs are seen", "    +.\n    +.\n    #+\n    #+\n"}) {
    EXPECT_NE(done.out.find(part), std::string::npos) << part << "\n" << done.out;
  }
  EXPECT_EQ(run({"mask", "show", "tiny-llama4"}).out.find("wrong"), std::string::npos);
}

// Two tokens of a decoder over a source: a rectangle, beside the encoder's.
TEST_F(MaskCli, DrawsWhatLiesAcross) {
  const Outcome done = run({"mask", "show", "tiny-t5", "--tokens", "2", "--keys", "128"});
  ASSERT_EQ(done.code, 0) << done.err;
  for (const char* part : {"layers 0, 1: 1\n", "layers 2, 4: causal\n", "layers 3, 5: 1\n"}) {
    EXPECT_NE(done.out.find(part), std::string::npos) << part << "\n" << done.out;
  }
}

// One tile of many is not none of them.
TEST_F(MaskCli, SharesAreNotRoundedToAllOrNothing) {
  const Outcome done = run({"mask", "show", "sliding(64)", "--keys", "1", "--tokens", "8192"});
  ASSERT_EQ(done.code, 0) << done.err;
  EXPECT_NE(done.out.find("left out (99.6 %), 0 full and not asked (0 %), "), std::string::npos)
      << done.out.substr(0, 300);
}

TEST_F(MaskCli, TakesExpressionsAndSaysWhereTheyAreWrong) {
  const Outcome done = run({"mask", "show", "head == 0 ? causal : 1", "--heads", "2", "--tokens",
                            "64", "--score", "soft_cap(20)", "--json"});
  ASSERT_EQ(done.code, 0) << done.err;
  const auto mask = nlohmann::json::parse(done.out, nullptr, false)["masks"][0];
  EXPECT_EQ(mask["maps"], nlohmann::json({"+\n+\n", "#\n#\n"}));
  EXPECT_EQ(mask["full"], 2);
  const auto refused = [](const std::vector<std::string>& words, const std::string& what) {
    const Outcome bad = run(words);
    EXPECT_EQ(bad.code, 3);
    EXPECT_NE(bad.err.find(what), std::string::npos) << bad.err;
  };
  refused({"mask", "show", "kv_idx < q"}, "column 10: \"q\" is no name");
  refused({"mask", "show", "causal", "--score", "soft_cap()"}, "--score soft_cap(): column 10");
  refused({"mask", "show", "tiny"}, "attends over what it selects");
  // Took minutes.
  const Outcome large =
      run({"mask", "show", "head < 3 && causal", "--tokens", "8192", "--heads", "256"});
  EXPECT_EQ(large.code, 2);
  EXPECT_NE(large.err.find("268435456 at most"), std::string::npos) << large.err;
}

}  // namespace mask_cli_test
}  // namespace attnscope
