// A StepTrace as an entry and a payload, and back. What is read is checked against the model and
// against itself, so that whoever draws it may index as in a live run.
#pragma once

#include <memory>
#include <string>

#include "engine/capture/capture_options.h"
#include "engine/capture/trace_entry.h"
#include "engine/session/snapshot.h"
#include "engine/tensorfile/tensor_file.h"
#include "engine/tensorfile/tensor_writer.h"

namespace attnscope {

// Token ids lie below: those of other engines are of a vocabulary that this program does not know.
inline constexpr std::int32_t kMostTokens = 1 << 24;

// Adds to `payload` what the options keep. Weights go to `weights` under "LAYER/OP/TAP", once: a
// name that is there already is not added again. The trace outlives both writers.
class TraceWriter {
 public:
  explicit TraceWriter(const CaptureOptions& options) : options_(options) {}
  TraceEntry describe(const StepTrace& trace, TensorWriter& payload, TensorWriter* weights);

 private:
  const CaptureOptions& options_;
};

// An input that is the model's: the same in every step.
bool is_weight(const TapCopy& tap);
// The name a weight has in a capture.
std::string weight_name(int layer, as_op_id op, const std::string& tap);

// results: of the step's summary. payload, weights: may be null when nothing in them is named.
// The trace keeps what it points to alive. Errors name `path` and what does not fit.
Result<std::shared_ptr<const StepTrace>> read_trace(
    const TraceEntry& entry, const std::vector<TapResult>& results, const SessionInfo& info,
    const TensorFile* payload, const TensorFile* weights, const std::string& path);

// What a hostile or damaged file could have put in; empty = everything fits.
std::string check_trace(const StepTrace& trace, const SessionInfo& info);

}  // namespace attnscope
