// A lane's function called from C++: its status and message as an Error.
#pragma once

#include "kernels/params/lane.h"
#include "kernels/params/result.h"

namespace attnscope {

// On the host. threads: null for the calling thread alone.
inline as_call host_call(const as_threads* threads) {
  as_call call{};
  call.struct_size = sizeof(call);
  call.threads = threads;
  return call;
}

// params: the struct of the op that function is of. Errors are those of the lane.
inline Result<void> call_op(as_op_fn function, const void* params, const as_call& call) {
  as_error error{};
  const std::int32_t status = function(params, &call, &error);
  if (status == AS_OK) return {};
  return Error{static_cast<as_status>(status), error.message, {}};
}

}  // namespace attnscope
