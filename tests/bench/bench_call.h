// What benchmarks that call kernels directly share.
#pragma once

#include <fmt/format.h>

#include <chrono>
#include <cstdlib>

#include "engine/io/elapsed.h"
#include "engine/model/numbers.h"

namespace attnscope {

// That a call takes.
template <class F>
double seconds(const F& f) {
  const auto start = std::chrono::steady_clock::now();
  f();
  return seconds_since(start);
}

[[noreturn]] inline void stop(const char* why) {
  fmt::print(stderr, "{}\n", why);
  std::exit(4);
}

}  // namespace attnscope
