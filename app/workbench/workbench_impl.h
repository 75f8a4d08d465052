// What a workbench keeps to itself: the session's thread, what runs beside it, what it waits for.
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <future>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "app/reports/what_if_run.h"
#include "app/wiring/wiring.h"
#include "app/workbench/pooled_tokens.h"
#include "app/workbench/workbench.h"

namespace attnscope {

using StateAsked = std::future<Result<SessionState>>;

struct Workbench::Impl {
  explicit Impl(Options o) : options(std::move(o)), registry(all_lanes()) {}

  struct Mailbox {
    std::mutex mutex;
    std::shared_ptr<const BlockBytes> bytes;
    std::shared_ptr<const PooledTokens> pooled;
    std::shared_ptr<const WhatIfOf> what_if;  // not whole yet; taken by poll()
    std::optional<Error> error;
  };

  // Where a run was stopped.
  struct Reached {
    std::mutex mutex;
    std::optional<StopHit> hit;
    std::optional<TapResult> result;  // of the hit, which points to none here
    bool ended = false;               // without a hit
  };

  struct Recording {
    std::string path;
    std::atomic<double> share{0};
    std::atomic<bool> cancelled{false};
  };

  struct Asking {
    Place place;
    std::atomic<double> share{0};
    std::atomic<bool> cancelled{false};
  };

  void start(const RunSetup& setup, bool warm);
  StateAsked ask_state(std::int64_t step);
  void retire() {
    if (!worker) return;
    worker->cancel();
    // Joining may take as long as one op: not on the caller's thread.
    retired.emplace_back(
        [old = std::shared_ptr<SessionWorker>(std::move(worker))]() mutable { old.reset(); });
  }

  Options options;
  LaneRegistry registry;
  std::unique_ptr<SessionWorker> worker;
  std::vector<std::jthread> retired;
  std::shared_ptr<Mailbox> mailbox = std::make_shared<Mailbox>();
  std::int32_t asked_block = -1;
  std::future<std::function<void()>> background;  // its result is called on the caller's thread
  const char* doing = "";                         // "a capture is being saved"
  std::shared_ptr<Recording> recording;           // while one is being made
  std::shared_ptr<Asking> asking;                 // while an op is asked something
  std::shared_ptr<Reached> reached;               // while a run to a stop is on its way
  Invariants invariants = default_invariants();
  PooledOf asked_pooled;
  Place pooled_at;
  Place asked_at;  // where the session stood: a block is read again when it has moved
  const Snapshot* seen = nullptr;
  bool was_busy = false;
  bool follow = true;         // the cursor goes with the session
  std::optional<Place> view;  // layer and op that the user went to; a newcomer's until then
  bool first_picture = true;
  std::string unwitnessed;                 // what was said of ref.model
  std::optional<std::int64_t> changed_at;  // step from which a planted bug runs
  bool failure_wanted = false;             // go to the first failure once the session is idle
  std::chrono::steady_clock::time_point start_time = std::chrono::steady_clock::now();
};

}  // namespace attnscope
