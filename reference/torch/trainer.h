// Training by libtorch: see reference/trainer.h.
#pragma once

#include "reference/trainer.h"

namespace attnscope::reference {

Result<std::unique_ptr<Trainer>> make_torch_trainer(const MlaNumbers& numbers,
                                                    const TensorSource& source,
                                                    const TrainOptions& options);

}  // namespace attnscope::reference
