// Making as_tensor from typed memory, and reading it back typed. Host memory, no ownership.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>

#include "kernels/params/tensor.h"

namespace attnscope {

// bf16 as stored: the upper 16 bits of an IEEE binary32. A distinct type so that it cannot be
// mistaken for an integer.
struct bf16_t {
  std::uint16_t bits;
};
static_assert(sizeof(bf16_t) == 2);

template <class T>
inline constexpr std::int32_t kDtypeOf = -1;
template <>
inline constexpr std::int32_t kDtypeOf<double> = AS_F64;
template <>
inline constexpr std::int32_t kDtypeOf<float> = AS_F32;
template <>
inline constexpr std::int32_t kDtypeOf<bf16_t> = AS_BF16;
template <>
inline constexpr std::int32_t kDtypeOf<std::uint8_t> = AS_U8;
template <>
inline constexpr std::int32_t kDtypeOf<std::int32_t> = AS_I32;
template <>
inline constexpr std::int32_t kDtypeOf<std::int64_t> = AS_I64;

// A dense row-major tensor over memory.
inline as_tensor make_tensor(void* data, std::int32_t dtype,
                             std::initializer_list<std::int64_t> shape) {
  as_tensor t{};
  t.data = data;
  t.dtype = dtype;
  t.rank = static_cast<std::int32_t>(shape.size());
  std::int32_t i = 0;
  for (std::int64_t n : shape) t.shape[i++] = n;
  std::int64_t stride = 1;
  for (i = t.rank - 1; i >= 0; --i) {
    t.stride[i] = stride;
    stride *= t.shape[i];
  }
  return t;
}

template <class T>
as_tensor make_tensor(T* data, std::initializer_list<std::int64_t> shape) {
  static_assert(kDtypeOf<T> >= 0, "not a tensor element type");
  return make_tensor(static_cast<void*>(data), kDtypeOf<T>, shape);
}
template <class T>
as_tensor make_tensor(const T* data, std::initializer_list<std::int64_t> shape) {
  return make_tensor(const_cast<T*>(data), shape);
}

// Gives an embedding a table of so many rows; how its frequencies are made stays.
inline void set_rope_table(as_rope& rope, const float* data, std::int64_t rows,
                           std::int64_t dims = 64) {
  const std::int32_t frequencies = rope.table.reserved;
  rope.table = make_tensor(data, {rows, dims});
  rope.table.reserved = frequencies;
}

inline as_tensor no_tensor() { return as_tensor{}; }

// Pointer to element [i, ...] of a tensor known to hold T.
template <class T>
T* at(const as_tensor& t, std::int64_t i = 0, std::int64_t j = 0, std::int64_t k = 0,
      std::int64_t l = 0) {
  return static_cast<T*>(t.data) + i * t.stride[0] + j * t.stride[1] + k * t.stride[2] +
         l * t.stride[3];
}

// Of a dense tensor.
inline std::size_t tensor_bytes(const as_tensor& t) {
  return static_cast<std::size_t>(as_tensor_numel(&t) * as_dtype_size(t.dtype));
}

inline bool present(const as_tensor& t) { return t.data != nullptr; }

}  // namespace attnscope
