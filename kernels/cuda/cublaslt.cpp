// The projections by cuBLASLt, loaded when the program runs so that it starts without it.
#include <cublasLt.h>
#include <dlfcn.h>

#include <algorithm>
#include <map>
#include <mutex>
#include <string>
#include <tuple>

#include "kernels/cuda/gemm.h"

namespace attnscope::cuda {
namespace {

constexpr std::size_t kWorkspace = 32u << 20;

// The functions used, and the handle; all null when the library is not there.
struct Library {
  decltype(&cublasLtCreate) create = nullptr;
  decltype(&cublasLtMatmul) matmul = nullptr;
  decltype(&cublasLtMatmulDescCreate) desc_create = nullptr;
  decltype(&cublasLtMatmulDescDestroy) desc_destroy = nullptr;
  decltype(&cublasLtMatmulDescSetAttribute) desc_set = nullptr;
  decltype(&cublasLtMatrixLayoutCreate) layout_create = nullptr;
  decltype(&cublasLtMatrixLayoutDestroy) layout_destroy = nullptr;
  decltype(&cublasLtMatrixLayoutSetAttribute) layout_set = nullptr;
  decltype(&cublasLtMatmulPreferenceCreate) preference_create = nullptr;
  decltype(&cublasLtMatmulPreferenceDestroy) preference_destroy = nullptr;
  decltype(&cublasLtMatmulPreferenceSetAttribute) preference_set = nullptr;
  decltype(&cublasLtMatmulAlgoGetHeuristic) heuristic = nullptr;
  cublasLtHandle_t handle = nullptr;

  bool open() {
    const std::string name = "libcublasLt.so." + std::to_string(CUBLAS_VER_MAJOR);
    void* library = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) {
      library = dlopen((ATTNSCOPE_CUDA_LIBRARIES "/" + name).c_str(), RTLD_NOW | RTLD_LOCAL);
    }
    if (library == nullptr) return false;
    const auto find = [&](auto& function, const char* symbol) {
      function =
          reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(library, symbol));
      return function != nullptr;
    };
    return find(create, "cublasLtCreate") && find(matmul, "cublasLtMatmul") &&
           find(desc_create, "cublasLtMatmulDescCreate") &&
           find(desc_destroy, "cublasLtMatmulDescDestroy") &&
           find(desc_set, "cublasLtMatmulDescSetAttribute") &&
           find(layout_create, "cublasLtMatrixLayoutCreate") &&
           find(layout_destroy, "cublasLtMatrixLayoutDestroy") &&
           find(layout_set, "cublasLtMatrixLayoutSetAttribute") &&
           find(preference_create, "cublasLtMatmulPreferenceCreate") &&
           find(preference_destroy, "cublasLtMatmulPreferenceDestroy") &&
           find(preference_set, "cublasLtMatmulPreferenceSetAttribute") &&
           find(heuristic, "cublasLtMatmulAlgoGetHeuristic") &&
           create(&handle) == CUBLAS_STATUS_SUCCESS;
  }
};

const Library* library() {
  static const Library* kLibrary = [] {
    static Library opened;
    return opened.open() ? &opened : nullptr;
  }();
  return kLibrary;
}

// The largest power of two up to 16 bytes that divides an address and strides in bytes.
std::uint32_t alignment(const void* p, std::int64_t stride_bytes, std::int64_t batch_bytes) {
  const auto bits = reinterpret_cast<std::uintptr_t>(p) |
                    static_cast<std::uintptr_t>(stride_bytes) |
                    static_cast<std::uintptr_t>(batch_bytes) | 16u;
  return static_cast<std::uint32_t>(bits & (~bits + 1));
}

