// The border of libattnscope_torch.so, the one library that is linked with libtorch. reference/
// opens it when something first needs libtorch (torch_module.h): loading libtorch takes longer than
// most commands and tests run.
//
// No type of libtorch and no exception crosses: plain functions on plain data, and one that makes
// an object of ours. Module and caller are built together, so a new function is a new member and
// another version.
#pragma once

#include <cstdint>
#include <memory>

#include "kernels/params/paged_params.h"
#include "reference/model.h"

namespace attnscope::reference {

inline constexpr std::uint32_t kTorchModuleVersion = 4;
inline constexpr char kTorchModuleEntry[] = "attnscope_torch_module";

// What libtorch threw.
struct TorchFailure {
  bool no_memory;
  char message[400];  // always terminated
};

struct TorchModule {
  std::uint32_t struct_size;  // sizeof(TorchModule)
  std::uint32_t version;      // kTorchModuleVersion
  const char* torch_version;  // "1.13.0"

  // c[m,n] = a[m,k] b, row major; b is [k,n], or [n,k] where it is taken transposed. Products and
  // sums in fp32 if asked for, in float64 otherwise. False: it failed, and `failure` says why.
  bool (*matmul)(const double* a, const double* b, double* c, std::int64_t m, std::int64_t n,
                 std::int64_t k, bool b_transposed, bool fp32, TorchFailure* failure);
  // body(data, first, last) for parts of begin .. end-1 of at least `grain` rows, on libtorch's
  // threads. body must not throw.
  bool (*for_rows)(std::int64_t begin, std::int64_t end, std::int64_t grain,
                   void (*body)(void* data, std::int64_t first, std::int64_t last), void* data,
                   TorchFailure* failure);
  // See ModelReference::make.
  Result<std::unique_ptr<ModelReference>> (*make_model)(const ModelNumbers& numbers,
                                                        const TensorSource& source,
                                                        std::shared_ptr<const void> owner);
  // See paged_sdpa.h.
  bool (*paged_sdpa)(const as_paged_attention_params* params, bool fp32, TorchFailure* failure);
};

}  // namespace attnscope::reference

// The one symbol that the module exports. Never null.
extern "C" const attnscope::reference::TorchModule* attnscope_torch_module();
