// Time of one layer's attention in one decode step when its rows come from host memory: a model
// with constants that somebody chose, no measurement. x: transfer of the misses; i: indexer; p:
// what does not need the selection (PreAttn); a: attention over all selected rows.
//
//   none     i + x + p + a
//   PreAttn  i + max(x, p) + a
//   DA       i + max(x, p + a over resident rows) + a over misses + merge
//   DBA      half of the batch after the other: x of a half runs beside the indexer of the other,
//            PreAttn and attention of the first; needs two requests, and is PreAttn in steps of one
//
// New rows go back to the host the other way and beside all of it; a step that has more of them
// than fits beside it takes as long as they do.
#pragma once

#include <array>
#include <cstdint>
#include <optional>

namespace attnscope {

enum class Overlap { kNone, kPreAttn, kDa, kDba };
inline constexpr int kOverlaps = 4;
const char* overlap_name(Overlap overlap);  // "none", "preattn", "da", "dba"

// Of a layer. All are assumptions to be set.
struct OverlapConstants {
  double host_to_device = 37, device_to_host = 43;  // GB/s
  double transfer_us = 5;                           // before the first byte of a transfer
  double indexer_us = 2;                            // of 1024 rows of context of a request
  double attention_us = 4;                          // of 1024 selected rows
  double preattn_us = 20;
  double merge_us = 3;  // DA: of two parts
  double split_us = 6;  // DBA: that two halves cost beyond one whole
  double other_us = 0;  // what else a layer takes
};

struct LayerLoad {
  std::int64_t requests = 0;
  std::int64_t context_rows = 0;  // that the indexer scores, of all requests
  std::int64_t selected = 0, misses = 0, written = 0;
  std::int64_t row_bytes = 0;
};

// Microseconds; DBA is absent where there is one request.
std::array<std::optional<double>, kOverlaps> layer_times(const LayerLoad& load,
                                                         const OverlapConstants& constants);

}  // namespace attnscope
