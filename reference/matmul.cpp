#include "reference/matmul.h"

#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/mm.h>
#include <c10/core/InferenceMode.h>
#include <dlfcn.h>

#include <algorithm>

namespace attnscope::reference {

namespace {

// Rows of a weight converted at a time; small enough to stay in the L2 cache between conversion and
// product.
constexpr std::int64_t kConvertedBytes = std::int64_t{2} << 20;

at::Tensor view(const double* data, std::int64_t rows, std::int64_t cols) {
  return at::from_blob(const_cast<double*>(data), {rows, cols}, at::kDouble);
}

}  // namespace

void matmul_transposed(const double* a, const double* b, double* c, std::int64_t m, std::int64_t n,
                       std::int64_t k) {
  const c10::InferenceMode inference;
  at::Tensor out = view(c, m, n);
  at::mm_out(out, view(a, m, k), view(b, n, k).t());
}

void matmul(const double* a, const double* b, double* c, std::int64_t m, std::int64_t n,
            std::int64_t k) {
  const c10::InferenceMode inference;
  at::Tensor out = view(c, m, n);
  at::mm_out(out, view(a, m, k), view(b, k, n));
}

Weight::Weight(const as_tensor& weight)
    : stored_(weight, "weight", {kAny, kAny}),
      block_(std::clamp<std::int64_t>(
          kConvertedBytes / (8 * std::max<std::int64_t>(stored_.cols(), 1)), 1,
          std::max<std::int64_t>(stored_.rows(), 1))),
      converted_(static_cast<std::size_t>(block_ * stored_.cols())) {}

void Weight::multiply(const double* x, std::int64_t m, std::int64_t begin, std::int64_t end,
                      double* y) {
  const std::int64_t in = stored_.cols();
  for (std::int64_t row = begin; row < end; ++row) {
    stored_.load(row, converted_.data() + (row - begin) * in);
  }
  matmul_transposed(x, converted_.data(), y, m, end - begin, in);
}

void set_matmul_threads(int n) {
  static const int libtorch_default = at::get_num_threads();
  const int threads = n > 0 ? n : libtorch_default;
  at::set_num_threads(threads);
  // OpenBLAS has a thread pool of its own, which libtorch does not reach; other BLAS libraries do
  // not have this symbol.
  using SetThreads = void (*)(int);
  const auto set_blas =
      reinterpret_cast<SetThreads>(dlsym(RTLD_DEFAULT, "openblas_set_num_threads"));
  if (set_blas != nullptr) set_blas(threads);
}

}  // namespace attnscope::reference
