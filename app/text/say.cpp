#include "app/text/say.h"

#include <cerrno>
#include <cstring>
#include <string_view>

namespace attnscope {
namespace {

int first_failure = 0;  // errno of the first write that failed

// The length of a colour at the beginning of a text, 0 = there is none: ESC [ digits ; digits m.
std::size_t colour_at(std::string_view text) {
  constexpr std::size_t kLongest = 8;
  if (!text.starts_with("\033[")) return 0;
  const std::size_t end = text.find_first_not_of("0123456789;", 2);
  return end < kLongest && text[end] == 'm' ? end + 1 : 0;
}

}  // namespace

std::string painted(const std::string& code, const std::string& text) {
  return fmt::format("\033[{}m{}\033[0m", code, text);
}

namespace saying {

std::string shown(const Lines& lines) {
  std::string out;
  std::string_view rest = lines.text;
  while (!rest.empty()) {
    const std::size_t colour = colour_at(rest);
    const std::size_t end = colour > 0 ? colour : std::min(rest.find('\033', 1), rest.size());
    out += colour > 0 ? std::string(rest.substr(0, end)) : printable_lines(rest.substr(0, end));
    rest.remove_prefix(end);
  }
  return out;
}

void put(std::FILE* to, const std::string& text) {
  if (std::fwrite(text.data(), 1, text.size(), to) < text.size() && first_failure == 0) {
    first_failure = errno;
  }
}

}  // namespace saying

Result<void> all_said() {
  if (std::fflush(stdout) != 0 && first_failure == 0) first_failure = errno;
  if (first_failure == 0) return {};
  return bad_input(fmt::format("standard output: cannot write: {}", std::strerror(first_failure)),
                   first_failure == ENOSPC || first_failure == EFBIG ? "make room for it" : "");
}

}  // namespace attnscope
