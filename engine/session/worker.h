// A session on a thread of its own. Callers queue commands and read snapshots; neither ever waits
// for the engine.
//
//   SessionWorker worker(std::move(session));
//   worker.post([](Session& s) { return s.step(); });
//   std::shared_ptr<const Snapshot> now = worker.snapshot();   // complete, immutable
#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>

#include "engine/session/snapshot.h"

namespace attnscope {

class SessionWorker {
 public:
  using Command = std::function<Result<void>(Session&)>;

  explicit SessionWorker(std::unique_ptr<Session> session);
  ~SessionWorker();
  SessionWorker(const SessionWorker&) = delete;
  SessionWorker& operator=(const SessionWorker&) = delete;

  // Runs after all commands before it; a new snapshot is published when it ends.
  void post(Command command);
  // Makes the running command return soon and drops the queued ones.
  void cancel();
  // The last published picture; never null.
  std::shared_ptr<const Snapshot> snapshot() const;
  bool idle() const;
  void wait_idle();
  // The error of the last command that failed, once.
  std::optional<Error> take_error();

 private:
  void run();

  std::unique_ptr<Session> session_;
  mutable std::mutex mutex_;
  std::condition_variable wake_, idle_;
  std::deque<Command> commands_;
  bool busy_ = false;
  bool stop_ = false;
  std::optional<Error> error_;
  std::shared_ptr<const Snapshot> snapshot_;
  std::thread thread_;
};

}  // namespace attnscope
