#include "reference/matmul.h"

#include <algorithm>
#include <array>
#include <exception>
#include <mutex>

#include "reference/codec.h"
#include "reference/torch_module.h"

namespace attnscope::reference {

namespace {

// Rows of a weight converted at a time. All of x is read once for each block: with blocks of an L2
// cache's size, reading and packing x took several times as long as the products. More than this,
// and every call would get fresh pages from the system.
constexpr std::int64_t kConvertedBytes = std::int64_t{16} << 20;
constexpr std::int64_t kOutputBytes = std::int64_t{8} << 20;
constexpr std::int64_t kFewRows = 8;
constexpr std::int64_t kCodeBlock = 128;  // inputs and outputs that share a scale
constexpr std::int64_t kGrain = 8;        // weight rows of a thread at least

// In a fixed order that does not depend on the number of threads.
template <class T>
double dot(const double* a, const double* b, std::int64_t n) {
  constexpr int kLanes = 8;
  T sums[kLanes] = {};
  std::int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    for (int l = 0; l < kLanes; ++l) sums[l] += static_cast<T>(a[i + l]) * static_cast<T>(b[i + l]);
  }
  T rest = 0;
  for (; i < n; ++i) rest += static_cast<T>(a[i]) * static_cast<T>(b[i]);
  for (const T sum : sums) rest += sum;
  return static_cast<double>(rest);
}

void multiply(const double* a, const double* b, double* c, std::int64_t m, std::int64_t n,
              std::int64_t k, bool b_transposed, bool fp32) {
  TorchFailure failure;
  if (!torch_module().matmul(a, b, c, m, n, k, b_transposed, fp32, &failure)) {
    throw_failure(failure);
  }
}

}  // namespace

void matmul_transposed(const double* a, const double* b, double* c, std::int64_t m, std::int64_t n,
                       std::int64_t k, bool fp32) {
  multiply(a, b, c, m, n, k, true, fp32);
}

void matmul(const double* a, const double* b, double* c, std::int64_t m, std::int64_t n,
            std::int64_t k, bool fp32) {
  multiply(a, b, c, m, n, k, false, fp32);
}

Weight::Weight(const as_tensor& weight, const as_tensor& scales, std::int64_t m, bool fp32)
    : stored_(weight), scales_(scales), m_(m), fp32_(fp32) {
  if (present(scales)) {
    check(weight, "weight", Kind::kBytes, {kAny, kAny});
    check(scales, "weight_scale", Kind::kFloat,
          {weight.shape[0] / kCodeBlock, weight.shape[1] / kCodeBlock});
  } else {
    check(weight, "weight", Kind::kFloat, {kAny, kAny});
  }
  rows_ = weight.shape[0];
  cols_ = weight.shape[1];
  const std::int64_t bytes = m_ <= kFewRows ? kOutputBytes / std::max<std::int64_t>(m_, 1)
                                            : kConvertedBytes / std::max<std::int64_t>(cols_, 1);
  block_ = std::clamp<std::int64_t>(bytes / 8, 1, std::max<std::int64_t>(rows_, 1));
  if (m_ > kFewRows) {
    converted_ = std::make_unique_for_overwrite<double[]>(static_cast<std::size_t>(block_ * cols_));
  }
}

void Weight::load(std::int64_t row, double* values) const {
  if (!present(scales_)) return FloatRows(stored_, "weight", {kAny, kAny}).load(row, values);
  static const std::array<double, 256> kValues = [] {
    std::array<double, 256> all;
    for (std::size_t code = 0; code < all.size(); ++code) {
      all[code] = e4m3_value(static_cast<std::uint8_t>(code));
    }
    return all;
  }();
  const std::uint8_t* codes = Bytes(stored_, "weight", {kAny, kAny}).row(row);
  std::vector<double> scale(static_cast<std::size_t>(cols_ / kCodeBlock));
  FloatRows(scales_, "weight_scale", {kAny, kAny}).load(row / kCodeBlock, scale.data());
  for (std::int64_t i = 0; i < cols_; ++i) {
    values[i] = kValues[codes[i]] * scale[static_cast<std::size_t>(i / kCodeBlock)];
  }
}

void Weight::multiply_rows(const double* x, std::int64_t begin, std::int64_t end, double* y) const {
  const std::int64_t in = cols_;
  for_rows(end - begin, kGrain, [&](std::int64_t first, std::int64_t last) {
    std::vector<double> row(static_cast<std::size_t>(in));
    for (std::int64_t r = first; r < last; ++r) {
      load(begin + r, row.data());
      for (std::int64_t t = 0; t < m_; ++t) {
        double& product = y[t * (end - begin) + r];
        product = fp32_ ? dot<float>(x + t * in, row.data(), in)
                        : dot<double>(x + t * in, row.data(), in);
      }
    }
  });
}

void Weight::multiply(const double* x, std::int64_t begin, std::int64_t end, double* y) {
  if (m_ <= kFewRows) return multiply_rows(x, begin, end, y);
  const std::int64_t in = cols_;
  for_rows(end - begin, kGrain, [&](std::int64_t first, std::int64_t last) {
    for (std::int64_t r = first; r < last; ++r) load(begin + r, converted_.get() + r * in);
  });
  matmul_transposed(x, converted_.get(), y, m_, end - begin, in, fp32_);
}

void for_rows(std::int64_t n, std::int64_t grain,
              const std::function<void(std::int64_t, std::int64_t)>& f) {
  if (n <= 0) return;
  if (n <= grain) return f(0, n);  // on this thread anyway: needs no libtorch
  struct Work {
    const std::function<void(std::int64_t, std::int64_t)>& f;
    std::mutex mutex;
    std::exception_ptr thrown;
  } work{f, {}, {}};
  const auto part = [](void* data, std::int64_t first, std::int64_t last) {
    auto& w = *static_cast<Work*>(data);
    try {
      w.f(first, last);
    } catch (...) {
      const std::lock_guard lock(w.mutex);
      if (!w.thrown) w.thrown = std::current_exception();
    }
  };
  TorchFailure failure;
  const bool done = torch_module().for_rows(0, n, grain, part, &work, &failure);
  if (work.thrown) std::rethrow_exception(work.thrown);
  if (!done) throw_failure(failure);
}

}  // namespace attnscope::reference
