// Steps that run again leave what they left the first time. At every step boundary the tokens of
// each request, the block tables that its ops read, the bytes of each cache and the rotary tables
// are hashed; a session that goes back to the boundary, or comes to it again, must have the same
// ones.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "engine/metadata/step_metadata.h"
#include "engine/session/step/history.h"
#include "engine/session/step/slab.h"
#include "engine/session/step/swap_space.h"
#include "engine/trace/tap_result.h"

namespace attnscope {

class ReplayWatch {
 public:
  // What a session holds at a boundary.
  struct State {
    std::vector<std::uint64_t> requests;  // tokens and how many of them are computed
    std::vector<std::uint64_t> tables;    // by request: of all groups
    std::vector<std::uint64_t> ropes;     // by running layer
    std::vector<std::uint64_t> caches;    // by spec of the layout: pages of its blocks in use
    std::uint64_t swapped = 0;            // blocks in host memory
    friend bool operator==(const State&, const State&) = default;
  };
  // ropes: by running layer, [rows, rotated dims].
  static State state_of(const Serving& serving, const WorkerTables& tables,
                        std::span<const std::vector<float>> ropes, const CacheLayout& layout,
                        const Slab& slab, const SwapSpace& swapped, const as_threads* threads);

  // The session has come to the start of `step` by computing the one before.
  std::optional<TapResult> came_to(std::int64_t step, State now, const CacheLayout& layout,
                                   const std::vector<int>& layers);
  // It went there by restoring it; of a session that was kept on disk that is the first time.
  std::optional<TapResult> went_to(std::int64_t step, State now, const CacheLayout& layout,
                                   const std::vector<int>& layers);
  // From the start of `step` on it computes otherwise than before: other lanes, other ops.
  void forget_after(std::int64_t step);
  // In this step an op changed hands half-way. Run again as a whole it may leave other bytes, and
  // so may all steps behind it: nothing is said of these.
  void changed_hands(std::int64_t step) { last_ = std::min(last_, step); }

 private:
  std::map<std::int64_t, State> states_;                          // by the step that begins there
  std::int64_t last_ = std::numeric_limits<std::int64_t>::max();  // boundary that can be repeated
};

// The first row of these blocks that is not what was recorded of it: "slot 37 (block 2, row 5) of
// the swa cache of layer 1, position 37 of request 0"; empty = none, or of a row that was not
// recorded.
std::string changed_row(const Serving& serving, const CacheLayout& layout, const Slab& slab,
                        const Shadow& shadow, const AddressSpace& space,
                        const std::vector<int>& layers);

}  // namespace attnscope
