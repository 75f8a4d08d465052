// Steps that are written beside the run: the same capture as step by step, errors that are said.
#include "engine/capture/capture_queue.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>

#include "engine/capture/capture.h"
#include "tests/unit/app/trace_session.h"

namespace attnscope {
namespace capture_queue_test {

namespace fs = std::filesystem;

class CaptureQueueTest : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::temp_directory_path() / ("attnscope-queues-" + std::to_string(getpid()));
    fs::create_directories(folder_);
    options_.level = CaptureLevel::kFull;
    options_.cache_steps = {1, 4};
    session_ = small_session();
    session_->set_observer(&recorder_);
  }
  void TearDown() override {
    session_.reset();
    fs::remove_all(folder_);
  }

  std::string path(const char* name) const { return (folder_ / name).string(); }
  std::unique_ptr<CaptureWriter> writer(const std::string& path) const {
    auto made = CaptureWriter::create(path, options_, *session_info(*session_), {});
    EXPECT_TRUE(made) << made.error().text();
    return std::move(*made);
  }
  // The newest step.
  std::shared_ptr<const StepSummary> summary() const { return recorder_.summaries().back(); }
  std::shared_ptr<const StepTrace> trace() const { return recorder_.traces().back(); }

  // What every file holds, by its name in the folder.
  static std::map<std::string, std::string> files(const std::string& path) {
    std::map<std::string, std::string> all;
    for (const auto& entry : fs::recursive_directory_iterator(path)) {
      if (!entry.is_regular_file()) continue;
      std::ostringstream text;
      text << std::ifstream(entry.path(), std::ios::binary).rdbuf();
      all[fs::relative(entry.path(), path).string()] = text.str();
    }
    return all;
  }

  fs::path folder_;
  CaptureOptions options_;
  TraceRecorder recorder_;
  std::unique_ptr<Session> session_;
};

TEST_F(CaptureQueueTest, WritesWhatTheWriterWrites) {
  auto direct = writer(path("direct.acap"));
  CaptureQueue queue(writer(path("queued.acap")));
  for (int i = 0; i < 6; ++i) {
    ASSERT_TRUE(session_->step());
    ASSERT_TRUE(direct->add(*summary(), trace().get(), session_.get()));
    ASSERT_TRUE(queue.add(summary(), trace(), session_.get()));
  }
  const auto one = direct->finish(), other = queue.finish();
  ASSERT_TRUE(one && other);
  EXPECT_EQ(one->steps, 6);
  EXPECT_EQ(other->steps, 6);
  EXPECT_EQ(one->bytes, other->bytes);
  EXPECT_GT(queue.seconds(), 0);
  const auto a = files(path("direct.acap")), b = files(path("queued.acap"));
  EXPECT_EQ(std::ranges::count_if(a, [](const auto& f) { return f.first.starts_with("cache/"); }),
            2);
  ASSERT_EQ(a.size(), b.size());
  for (const auto& [name, text] : a) EXPECT_TRUE(b.contains(name) && b.at(name) == text) << name;
}

TEST_F(CaptureQueueTest, NotFinishedItWritesWhatWaits) {
  {
    CaptureQueue queue(writer(path("open.acap")));
    for (int i = 0; i < 3; ++i) {
      ASSERT_TRUE(session_->step());
      ASSERT_TRUE(queue.add(summary(), trace(), session_.get()));
    }
  }
  auto capture = Capture::open(path("open.acap"));
  ASSERT_TRUE(capture) << capture.error().text();
  EXPECT_FALSE((*capture)->index().complete);
  EXPECT_EQ((*capture)->summaries().size(), 3u);
}

TEST_F(CaptureQueueTest, AnErrorIsSaidAndNothingIsWrittenAfterIt) {
  CaptureQueue queue(writer(path("broken.acap")));
  ASSERT_TRUE(session_->step());
  ASSERT_TRUE(queue.add(summary(), trace(), nullptr));
  EXPECT_EQ(queue.drain().steps, 1);
  fs::remove_all(folder_ / "broken.acap" / "payload");
  ASSERT_TRUE(session_->step());
  (void)queue.add(summary(), trace(), nullptr);
  EXPECT_EQ(queue.drain().steps, 1);
  ASSERT_TRUE(session_->step());
  const auto after = queue.add(summary(), trace(), nullptr);
  ASSERT_FALSE(after);
  EXPECT_NE(after.error().text().find("payload"), std::string::npos) << after.error().text();
  EXPECT_NE(after.error().text().find("the step before it is kept"), std::string::npos);
  const auto totals = queue.finish();
  ASSERT_FALSE(totals);
  EXPECT_EQ(totals.error().text(), after.error().text());
}

}  // namespace capture_queue_test
}  // namespace attnscope
