// Parts of a kept call, by what the op table says of its taps.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>
#include <vector>

#include "engine/opcase/op_case.h"
#include "kernels/params/row_format.h"

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

// Where a stored row of a cache has its elements.
inline as_row_layout single_row(const StoredCache& cache) {
  return as_row_layout_of(cache.record, cache.width, std::max(cache.heads, 1), 1);
}
// put(code, i) for every code of e4m3 of a row, i counted along its width.
template <class Put>
void each_e4m3_code(const as_row_layout& one, std::uint8_t* row, const Put& put) {
  for (std::int64_t i = 0; i < one.width; ++i) {
    const as_element_place e = as_element_at(&one, 0, 0, i);
    if (e.code == AS_CODE_E4M3) put(row[e.at], i);
  }
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
