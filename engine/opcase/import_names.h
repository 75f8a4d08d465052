// How well the name of a tensor speaks for a tap of an op: what engines call their modules and what
// hooks call inputs and outputs.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace attnscope {

struct NameMatch {
  std::size_t op = 0;   // length of what names the op, or the module that it is; 0 = nothing does
  std::size_t tap = 0;  // of what names the tap
  int score() const { return (op > 0 ? 4 : 0) + (tap > 0 ? 2 : 0); }
  // Of names with one score the longer says more: "attn_output" more than "output".
  std::size_t length() const { return op + tap; }
};

NameMatch match_name(std::string_view tensor, std::string_view op, std::string_view tap);

// "model.layers.3.q" is "model.layers.{layer}.q" of layer 3; nothing for a name without a layer.
std::optional<std::pair<std::string, int>> name_without_layer(const std::string& name);

}  // namespace attnscope
