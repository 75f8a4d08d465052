#include "reference/matmul.h"

#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/mm.h>
#include <c10/core/InferenceMode.h>
#include <dlfcn.h>

#include <algorithm>

#include "reference/tensors.h"

namespace attnscope::reference {

namespace {

// Rows of a weight converted at a time; small enough to stay in the L2 cache between conversion and
// product.
constexpr std::int64_t kConvertedBytes = std::int64_t{2} << 20;

at::Tensor view(const double* data, std::int64_t rows, std::int64_t cols) {
  return at::from_blob(const_cast<double*>(data), {rows, cols}, at::kDouble);
}

at::ScalarType scalar_type(std::int32_t dtype) {
  switch (dtype) {
    case AS_F64:
      return at::kDouble;
    case AS_F32:
      return at::kFloat;
    default:
      return at::kBFloat16;
  }
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

struct Weight::Impl {
  at::Tensor stored;     // [out,in] as given
  at::Tensor converted;  // [block,in] float64: the rows in use; undefined when stored as float64
};

Weight::Weight(const as_tensor& weight) : impl_(std::make_unique<Impl>()) {
  check(weight, "weight", Kind::kFloat, {kAny, kAny});
  const std::int64_t out = weight.shape[0];
  const std::int64_t in = weight.shape[1];
  const c10::InferenceMode inference;
  impl_->stored = at::from_blob(weight.data, {out, in}, {weight.stride[0], weight.stride[1]},
                                scalar_type(weight.dtype));
  block_ = std::clamp<std::int64_t>(kConvertedBytes / (8 * std::max<std::int64_t>(in, 1)), 1,
                                    std::max<std::int64_t>(out, 1));
  if (weight.dtype != AS_F64) impl_->converted = at::empty({block_, in}, at::kDouble);
}

Weight::~Weight() = default;

void Weight::multiply(const double* x, std::int64_t m, std::int64_t begin, std::int64_t end,
                      double* y) const {
  const c10::InferenceMode inference;
  at::Tensor rows = impl_->stored.slice(0, begin, end);
  if (impl_->converted.defined()) {
    rows = impl_->converted.slice(0, 0, end - begin).copy_(rows);
  }
  at::Tensor out = view(y, m, end - begin);
  at::mm_out(out, view(x, m, rows.size(1)), rows.t());
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
