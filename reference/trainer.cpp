#include "reference/trainer.h"

#include "reference/torch_module.h"

namespace attnscope::reference {

Result<std::unique_ptr<Trainer>> Trainer::make(const MlaNumbers& numbers,
                                               const TensorSource& source,
                                               const TrainOptions& options) {
  const TorchState state = torch_state();
  if (state.version.empty()) {
    return Error{AS_NO_ENVIRONMENT, "training: libtorch does not load: " + state.problem,
                 state.advice};
  }
  if (beside_host()) {
    return usage_error("training computes on the host alone", "leave --reference-device out");
  }
  return torch_module().make_trainer(numbers, source, options);
}

}  // namespace attnscope::reference
