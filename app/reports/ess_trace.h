// Which rows the layers of a run selected, as a trace for a pool of rows
// (engine/offload/selection_trace.h): tap `indices` of indexer_topk, token by token.
//
//   auto trace = selections_of(**Capture::open("run.acap"));
//
//   SelectionReader reader(info, "session");           // the same of steps as they run
//   if (auto ok = reader.take(step_trace); !ok) ..
//   auto trace = reader.finish("session");
//
// Who decodes and whose rows are whose says HostRows, as it does for a session with a pool: drafts
// of a request select together with its token, what a preempted request computes again is prefill,
// a row in a block that requests share counts once, and rows leave with the content of their block.
#pragma once

#include <atomic>
#include <memory>
#include <string>

#include "engine/capture/capture.h"
#include "engine/offload/selection_trace.h"

namespace attnscope {

class SelectionReader {
 public:
  // name: of the source, as errors say it.
  SelectionReader(const SessionInfo& info, std::string name);
  ~SelectionReader();
  SelectionReader(SelectionReader&&) noexcept;

  Result<void> known() const;  // an error where no layer selects
  // Every step of the run, in order. AS_BAD_INPUT where it holds no selections, or not all.
  Result<void> take(const StepTrace& trace);
  Error not_recorded(std::int64_t step) const;
  // Once. source: "capture run.acap", to which the model's name is put.
  Result<SelectionTrace> finish(const std::string& source);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// AS_BAD_INPUT where the capture holds no selections, not all of them, or none of a token that
// decodes; the error says what to record.
// stop: set from another thread, the result is an error.
Result<SelectionTrace> selections_of(const Capture& capture,
                                     const std::atomic<bool>* stop = nullptr);

}  // namespace attnscope
