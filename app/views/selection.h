// What the user has picked. One selection for the whole screen: every panel shows it in the accent
// colour and changes it through Workbench::select.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace attnscope {

struct Selection {
  std::int32_t request = 0;    // request id
  std::int64_t position = -1;  // token position in the request; -1 = its last one in the step
  int head = 0;
  std::int64_t dim = 0;     // of the head (or of a row)
  std::int32_t block = -1;  // physical block id; -1 = none picked
  std::int32_t row = -1;    // row inside the block; -1 = the whole block
  std::int32_t group = -1;  // cache group the block is looked at as
  // A compressed entry is named by all three; its request need not be the selected one.
  std::int64_t entry = -1;            // -1 = none
  std::int32_t entry_request = -1;    // whose it is
  int entry_ratio = 0;                // tokens it is one of: 4 in C4A layers, 128 in C128A layers
  std::string tap;                    // tap of the op under the cursor; empty = its first output
  std::vector<std::int64_t> element;  // along the tap's axes, the T axis as token row of the step

  void pick_entry(std::int32_t of_request, int ratio, std::int64_t number) {
    entry = number;
    entry_request = of_request;
    entry_ratio = ratio;
  }
  // The entry where it is one of these; -1 = it is another's, or none is picked.
  std::int64_t entry_of(std::int32_t of_request, int ratio) const {
    return of_request == entry_request && ratio == entry_ratio ? entry : -1;
  }
  friend bool operator==(const Selection&, const Selection&) = default;
};

}  // namespace attnscope
