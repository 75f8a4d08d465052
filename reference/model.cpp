#include "reference/model.h"

#include <utility>

#include "reference/torch_module.h"

namespace attnscope::reference {

Result<std::unique_ptr<ModelReference>> ModelReference::make(const ModelNumbers& numbers,
                                                             const TensorSource& source,
                                                             std::shared_ptr<const void> owner) {
  const TorchState state = torch_state();
  if (state.version.empty()) {
    return Error{AS_NO_ENVIRONMENT, "ref.model: libtorch does not load: " + state.problem,
                 state.advice};
  }
  return torch_module().make_model(numbers, source, std::move(owner));
}

}  // namespace attnscope::reference
