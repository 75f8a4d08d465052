// Letters of ASCII in the lower case, whatever the locale; every other byte stays as it is.
#pragma once

#include <string>
#include <string_view>

namespace attnscope {

inline char lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; }

inline std::string lower(std::string_view text) {
  std::string out(text);
  for (char& c : out) c = lower(c);
  return out;
}

}  // namespace attnscope
