// A config.json read once more, number by number: every session, reference and witness runs on the
// numbers that were read, so that none of them would show one that was read wrong.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "engine/model/model_config.h"

namespace attnscope {

// AS_INTERNAL names the first number that is not what the file has. One that the file does not have
// is not looked at. path: of the file.
Result<void> check_read_config(const std::string& path, const nlohmann::json& file,
                               const ModelConfig& read);

}  // namespace attnscope
