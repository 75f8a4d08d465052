#include "engine/session/step/token_part.h"

#include <cstring>

#include "kernels/params/tensor_view.h"

namespace attnscope {

OpParams tokens_of(const OpParams& whole, TokenPart tokens) {
  OpParams part = whole;
  const as_op_info& info = whole.info();
  for (std::uint32_t i = 0; i < info.num_taps; ++i) {
    const as_tap_info& tap = info.taps[i];
    if (tap.kind != AS_TAP_TENSOR) continue;
    as_tensor& tensor = part.tensor(tap.offset);
    if (!present(tensor)) continue;
    if (std::strcmp(tap.axes, "T") != 0 && std::strncmp(tap.axes, "T,", 2) != 0) continue;
    tensor.data = static_cast<char*>(tensor.data) +
                  tokens.begin * tensor.stride[0] * as_dtype_size(tensor.dtype);
    tensor.shape[0] = tokens.size();
  }
  return part;
}

}  // namespace attnscope
