// Bytes of tensors as ranks have them, for tests that hold a rank's against the whole model's.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/params/tensor_view.h"

namespace attnscope {

inline std::vector<std::uint8_t> bytes_of(const as_tensor& t) {
  const auto* data = static_cast<const std::uint8_t*>(t.data);
  return {data, data + as_tensor_numel(&t) * as_dtype_size(t.dtype)};
}

// Part `part` of `parts` of each row of a dense tensor.
inline std::vector<std::uint8_t> slice_of(const as_tensor& t, int parts, int part) {
  const std::int64_t row = t.stride[0] * as_dtype_size(t.dtype), bytes = row / parts;
  std::vector<std::uint8_t> out;
  for (std::int64_t i = 0; i < t.shape[0]; ++i) {
    const auto* from = static_cast<const std::uint8_t*>(t.data) + i * row + part * bytes;
    out.insert(out.end(), from, from + bytes);
  }
  return out;
}

}  // namespace attnscope
