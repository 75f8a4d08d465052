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
  std::int64_t dim = 0;               // of the head (or of a row)
  std::int32_t block = -1;            // physical block id; -1 = none picked
  std::int32_t row = -1;              // row inside the block; -1 = the whole block
  std::int32_t group = -1;            // cache group the block is looked at as
  std::int64_t entry = -1;            // compressed entry of the request; -1 = none
  std::string tap;                    // tap of the op under the cursor; empty = its first output
  std::vector<std::int64_t> element;  // along the tap's axes, the T axis as token row of the step
  friend bool operator==(const Selection&, const Selection&) = default;
};

}  // namespace attnscope
