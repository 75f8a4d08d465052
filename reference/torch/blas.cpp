#include "reference/torch/blas.h"

#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/mm.h>
#include <c10/core/InferenceMode.h>

#include "reference/torch/guard.h"

namespace attnscope::reference {

namespace {

at::Tensor view(const double* data, std::int64_t rows, std::int64_t cols) {
  return at::from_blob(const_cast<double*>(data), {rows, cols}, at::kDouble);
}

}  // namespace

bool torch_matmul(const double* a, const double* b, double* c, std::int64_t m, std::int64_t n,
                  std::int64_t k, bool b_transposed, bool fp32, TorchFailure* failure) {
  return guarded(failure, [&] {
    const c10::InferenceMode inference;
    const at::Tensor left = view(a, m, k);
    const at::Tensor right = b_transposed ? view(b, n, k).t() : view(b, k, n);
    at::Tensor out = view(c, m, n);
    if (fp32) {
      out.copy_(at::mm(left.to(at::kFloat), right.to(at::kFloat)));
    } else {
      at::mm_out(out, left, right);
    }
  });
}

bool torch_for_rows(std::int64_t begin, std::int64_t end, std::int64_t grain,
                    void (*body)(void*, std::int64_t, std::int64_t), void* data,
                    TorchFailure* failure) {
  return guarded(failure, [&] {
    at::parallel_for(begin, end, grain,
                     [&](std::int64_t first, std::int64_t last) { body(data, first, last); });
  });
}

}  // namespace attnscope::reference
