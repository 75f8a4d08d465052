// The tensor programs, called in the module that they are built into.
#include "reference/ops.h"
#include "reference/torch_module.h"

namespace attnscope::reference {

#define AS_CALL(name, Params)                                  \
  void name(const Params& p, const Precision& precision) {     \
    TorchFailure failure{};                                    \
    if (torch_module().name(&p, &precision, &failure)) return; \
    throw_failure(failure);                                    \
  }
AS_FOR_EACH_TENSOR_OP(AS_CALL)
#undef AS_CALL

}  // namespace attnscope::reference
