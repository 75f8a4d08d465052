// Axes of tensors, as the op table names them, in words.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace attnscope {

// "T,H,D" -> {"T", "H", "D"}.
std::vector<std::string> split_axes(std::string_view axes);

// The word for a place along an axis: "head" of "H"; "column" where nothing better is known.
std::string axis_word(const std::string& axis);
// "entries".
std::string axis_words(const std::string& axis);

}  // namespace attnscope
