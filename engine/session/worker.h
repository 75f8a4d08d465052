// A session on a thread of its own. Callers queue commands and read snapshots; neither ever waits
// for the engine. While a command runs, pictures of its progress are published.
//
//   SessionWorker worker([=] { return Session::create(scenario, lanes, options); }, {});
//   worker.post("one step", [](Session& s) { return s.step(); });
//   std::shared_ptr<const Snapshot> now = worker.snapshot();   // null until the session is made
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "engine/session/snapshot.h"

namespace attnscope {

struct WorkerOptions {
  TraceOptions trace;
  double publish_every = 0.04;      // seconds between pictures of a running command
  std::function<void()> on_change;  // called from the worker's thread after every change
};

class SessionWorker {
 public:
  using Command = std::function<Result<void>(Session&)>;
  using Factory = std::function<Result<std::unique_ptr<Session>>()>;

  // The factory runs on the worker's thread. When it fails the error waits in take_error() and
  // commands are dropped.
  SessionWorker(Factory factory, WorkerOptions options);
  ~SessionWorker();
  SessionWorker(const SessionWorker&) = delete;
  SessionWorker& operator=(const SessionWorker&) = delete;

  // Runs after all commands before it; a new snapshot is published when it ends.
  void post(std::string title, Command command);
  // The same of a command that looks at what was recorded of the steps so far.
  using WatchingCommand = std::function<Result<void>(Session&, const TraceRecorder&)>;
  void post_watching(std::string title, WatchingCommand command);
  // The same of a command that changes how the session works and computes nothing: cancel() leaves
  // it in the queue.
  void post_setting(std::string title, Command command);
  // Makes the running command return soon and drops the queued ones.
  void cancel();
  // The last published picture; null until the session exists.
  std::shared_ptr<const Snapshot> snapshot() const;
  bool idle() const;    // no command runs or waits, and the session is made (or failed)
  bool failed() const;  // the factory failed
  void wait_idle();
  // Title of the running command, empty when idle, and the seconds it has been running.
  std::string running() const;
  double running_seconds() const;
  // The error of the last command that failed, once.
  std::optional<Error> take_error();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace attnscope
