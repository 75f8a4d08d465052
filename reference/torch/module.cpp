#include "reference/torch/module.h"

#include "reference/torch/blas.h"
#include "reference/torch/model.h"
#include "reference/torch/paged_sdpa.h"

extern "C" __attribute__((visibility("default"))) const attnscope::reference::TorchModule*
attnscope_torch_module() {
  using namespace attnscope::reference;
  static constexpr TorchModule kModule = {
      sizeof(TorchModule), kTorchModuleVersion, ATTNSCOPE_TORCH_VERSION, torch_matmul,
      torch_for_rows,      make_torch_model,    torch_paged_sdpa,
  };
  return &kModule;
}
