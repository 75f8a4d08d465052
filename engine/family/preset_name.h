// What names of models mean beside files: presets, and presets as training left them.
#pragma once

#include <algorithm>
#include <string>
#include <string_view>

#include "engine/family/models.h"
#include "engine/io/trained_models.h"

namespace attnscope {

// "tiny-v3.2", "tiny-v3.2-trained"; preset() knows both.
inline bool is_preset_name(std::string_view name) {
  const auto names = preset_names();
  return std::ranges::count(names, name) > 0 || std::ranges::count(names, trained_base(name)) > 0;
}

}  // namespace attnscope
