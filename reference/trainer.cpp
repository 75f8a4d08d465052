#include "reference/trainer.h"

#include "reference/torch_module.h"

namespace attnscope::reference {
namespace {

template <class Numbers>
using MakesTrainer = Result<std::unique_ptr<Trainer>> (*)(const Numbers&, const TensorSource&,
                                                          const TrainOptions&);

template <class Numbers>
Result<std::unique_ptr<Trainer>> made_by(MakesTrainer<Numbers> TorchModule::*maker,
                                         const Numbers& numbers, const TensorSource& source,
                                         const TrainOptions& options) {
  const TorchState state = torch_state();
  if (state.version.empty()) {
    return Error{AS_NO_ENVIRONMENT, "training: libtorch does not load: " + state.problem,
                 state.advice};
  }
  return (torch_module().*maker)(numbers, source, options);
}

}  // namespace

Result<std::unique_ptr<Trainer>> Trainer::make(const MlaNumbers& numbers,
                                               const TensorSource& source,
                                               const TrainOptions& options) {
  return made_by(&TorchModule::make_mla_trainer, numbers, source, options);
}

Result<std::unique_ptr<Trainer>> Trainer::make(const ModelNumbers& numbers,
                                               const TensorSource& source,
                                               const TrainOptions& options) {
  return made_by(&TorchModule::make_v4_trainer, numbers, source, options);
}

}  // namespace attnscope::reference
