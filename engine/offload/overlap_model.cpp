#include "engine/offload/overlap_model.h"

#include <algorithm>

namespace attnscope {

const char* overlap_name(Overlap overlap) {
  constexpr const char* kNames[kOverlaps] = {"none", "preattn", "da", "dba"};
  return kNames[static_cast<int>(overlap)];
}

std::array<std::optional<double>, kOverlaps> layer_times(const LayerLoad& load,
                                                         const OverlapConstants& c) {
  // 1 GB/s is 1000 bytes a microsecond.
  const auto moved = [&](std::int64_t rows, double speed) {
    const double bytes = static_cast<double>(rows) * static_cast<double>(load.row_bytes);
    return rows == 0 ? 0 : c.transfer_us + bytes / (speed * 1e3);
  };
  const double transfer = moved(load.misses, c.host_to_device);
  const double back = moved(load.written, c.device_to_host);
  const double indexer = c.indexer_us * static_cast<double>(load.context_rows) / 1024;
  const double missed = c.attention_us * static_cast<double>(load.misses) / 1024;
  const double attention = c.attention_us * static_cast<double>(load.selected) / 1024;
  const double resident = attention - missed;

  std::array<std::optional<double>, kOverlaps> times;
  times[0] = indexer + transfer + c.preattn_us + attention;
  times[1] = indexer + std::max(transfer, c.preattn_us) + attention;
  times[2] = indexer + std::max(transfer, c.preattn_us + resident) + missed +
             (load.misses > 0 ? c.merge_us : 0);
  if (load.requests > 1) {
    const double half = moved(load.misses - load.misses / 2, c.host_to_device);
    const double first_scored = indexer / 2;
    const double all_scored = indexer + c.split_us;
    const double first_moved = first_scored + half;
    const double second_moved = std::max(first_moved, all_scored) + half;
    const double first_done = std::max(first_moved, all_scored + c.preattn_us) + attention / 2;
    times[3] = std::max(first_done, second_moved) + attention / 2;
  }
  for (auto& time : times) {
    if (time) *time = std::max(*time, back) + c.other_us;
  }
  return times;
}

}  // namespace attnscope
