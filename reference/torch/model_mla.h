// ref.model of absorbed MLA, by libtorch: see reference/model_mla.h.
#pragma once

#include "reference/model_mla.h"

namespace attnscope::reference {

Result<std::unique_ptr<ModelReference>> make_torch_mla_model(const MlaNumbers& numbers,
                                                             const TensorSource& source,
                                                             std::shared_ptr<const void> owner);

}  // namespace attnscope::reference
