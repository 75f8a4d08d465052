// Arrays as numpy.save() writes them: a header that says type, order and shape, then the values.
// Big-endian values are swapped, Fortran order becomes C order, in memory of their own; else
// nothing is copied. Arrays of Python objects are pickles and are refused.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "engine/tensorfile/tensor_file.h"
#include "kernels/params/result.h"

namespace attnscope {

struct OwnedEntry {
  TensorEntry entry;
  std::shared_ptr<const void> owner;  // of the entry's bytes; none: those that were given
};

bool is_npy(std::span<const std::uint8_t> bytes);

// `path` and `name` are for messages; the entry gets the name.
Result<OwnedEntry> read_npy(std::span<const std::uint8_t> bytes, const std::string& path,
                            const std::string& name);

}  // namespace attnscope
