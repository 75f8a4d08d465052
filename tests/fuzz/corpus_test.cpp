// Every kept input of the fuzzers once more, in every build.
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "tests/fuzz/parsers.h"

namespace attnscope::fuzz {
namespace corpus_test {

namespace fs = std::filesystem;

class Corpus : public testing::TestWithParam<std::size_t> {};

TEST_P(Corpus, EveryInputIsAnsweredWell) {
  const std::string name = kParserNames[GetParam()];
  const fs::path scratch =
      fs::temp_directory_path() / ("attnscope-corpus-" + name + std::to_string(getpid()));
  fs::create_directory(scratch);
  setenv("ATTNSCOPE_ASSETS", ATTNSCOPE_SOURCE_DIR "/assets", 1);
  int inputs = 0;
  const fs::path folder = fs::path(ATTNSCOPE_SOURCE_DIR) / "tests/fuzz/corpus" / name;
  for (const auto& entry : fs::directory_iterator(folder)) {
    std::ostringstream bytes;
    bytes << std::ifstream(entry.path(), std::ios::binary).rdbuf();
    EXPECT_EQ(feed(*parser_by_name(name), bytes.str(), (scratch / "input.json").string()), "")
        << entry.path();
    ++inputs;
  }
  EXPECT_GE(inputs, 3) << "kept inputs of " << name;
  fs::remove_all(scratch);
}

INSTANTIATE_TEST_SUITE_P(All, Corpus, testing::Range(std::size_t{0}, kParserNames.size()),
                         [](const auto& chosen) { return kParserNames[chosen.param]; });

TEST(ParserNames, LeadToTheParsers) {
  EXPECT_FALSE(parser_by_name("none"));
  EXPECT_EQ(parser_by_name("scenario"), Parser::kScenario);
  EXPECT_EQ(parser_by_name("session"), Parser::kSession);
}

}  // namespace corpus_test
}  // namespace attnscope::fuzz
