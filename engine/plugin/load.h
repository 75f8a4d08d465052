// Loading a plugin's library into this process, looking at what it exports, calling its ops.
#pragma once

#include <cstdint>
#include <string>

#include "kernels/params/lane_table.h"
#include "kernels/params/result.h"

namespace attnscope {

inline constexpr std::size_t kMostPluginParams = 4096;  // bytes of a params struct

struct PluginOp {
  as_op_fn run = nullptr;         // nullptr: the library does not have the op
  std::uint32_t params_size = 0;  // of the struct that it was compiled with
  bool on_device = false;         // its tensors lie on the GPU
};

struct LoadedPlugin {
  std::string name, description;
  PerOp<PluginOp> ops;
  int num_ops() const;

  // An op with our params struct, of which it gets as much as it knows, or more in zeros. A field
  // that it lacks and that is not zero: AS_BAD_INPUT.
  std::int32_t call(std::int32_t id, const void* params, const as_call* call,
                    as_error* error) const;
};

// The library stays loaded. AS_BAD_INPUT: no library, lacks the symbol, a lane or a struct of an op
// in another version or shorter than any that was released, a name that is no word, no op that the
// program knows, or one of those that the engine carries out itself.
Result<LoadedPlugin> load_plugin(const std::string& library);

}  // namespace attnscope
