// Writes taps of a run into one safetensors file, of any lane, references included:
//
//   layers.2.sparse_attention.o      [positions, H, D]   row p = position p of the request
//   NAME/layers.2.sparse_attention.o                     where the scenario has several requests
//   slot_mapping.c4_lens             [positions]         ops outside the layers
//   layers.2.wo_b.weight                                 weights, once
//   step.7.block_tables.tables       [G, R, C]           what has no row for each token, as it is
//
// What an op did not write is NaN (integers -1, bytes 255). Engine lanes give the dtypes of the op
// table, ref.exact F64, ref.sim F64 with bytes where the contract has bytes.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "app/reports/run.h"

namespace attnscope {

struct TapExportOptions {
  std::vector<std::string> taps;  // "OP.TAP", "OP" for all its outputs, "all" for those of all ops
  std::string lane = "cpu";       // as LaneSelector::make, or ref.sim, ref.exact (free-running)
  std::vector<int> layers;        // published numbers; empty = all that run
  std::optional<std::int64_t> steps, decode_steps;
  int threads = 0;
  std::function<bool()> stopped = {};  // as RunOptions::stopped
};

struct TapExportTotals {
  std::int64_t tensors = 0, steps = 0;
  std::uint64_t bytes = 0;
  bool complete =
      true;  // else the file holds what was done so far, and says so: attnscope.complete
};

// An error where of a tap that was named nothing was there in these steps.
Result<TapExportTotals> export_taps(const Scenario& scenario, const LaneRegistry& lanes,
                                    const TapExportOptions& options, const std::string& path,
                                    const std::function<void(const RunProgress&)>& progress);

}  // namespace attnscope
