// A sweep over pools of rows (engine/offload/row_sweep.h) on a thread of its own: of the capture
// that is shown, of the session, whose steps run again beside it for what they selected, or of
// generated selections.
//
//   run.begin(bench);  run.begin(options);     // own selections; generated ones
//   if (run.poll()) ..                         // once a frame: run.sweep() is another one
#pragma once

#include <future>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "app/workbench/workbench.h"
#include "engine/offload/row_sweep.h"

namespace attnscope {

class RowSweepRun {
 public:
  RowSweepRun() = default;
  ~RowSweepRun() { stop(); }
  RowSweepRun(RowSweepRun&&) = delete;

  Result<void> begin(const Workbench& bench);
  Result<void> begin(const GeneratorOptions& options);
  // What there is stays; nothing comes of what runs.
  void stop();
  bool poll();
  std::optional<double> running() const;  // share done
  const RowSweep* sweep() const { return sweep_ ? &*sweep_ : nullptr; }
  const std::string& error() const { return error_; }  // of the last one that ended

 private:
  using Made = Result<RowSweep>;
  Result<void> may_begin();
  std::shared_ptr<SweepProgress> progress_;
  std::future<Made> work_;
  std::vector<std::future<Made>> stopped_;  // that end by themselves
  std::optional<RowSweep> sweep_;
  std::string error_;
};

}  // namespace attnscope
