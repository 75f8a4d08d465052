// Words that agree with a number.
#pragma once

#include <concepts>
#include <string>

namespace attnscope {

// "is" of 1, "are" of all others.
constexpr const char* agree(std::integral auto n, const char* one, const char* many) {
  return n == 1 ? one : many;
}

// "1 token", "2104 tokens": for lines that programs read too; plural() groups the digits.
std::string counted(std::integral auto n, const char* one, const char* many) {
  return std::to_string(n) + ' ' + agree(n, one, many);
}

}  // namespace attnscope
