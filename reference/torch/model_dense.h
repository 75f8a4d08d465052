// ref.model of dense attention, by libtorch: see reference/model_dense.h.
#pragma once

#include "reference/model_dense.h"

namespace attnscope::reference {

Result<std::unique_ptr<ModelReference>> make_torch_dense_model(const DenseNumbers& numbers,
                                                               const TensorSource& source,
                                                               std::shared_ptr<const void> owner);

}  // namespace attnscope::reference
