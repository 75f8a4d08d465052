#include "engine/checkpoint/tensor_names.h"

namespace attnscope {

std::string scale_name(std::string_view weight) {
  constexpr std::string_view kEnding = ".weight";
  if (weight.ends_with(kEnding)) weight.remove_suffix(kEnding.size());
  return std::string(weight) + ".scale";
}

}  // namespace attnscope
