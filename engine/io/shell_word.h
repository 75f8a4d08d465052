// Words of a command that is printed for people to paste.
#pragma once

#include <string>
#include <string_view>

namespace attnscope {

// As a shell reads it: in quotes where it has other characters than those of plain names and paths.
std::string shell_word(std::string_view word);

}  // namespace attnscope
