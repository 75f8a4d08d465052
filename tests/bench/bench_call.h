// What benchmarks that call kernels directly share.
#pragma once

#include <fmt/format.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdlib>

namespace attnscope {

inline std::size_t to_size(std::int64_t n) { return static_cast<std::size_t>(n); }

// That a call takes.
template <class F>
double seconds(const F& f) {
  const auto start = std::chrono::steady_clock::now();
  f();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

[[noreturn]] inline void stop(const char* why) {
  fmt::print(stderr, "{}\n", why);
  std::exit(4);
}

}  // namespace attnscope
