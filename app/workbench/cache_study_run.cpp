#include "app/workbench/cache_study_run.h"

#include <fmt/format.h>

#include <chrono>
#include <exception>

#include "kernels/cpu/thread_pool.h"

namespace attnscope {

namespace {

bool study_is_ready(const std::future<Result<CacheStudy>>& run) {
  return run.wait_for(std::chrono::seconds(0)) == std::future_status::ready;
}

}  // namespace

Result<void> CacheStudyRun::begin(const Workbench& bench, std::vector<std::int64_t> lengths) {
  // Its panel may be closed, and nobody may have asked since it ended.
  poll();
  if (work_.valid()) {
    return usage_error("a study is running already", "wait for it, or stop it: cache_study.stop");
  }
  if (bench.snapshot() == nullptr) {
    return usage_error("nothing is open", "open a scenario of dense attention");
  }
  if (bench.capture() != nullptr) {
    return usage_error("a capture has no weights to run a text with",
                       "open a scenario of dense attention");
  }
  CacheStudyOptions options;
  options.lengths = std::move(lengths);
  if (auto ok = fits_cache_study(bench.setup().scenario.model, options); !ok) return ok;
  progress_ = std::make_shared<StudyProgress>();
  work_ =
      std::async(std::launch::async,
                 [scenario = bench.setup().scenario, options, progress = progress_]() -> Made {
                   try {
                     cpu::ThreadPool pool(0);
                     return study_cache_formats(scenario, options, pool.handle(), progress.get());
                   } catch (const std::exception& e) {  // no memory, say
                     return internal_error(fmt::format("it was given up: {}", e.what()));
                   }
                 });
  return {};
}

void CacheStudyRun::stop() {
  if (progress_) progress_->stopped = true;
  if (work_.valid()) stopped_.push_back(std::move(work_));
  progress_.reset();
}

void CacheStudyRun::poll() {
  std::erase_if(stopped_, study_is_ready);
  if (!work_.valid() || !study_is_ready(work_)) return;
  Made made = work_.get();
  progress_.reset();
  error_.clear();
  if (made) {
    study_ = std::move(*made);
    ++made_;
  } else {
    error_ = made.error().text();
  }
}

std::optional<double> CacheStudyRun::running() const {
  if (!work_.valid() || !progress_) return std::nullopt;
  return progress_->done.load();
}

}  // namespace attnscope
