// The project's one JSON reader: comments allowed, duplicate keys refused, errors with line and
// column. Reading a struct goes through JsonObject, which reports unknown keys, wrong types and
// values out of range with file and place ("requests[1].tokens").
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "kernels/params/result.h"

namespace attnscope {

// Whole file as text; AS_BAD_INPUT when missing, unreadable, a folder, or over `max_bytes`.
Result<std::string> read_text_file(const std::string& path, std::size_t max_bytes = 64u << 20);

// Writes to a temporary file in the same folder, syncs, renames: the old file or the new one, never
// a half.
Result<void> write_text_file(const std::string& path, const std::string& text);

// Parses text of `name` (file name for messages).
Result<nlohmann::json> parse_json(const std::string& text, const std::string& name);

}  // namespace attnscope
