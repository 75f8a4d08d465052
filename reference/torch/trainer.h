// Training by libtorch: see reference/trainer.h.
#pragma once

#include "reference/trainer.h"

namespace attnscope::reference {

Result<std::unique_ptr<Trainer>> make_torch_mla_trainer(const MlaNumbers& numbers,
                                                        const TensorSource& source,
                                                        const TrainOptions& options);
Result<std::unique_ptr<Trainer>> make_torch_v4_trainer(const ModelNumbers& numbers,
                                                       const TensorSource& source,
                                                       const TrainOptions& options);

}  // namespace attnscope::reference
