// For programs that measure on the GPU: what a call gives, or the program's end with its error.
//
//   const Graph graph = need(Graph::capture(stream, work));
#pragma once

#include <fmt/format.h>

#include <cerrno>
#include <cstdlib>
#include <utility>

#include "kernels/params/result.h"

namespace attnscope {

// program_invocation_short_name: the program's own, as glibc keeps it.
[[noreturn]] inline void end_with(const Error& error) {
  fmt::print(stderr, "{}: {}\n", program_invocation_short_name, error.text());
  std::exit(error.code);
}

template <class T>
T need(Result<T> result) {
  if (!result) end_with(result.error());
  return std::move(*result);
}
inline void need(const Result<void>& result) {
  if (!result) end_with(result.error());
}

}  // namespace attnscope
