// Formats of rows of K and V that options name, and files that a study is to be kept in: what is
// wrong with them is said of the option, before any work.
#include "tests/unit/app/cli_fixture.h"

namespace attnscope {
namespace study_cli_test {

class StudyCli : public CliTest {
 protected:
  static void refused(const std::vector<std::string>& words, const std::string& what) {
    const Outcome bad = run(words);
    EXPECT_EQ(bad.code, 3);
    EXPECT_NE(bad.err.find(what), std::string::npos) << bad.err;
  }
};

TEST_F(StudyCli, BlamesTheOptionForAFormatThatIsNone) {
  const Outcome bad = run({"run", "tiny-llama", "--cache-dtype", "fp9"});
  EXPECT_EQ(bad.code, 3);
  EXPECT_NE(bad.err.find("--cache-dtype: \"fp9\" is no format"), std::string::npos) << bad.err;
  EXPECT_NE(bad.err.find("fp8_tensor"), std::string::npos) << bad.err;
  EXPECT_EQ(bad.err.find("tiny-llama.json"), std::string::npos) << bad.err;
  refused({"run", "default", "--cache-dtype", "fp9"}, "--cache-dtype: \"fp9\"");
}

// The lengths would stop the study: they are not looked at before the files are.
TEST_F(StudyCli, LooksAtItsFilesBeforeItStudies) {
  std::vector<std::string> words = {"study", "cache-dtype", "tiny-llama", "--lengths", "64,32"};
  const auto with = [&](const std::string& option, const std::string& file) {
    std::vector<std::string> all = words;
    all.insert(all.end(), {option, file});
    return all;
  };
  refused(with("--csv", path("none/errors.csv")), "--csv " + path("none/errors.csv"));
  refused(with("--svg", path("none/errors.svg")), "does not exist");
  refused(with("--csv", folder_.string()), "is a folder");
  const Outcome studied = run(with("--csv", path("errors.csv")));
  EXPECT_EQ(studied.code, 3);
  EXPECT_EQ(studied.err.find("--csv"), std::string::npos) << studied.err;
}

}  // namespace study_cli_test
}  // namespace attnscope
