// Names of the tensors of a checkpoint. Which names weights have the family says.
#pragma once

#include <string>
#include <string_view>

namespace attnscope {

// The scale of a quantised weight: X.weight -> X.scale.
std::string scale_name(std::string_view weight);

}  // namespace attnscope
