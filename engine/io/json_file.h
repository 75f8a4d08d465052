// The project's one JSON reader: comments allowed, duplicate keys refused, errors with line and
// column. Reading a struct goes through JsonObject, which reports unknown keys, wrong types and
// values out of range with file and place ("requests[1].tokens").
#pragma once

#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "kernels/params/result.h"

namespace attnscope {

// Whole file as text; AS_BAD_INPUT when missing, unreadable, a folder, or over `max_bytes`.
Result<std::string> read_text_file(const std::string& path, std::size_t max_bytes = 64u << 20);

// Writes to a temporary file in the same folder, syncs, renames: the old file or the new one, never
// a half.
Result<void> write_text_file(const std::string& path, const std::string& text);

// Parses text of `name` (file name for messages). What is nested deeper than kDeepestJson is
// refused: whoever copies or walks the value may recurse.
inline constexpr int kDeepestJson = 100;
Result<nlohmann::json> parse_json(const std::string& text, const std::string& name);

// One value a line (JSON lines); empty lines and lines of // comments are skipped. `take` gets the
// value, its line and "NAME: line N"; its error ends the walk.
Result<void> for_each_json_line(
    const std::string& text, const std::string& name,
    const std::function<Result<void>(const nlohmann::json& value, int line,
                                     const std::string& place)>& take);

}  // namespace attnscope
