#include "engine/trace/axis_words.h"

namespace attnscope {

std::vector<std::string> split_axes(std::string_view axes) {
  std::vector<std::string> letters(1);
  for (const char c : axes) {
    if (c == ',') {
      letters.emplace_back();
    } else {
      letters.back() += c;
    }
  }
  return letters;
}

std::string axis_word(const std::string& axis) {
  if (axis == "T") return "token";
  if (axis == "H" || axis == "J") return "head";
  if (axis == "D" || axis == "d" || axis == "hidden" || axis == "value") return "dim";
  if (axis.starts_with("latent") || axis.starts_with("nope")) return "dim";
  if (axis == "G") return "group";
  if (axis == "S") return "window group";
  if (axis == "R") return "request row";
  if (axis == "chunked") return "chunk group";
  if (axis == "L") return "sequence";
  if (axis == "Y") return "layer type";
  if (axis == "X") return "split";
  if (axis == "P") return "block";
  if (axis == "W" || axis == "A" || axis == "K") return "place";
  if (axis == "N") return "entry";
  if (axis == "M") return "move";
  if (axis == "bytes") return "byte";
  if (axis == "groups") return "output group";
  return "column";
}

std::string axis_words(const std::string& axis) {
  const std::string word = axis_word(axis);
  return word.ends_with('y') ? word.substr(0, word.size() - 1) + "ies" : word + "s";
}

}  // namespace attnscope
