// Parts of a kept call, by what the op table says of its taps.
#pragma once

#include <cstring>
#include <string_view>
#include <vector>

#include "engine/opcase/op_case.h"

namespace attnscope {

// Whether the first axis of a tap is that of tokens, and whether another one is.
inline bool by_token(const as_tap_info& tap) {
  const std::string_view axes = tap.axes;
  return axes == "T" || axes.starts_with("T,");
}

// The axis along which a call can be taken apart: tokens, or what a helper op has in their place.
std::string_view row_axis(const CaseOp& op);
// Whether it is the first one of a tap.
inline bool by_row(const CaseOp& op, const as_tap_info& tap) {
  const std::string_view axes = tap.axes, row = row_axis(op);
  return axes.starts_with(row) && (axes.size() == row.size() || axes[row.size()] == ',');
}

inline StoredTensor* tensor_of(OpCase& call, const as_tap_info& tap) {
  const auto it = call.tensors.find(tap.name);
  return it == call.tensors.end() ? nullptr : &it->second;
}

// Elements of a stored tensor, which are dense.
template <class T>
std::span<T> elements(StoredTensor& tensor) {
  return {reinterpret_cast<T*>(tensor.bytes.data()), tensor.bytes.size() / sizeof(T)};
}

// A list of rows, its lengths and the cache that its slots lie in.
struct ListedRows {
  StoredTensor* list = nullptr;  // i32 [T,K]
  StoredTensor* lens = nullptr;  // i32 [T]
  const char* name = "";         // of the list
  std::int64_t width() const { return list->shape[1]; }
  std::int64_t tokens() const { return list->shape[0]; }
  std::span<std::int32_t> of(std::int64_t token) const {
    return elements<std::int32_t>(*list).subspan(static_cast<std::size_t>(token * width()),
                                                 static_cast<std::size_t>(width()));
  }
  std::int32_t& length(std::int64_t token) const {
    return elements<std::int32_t>(*lens)[static_cast<std::size_t>(token)];
  }
};
// In the op table a list and its lengths follow the cache whose rows it names.
std::vector<ListedRows> listed_rows(OpCase& call);

}  // namespace attnscope
