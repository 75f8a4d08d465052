// A file in a tar archive (POSIX ustar), written by hand: with names and sizes that no library
// would let through.
#pragma once

#include <cstdio>
#include <string>

namespace attnscope {

// Header of 512 bytes and the content, filled up to whole blocks of 512.
inline std::string ustar_file(const std::string& name, const std::string& content) {
  std::string header(512, '\0');
  const auto put = [&](std::size_t at, const std::string& text) {
    header.replace(at, text.size(), text);
  };
  const auto octal = [](int digits, unsigned long long value) {
    char text[24];
    std::snprintf(text, sizeof(text), "%0*llo", digits, value);
    return std::string(text);
  };
  put(0, name);
  put(100, octal(7, 0644));
  put(108, octal(7, 0));
  put(116, octal(7, 0));
  put(124, octal(11, content.size()));
  put(136, octal(11, 0));
  put(148, std::string(8, ' '));  // what its own sum counts as
  put(156, "0");
  put(257, std::string("ustar\00000", 8));
  unsigned long long sum = 0;
  for (const char c : header) sum += static_cast<unsigned char>(c);
  put(148, octal(6, sum) + std::string("\0 ", 2));
  return header + content + std::string((512 - content.size() % 512) % 512, '\0');
}

inline std::string ustar_end() { return std::string(1024, '\0'); }

}  // namespace attnscope
