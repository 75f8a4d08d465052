// A small session a few steps into its run, with the picture of its newest step: what views show.
#pragma once

#include <gtest/gtest.h>

#include <memory>

#include "app/views/linkage.h"
#include "engine/session/snapshot.h"
#include "tests/unit/app/trace_session.h"

namespace attnscope {

class SteppedSession : public ::testing::Test {
 protected:
  virtual References references() const { return References::kNone; }

  void SetUp() override {
    session_ = small_session(references(), small_scenario(260, 8));
    session_->set_observer(&recorder_);
    run_steps(*session_, 7);
    info_ = session_info(*session_);
    snapshot_ = take_snapshot(*session_, recorder_, info_, 1);
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

  const CacheGroup& group(int index) const {
    return info_->layout.groups[static_cast<std::size_t>(index)];
  }

  TraceRecorder recorder_;
  std::unique_ptr<Session> session_;
  std::shared_ptr<const SessionInfo> info_;
  std::shared_ptr<const Snapshot> snapshot_;
  const StepTrace* step_ = nullptr;        // the newest
  const RequestView* request_ = nullptr;   // id 0, the longest
  std::int64_t row_ = -1, position_ = -1;  // its last token in the step
};

}  // namespace attnscope
