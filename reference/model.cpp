#include "reference/model.h"

#include <utility>

#include "reference/model_dense.h"
#include "reference/model_mla.h"
#include "reference/torch_module.h"

namespace attnscope::reference {
namespace {

Result<void> check_torch() {
  const TorchState state = torch_state();
  if (!state.version.empty()) return {};
  return Error{AS_NO_ENVIRONMENT, "ref.model: libtorch does not load: " + state.problem,
               state.advice};
}

}  // namespace

Result<std::unique_ptr<ModelReference>> ModelReference::make(const ModelNumbers& numbers,
                                                             const TensorSource& source,
                                                             std::shared_ptr<const void> owner) {
  if (auto ok = check_torch(); !ok) return ok.error();
  return torch_module().make_model(numbers, source, std::move(owner));
}

Result<std::unique_ptr<ModelReference>> make_dense_model(const DenseNumbers& numbers,
                                                         const TensorSource& source,
                                                         std::shared_ptr<const void> owner) {
  if (auto ok = check_torch(); !ok) return ok.error();
  return torch_module().make_dense_model(numbers, source, std::move(owner));
}

Result<std::unique_ptr<ModelReference>> make_mla_model(const MlaNumbers& numbers,
                                                       const TensorSource& source,
                                                       std::shared_ptr<const void> owner) {
  if (auto ok = check_torch(); !ok) return ok.error();
  return torch_module().make_mla_model(numbers, source, std::move(owner));
}

}  // namespace attnscope::reference
