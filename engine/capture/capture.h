// Reads a capture (capture_index.h). Opening reads the index and the summaries; a step's trace is
// read when it is asked for and points into mapped files, so that captures larger than memory are
// walked through at once. Any thread; answers are immutable.
//
//   auto capture = Capture::open("run.acap");
//   for (const auto& summary : (*capture)->summaries()) ..
//   auto trace = (*capture)->trace(12);     // as a live session's; null value = not recorded
//
// A file that cannot be read is one of: no capture, too new, damaged. A recording that was
// interrupted opens: complete() is false, and it holds the steps that were whole.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "engine/capture/capture_index.h"
#include "engine/capture/recent_steps.h"
#include "engine/capture/step_line.h"
#include "engine/capture/trace_entry.h"
#include "engine/session/place.h"
#include "engine/tensorfile/tensor_file.h"

namespace attnscope {

// A folder with an index.json in it, or one whose name says that it is meant to be one.
bool is_capture_folder(const std::string& path);

class Capture {
 public:
  static Result<std::shared_ptr<const Capture>> open(const std::string& path);

  const std::string& path() const { return path_; }
  const CaptureIndex& index() const { return index_; }
  // Its lanes are those that ran, not those that were chosen and failed.
  const std::shared_ptr<const SessionInfo>& info() const { return info_; }
  bool complete() const { return index_.complete; }
  // By step, ascending.
  const std::vector<std::shared_ptr<const StepSummary>>& summaries() const { return summaries_; }

  // Null where only the summary was recorded (no such step: AS_BAD_INPUT).
  Result<std::shared_ptr<const StepTrace>> trace(std::int64_t step) const;
  // Ops, taps and their statistics, which every level has; null where no trace ran along.
  Result<std::shared_ptr<const TraceEntry>> entry(std::int64_t step) const;
  // Null where the step's blocks were not kept or this one was not in use.
  Result<std::shared_ptr<const BlockBytes>> block(std::int64_t step, std::int32_t id) const;
  // Newest step at or before `step` whose blocks were kept; -1 = none.
  std::int64_t block_step(std::int64_t step) const;
  // Reads everything and compares digests: the first damage, or nothing.
  Result<void> verify() const;
  // Of all its files.
  std::uint64_t bytes() const;

  // Why a tap of an op has no values here, and how to record it; empty when it has.
  std::string why_missing(const Place& place, const std::string& tap) const;

 private:
  Capture() = default;
  struct Line {
    LineRef trace;
    FileRef payload, cache;
  };
  Result<void> read_steps();
  void name_lanes();
  const Line* line(std::int64_t step) const;
  Result<std::shared_ptr<const StepTrace>> read_step(const Line& where) const;
  Error damaged(const std::string& what) const;
  Result<TraceEntry> read_entry(std::int64_t step, const Line& line) const;
  // Checked against its digest.
  Result<TensorFile> open_part(const char* folder, std::int64_t step, const FileRef& ref) const;

  std::string path_;
  CaptureIndex index_;
  std::shared_ptr<const SessionInfo> info_;
  std::vector<std::shared_ptr<const StepSummary>> summaries_;
  std::vector<Line> lines_;  // by index into summaries_
  MappedFile traces_;
  std::shared_ptr<const TensorFile> weights_;
  // Who follows a row through the steps asks for each of them at every op. Traces point into files,
  // so that they are small; entries are not.
  mutable RecentSteps<StepTrace> recent_traces_{64};
  mutable RecentSteps<TraceEntry> recent_entries_{4};
};

}  // namespace attnscope
