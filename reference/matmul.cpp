#include "reference/matmul.h"

#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/mm.h>
#include <c10/core/InferenceMode.h>
#include <dlfcn.h>

#include <algorithm>
#include <cstring>
#include <list>
#include <mutex>

#include "reference/tensors.h"

namespace attnscope::reference {

namespace {

constexpr std::int64_t kSmallWeightBytes = std::int64_t{8} << 20;      // as stored; larger: no copy
constexpr std::int64_t kCachedBytes = std::int64_t{256} << 20;         // of all float64 copies
constexpr std::int64_t kConvertedBlockBytes = std::int64_t{32} << 20;  // of one converted block

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

// 64-bit hash over all bytes: four independent multiply-rotate chains, so that it runs at memory
// speed.
std::uint64_t content_hash(const void* data, std::int64_t bytes) {
  constexpr std::uint64_t kMultiplier = 0x9E3779B97F4A7C15u;
  const auto mix = [](std::uint64_t h, std::uint64_t word) {
    h = (h ^ word) * kMultiplier;
    return h << 29 | h >> 35;
  };
  std::uint64_t chains[4] = {1, 2, 3, 4};
  const auto* p = static_cast<const unsigned char*>(data);
  std::int64_t i = 0;
  for (; i + 32 <= bytes; i += 32) {
    std::uint64_t words[4];
    std::memcpy(words, p + i, sizeof(words));
    for (int c = 0; c < 4; ++c) chains[c] = mix(chains[c], words[c]);
  }
  for (; i < bytes; ++i) chains[0] = mix(chains[0], p[i]);
  std::uint64_t h = static_cast<std::uint64_t>(bytes);
  for (std::uint64_t chain : chains) h = mix(h, chain);
  return h;
}

struct CachedWeight {
  std::uint64_t hash;
  std::int32_t dtype;
  at::Tensor values;  // [out,in] float64
};

// Most recently used first.
std::mutex cache_mutex;
std::list<CachedWeight>& cache() {
  static std::list<CachedWeight> entries;
  return entries;
}

std::int64_t bytes_of(const at::Tensor& t) { return t.numel() * 8; }

at::Tensor cached_copy(const at::Tensor& stored, std::int32_t dtype) {
  const std::uint64_t hash = content_hash(stored.data_ptr(), stored.numel() * as_dtype_size(dtype));
  const std::lock_guard<std::mutex> lock(cache_mutex);
  std::list<CachedWeight>& entries = cache();
  const auto found = std::find_if(entries.begin(), entries.end(), [&](const CachedWeight& e) {
    return e.hash == hash && e.dtype == dtype && e.values.sizes() == stored.sizes();
  });
  if (found != entries.end()) {
    entries.splice(entries.begin(), entries, found);
  } else {
    entries.push_front({hash, dtype, stored.to(at::kDouble)});
    std::int64_t total = 0;
    for (const CachedWeight& e : entries) total += bytes_of(e.values);
    while (total > kCachedBytes) {
      total -= bytes_of(entries.back().values);
      entries.pop_back();
    }
  }
  return entries.front().values;
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
  at::Tensor converted;  // [out,in] float64; undefined for large weights
};

Weight::Weight(const as_tensor& weight) : impl_(std::make_unique<Impl>()) {
  check(weight, "weight", Kind::kFloat, {kAny, kAny});
  const std::int64_t out = weight.shape[0];
  const std::int64_t in = weight.shape[1];
  const c10::InferenceMode inference;
  impl_->stored = at::from_blob(weight.data, {out, in}, {weight.stride[0], weight.stride[1]},
                                scalar_type(weight.dtype));
  block_ = std::clamp<std::int64_t>(kConvertedBlockBytes / (8 * std::max<std::int64_t>(in, 1)), 1,
                                    std::max<std::int64_t>(out, 1));
  if (weight.dtype == AS_F64) {
    impl_->converted = impl_->stored;
  } else if (impl_->stored.is_contiguous() &&
             impl_->stored.numel() * as_dtype_size(weight.dtype) <= kSmallWeightBytes) {
    impl_->converted = cached_copy(impl_->stored, weight.dtype);
  }
}

Weight::~Weight() = default;

void Weight::multiply(const double* x, std::int64_t m, std::int64_t begin, std::int64_t end,
                      double* y) const {
  const c10::InferenceMode inference;
  const at::Tensor rows = impl_->converted.defined()
                              ? impl_->converted.slice(0, begin, end)
                              : impl_->stored.slice(0, begin, end).to(at::kDouble);
  at::Tensor out = view(y, m, end - begin);
  at::mm_out(out, view(x, m, rows.size(1)), rows.t());
}

void clear_weight_cache() {
  const std::lock_guard<std::mutex> lock(cache_mutex);
  cache().clear();
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
