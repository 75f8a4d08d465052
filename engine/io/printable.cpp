#include "engine/io/printable.h"

#include <fmt/format.h>

#include <iterator>

namespace attnscope {
namespace {

struct CodePoint {
  char32_t value = 0;
  std::size_t bytes = 0;  // 0: no UTF-8 begins here
};

// The shortest form alone, no surrogate, nothing above U+10FFFF.
CodePoint code_point(std::string_view text) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char first = byte(0);
  if (first < 0x80) return {first, 1};
  const std::size_t bytes = first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : 2;
  if (first < 0xc2 || first > 0xf4 || text.size() < bytes) return {};
  char32_t value = first & (0x7fu >> bytes);
  for (std::size_t i = 1; i < bytes; ++i) {
    if ((byte(i) & 0xc0) != 0x80) return {};
    value = value << 6 | (byte(i) & 0x3fu);
  }
  constexpr char32_t kLeast[] = {0, 0, 0x80, 0x800, 0x10000};
  if (value < kLeast[bytes] || value > 0x10ffff || (value >= 0xd800 && value < 0xe000)) return {};
  return {value, bytes};
}

bool is_control(char32_t c) { return c < 0x20 || (c >= 0x7f && c < 0xa0); }

// Separators of lines, and what makes the rest of a line be written the other way round.
bool is_layout(char32_t c) {
  return c == 0x2028 || c == 0x2029 || c == 0x200e || c == 0x200f || c == 0x061c ||
         (c >= 0x202a && c <= 0x202e) || (c >= 0x2066 && c <= 0x2069);
}

std::string escaped(std::string_view text, bool keep_newlines) {
  std::string out;
  out.reserve(text.size());
  const auto to = std::back_inserter(out);
  while (!text.empty()) {
    const CodePoint c = code_point(text);
    const std::string_view bytes = text.substr(0, c.bytes);
    if (c.bytes == 0) {
      fmt::format_to(to, "\\x{:02x}", static_cast<unsigned char>(text[0]));
    } else if (c.value == '\n') {
      out += keep_newlines ? "\n" : "\\n";
    } else if (c.value == '\t') {
      out += "\\t";
    } else if (is_control(c.value)) {
      fmt::format_to(to, "\\x{:02x}", static_cast<unsigned>(c.value));
    } else if (is_layout(c.value)) {
      fmt::format_to(to, "\\u{:04x}", static_cast<unsigned>(c.value));
    } else {
      out += bytes;
    }
    text.remove_prefix(std::max<std::size_t>(c.bytes, 1));
  }
  return out;
}

}  // namespace

bool is_utf8(std::string_view text) {
  while (!text.empty()) {
    const CodePoint c = code_point(text);
    if (c.bytes == 0) return false;
    text.remove_prefix(c.bytes);
  }
  return true;
}

std::string printable(std::string_view text) { return escaped(text, false); }

std::string printable_lines(std::string_view text) { return escaped(text, true); }

nlohmann::json printable_json(const nlohmann::json& value) {
  if (value.is_string()) return printable(value.get_ref<const std::string&>());
  if (!value.is_structured()) return value;
  nlohmann::json out = value.is_array() ? nlohmann::json::array() : nlohmann::json::object();
  for (const auto& [key, item] : value.items()) {
    if (value.is_array()) {
      out.push_back(printable_json(item));
    } else {
      out[printable(key)] = printable_json(item);
    }
  }
  return out;
}

void escape_controls_in_json(std::string& text) {
  if (text.find_first_of("\x7f\xc2\xe2\xd8") == std::string::npos) return;
  std::string out;
  out.reserve(text.size());
  for (std::string_view rest = text; !rest.empty();) {
    const CodePoint c = code_point(rest);
    const std::size_t bytes = std::max<std::size_t>(c.bytes, 1);
    if (c.value >= 0x7f && (is_control(c.value) || is_layout(c.value))) {
      fmt::format_to(std::back_inserter(out), "\\u{:04x}", static_cast<unsigned>(c.value));
    } else {
      out += rest.substr(0, bytes);
    }
    rest.remove_prefix(bytes);
  }
  text = std::move(out);
}

}  // namespace attnscope
