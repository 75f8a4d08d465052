#include "app/workbench/capture_compare.h"

#include <fmt/format.h>

#include <chrono>
#include <exception>
#include <filesystem>
#include <functional>

#include "app/reports/capture_record.h"
#include "app/reports/own_judge.h"
#include "app/text/private_folder.h"
#include "engine/trace/tolerances.h"

namespace attnscope {
namespace {

namespace fs = std::filesystem;
using Made = Result<std::shared_ptr<const RunPair>>;

// A comparison with the folder that holds its copy of a session; the folder goes with it.
struct WithCopy {
  RunPair comparison;
  fs::path folder;
  WithCopy() = default;
  WithCopy(const WithCopy&) = delete;
  WithCopy& operator=(const WithCopy&) = delete;
  ~WithCopy() {
    std::error_code code;
    if (!folder.empty()) fs::remove_all(folder, code);
  }
};

Result<void> copy_session(const Snapshot& snapshot, const Scenario& scenario, WithCopy& made) {
  auto folder = make_private_folder();
  if (!folder) return folder.error();
  made.folder = *folder;
  const std::string copy = *folder + "/session.acap";
  auto written = write_capture(snapshot, scenario, copy);
  if (!written) return written.error();
  auto opened = Capture::open(copy);
  if (!opened) return opened.error();
  made.comparison.a = std::move(*opened);
  const auto& steps = made.comparison.a->summaries();
  made.comparison.name_a =
      fmt::format("the session, steps {} to {}", steps.front()->step, steps.back()->step);
  return {};
}

Made compare_sides(const std::shared_ptr<WithCopy>& made, const Snapshot& snapshot,
                   const Scenario& scenario, const std::function<bool(double)>& go_on) {
  RunPair& c = made->comparison;
  if (!c.a) {
    if (auto ok = copy_session(snapshot, scenario, *made); !ok) return ok.error();
  }
  auto tolerances = Tolerances::load();
  if (!tolerances) return tolerances.error();
  auto diff = diff_captures(*c.a, *c.b, *tolerances, go_on, reference_judge(*tolerances));
  if (!diff) {
    Error error = diff.error();
    const std::string copy = c.a->path();
    const auto at = made->folder.empty() ? std::string::npos : error.message.find(copy);
    if (at != std::string::npos) error.message.replace(at, copy.size(), c.name_a);
    return error;
  }
  c.diff = std::move(*diff);
  note_the_worst(c);
  return std::shared_ptr<const RunPair>(made, &c);
}

}  // namespace

CompareSession::~CompareSession() {
  if (state_) state_->stopped = true;
  wait();
}

Result<void> CompareSession::open(const Workbench& bench, const std::string& path) {
  if (running()) return usage_error("a comparison is running", "wait for it");
  if (bench.snapshot() == nullptr) {
    return usage_error("there is nothing to compare with", "open a scenario or a capture first");
  }
  auto second = Capture::open(path);
  if (!second) return second.error();
  auto state = std::make_shared<State>();
  auto made = std::make_shared<WithCopy>();
  made->comparison.b = std::move(*second);
  made->comparison.name_b = path;
  if (bench.capture() != nullptr) {
    auto first = Capture::open(bench.capture()->path());
    if (!first) return first.error();
    made->comparison.a = std::move(*first);
    made->comparison.name_a = bench.capture()->path();
  }
  work_ = std::async(std::launch::async,
                     [made, state, snapshot = bench.shared_snapshot(),
                      scenario = bench.setup().scenario]() -> Made {
                       try {
                         return compare_sides(made, *snapshot, scenario, [&](double share) {
                           state->share = share;
                           return !state->stopped;
                         });
                       } catch (const std::exception& e) {  // no memory, say
                         return internal_error(fmt::format("it was given up: {}", e.what()));
                       }
                     });
  path_ = path;
  state_ = std::move(state);
  error_.clear();
  ++version_;
  return {};
}

void CompareSession::close() {
  if (state_) state_->stopped = true;
  wait();
  result_.reset();
  path_.clear();
  error_.clear();
  ++version_;
}

void CompareSession::wait() {
  if (work_.valid()) work_.wait();
  poll();
}

bool CompareSession::poll() {
  if (!work_.valid() || work_.wait_for(std::chrono::seconds(0)) != std::future_status::ready) {
    return false;
  }
  Made made = work_.get();
  if (made) {
    result_ = std::move(*made);
  } else {
    error_ = made.error().text();
  }
  ++version_;
  return true;
}

}  // namespace attnscope
