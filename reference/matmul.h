// Matrix products in float64 (or, to see what that costs, fp32) through libtorch's BLAS, weights
// stored as bf16, and rows that are worked on side by side on the same threads.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "kernels/params/tensor.h"
#include "reference/tensors.h"

namespace attnscope::reference {

// c[m,n] = a[m,k] b[n,k]^T, row major.
void matmul_transposed(const double* a, const double* b, double* c, std::int64_t m, std::int64_t n,
                       std::int64_t k, bool fp32 = false);
// c[m,n] = a[m,k] b[k,n], row major.
void matmul(const double* a, const double* b, double* c, std::int64_t m, std::int64_t n,
            std::int64_t k, bool fp32 = false);

// y[m, end - begin] = x[m,in] weight[begin..end, in]^T, weight a [out,in] float tensor, or e4m3
// codes with a scale for each block of 128 x 128. Its rows
// are converted to float64 a block at a time, on each call: nothing is kept that could become
// stale, and memory stays small for weights of any size. Few rows of x (a decode step) are summed
// here, row by row of the weight on all threads, because a BLAS would wait for each block's
// conversion; many go through the BLAS.
class Weight {
 public:
  // m: rows of x. scales: [out/128,in/128] of codes; absent otherwise.
  Weight(const as_tensor& weight, const as_tensor& scales, std::int64_t m, bool fp32 = false);

  // Output rows to ask for at once at most.
  std::int64_t block() const { return block_; }
  void multiply(const double* x, std::int64_t begin, std::int64_t end, double* y);

 private:
  void multiply_rows(const double* x, std::int64_t begin, std::int64_t end, double* y) const;

  void load(std::int64_t row, double* values) const;

  as_tensor stored_, scales_;
  std::int64_t rows_, cols_;
  std::int64_t m_;
  bool fp32_;
  std::int64_t block_;
  std::unique_ptr<double[]> converted_;  // [block,in]; null for few rows of x
};

// f(first, last) for parts of 0..n-1, at least `grain` rows each. f writes nothing that another
// part reads or writes, so that results do not depend on the number of threads; what it throws
// arrives here.
void for_rows(std::int64_t n, std::int64_t grain,
              const std::function<void(std::int64_t, std::int64_t)>& f);

}  // namespace attnscope::reference
