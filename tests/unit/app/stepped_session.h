// A small session a few steps into its run, with the picture of its newest step: what views show.
// The tests of a suite share one; a test that changes it says so first.
#pragma once

#include <gtest/gtest.h>

#include <map>
#include <memory>

#include "app/views/linkage.h"
#include "engine/session/snapshot.h"
#include "tests/unit/app/trace_session.h"

namespace attnscope {

class SteppedSession : public ::testing::Test {
 protected:
  virtual References references() const { return References::kNone; }

  void SetUp() override {
    std::unique_ptr<Run>& run = runs()[references()];
    if (run == nullptr) {
      run = std::make_unique<Run>();
      run->session = small_session(references(), small_scenario(260, 8));
      run->session->set_observer(&run->recorder);
      run_steps(*run->session, 7);
      run->info = session_info(*run->session);
      run->snapshot = take_snapshot(*run->session, run->recorder, run->info, 1);
    }
    recorder_ = &run->recorder;
    session_ = run->session.get();
    info_ = run->info;
    snapshot_ = run->snapshot;
    step_ = snapshot_->traces.back().get();
    request_ = find_request(*step_, 0);
    ASSERT_NE(request_, nullptr);
    for (const std::int32_t kept : step_->kept) {
      if (step_->request_of(kept) == 0) row_ = kept;
    }
    ASSERT_GE(row_, 0);
    position_ = step_->metadata.positions[static_cast<std::size_t>(row_)];
    ASSERT_GT(position_, info_->config.window + 64) << "blocks have left the window";
  }
  void TearDown() override {
    if (changed_) runs().erase(references());
  }
  static void TearDownTestSuite() { runs().clear(); }

  // The next test gets another session.
  void change_session() { changed_ = true; }

  const CacheGroup& group(int index) const {
    return info_->layout.groups[static_cast<std::size_t>(index)];
  }

  TraceRecorder* recorder_ = nullptr;
  Session* session_ = nullptr;
  std::shared_ptr<const SessionInfo> info_;
  std::shared_ptr<const Snapshot> snapshot_;
  const StepTrace* step_ = nullptr;        // the newest
  const RequestView* request_ = nullptr;   // id 0, the longest
  std::int64_t row_ = -1, position_ = -1;  // its last token in the step

 private:
  struct Run {
    TraceRecorder recorder;
    std::unique_ptr<Session> session;
    std::shared_ptr<const SessionInfo> info;
    std::shared_ptr<const Snapshot> snapshot;
  };
  static std::map<References, std::unique_ptr<Run>>& runs() {
    static std::map<References, std::unique_ptr<Run>> kept;
    return kept;
  }

  bool changed_ = false;
};

}  // namespace attnscope
