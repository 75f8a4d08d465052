// Text of others as it may be shown and written. Names of files, requests, tensors and lanes come
// from whoever made them: a control character in one would be obeyed by the terminal, and bytes
// that are no UTF-8 have no place in JSON.
//
//   printable("a\033[31m\n")   "a\x1b[31m\n", in which the last two are a backslash and an n
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace attnscope {

bool is_utf8(std::string_view text);

// On one line: control characters (also those above 0x7f, and those that turn the direction of
// writing) are shown as \n, \t, \x1b, \u202e, bytes that are no UTF-8 as \xff.
std::string printable(std::string_view text);
// The same for a text of several lines, which keeps its newlines.
std::string printable_lines(std::string_view text);
// With every text in it printable, its keys too.
nlohmann::json printable_json(const nlohmann::json& value);

// JSON text of anything: bytes that are no UTF-8 become U+FFFD, where dump() would throw, and what
// a terminal would obey stands as \u009b.
void escape_controls_in_json(std::string& text);
template <class Json>
std::string json_text(const Json& value, int indent = -1) {
  std::string text = value.dump(indent, ' ', false, Json::error_handler_t::replace);
  escape_controls_in_json(text);
  return text;
}

}  // namespace attnscope
