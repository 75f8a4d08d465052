// The sliding window of one token, or its chunk: which slots it reads, with weights.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/session/snapshot.h"

namespace attnscope {

struct WindowSlot {
  std::int64_t position = -1;
  std::int32_t token = -1;  // id
  std::int32_t block = -1, row = -1;
  std::int64_t slot = -1;
  bool has_weight = false;
  double logit = 0, weight = 0;
};

struct WindowView {
  std::string sentence;
  bool valid = false;
  int group = -1;
  std::int64_t window = 0;        // W, or tokens of a chunk
  bool whole = false;             // no row leaves it: all up to the token
  std::int64_t begin = -1;        // first position of the token's chunk, -1 = the layer has none
  std::int64_t nulls_before = 0;  // null table entries before the first slot
  std::vector<WindowSlot> slots;  // ascending positions, the token itself last
  // Place of the token itself there: not the last in an encoder, -1 in cross attention.
  std::int64_t own = -1;
  std::string left;  // what the token before still saw, a sentence; empty = nothing
  double largest_weight = 0;
};

// layer: published number; a token row of the step. head -1: the mean of all heads.
WindowView window_view(const SessionInfo& info, const StepTrace& step, int layer,
                       std::int64_t token_row, int head);

}  // namespace attnscope
