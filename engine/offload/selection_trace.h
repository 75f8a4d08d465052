// Which rows each layer selected for each decode step: what a pool of rows is tried with. Made of a
// capture (app/reports/ess_trace.h) or generated.
//
//   auto trace = generated_trace({.context = 32768, .topk = 2048, .overlap = 0.85, .seed = 1});
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <vector>

#include "engine/offload/row_pool.h"

namespace attnscope {

struct LayerSelection {
  // Of requests that begin to decode in this step: what the last windows of their prefill selected,
  // the oldest window first. A window is one query token.
  std::vector<HostRow> warm;
  std::vector<HostRow> written;   // new rows
  std::vector<HostRow> selected;  // of all requests of the step; each once
  // Which halves of the batch (overlap_choice.h) select each of them: 1 the first, 2 the second, 3
  // both. Empty = the batch is one.
  std::vector<std::uint8_t> halves;
};

struct SelectionStep {
  std::int64_t step = 0;  // as the source counts
  std::int64_t tokens = 0;
  std::int64_t context = 0;            // rows of the longest request that decodes
  std::vector<HostRowRange> gone;      // since the step before: their blocks serve others
  std::vector<LayerSelection> layers;  // by index into SelectionTrace::layers
};

struct SelectionTrace {
  std::string source;            // for every figure: "capture run.acap", "generated, overlap .."
  std::string left;              // what the source did not hold, a sentence; empty = nothing
  std::vector<int> layers;       // published numbers of the layers that select
  std::int64_t context = 0;      // rows of the longest request once the trace ends
  std::int64_t rows = 0;         // of all requests together, a layer, once the trace ends
  std::int64_t requests = 0;     // that decode
  std::int64_t row_bytes = 0;    // of one row
  std::int64_t index_bytes = 0;  // of its key for the indexer, which stays on the device
  std::vector<SelectionStep> steps;
};

// Windows of prefill that a pool is warmed with.
inline constexpr int kWarmWindows = 32;

// What the last windows of each request selected, while it does not decode yet: entries of its own.
class WarmWindows {
 public:
  explicit WarmWindows(int windows = kWarmWindows) : windows_(static_cast<std::size_t>(windows)) {}
  void add(std::int32_t request, std::vector<std::int32_t> entries);
  // The request decodes: its windows, the oldest first, which are forgotten.
  std::vector<std::vector<std::int32_t>> take(std::int32_t request);

 private:
  std::size_t windows_;
  std::map<std::int32_t, std::deque<std::vector<std::int32_t>>> kept_;
};

struct GeneratorOptions {
  std::int64_t context = 32768;  // rows of each request before it decodes
  std::int64_t batch = 1;        // requests
  std::int64_t topk = 2048;
  std::int64_t steps = 64;
  std::int64_t layers = 4;
  double overlap = 0.85;      // share of a selection that the step before had
  std::int64_t hot_rows = 0;  // of a layer and request, out of which hot_share of the rest comes
  double hot_share = 0;       // ..; else from all rows alike
  std::uint64_t seed = 1;
  std::int64_t row_bytes = 656, index_bytes = 132;
};
// AS_USAGE for numbers out of their range. A row of the step itself is always selected.
// stop: set from another thread, the result is an error.
Result<SelectionTrace> generated_trace(const GeneratorOptions& options,
                                       const std::atomic<bool>* stop = nullptr);

}  // namespace attnscope
