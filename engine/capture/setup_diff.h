// What two captures were set up with: model, profile, weights, inputs and limits, by their indexes.
#pragma once

#include <string>
#include <vector>

#include "engine/capture/capture_index.h"

namespace attnscope {

struct SetupDiff {
  std::string text;      // "index_topk is 512 in the first capture and 64 in the second"
  bool numbers = false;  // it changes what ops compute, and not only which of them run when
};

std::vector<SetupDiff> compare_setups(const CaptureIndex& a, const CaptureIndex& b);

}  // namespace attnscope
