// What a capture holds of every step.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/session/step/step_trace.h"
#include "kernels/params/result.h"

namespace attnscope {

// summary  results, events and times; statistics and a checksum of every tap
// tables   also all block tables, indices, lengths, slots, and who holds which block
// full     also the values of all taps, ref.sim's beside them, rows written, attention weights
enum class CaptureLevel { kSummary, kTables, kFull };
inline constexpr int kCaptureLevels = 3;
const char* capture_level_name(CaptureLevel level);
std::optional<CaptureLevel> capture_level_by_name(std::string_view name);

// Which ops keep their values at level full. An empty list admits all.
struct CaptureFilter {
  struct Range {
    std::int64_t first = 0, last = 0;  // both included
  };
  std::vector<Range> steps;
  std::vector<int> layers;  // published; -1 = outside the layers
  std::vector<as_op_id> ops;

  bool admits_step(std::int64_t step) const;
  bool admits(const Place& place) const;
  bool empty() const { return steps.empty() && layers.empty() && ops.empty(); }
  // "steps 3-7; layers 2; ops sparse_attention", or "all".
  std::string text() const;
};

struct CaptureOptions {
  CaptureLevel level = CaptureLevel::kTables;
  CaptureFilter filter;
  bool weights = false;                   // inputs that are the model's weights, once
  std::vector<std::int64_t> cache_steps;  // steps after which all blocks in use are kept
  std::string rows = {};                  // which rows of a step there are, in words; empty = all
  bool replace = true;                    // the capture that has the name already

  // Whether the values of an op's taps of this dtype (AS_DTYPE_..) are written.
  bool keeps(const Place& place, std::int32_t dtype) const;
};

// "3,5-9" as ranges.
Result<std::vector<CaptureFilter::Range>> parse_ranges(std::string_view text, const char* what);

}  // namespace attnscope
