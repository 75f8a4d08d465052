// Pools of rows of many sizes over one trace of selections, and, of generated traces, over many
// contexts: what misses, layer by layer, and what the model of times makes of it.
//
//   SweepProgress progress;
//   auto sweep = sweep_rows(*trace, {}, progress);
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

#include "engine/offload/simulate.h"

namespace attnscope {

struct SweepAsk {
  std::vector<double> ratios{0.02, 0.05, 0.1, 0.15, 0.2, 0.3, 0.4, 0.6, 0.8, 1};
  // Rows of a request, of traces that are generated so; the pool holds `ratio` of them.
  std::vector<std::int64_t> contexts{4096, 8192, 16384, 32768, 65536, 131072};
  double ratio = 0.2;
  PoolPolicy policy = PoolPolicy::kLru;
  bool warm = true;
  OverlapConstants constants = {};
};

// Shared with whoever waits.
struct SweepProgress {
  std::atomic<std::int64_t> done{0}, all{1};
  std::atomic<bool> stopped{false};

  double share() const {
    return static_cast<double>(done) / static_cast<double>(std::max<std::int64_t>(1, all));
  }
};

struct SweepPoint {
  double ratio = 0;
  std::int64_t context = 0;  // rows of the longest request
  std::string refused;       // the pool is too small for a step: what a step needs
  OffloadResult result;      // where it is not
};

struct RowSweep {
  std::string source, left;  // of the trace
  std::vector<int> layers;   // published
  std::int64_t requests = 0, rows = 0, steps = 0;
  std::vector<SweepPoint> by_ratio;
  std::vector<SweepPoint> by_context;       // of generated traces alone
  std::vector<std::int64_t> step, context;  // of each step of the trace by_ratio is of
};

// A trace that was recorded. An error where it was stopped.
Result<RowSweep> sweep_rows(const SelectionTrace& trace, const SweepAsk& ask,
                            SweepProgress& progress);
// Traces that are generated so, the first with the options' own context.
Result<RowSweep> sweep_generated(const GeneratorOptions& options, const SweepAsk& ask,
                                 SweepProgress& progress);

}  // namespace attnscope
