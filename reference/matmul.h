// Matrix products in float64 through libtorch's BLAS, and weights stored as bf16.
#pragma once

#include <cstdint>
#include <memory>

#include "kernels/params/tensor.h"

namespace attnscope::reference {

// c[m,n] = a[m,k] b[n,k]^T, row major.
void matmul_transposed(const double* a, const double* b, double* c, std::int64_t m, std::int64_t n,
                       std::int64_t k);
// c[m,n] = a[m,k] b[k,n], row major.
void matmul(const double* a, const double* b, double* c, std::int64_t m, std::int64_t n,
            std::int64_t k);

// y[m, end - begin] = x[m,in] weight[begin..end, in]^T. weight is a dense [out,in] float tensor.
//
// Small weights are kept as float64 between calls, found by their content (a hash over all bytes),
// so that a weight that changed in place is converted anew; large ones are converted each time.
class Weight {
 public:
  explicit Weight(const as_tensor& weight);
  ~Weight();
  Weight(const Weight&) = delete;
  Weight& operator=(const Weight&) = delete;

  // Output rows to ask for at once, so that the float64 copy stays small.
  std::int64_t block() const { return block_; }
  void multiply(const double* x, std::int64_t m, std::int64_t begin, std::int64_t end,
                double* y) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
  std::int64_t block_ = 0;
};

void clear_weight_cache();
void set_matmul_threads(int n);  // 0 = libtorch's default

}  // namespace attnscope::reference
