// Tensors of a dump that are one tensor of an op: "concat" of a map.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/tensorfile/tensor_file.h"
#include "kernels/params/result.h"

namespace attnscope {

struct JoinedEntry {
  TensorEntry entry;
  std::vector<std::uint8_t> bytes;  // that the entry points to
};

// Behind each other along an axis; -1 = the last. AS_BAD_INPUT where types or other axes differ.
Result<JoinedEntry> joined_entry(const std::vector<const TensorEntry*>& parts, std::int64_t axis);

}  // namespace attnscope
