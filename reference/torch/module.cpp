#include "reference/torch/module.h"

#include <c10/core/InferenceMode.h>

#include "reference/torch/device.h"
#include "reference/torch/guard.h"
#include "reference/torch/model.h"
#include "reference/torch/model_dense.h"
#include "reference/torch/paged_sdpa.h"

namespace attnscope::reference {

namespace {

// The border: no exception crosses.
template <auto kOp>
struct Entry;

template <class Params, void (*kOp)(const Params&, const Precision&)>
struct Entry<kOp> {
  static bool call(const Params* p, const Precision* precision, TorchFailure* failure) {
    return guarded(failure, [&] {
      const c10::InferenceMode inference;
      kOp(*p, *precision);
    });
  }
};

}  // namespace

}  // namespace attnscope::reference

extern "C" __attribute__((visibility("default"))) const attnscope::reference::TorchModule*
attnscope_torch_module() {
  using namespace attnscope::reference;
  static constexpr TorchModule kModule = {
      sizeof(TorchModule),
      kTorchModuleVersion,
      ATTNSCOPE_TORCH_VERSION,
      use_torch_device,
#define AS_ENTRY(name, Params) Entry<name>::call,
      AS_FOR_EACH_TENSOR_OP(AS_ENTRY)
#undef AS_ENTRY
          make_torch_model,
      make_torch_dense_model,
      torch_paged_sdpa,
  };
  return &kModule;
}
