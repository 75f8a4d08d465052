#include "reference/torch/module.h"

#include <c10/core/InferenceMode.h>

#include "reference/torch/device.h"
#include "reference/torch/guard.h"
#include "reference/torch/kept_memory.h"
#include "reference/torch/model.h"
#include "reference/torch/model_dense.h"
#include "reference/torch/model_mla.h"
#include "reference/torch/paged_sdpa.h"
#include "reference/torch/sparse_sdpa.h"
#include "reference/torch/trainer.h"

namespace attnscope::reference {

namespace {

// The program of an op: the function of that name, but where the contract has it round elsewhere.
template <as_op_id kId, auto kOp>
constexpr auto kProgram = kOp;
template <>
constexpr auto kProgram<AS_OP_COMPRESSOR_PROJ, linear> = linear_fp32;
template <>
constexpr auto kProgram<AS_OP_INDEXER_COMPRESSOR_PROJ, linear> = linear_fp32;
template <>
constexpr auto kProgram<AS_OP_INDEX_WEIGHTS_PROJ, linear> = linear_fp32;
template <>
constexpr auto kProgram<AS_OP_LM_HEAD, linear> = linear_fp32;

// The border: no exception crosses.
template <class Params, void (*kOp)(const Params&, const Precision&)>
bool call(const void* params, const Precision* precision, TorchFailure* failure) {
  return guarded(failure, [&] {
    const c10::InferenceMode inference;
    one_thread_beside_gpu();
    own_stream();
    kOp(*static_cast<const Params*>(params), *precision);
  });
}

TorchModule make_module() {
  keep_tensor_memory();
  TorchModule module = {
      .struct_size = sizeof(TorchModule),
      .version = kTorchModuleVersion,
      .torch_version = ATTNSCOPE_TORCH_VERSION,
      .use_device = use_torch_device,
      .allocate_host = allocate_pinned,
      .release_host = release_pinned,
      .programs = {},
      .make_model = make_torch_model,
      .make_dense_model = make_torch_dense_model,
      .make_mla_model = make_torch_mla_model,
      .make_mla_trainer = make_torch_mla_trainer,
      .make_v4_trainer = make_torch_v4_trainer,
      .paged_sdpa = torch_paged_sdpa,
      .sparse_sdpa = torch_sparse_sdpa,
  };
#define AS_ENTRY(id, number, params, function)                               \
  if constexpr (!is_loop(id)) {                                              \
    module.programs[as_op_index(id)] = call<params, kProgram<id, function>>; \
  }
  AS_FOR_EACH_KERNEL(AS_ENTRY)
  AS_FOR_EACH_HELPER(AS_ENTRY)
#undef AS_ENTRY
  return module;
}

}  // namespace

}  // namespace attnscope::reference

extern "C" __attribute__((visibility("default"))) const attnscope::reference::TorchModule*
attnscope_torch_module() {
  using namespace attnscope::reference;
  static const TorchModule kModule = make_module();
  return &kModule;
}
