// What the tests of saving share: a folder of their own, and a small session of two steps with its
// recorder.
#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <memory>
#include <string>

#include "engine/capture/capture_writer.h"
#include "engine/session/snapshot.h"
#include "engine/session/trace_recorder.h"
#include "tests/fuzz/small_capture.h"

namespace attnscope::faults {

class RecordedSession : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern =
        (std::filesystem::temp_directory_path() / "attnscope-saves-XXXXXX").string();
    ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
    root_ = pattern;
    session_ = fuzz::small_session();
    TraceOptions options;
    options.budget_bytes = std::int64_t{1} << 30;
    options.max_rows = 1;
    recorder_ = std::make_unique<TraceRecorder>(options);
    session_->set_observer(recorder_.get());
    for (int i = 0; i < 2; ++i) ASSERT_TRUE(session_->step());
    session_->set_observer(nullptr);
  }
  void TearDown() override { std::filesystem::remove_all(root_); }

  // Both steps as a capture.
  Result<void> record(const std::string& path, const CaptureOptions& options) const {
    auto writer = CaptureWriter::create(path, options, *session_info(*session_), {});
    if (!writer) return writer.error();
    const auto traces = recorder_->traces();
    const auto summaries = recorder_->summaries();
    for (std::size_t i = 0; i < traces.size(); ++i) {
      auto ok = (*writer)->add(*summaries[i], traces[i].get(), session_.get());
      if (!ok) return ok;
    }
    auto totals = (*writer)->finish();
    return totals ? Result<void>() : Result<void>(totals.error());
  }

  std::filesystem::path root_;
  std::unique_ptr<Session> session_;
  std::unique_ptr<TraceRecorder> recorder_;
};

}  // namespace attnscope::faults
