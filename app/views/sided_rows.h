// What a token of an encoder-decoder sees in a layer: the source, from both sides of it, or the
// tokens of the decoder before it.
#pragma once

#include <cstdint>
#include <string>

#include "engine/session/snapshot.h"

namespace attnscope {

struct SidedRows {
  std::int64_t begin = 0, end = 0;  // positions of its request
  std::string sentence;             // says so
};

bool is_sided(const SessionInfo& info);
// index: of a running layer; position: of a token of a request with so many tokens of prompt.
SidedRows sided_rows(const SessionInfo& info, int index, std::int64_t prompt,
                     std::int64_t position);

}  // namespace attnscope
