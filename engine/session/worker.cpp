#include "engine/session/worker.h"

#include <chrono>
#include <exception>
#include <utility>

#include "engine/io/elapsed.h"

namespace attnscope {
namespace {

using Clock = std::chrono::steady_clock;

// Runs f; what it throws becomes an error.
template <class F>
std::optional<Error> guarded(const F& f, const char* hint) {
  try {
    Result<void> ok = f();
    return ok ? std::nullopt : std::optional<Error>(ok.error());
  } catch (const std::bad_alloc&) {
    return Error{AS_NO_ENVIRONMENT, "out of memory", hint};
  } catch (const std::exception& e) {
    return Error{AS_INTERNAL, e.what(), hint};
  } catch (...) {
    return Error{AS_INTERNAL, "an unknown exception", hint};
  }
}

}  // namespace

struct SessionWorker::State : SessionObserver {
  struct Task {
    std::string title;
    Command command;
    bool setting = false;
  };

  State(Factory f, WorkerOptions o)
      : factory(std::move(f)), options(std::move(o)), recorder(options.trace) {}

  void op_done(const Session& s) override {
    recorder.op_done(s);
    publish_sometimes(s);
  }
  void step_done(const Session& s) override {
    recorder.step_done(s);
    publish_sometimes(s);
  }
  void went_back(const Session& s) override {
    recorder.went_back(s);
    publish_sometimes(s);
  }

  void lanes_changed(const Session& s) override { recorder.lanes_changed(s); }
  void lane_failed(const Session& s, const Error& why) override { recorder.failed(s, why); }

  void publish_sometimes(const Session& s) {
    if (seconds_since(published) < options.publish_every) return;
    // A picture that cannot be taken now is taken later.
    (void)guarded([&] { return publish(s); }, "");
  }

  Result<void> publish(const Session& s) {
    // All else in it is as the session was opened.
    if (info->lanes != s.lanes().description()) info = session_info(s);
    auto picture = take_snapshot(s, recorder, info, version + 1);
    {
      std::lock_guard lock(mutex);
      snapshot = std::move(picture);
    }
    ++version;
    published = Clock::now();
    changed();
    return {};
  }

  void changed() {
    if (!options.on_change) return;
    (void)guarded(
        [&]() -> Result<void> {
          options.on_change();
          return {};
        },
        "");
  }

  void add(Task task) {
    {
      std::lock_guard lock(mutex);
      if (failed) return;
      tasks.push_back(std::move(task));
    }
    wake.notify_one();
  }

  void make();
  void run();
  void run_task(Task& task);
  bool quiet() const { return (ready || failed) && !busy && tasks.empty(); }

  // Of the worker's thread alone.
  Factory factory;
  WorkerOptions options;
  TraceRecorder recorder;
  std::shared_ptr<const SessionInfo> info;
  std::uint64_t version = 0;
  Clock::time_point published{};

  mutable std::mutex mutex;  // guards all below
  std::condition_variable wake, rest;
  std::unique_ptr<Session> session;  // set once, then used by the worker's thread; others cancel it
  std::deque<Task> tasks;
  std::shared_ptr<const Snapshot> snapshot;
  std::optional<Error> error;
  std::string title;
  Clock::time_point started{};
  bool ready = false, failed = false, busy = false, stop = false;

  std::thread thread;
};

void SessionWorker::State::make() {
  std::unique_ptr<Session> made;
  const auto problem = guarded(
      [&]() -> Result<void> {
        auto created = factory();
        if (!created) return created.error();
        if (*created == nullptr) return internal_error("no session was made");
        made = std::move(*created);
        made->set_observer(this);
        info = session_info(*made);
        recorder.adopt_history(*made);
        return {};
      },
      "no session was made");
  factory = nullptr;
  if (!problem) {
    std::lock_guard lock(mutex);
    session = std::move(made);
  }
  const auto unseen =
      problem ? std::nullopt : guarded([&] { return publish(*session); }, "nothing can be shown");
  {
    std::lock_guard lock(mutex);
    if (problem) {
      failed = true;
      tasks.clear();
    } else {
      ready = true;
    }
    if (problem || unseen) error = problem ? problem : unseen;
    if (quiet()) rest.notify_all();
  }
  changed();
}

void SessionWorker::State::run_task(Task& task) {
  auto problem =
      guarded([&] { return task.command(*session); }, "the session stands where its last op ended");
  task.command = nullptr;  // what it holds goes before anybody is told that it ended
  if (problem) recorder.failed(*session, *problem);
  const auto unseen = guarded([&] { return publish(*session); }, "the picture is the one before");
  if (!problem) problem = unseen;
  {
    std::lock_guard lock(mutex);
    busy = false;
    title.clear();
    if (problem) error = std::move(problem);
    if (quiet()) rest.notify_all();
  }
  changed();
}

void SessionWorker::State::run() {
  make();
  std::unique_lock lock(mutex);
  while (true) {
    wake.wait(lock, [&] { return stop || !tasks.empty(); });
    if (stop || failed) return;
    Task task = std::move(tasks.front());
    tasks.pop_front();
    busy = true;
    title = task.title;
    started = Clock::now();
    session->resume();
    lock.unlock();
    changed();
    run_task(task);
    lock.lock();
  }
}

SessionWorker::SessionWorker(Factory factory, WorkerOptions options)
    : state_(std::make_unique<State>(std::move(factory), std::move(options))) {
  state_->thread = std::thread([state = state_.get()] { state->run(); });
}

SessionWorker::~SessionWorker() {
  {
    std::lock_guard lock(state_->mutex);
    state_->stop = true;
    state_->tasks.clear();
    if (state_->session) state_->session->cancel();
  }
  state_->wake.notify_all();
  state_->thread.join();
}

void SessionWorker::post(std::string title, Command command) {
  state_->add({std::move(title), std::move(command)});
}

void SessionWorker::post_watching(std::string title, WatchingCommand command) {
  post(std::move(title), [state = state_.get(), command = std::move(command)](Session& session) {
    return command(session, state->recorder);
  });
}

void SessionWorker::post_setting(std::string title, Command command) {
  state_->add({std::move(title), std::move(command), true});
}

void SessionWorker::cancel() {
  std::lock_guard lock(state_->mutex);
  std::erase_if(state_->tasks, [](const State::Task& task) { return !task.setting; });
  if (state_->busy) state_->session->cancel();
  if (state_->quiet()) state_->rest.notify_all();
}

std::shared_ptr<const Snapshot> SessionWorker::snapshot() const {
  std::lock_guard lock(state_->mutex);
  return state_->snapshot;
}

bool SessionWorker::idle() const {
  std::lock_guard lock(state_->mutex);
  return state_->quiet();
}

bool SessionWorker::failed() const {
  std::lock_guard lock(state_->mutex);
  return state_->failed;
}

void SessionWorker::wait_idle() {
  std::unique_lock lock(state_->mutex);
  state_->rest.wait(lock, [&] { return state_->quiet(); });
}

std::string SessionWorker::running() const {
  std::lock_guard lock(state_->mutex);
  return state_->title;
}

double SessionWorker::running_seconds() const {
  std::lock_guard lock(state_->mutex);
  return state_->busy ? seconds_since(state_->started) : 0;
}

std::optional<Error> SessionWorker::take_error() {
  std::lock_guard lock(state_->mutex);
  return std::exchange(state_->error, std::nullopt);
}

}  // namespace attnscope
