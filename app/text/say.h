// What the program says on its terminal. All that is printed passes here: texts among the
// arguments are shown on one line and without characters that a terminal obeys, whoever made them
// (engine/io/printable.h).
//
//   say("{}: {} steps\n", path, steps);
//   say(stderr, "attnscope: {}\n", error.text());
//   say("{}", Lines{format_report(report, colour)});      // a text that is laid out already
#pragma once

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstdio>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

#include "engine/io/printable.h"
#include "kernels/params/result.h"

namespace attnscope {

// A text of several lines, whose names are printable already: it keeps newlines, and colours as
// painted() makes them.
struct Lines {
  std::string text;
};

// ANSI colour CODE, such as "31;1", around a text.
std::string painted(const std::string& code, const std::string& text);

namespace saying {

std::string shown(const Lines& lines);

// fmt::join(): a view, which is formatted where it was made.
template <class T>
struct IsJoined : std::false_type {};
template <class It, class End>
struct IsJoined<fmt::join_view<It, End, char>> : std::true_type {};

template <class T>
decltype(auto) shown(const T& value) {
  if constexpr (std::is_convertible_v<const T&, std::string_view>) {
    return printable(std::string_view(value));
  } else if constexpr (IsJoined<T>::value) {
    return printable(fmt::format("{}", T(value)));
  } else {
    return (value);
  }
}
template <class T>
using Shown = decltype(shown(std::declval<const T&>()));

void put(std::FILE* to, const std::string& text);

}  // namespace saying

template <class... T>
void say(std::FILE* to, fmt::format_string<saying::Shown<T>...> text, const T&... args) {
  saying::put(to, fmt::format(text, saying::shown(args)...));
}
template <class... T>
void say(fmt::format_string<saying::Shown<T>...> text, const T&... args) {
  saying::put(stdout, fmt::format(text, saying::shown(args)...));
}

template <class Json>
void say_json(const Json& value) {
  saying::put(stdout, json_text(value, 1) + "\n");
}

// Whether everything that was said has been written, by now or, at the end, once flushed.
Result<void> all_said();

}  // namespace attnscope
