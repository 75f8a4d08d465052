// How each layer hides the rows that come from host memory, as a session and the simulator are
// told:
//
//   auto choice = overlap_choice("da,4=dba", {2, 4});   // all layers DA, layer 4 DBA
//
//   none  the rows come, then attention runs over all that was selected
//   da    attention runs over the rows that lie in the pool while the others come, then over those;
//         both parts are merged
//   dba   the batch in two halves: rows of the first come beside the indexer of the second, rows of
//         the second beside attention of the first
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/offload/overlap_model.h"
#include "kernels/params/result.h"

namespace attnscope {

struct OverlapChoice {
  Overlap all = Overlap::kNone;
  std::map<int, Overlap> layers;  // by published number: those that do otherwise

  Overlap of(int layer) const {
    const auto own = layers.find(layer);
    return own == layers.end() ? all : own->second;
  }
  bool any(Overlap overlap) const;
  std::string text() const;  // as overlap_choice() reads it
  friend bool operator==(const OverlapChoice&, const OverlapChoice&) = default;
};

// selecting: the layers that may be named. AS_USAGE for anything else.
Result<OverlapChoice> overlap_choice(std::string_view text, std::span<const int> selecting);

// Where a batch is cut for dba: the first token of its second half, between two requests and as
// near to the middle as that is; 0 where one request has all tokens. query_start_loc: [R+1].
std::int64_t second_half(std::span<const std::int32_t> query_start_loc);

}  // namespace attnscope
