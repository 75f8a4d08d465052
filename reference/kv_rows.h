// Rows of K and V caches as float64: logical rows of bf16 or f16 numbers, or plain values.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "kernels/params/tensor.h"
#include "reference/precision.h"
#include "reference/tensors.h"

namespace attnscope::reference {

class KvRows {
 public:
  // heads of `size` numbers a row.
  KvRows(const as_cache& cache, const char* name, std::int64_t heads, std::int64_t size);

  // [heads * size] of a row.
  std::vector<double> load(std::int64_t row, std::int64_t token) const;
  // Rounds to the record's numbers; not into plain values of ref.exact.
  void store(std::int64_t row, std::int64_t token, const std::vector<double>& values,
             const Precision& precision) const;

 private:
  as_cache cache_;
  const char* name_;
  bool f16_;
  std::optional<Bytes> bytes_;       // records
  std::optional<FloatRows> values_;  // or plain values
};

}  // namespace attnscope::reference
