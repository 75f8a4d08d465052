// Records a capture (capture_index.h): step by step into a folder that says it is incomplete, and
// at the end in one move to its name. Whatever happens in between, the name holds the old capture,
// the new one, or one that opens as incomplete up to its last whole step.
//
//   auto writer = CaptureWriter::create("run.acap", options, info, origin);
//   (*writer)->add(summary, &trace, nullptr);       // step by step
//   auto totals = (*writer)->finish();
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "engine/capture/capture_index.h"
#include "engine/session/session.h"
#include "engine/tensorfile/tensor_writer.h"

namespace attnscope {

struct CaptureTotals {
  std::int64_t steps = 0;
  std::uint64_t bytes = 0;
};

class CaptureWriter {
 public:
  // AS_BAD_INPUT when the name is taken by something that is no capture, or cannot be written.
  static Result<std::unique_ptr<CaptureWriter>> create(const std::string& path,
                                                       const CaptureOptions& options,
                                                       const SessionInfo& info,
                                                       const CaptureOrigin& origin);
  // Not finished: what was recorded stays as an incomplete capture; nothing stays without a step.
  ~CaptureWriter();

  // A whole step, in ascending order. trace: may be null. session: standing right after the step,
  // to keep its blocks where the options ask for this step's; null = it has passed.
  Result<void> add(const StepSummary& summary, const StepTrace* trace, const Session* session);
  Result<CaptureTotals> finish();
  // Whether the options ask for the blocks of this step.
  bool keeps_blocks(std::int64_t step) const;

  // Where it is being recorded: the name itself when it was free.
  const std::string& folder() const { return folder_; }
  const CaptureTotals& totals() const { return totals_; }

 private:
  CaptureWriter() = default;
  Result<void> check_blocks(const Session& session, std::int64_t step) const;
  Result<void> add_blocks(const Session& session, std::int64_t step, std::string& digest,
                          std::uint64_t& bytes);
  Result<void> append(int fd, const std::string& name, const std::string& line);
  Error explain(Error error) const;

  std::string path_, folder_;
  CaptureOptions options_;
  CaptureIndex index_;
  CaptureTotals totals_;
  int steps_ = -1, traces_ = -1;  // descriptors
  std::uint64_t traces_bytes_ = 0;
  TensorWriter weights_;  // of all steps so far; written at the end
  std::vector<std::shared_ptr<const void>> weight_owners_;
  bool finished_ = false;
};

}  // namespace attnscope
