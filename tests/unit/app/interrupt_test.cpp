// SIGINT and SIGTERM: what was done so far, marked as incomplete, and 128 and the signal's number.
#include <filesystem>
#include <nlohmann/json.hpp>

#include "app/reports/run.h"
#include "app/reports/tap_export.h"
#include "app/wiring/wiring.h"
#include "engine/capture/capture.h"
#include "engine/sched/workload.h"
#include "engine/tensorfile/tensor_file.h"
#include "tests/unit/app/program.h"
#include "tests/unit/app/small_scenario.h"

namespace attnscope {
namespace interrupt_test {

using nlohmann::json;

class Interrupts : public ProgramTest {
 protected:
  // What takes minutes if nobody ends it.
  std::string long_scenario() {
    return write("long.json", R"({"version": 1, "model": {"preset": "tiny"}, "pool_blocks": 4000,
      "token_budget": 64, "decode_steps": 100000, "requests": [
        {"name": "one", "text": "Why does the window move?", "max_new_tokens": 100000}]})");
  }
  // Nothing on the way to another file.
  void expect_no_leftovers() {
    for (const auto& entry : std::filesystem::recursive_directory_iterator(folder_)) {
      EXPECT_NE(entry.path().extension(), ".tmp") << entry.path();
    }
  }
};

TEST_F(Interrupts, RunEndsWithAReport) {
  for (const int number : {SIGINT, SIGTERM}) {
    start({"run", long_scenario(), "--references", "none", "--report", path("report.json")});
    signal(number);
    EXPECT_EQ(finish(), 128 + number) << err();
    const json report = json::parse(read(path("report.json")));
    EXPECT_EQ(report["complete"], false);
    EXPECT_EQ(report["interrupted"], number == SIGINT ? "SIGINT" : "SIGTERM");
    EXPECT_EQ(report["summary"]["verdict"], "incomplete");
    EXPECT_NE(out().find("INCOMPLETE"), std::string::npos);
    EXPECT_EQ(out().find("verdict: ok"), std::string::npos);
    expect_no_leftovers();
  }
}

TEST_F(Interrupts, AnIncompleteReportIsNotUsedAgain) {
  start({"run", long_scenario(), "--references", "none", "--report", path("report.json")});
  signal(SIGINT);
  EXPECT_EQ(finish(), 130);
  start(
      {"run", long_scenario(), "--references", "none", "--report", path("report.json"), "--reuse"});
  signal(SIGINT);
  EXPECT_EQ(finish(), 130);
  EXPECT_EQ(out().find("kept result"), std::string::npos) << out();
}

TEST_F(Interrupts, ASecondSignalEndsItAtOnce) {
  start({"run", long_scenario(), "--references", "none"});
  signal(SIGINT);
  ::kill(pid_, SIGINT);
  const int code = finish();
  EXPECT_TRUE(code == -SIGINT || code == 130) << code;
}

TEST_F(Interrupts, RecordKeepsItsWholeSteps) {
  start({"record", long_scenario(), "--references", "none", "-o", path("a.acap"), "--json"});
  while (!std::filesystem::exists(path("a.acap/payload/000001.safetensors"))) {
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  signal(SIGTERM);
  EXPECT_EQ(finish(), 143) << err();
  const json printed = json::parse(out());
  EXPECT_EQ(printed["complete"], false);
  EXPECT_EQ(printed["interrupted"], "SIGTERM");
  EXPECT_EQ(printed["verdict"], "incomplete");
  const auto capture = Capture::open(path("a.acap"));
  ASSERT_TRUE(capture) << capture.error().text();
  EXPECT_FALSE((*capture)->complete());
  EXPECT_EQ(static_cast<std::int64_t>((*capture)->summaries().size()), printed["steps"]);
  EXPECT_TRUE((*capture)->verify());
  expect_no_leftovers();
}

TEST_F(Interrupts, TapExportWritesWhatItHas) {
  start({"tap-export", long_scenario(), "--taps", "sample.tokens", "-o", path("t.safetensors")});
  signal(SIGINT);
  EXPECT_EQ(finish(), 130) << err();
  // Before the first sample there is nothing to write, and that is said.
  if (std::filesystem::exists(path("t.safetensors"))) {
    EXPECT_NE(out().find("INCOMPLETE"), std::string::npos) << out();
  } else {
    EXPECT_NE(err().find("none of the taps was written"), std::string::npos) << err();
  }
  expect_no_leftovers();
}

TEST_F(Interrupts, SweepKeepsItsRows) {
  start({"sweep", long_scenario(), "--vary", "seed=1..4000", "--decode-steps", "0", "--json"});
  signal(SIGINT);
  EXPECT_EQ(finish(), 130) << err();
  const json printed = json::parse(out());
  EXPECT_EQ(printed["complete"], false);
  EXPECT_EQ(printed["interrupted"], "SIGINT");
  EXPECT_LT(printed["rows"].size(), 4000u);
  start({"sweep", long_scenario(), "--vary", "seed=1..4000", "--decode-steps", "0"});
  signal(SIGINT);
  EXPECT_EQ(finish(), 130) << err();
  EXPECT_NE(out().find("INCOMPLETE: SIGINT ended the sweep after "), std::string::npos) << out();
  EXPECT_NE(out().find(" of 4000 values"), std::string::npos) << out();
}

TEST_F(Interrupts, SimulatePrintsWhatItHas) {
  const std::string workload =
      write("long.json", read(ATTNSCOPE_SOURCE_DIR "/assets/workloads/g1.json"));
  json w = json::parse(read(workload), nullptr, true, true);
  w["requests"] = 100000;
  write("long.json", w.dump());
  start({"blocks", "simulate", workload, "--check", "--json"});
  signal(SIGTERM);
  EXPECT_EQ(finish(), 143) << err();
  EXPECT_EQ(json::parse(out())["complete"], false);
}

TEST_F(Interrupts, GoldenNamesWhatDidNotRun) {
  write("slow.golden.json", R"({"format": "attnscope-golden", "version": 1, "about": "slow",
    "scenario": "long", "steps": 10000, "taps": [{"op": "sample"}]})");
  write("z.golden.json", R"({"format": "attnscope-golden", "version": 1, "about": "a norm",
    "op": "attn_norm", "cases": [{"name": "one", "lengths": [4]}]})");
  long_scenario();
  start({"golden", "run", "--goldens", folder_.string(), "--ci", "--report", path("report.json"),
         "--junit", path("report.xml"), "--html", path("report.html")});
  signal(SIGINT);
  EXPECT_EQ(finish(), 130) << err() << out();
  const json report = json::parse(read(path("report.json")));
  EXPECT_EQ(report["complete"], false);
  EXPECT_EQ(report["interrupted"], "SIGINT");
  EXPECT_EQ(report["not_run"], json({"slow", "z"}));
  EXPECT_NE(out().find("INCOMPLETE: SIGINT ended the run, 2 did not run"), std::string::npos);
  EXPECT_NE(read(path("report.xml")).find("errors=\"2\""), std::string::npos);
  EXPECT_NE(read(path("report.html")).find("INCOMPLETE"), std::string::npos);
}

