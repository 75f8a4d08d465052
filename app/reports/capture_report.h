// What `attnscope show` prints of a capture, as JSON and as text made from it.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

#include "engine/capture/capture.h"

namespace attnscope {

// step: with its ops and the statistics of their taps.
Result<nlohmann::json> describe_capture(const Capture& capture, std::optional<std::int64_t> step);
std::string format_capture(const nlohmann::json& description);

}  // namespace attnscope
