// A capture that is being recorded is nobody else's, and a finished one is replaced where that is
// wanted.
#include <gtest/gtest.h>

#include <filesystem>
#include <string>

#include "app/reports/capture_record.h"
#include "app/wiring/wiring.h"
#include "tests/unit/app/cli_fixture.h"
#include "tests/unit/app/small_scenario.h"

namespace attnscope {
namespace capture_held_test {

namespace fs = std::filesystem;

class CaptureHeld : public CliTest {
 protected:
  static Result<RecordResult> record(const CaptureOptions& capture, std::int64_t steps,
                                     const std::string& path) {
    RecordOptions options;
    options.run.session.references = References::kNone;
    options.run.steps = steps;
    options.capture = capture;
    return record_scenario(small_scenario(), all_lanes(), options, path, nullptr);
  }

  void SetUp() override {
    CliTest::SetUp();
    path_ = path("a.acap");
  }

  std::string path_;
};

CaptureOptions level(CaptureLevel l) {
  CaptureOptions options;
  options.level = l;
  return options;
}

// Two programs that record under one name would write into each other's files.
TEST_F(CaptureHeld, WhatIsBeingRecordedIsNotReplaced) {
  auto session = Session::create(small_scenario(), all_lanes(), {});
  ASSERT_TRUE(session) << session.error().text();
  const auto info = session_info(**session);
  auto first = CaptureWriter::create(path_, level(CaptureLevel::kTables), *info, {});
  ASSERT_TRUE(first) << first.error().text();
  const auto refused = record(level(CaptureLevel::kTables), 2, path_);
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.error().message.find("is being recorded"), std::string::npos)
      << refused.error().text();
  first->reset();
  ASSERT_TRUE(record(level(CaptureLevel::kTables), 2, path_));

  // Nor what begins to be recorded while another recording runs.
  auto second = CaptureWriter::create(path_, level(CaptureLevel::kTables), *info, {});
  ASSERT_TRUE(second) << second.error().text();
  ASSERT_TRUE((*second)->add(StepSummary(), nullptr, nullptr));
  fs::remove_all(path_);
  auto third = CaptureWriter::create(path_, level(CaptureLevel::kTables), *info, {});
  ASSERT_TRUE(third) << third.error().text();
  const auto late = (*second)->finish();
  ASSERT_FALSE(late);
  EXPECT_NE(late.error().text().find("is being recorded"), std::string::npos);
  EXPECT_NE(late.error().text().find(".recording-"), std::string::npos)
      << "it says where the steps are: " << late.error().text();
}

// A program looks whether the name is free long before it has a session to record.
TEST_F(CaptureHeld, AFinishedOneIsReplacedWhereThatIsWanted) {
  ASSERT_TRUE(record(level(CaptureLevel::kTables), 2, path_));
  CaptureOptions keep = level(CaptureLevel::kTables);
  keep.replace = false;
  const auto refused = record(keep, 2, path_);
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.error().message.find("exists already"), std::string::npos);
  keep.replace = true;
  EXPECT_TRUE(record(keep, 2, path_));
}

}  // namespace capture_held_test
}  // namespace attnscope
