// The border of libattnscope_torch.so, the one library that is linked with libtorch. reference/
// opens it when something first needs libtorch (torch_module.h): loading libtorch takes longer than
// most commands and tests run.
//
// No type of libtorch and no exception crosses: plain functions on plain data, and one that makes
// an object of ours. Module and caller are built together, so a new function is a new member and
// another version.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "kernels/params/paged_params.h"
#include "reference/model_dense.h"
#include "reference/model_mla.h"
#include "reference/ops.h"
#include "reference/trainer.h"

namespace attnscope::reference {

inline constexpr std::uint32_t kTorchModuleVersion = 11;
inline constexpr char kTorchModuleEntry[] = "attnscope_torch_module";

// What was thrown inside.
struct TorchFailure {
  enum Kind { kOther, kNoMemory, kBadInput, kNoDevice } kind;
  char message[400];  // always terminated
};

struct TorchModule {
  std::uint32_t struct_size;  // sizeof(TorchModule)
  std::uint32_t version;      // kTorchModuleVersion
  const char* torch_version;  // "1.13.0"

  // On which device the tensor programs compute: "cpu", "cuda", "cuda:1", .. Before the first of
  // them.
  bool (*use_device)(const char* name, TorchFailure* failure);
  // Memory of the host that the device copies from and to by itself; null where there is none.
  void* (*allocate_host)(std::size_t bytes);
  void (*release_host)(void* memory);
  // The tensor programs, by as_op_index() of the op; null for ops that are loops. params: the op's
  // struct. False: it failed, and `failure` says why.
  bool (*programs[AS_NUM_OPS])(const void* params, const Precision* precision,
                               TorchFailure* failure);
  // See ModelReference::make.
  Result<std::unique_ptr<ModelReference>> (*make_model)(const ModelNumbers& numbers,
                                                        const TensorSource& source,
                                                        std::shared_ptr<const void> owner);
  // See make_dense_model.
  Result<std::unique_ptr<ModelReference>> (*make_dense_model)(const DenseNumbers& numbers,
                                                              const TensorSource& source,
                                                              std::shared_ptr<const void> owner);
  // See make_mla_model.
  Result<std::unique_ptr<ModelReference>> (*make_mla_model)(const MlaNumbers& numbers,
                                                            const TensorSource& source,
                                                            std::shared_ptr<const void> owner);
  // See Trainer::make.
  Result<std::unique_ptr<Trainer>> (*make_mla_trainer)(const MlaNumbers& numbers,
                                                       const TensorSource& source,
                                                       const TrainOptions& options);
  Result<std::unique_ptr<Trainer>> (*make_v4_trainer)(const ModelNumbers& numbers,
                                                      const TensorSource& source,
                                                      const TrainOptions& options);
  // See paged_sdpa.h.
  bool (*paged_sdpa)(const as_paged_attention_params* params, bool fp32, TorchFailure* failure);
  // See sparse_sdpa.h.
  bool (*sparse_sdpa)(const as_sparse_attention_params* params, bool fp32, TorchFailure* failure);
};

}  // namespace attnscope::reference

// The one symbol that the module exports. Never null.
extern "C" const attnscope::reference::TorchModule* attnscope_torch_module();
