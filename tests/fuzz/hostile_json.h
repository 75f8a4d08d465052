// JSON of which one field after the other is something else.
#pragma once

#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <string>

namespace attnscope::fuzz {

// Every field once with another kind or size of value, as deep as they go; `root` is as it was
// afterwards.
void each_field(nlohmann::json& root, const std::function<void(const std::string& place)>& visit);

}  // namespace attnscope::fuzz
