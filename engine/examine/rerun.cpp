#include "engine/examine/rerun.h"

#include <fmt/format.h>

#include <cstring>

#include "engine/backend/call_op.h"
#include "engine/model/numbers.h"
#include "kernels/params/op_ids.h"

namespace attnscope {

Result<OpCase> rerun_call(const OpCase& call, const CaseLane& lane, const CaseRunOptions& options) {
  if (call.op.id != AS_OP_COPY_BLOCKS) return rerun_case(call, lane, options);
  if (call.integers.at("exchange") != 0) {
    return bad_input("copy_blocks: exchanged blocks are inputs and outputs at once",
                     "call it without exchange");
  }
  auto made = CaseCall::make(call);
  if (!made) return made.error();
  if (auto ok = call_op(lane.function, made->params(), host_call(options.threads)); !ok) {
    return Error{ok.error().code,
                 fmt::format("{}: lane {}: {}", call.op.name, lane.name, ok.error().message),
                 {}};
  }
  OpCase out = call;
  out.origin.lane = lane.name;
  for (const as_tap_info& tap : call.op.taps) {
    if (tap.direction != AS_TAP_OUT) continue;
    StoredTensor& stored = out.tensors.at(tap.name);
    const as_tensor& blocks = made->tensor(tap);
    const std::size_t bytes = to_size(blocks.shape[1]);
    for (std::int64_t b = 0; b < blocks.shape[0] && bytes > 0; ++b) {
      std::memcpy(stored.bytes.data() + to_size(b) * bytes,
                  static_cast<const std::uint8_t*>(blocks.data) + b * blocks.stride[0], bytes);
    }
  }
  return out;
}

}  // namespace attnscope
