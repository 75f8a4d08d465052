// What the values of a compressor's state row are: C and, behind it, the scores Z with their APE
// (kernels/params/compressor_params.h). Where the windows of neighbouring entries overlap, a token
// is pooled into two entries, by channels of its own for each.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "app/views/bytes_view.h"
#include "engine/session/snapshot.h"

namespace attnscope {

struct StatePart {
  std::string name;                   // "C for the next entry"
  std::int64_t first = 0, width = 0;  // values of the row
  double largest = 0;                 // |value|, of those that are finite
};

// Into how many entries a token of this layer (published number) is pooled; 0: it has no state.
int entries_of_token(const SessionInfo& info, int layer);
// entries: as above, 1 or 2. Empty for rows of other caches.
std::vector<StatePart> state_parts(const RecordBytes& row, int entries);
// "C for the next entry, channel 5"; empty where no part has the value.
std::string state_words(const std::vector<StatePart>& parts, std::int64_t dim);

}  // namespace attnscope
