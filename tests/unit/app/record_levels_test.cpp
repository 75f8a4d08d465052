// What a capture says of a step does not depend on what else it keeps.
#include <sstream>

#include "tests/unit/app/cli_fixture.h"

namespace attnscope {
namespace record_levels_test {

class RecordLevels : public CliTest {
 protected:
  // The lines of `show --step` from the first op on.
  std::vector<std::string> statistics(const std::string& level) {
    const std::string capture = path(level + ".acap");
    const Outcome done = run({"record", "early", "--steps", "1", "--layers", "0,1", "--rows", "all",
                              "--references", "none", "--level", level, "-o", capture});
    EXPECT_EQ(done.code, 0) << done.err;
    std::istringstream shown(run({"show", capture, "--step", "0"}).out);
    std::vector<std::string> lines;
    for (std::string line; std::getline(shown, line);) {
      if (lines.empty() && line.find("attn_norm") == std::string::npos) continue;
      lines.push_back(line.substr(0, line.find("  values not recorded")));
    }
    return lines;
  }
};

// The scores behind the end of a token's list are whatever was there before.
TEST_F(RecordLevels, StatisticsAreThoseOfTheValues) {
  const auto full = statistics("full"), tables = statistics("tables");
  EXPECT_GT(full.size(), 60u);
  EXPECT_EQ(full, tables);
}

}  // namespace record_levels_test
}  // namespace attnscope
