// "ref.model" on libtorch, see reference/model.h, which is what others include.
#pragma once

#include "reference/model.h"

namespace attnscope::reference {

Result<std::unique_ptr<ModelReference>> make_torch_model(const ModelNumbers& numbers,
                                                         const TensorSource& source,
                                                         std::shared_ptr<const void> owner);

}  // namespace attnscope::reference
