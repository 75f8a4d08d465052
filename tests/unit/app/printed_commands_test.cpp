// Commands that messages print can be pasted: each is taken out of its message and run.
#include <fstream>

#include "engine/capture/capture.h"
#include "engine/opcase/case_file.h"
#include "tests/unit/app/cli_fixture.h"

namespace attnscope {
namespace printed_commands_test {

class PrintedCommands : public CliTest {
 protected:
  void SetUp() override {
    CliTest::SetUp();
    // Names as people have them.
    std::filesystem::create_directory(path("it's mine"));
  }
  std::string mine(const std::string& name) const { return path("it's mine/" + name); }
  // The words of the command that begins behind `before` and ends where its line does, or at `end`.
  static std::vector<std::string> command(const std::string& text, const std::string& before,
                                          const std::string& end = "\n") {
    const std::size_t at = text.find(before + "attnscope ");
    EXPECT_NE(at, std::string::npos) << before << text;
    if (at == std::string::npos) return {};
    const std::size_t from = at + before.size() + std::string("attnscope ").size();
    const std::string line = text.substr(from, text.find(end, from) - from);
    std::vector<std::string> words(1);
    bool quoted = false;
    for (std::size_t i = 0; i < line.size(); ++i) {
      if (line[i] == '\'') {
        quoted = !quoted;
      } else if (line[i] == '\\' && !quoted) {
        words.back() += line[++i];
      } else if (line[i] == ' ' && !quoted) {
        words.emplace_back();
      } else {
        words.back() += line[i];
      }
    }
    return words;
  }
};

TEST_F(PrintedCommands, OfARecordingAndOfWhatItLacks) {
  const Outcome made = run({"record", "early", "-o", mine("a.acap"), "--steps", "2", "--references",
                            "none", "--profile", "deepseek"});
  ASSERT_EQ(made.code, 0) << made.err;
  const Outcome shown = run(command(made.out, "open it with: ", ", or"));
  EXPECT_EQ(shown.code, 0) << shown.err;
  const Place place = {1, 1, AS_OP_RESIDUAL};
  auto capture = Capture::open(mine("a.acap"));
  ASSERT_TRUE(capture);
  auto again = command((*capture)->why_missing(place, "out"), "Record it with: ");
  capture->reset();
  again.insert(again.end(), {"--steps", "2", "--references", "none"});
  const Outcome recorded = run(again);
  ASSERT_EQ(recorded.code, 0) << recorded.err;
  capture = Capture::open(mine("a.acap"));
  ASSERT_TRUE(capture);
  EXPECT_EQ((*capture)->index().level, CaptureLevel::kFull);
  EXPECT_TRUE((*capture)->index().model.switches.profile.starts_with("deepseek"));
  auto trace = (*capture)->trace(1);
  ASSERT_TRUE(trace && *trace);
  const OpTrace* op = (*trace)->find(1, AS_OP_RESIDUAL);
  ASSERT_NE(op, nullptr);
  EXPECT_NE(op->tap("out"), nullptr);
}

TEST_F(PrintedCommands, OfACaseThatACaptureCannotGive) {
  std::string text = read(ATTNSCOPE_SOURCE_DIR "/assets/scenarios/early.json");
  std::ofstream(mine("own.json")) << text;
  ASSERT_EQ(run({"record", mine("own.json"), "-o", mine("a.acap"), "--steps", "2", "--level",
                 "full", "--weights", "--at-steps", "1", "--references", "none"})
                .code,
            0);
  const Outcome refused =
      run({"case", "save", mine("a.acap"), "--at", "1/1/sparse_attention", "-o", mine("no.json")});
  EXPECT_EQ(refused.code, 3);
  const auto words = command(refused.err, "from its scenario: ");
  ASSERT_FALSE(words.empty());
  const auto before = std::filesystem::current_path();
  std::filesystem::current_path(folder_);
  const Outcome saved = run(words);
  std::filesystem::current_path(before);
  EXPECT_EQ(saved.code, 0) << refused.err << saved.err;
  auto kept = read_case(path("sparse_attention.json"));
  ASSERT_TRUE(kept) << kept.error().text();
  EXPECT_EQ(kept->op.id, AS_OP_SPARSE_ATTENTION);
}

TEST_F(PrintedCommands, OfGoldensInAFolderOfOnesOwn) {
  std::ofstream(mine("norm.golden.json"))
      << R"({"format": "attnscope-golden", "version": 1, "about": "a norm", "op": "attn_norm",
             "cases": [{"name": "one", "lengths": [4]}]})";
  const Outcome none = run({"golden", "accept", "norm", "--reason", "x", "--goldens", mine("")});
  EXPECT_EQ(none.code, 3);
  const Outcome ran = run(command(none.err, "run it first: "));
  EXPECT_EQ(ran.code, 1) << ran.err;
  EXPECT_NE(ran.out.find("1 new"), std::string::npos) << ran.out;
  EXPECT_EQ(run({"golden", "accept", "norm", "--reason", "x", "--goldens", mine("")}).code, 0);
}

}  // namespace printed_commands_test
}  // namespace attnscope