// A product as the library sees it, column by column: y^T = weight * x^T.
class Descriptors {
 public:
  Descriptors(const Library& lt, const Product& p) : lt_(lt) {
    const cublasOperation_t transposed = p.by_input ? CUBLAS_OP_N : CUBLAS_OP_T;
    const std::int64_t weight_rows = p.by_input ? p.in : p.out;
    const std::int64_t weight_columns = p.by_input ? p.out : p.in;
    const cudaDataType_t out = p.wide ? CUDA_R_32F : CUDA_R_16BF;
    const cudaDataType_t in = p.x_scale != nullptr ? CUDA_R_8F_E4M3 : CUDA_R_16BF;
    ok_ = lt.desc_create(&desc, CUBLAS_COMPUTE_32F, CUDA_R_32F) == CUBLAS_STATUS_SUCCESS &&
          set(CUBLASLT_MATMUL_DESC_TRANSA, transposed) && (p.x_scale == nullptr || scales(p)) &&
          layout(&weight, in, weight_columns, weight_rows, p.weight_stride, p.batches,
                 p.weight_batch) &&
          layout(&x, in, p.in, p.rows, p.x_stride, p.batches, p.x_batch) &&
          layout(&y, out, p.out, p.rows, p.y_stride, p.batches, p.y_batch);
  }
  Descriptors(const Descriptors&) = delete;
  Descriptors& operator=(const Descriptors&) = delete;
  ~Descriptors() {
    for (cublasLtMatrixLayout_t l : {weight, x, y}) {
      if (l != nullptr) lt_.layout_destroy(l);
    }
    if (desc != nullptr) lt_.desc_destroy(desc);
  }
  bool ok() const { return ok_; }

  cublasLtMatmulDesc_t desc = nullptr;
  cublasLtMatrixLayout_t weight = nullptr, x = nullptr, y = nullptr;

 private:
  template <class T>
  bool set(cublasLtMatmulDescAttributes_t what, const T& value) {
    return lt_.desc_set(desc, what, &value, sizeof(value)) == CUBLAS_STATUS_SUCCESS;
  }

  // The library wants the scales of a row of blocks at a distance that is a multiple of four.
  bool scales(const Product& p) {
#if CUBLAS_VERSION >= 120900
    const std::int64_t blocks = p.in / 128;
    if (p.weight_scale_stride != (blocks + 3) / 4 * 4) return false;
    const std::int32_t by_block = CUBLASLT_MATMUL_MATRIX_SCALE_BLK128x128_32F;
    const std::int32_t by_row = CUBLASLT_MATMUL_MATRIX_SCALE_VEC128_32F;
    return set(CUBLASLT_MATMUL_DESC_A_SCALE_MODE, by_block) &&
           set(CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, p.weight_scale) &&
           set(CUBLASLT_MATMUL_DESC_B_SCALE_MODE, by_row) &&
           set(CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, p.x_scale);
#else
    static_cast<void>(p);
    return false;
#endif
  }

  bool layout(cublasLtMatrixLayout_t* l, cudaDataType_t type, std::int64_t rows,
              std::int64_t columns, std::int64_t stride, std::int64_t batches,
              std::int64_t batch_stride) {
    // With one column the stride means nothing, but the library wants it sensible.
    const std::int64_t ld = columns == 1 ? std::max(stride, rows) : stride;
    if (lt_.layout_create(l, type, static_cast<std::uint64_t>(rows),
                          static_cast<std::uint64_t>(columns), ld) != CUBLAS_STATUS_SUCCESS) {
      return false;
    }
    if (batches == 1) return true;
    const auto count = static_cast<std::int32_t>(batches);
    return lt_.layout_set(*l, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &count, sizeof(count)) ==
               CUBLAS_STATUS_SUCCESS &&
           lt_.layout_set(*l, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &batch_stride,
                          sizeof(batch_stride)) == CUBLAS_STATUS_SUCCESS;
  }

  const Library& lt_;
  bool ok_ = false;
};

struct Choice {
  bool able = false;
  cublasLtMatmulAlgo_t algorithm{};
};

