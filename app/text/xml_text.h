// Text inside XML and HTML, in elements and in attributes.
#pragma once

#include <string>
#include <string_view>

#include "engine/io/printable.h"

namespace attnscope {

// &, <, >, quotes and control characters.
inline std::string xml_text(std::string_view text) {
  std::string out;
  for (const char c : printable_lines(text)) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&quot;";
        break;
      default:
        out += c;
    }
  }
  return out;
}

}  // namespace attnscope
