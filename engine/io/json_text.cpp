#include "engine/io/json_text.h"

#include <algorithm>
#include <cmath>

#include "engine/io/printable.h"

namespace attnscope {

void JsonText::put_text(std::string_view text) {
  const bool plain = std::ranges::all_of(
      text, [](char c) { return c >= ' ' && c <= '~' && c != '"' && c != '\\'; });
  if (!plain) return append(json_text(nlohmann::json(text)));
  out_.push_back('"');
  append(text);
  out_.push_back('"');
}

void JsonText::put_number(double value) {
  if (value == 0 && std::signbit(value)) {
    append("-0.0");  // read as a whole number, -0 would lose its sign
  } else if (std::isfinite(value)) {
    fmt::format_to(std::back_inserter(out_), "{}", value);
  } else {
    append(std::isnan(value) ? "\"nan\"" : value > 0 ? "\"inf\"" : "\"-inf\"");
  }
}

}  // namespace attnscope
