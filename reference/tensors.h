// Reading and writing as_tensor as float64 rows or integers, with checks that say what is wrong.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

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

inline bool present(const as_tensor& tensor) { return tensor.data != nullptr; }

// A float tensor as rows of its last dimension: row index counts over the leading ones.
class FloatRows {
 public:
  FloatRows(const as_tensor& tensor, const char* name, Shape shape);

  std::int64_t rows() const { return rows_; }
  std::int64_t cols() const { return cols_; }
  std::int64_t size(int dim) const { return tensor_.shape[dim]; }

  void load(std::int64_t row, double* values) const { load(row, 0, cols_, values); }
  void load(std::int64_t row, std::int64_t begin, std::int64_t n, double* values) const;
  // Rounds once to the tensor's dtype.
  void store(std::int64_t row, const double* values) const { store(row, 0, cols_, values); }
  void store(std::int64_t row, std::int64_t begin, std::int64_t n, const double* values) const;

  std::vector<double> load_all() const;
  // The values as one dense row-major array, when they already lie so as float64; else nullptr.
  const double* dense() const;

 private:
  std::int64_t offset(std::int64_t row) const;

  as_tensor tensor_;
  std::int64_t rows_ = 1;
  std::int64_t cols_ = 0;
};

// A float tensor as one dense float64 array; copies only when it must.
class DenseInput {
 public:
  explicit DenseInput(const FloatRows& rows);
  DenseInput(const DenseInput&) = delete;
  DenseInput& operator=(const DenseInput&) = delete;

  const double* data() const { return data_; }

 private:
  std::unique_ptr<double[]> copy_;
  const double* data_;
};

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