// The library's own first choice. Partial sums of a split product stay fp32.
Choice choose(const Library& lt, const Descriptors& d, const std::uint32_t (&align)[3],
              std::size_t workspace) {
  cublasLtMatmulPreference_t preference = nullptr;
  if (lt.preference_create(&preference) != CUBLAS_STATUS_SUCCESS) return {};
  const std::uint32_t reductions = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
  const auto set = [&](cublasLtMatmulPreferenceAttributes_t what, const auto& value) {
    return lt.preference_set(preference, what, &value, sizeof(value)) == CUBLAS_STATUS_SUCCESS;
  };
  cublasLtMatmulHeuristicResult_t result{};
  int found = 0;
  const bool ok = set(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, workspace) &&
                  set(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, reductions) &&
                  set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, align[0]) &&
                  set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, align[1]) &&
                  set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, align[2]) &&
                  set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, align[2]) &&
                  lt.heuristic(lt.handle, d.desc, d.weight, d.x, d.y, d.y, preference, 1, &result,
                               &found) == CUBLAS_STATUS_SUCCESS;
  lt.preference_destroy(preference);
  if (!ok || found == 0 || result.state != CUBLAS_STATUS_SUCCESS) return {};
  return {true, result.algo};
}

void alignments(const Product& p, std::uint32_t (&align)[3]) {
  const std::int64_t in_size = p.x_scale != nullptr ? 1 : 2, y_size = p.wide ? 4 : 2;
  align[0] = alignment(p.weight, in_size * p.weight_stride, in_size * p.weight_batch);
  align[1] = alignment(p.x, in_size * p.x_stride, in_size * p.x_batch);
  align[2] = alignment(p.y, y_size * p.y_stride, y_size * p.y_batch);
}

}  // namespace

bool library_has_fp8() {
  const Library* lt = library();
  if (lt == nullptr) return false;
  // Of a shape as models have it. Addresses are aligned and nothing lies there: choosing an
  // algorithm reads none of it.
  alignas(256) static float nothing[64];
  Product p{};
  p.x = p.weight = p.y = nothing;
  p.x_scale = p.weight_scale = nothing;
  p.rows = 64;
  p.in = p.x_stride = p.weight_stride = 4096;
  p.out = p.y_stride = 1536;
  p.batches = 1;
  p.weight_scale_stride = 32;
  const Descriptors d(*lt, p);
  std::uint32_t align[3];
  alignments(p, align);
  return d.ok() && choose(*lt, d, align, kWorkspace).able;
}

std::size_t library_workspace() { return library() != nullptr ? kWorkspace : 0; }

bool library_multiply(const Product& p, const Launch& launch) {
  const Library* lt = library();
  if (lt == nullptr || launch.workspace_bytes < kWorkspace) return false;
  const Descriptors d(*lt, p);
  if (!d.ok()) return false;
  std::uint32_t align[3];
  alignments(p, align);
  using Key = std::tuple<std::int64_t, std::int64_t, std::int64_t, std::int64_t, std::int64_t,
                         std::int64_t, std::int64_t, bool, bool, bool, std::uint32_t>;
  static std::mutex mutex;
  static std::map<Key, Choice> choices;
  const Key key{p.rows,
                p.in,
                p.out,
                p.batches,
                p.x_stride,
                p.weight_stride,
                p.y_stride,
                p.wide,
                p.by_input,
                p.x_scale != nullptr,
                align[0] << 16 | align[1] << 8 | align[2]};
  Choice choice;
  {
    const std::lock_guard lock(mutex);
    auto it = choices.find(key);
    if (it == choices.end()) {
      it = choices.emplace(key, choose(*lt, d, align, kWorkspace)).first;
    }
    choice = it->second;
  }
  if (!choice.able) return false;
  const float one = 1.0f, zero = 0.0f;
  return lt->matmul(lt->handle, d.desc, &one, p.weight, d.weight, p.x, d.x, &zero, p.y, d.y, p.y,
                    d.y, &choice.algorithm, launch.workspace, kWorkspace,
                    static_cast<cudaStream_t>(launch.stream)) == CUBLAS_STATUS_SUCCESS;
}

}  // namespace attnscope::cuda
