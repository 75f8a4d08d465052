// Checks of as_tensor that say what is wrong; reading and writing of integers and bytes. Tensors of
// numbers: reference/torch/tensors.h.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <stdexcept>
#include <string>

#include "kernels/params/tensor.h"

namespace attnscope::reference {

// A tensor, cache or value that an op cannot use. Caught at the border of a lane.
class BadInput : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

enum class Kind { kFloat, kInteger, kBytes };
using Shape = std::initializer_list<std::int64_t>;
inline constexpr std::int64_t kAny = -1;  // in an expected shape: any size

// Throws BadInput unless the tensor lies on the host and has this kind, rank and shape.
void check(const as_tensor& tensor, const char* name, Kind kind, Shape shape);
// Throws BadInput if there are gaps between the elements of its rows.
void check_dense_rows(const as_tensor& tensor, const char* name);

inline bool present(const as_tensor& tensor) { return tensor.data != nullptr; }

// An i32 or i64 tensor.
class Integers {
 public:
  Integers(const as_tensor& tensor, const char* name, Shape shape);

  std::int64_t size(int dim) const { return tensor_.shape[dim]; }
  std::int64_t get(std::int64_t i, std::int64_t j = 0, std::int64_t k = 0) const;
  void set(std::int64_t value, std::int64_t i, std::int64_t j = 0, std::int64_t k = 0) const;

 private:
  std::int64_t offset(std::int64_t i, std::int64_t j, std::int64_t k) const {
    return i * tensor_.stride[0] + j * tensor_.stride[1] + k * tensor_.stride[2];
  }

  as_tensor tensor_;
};

// A byte tensor whose last dimension is dense.
class Bytes {
 public:
  Bytes(const as_tensor& tensor, const char* name, Shape shape);

  std::uint8_t* row(std::int64_t i, std::int64_t j = 0) const {
    return static_cast<std::uint8_t*>(tensor_.data) + i * tensor_.stride[0] +
           (tensor_.rank > 2 ? j * tensor_.stride[1] : 0);
  }

 private:
  as_tensor tensor_;
};

// Throws BadInput naming what and the index unless 0 <= index < size.
void check_index(std::int64_t index, std::int64_t size, const char* what, std::int64_t token);

// Throws BadInput unless a numeric rule (numeric_rules.h) is one of 0 .. last.
void check_rule(const char* name, std::int32_t value, std::int32_t last);

}  // namespace attnscope::reference