// As nohup sets it. SIGTERM is looked at after SIGINT: once it is caught, both are decided on.
TEST_F(Interrupts, AnIgnoredSignalStaysIgnored) {
  start({"run", long_scenario(), "--references", "none", "--report", path("report.json")}, {},
        [] { ::signal(SIGINT, SIG_IGN); });
  ASSERT_NO_FATAL_FAILURE(wait_until_it_catches(SIGTERM));
  EXPECT_TRUE(has_signal("SigIgn", SIGINT));
  EXPECT_FALSE(has_signal("SigCgt", SIGINT));
  ASSERT_EQ(::kill(pid_, SIGINT), 0);
  signal(SIGTERM);
  EXPECT_EQ(finish(), 143) << err();
  EXPECT_EQ(json::parse(read(path("report.json")))["interrupted"], "SIGTERM");
}

// ---- the same without a process

TEST(StoppedRun, HoldsTheStepThatDidNotEnd) {
  RunOptions options;
  options.session.references = References::kNone;
  int asked = 0;
  options.stopped = [&] { return ++asked > 60; };
  const auto run = run_scenario(small_scenario(), all_lanes(), options, {});
  ASSERT_TRUE(run) << run.error().text();
  EXPECT_TRUE(run->stopped);
  EXPECT_FALSE(run->error);
  std::size_t ops = 0;
  for (const StepRecord& step : run->steps) ops += step.timings.size();
  EXPECT_EQ(ops, 60u) << "every op before the question that was answered with yes";
  options.stopped = [] { return false; };
  const auto whole = run_scenario(small_scenario(), all_lanes(), options, {});
  ASSERT_TRUE(whole);
  EXPECT_FALSE(whole->stopped);
  EXPECT_GT(whole->steps.size(), run->steps.size());
}

TEST(StoppedRun, ExportsWhatWasDoneAndSaysSo) {
  const std::string file =
      (std::filesystem::temp_directory_path() / ("stopped-" + std::to_string(getpid()))).string();
  TapExportOptions options;
  options.taps = {"attn_norm.y"};
  int asked = 0;
  options.stopped = [&] { return ++asked > 200; };
  const auto made = export_taps(small_scenario(), all_lanes(), options, file, {});
  ASSERT_TRUE(made) << made.error().text();
  EXPECT_FALSE(made->complete);
  const auto opened = TensorFile::open(file);
  ASSERT_TRUE(opened);
  EXPECT_EQ(opened->metadata().at("attnscope.complete"), "false");
  std::filesystem::remove(file);
}

}  // namespace interrupt_test
}  // namespace attnscope
