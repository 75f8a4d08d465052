// What an expression over positions gives, for all places at once: the references' own reading of
// the code of masks and score functions (kernels/params/mask_code.h).
#pragma once

#include "reference/torch/tensors.h"

namespace attnscope::reference {

// Float64, of shapes that broadcast: [1,n,1] or [1,n,S], [1,1,S], [H,1,1].
struct MaskPlaces {
  Tensor query, key, head, request;
};

// score: of score functions, [H,n,S]; a mask has none. Throws BadInput where the code is no code.
Tensor evaluated(const as_tensor& code, const char* name, const MaskPlaces& places,
                 const Tensor& score);

}  // namespace attnscope::reference
