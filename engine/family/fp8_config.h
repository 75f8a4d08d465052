// quantization_config of a config.json: projections in FP8 with a scale for each 128 x 128, which
// is all that families read here.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "engine/io/json_object.h"

namespace attnscope {

// What is not supported fails the reader.
void check_fp8_config(JsonObject& root);
nlohmann::ordered_json fp8_config();

}  // namespace attnscope
