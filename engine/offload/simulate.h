// A trace of selections through a pool of rows for each layer: hits and misses, bytes moved, how
// alike selections of consecutive steps are, and modelled times.
//
//   auto result = simulate_offload(*trace, {.ratio = 0.2});
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <optional>
#include <vector>

#include "engine/offload/overlap_choice.h"
#include "engine/offload/selection_trace.h"

namespace attnscope {

struct OffloadOptions {
  double ratio = 0.2;          // rows of a layer's pool to all its rows once the trace ends
  std::int64_t pool_rows = 0;  // so many instead; 0 = by the ratio
  PoolPolicy policy = PoolPolicy::kLru;
  bool warm = true;  // with the selections of the last kWarmWindows tokens of prefill
  // Layers that take the batch half by half have other misses: rows of the first half may take the
  // place of those that the second would have found. Modelled times are all of what is counted.
  OverlapChoice attend = {};
  const std::atomic<bool>* stop = nullptr;  // set from another thread: the result is an error
  OverlapConstants constants = {};
};

struct OffloadCounts {
  std::int64_t hits = 0, misses = 0, written = 0, evictions = 0;
  double miss_rate() const {
    return hits + misses == 0 ? 0
                              : static_cast<double>(misses) / static_cast<double>(hits + misses);
  }
};

struct OffloadLayer {
  int layer = -1;  // published
  OffloadCounts total;
  std::vector<OffloadCounts> steps;
  // |S(t-1) and S(t)| / |S(t)|, the mean over the steps that have one before them; none = no step.
  std::optional<double> overlap;
  std::vector<std::optional<double>> step_overlap;    // by step
  std::array<std::optional<double>, kOverlaps> us{};  // modelled, of all steps
  Overlap best = Overlap::kNone;                      // the fastest of them
};

struct OffloadResult {
  std::int64_t pool_rows = 0;  // of a layer
  std::vector<OffloadLayer> layers;
  OffloadCounts total;
  std::int64_t bytes_in = 0, bytes_back = 0;          // host to device, device to host
  std::array<std::optional<double>, kOverlaps> us{};  // modelled, all layers alike
  double best_us = 0;                                 // each layer as is best for it
  std::int64_t tokens = 0;
  // Tokens a second of these layers alone.
  double throughput(double microseconds) const {
    return microseconds > 0 ? static_cast<double>(tokens) * 1e6 / microseconds : 0;
  }
};

// AS_USAGE for a ratio outside of (0, 1]; AS_BAD_INPUT where the pool is too small for a step.
Result<OffloadResult> simulate_offload(const SelectionTrace& trace, const OffloadOptions& options);

}  // namespace attnscope
