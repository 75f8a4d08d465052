// Starting over on a capture: on the lanes that it was recorded on, or a word on which one is not
// here.
#include "app/workbench/start_over.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "app/reports/capture_record.h"
#include "app/wiring/lane_list.h"
#include "app/wiring/wiring.h"
#include "engine/io/json_file.h"

namespace attnscope {
namespace start_over_test {

namespace fs = std::filesystem;

class StartOverTest : public testing::Test {
 protected:
  void SetUp() override {
    setenv("ATTNSCOPE_ASSETS", ATTNSCOPE_SOURCE_DIR "/assets", 1);
    folder_ = fs::temp_directory_path() / ("attnscope-start-over-" + std::to_string(getpid()));
    fs::create_directories(folder_);
    path_ = (folder_ / "a.acap").string();
    auto scenario = load_scenario("early", {});
    ASSERT_TRUE(scenario) << scenario.error().text();
    RecordOptions options;
    options.run.session.references = References::kNone;
    options.run.session.lanes = lanes_;
    options.run.steps = 1;
    auto made = record_scenario(*scenario, all_lanes(), options, path_, nullptr);
    ASSERT_TRUE(made) << made.error().text();
  }
  void TearDown() override { fs::remove_all(folder_); }
  void recorded_on(const char* lanes) const {
    auto index = nlohmann::json::parse(std::ifstream(path_ + "/index.json"));
    index["lanes"] = lanes;
    std::ofstream(path_ + "/index.json") << index.dump();
  }

  const std::vector<std::string> lanes_ = {"cpu", "swa_index=mutant:window_off_by_one"};
  fs::path folder_;
  std::string path_;
};

TEST_F(StartOverTest, OnTheLanesOfTheRecording) {
  Workbench bench({});
  ASSERT_TRUE(bench.open_capture(path_));
  EXPECT_EQ(bench.setup().lanes, lanes_);
  const auto ok = start_over(bench);
  ASSERT_TRUE(ok) << ok.error().text();
  bench.wait_idle();
  EXPECT_EQ(bench.capture(), nullptr);
  ASSERT_NE(bench.snapshot(), nullptr);
  EXPECT_EQ(bench.snapshot()->info->lanes, "cpu, swa_index=mutant:window_off_by_one");
}

// What a scenario adds to its model stands in the capture's model, not in the scenario's.
TEST_F(StartOverTest, OfBlocksThatAreSwappedAndOfOneRank) {
  for (const bool ranks : {false, true}) {
    auto scenario = load_scenario(ranks ? "early" : "swap", {});
    ASSERT_TRUE(scenario) << scenario.error().text();
    if (ranks) {
      auto parsed = parse_json(scenario->text, scenario->path);
      ASSERT_TRUE(parsed) << parsed.error().text();
      (*parsed)["tensor_parallel"] = {{"size", 2}, {"rank", 1}};
      scenario = parse_scenario(parsed->dump(), scenario->path);
      ASSERT_TRUE(scenario) << scenario.error().text();
    }
    RecordOptions options;
    options.run.session.references = References::kNone;
    options.run.steps = 1;
    const std::string path = (folder_ / (ranks ? "ranks.acap" : "swap.acap")).string();
    ASSERT_TRUE(record_scenario(*scenario, all_lanes(), options, path, nullptr));
    Workbench bench({});
    ASSERT_TRUE(bench.open_capture(path));
    ASSERT_FALSE(bench.no_scenario()) << bench.no_scenario()->text();
    EXPECT_EQ(bench.setup().scenario.name, scenario->name);
    EXPECT_TRUE(start_over(bench));
    bench.wait_idle();
    EXPECT_EQ(bench.capture(), nullptr);
    EXPECT_NE(bench.snapshot(), nullptr);
  }
}

TEST_F(StartOverTest, ALaneThatIsNotHereIsNamedWithThoseThatAre) {
  recorded_on("plugin:elsewhere, schedule=cpu, block_tables=cpu");
  Workbench bench({});
  ASSERT_TRUE(bench.open_capture(path_));
  const auto refused = start_over(bench);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, AS_NO_ENVIRONMENT);
  EXPECT_NE(refused.error().message.find("recorded on plugin:elsewhere"), std::string::npos)
      << refused.error().text();
  EXPECT_NE(refused.error().hint.find("lane.set=LANE starts over on another: cpu"),
            std::string::npos)
      << refused.error().hint;
  EXPECT_NE(bench.capture(), nullptr) << "it is still shown";
}

// A lane for all ops stands there with each of its ops.
TEST_F(StartOverTest, LanesOfOpsThatTheModelDoesNotRunAreLeftOut) {
  recorded_on("cpu, paged_attention=mutant:scale_missing, swa_index=mutant:window_off_by_one");
  Workbench bench({});
  ASSERT_TRUE(bench.open_capture(path_));
  EXPECT_EQ(bench.setup().lanes, lanes_);
  const auto ok = start_over(bench);
  EXPECT_TRUE(ok) << ok.error().text();
}

TEST(LaneDescription, IsTheListThatItWasMadeOf) {
  EXPECT_EQ(lanes_of_description("cpu"), std::vector<std::string>{"cpu"});
  EXPECT_EQ(lanes_of_description("cuda, schedule=cpu, sample=mutant:x"),
            (std::vector<std::string>{"cuda", "schedule=cpu", "sample=mutant:x"}));
}

}  // namespace start_over_test
}  // namespace attnscope
