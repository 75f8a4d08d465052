#include "app/wiring/find_model.h"

#include <filesystem>

#include "engine/family/models.h"
#include "engine/family/preset_name.h"

namespace attnscope {

Result<ModelConfig> find_model(const std::string& name, const std::vector<int>& layers,
                               const std::string& profile) {
  std::error_code error;
  // A folder of a preset's name is meant where "./" says so.
  const bool file =
      !is_preset_name(name) && (name.find('/') != std::string::npos || name.ends_with(".json") ||
                                std::filesystem::exists(name, error));
  Result<ModelConfig> config = file ? read_hf_config(name, layers) : preset(name, layers);
  if (!config || profile.empty()) return config;
  if (auto ok = set_profile(*config, profile); !ok) return ok.error();
  return config;
}

}  // namespace attnscope
