// A bar on stderr for runs that take a while.
#pragma once

#include <fmt/format.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>

#include "app/reports/run.h"

namespace attnscope {

inline bool is_terminal(int descriptor) {
  const char* no_colour = std::getenv("NO_COLOR");
  return isatty(descriptor) == 1 && (no_colour == nullptr || *no_colour == '\0');
}

// A bar on stderr, on a terminal and only when the run takes a while.
class ProgressBar {
 public:
  ProgressBar() : visible_(is_terminal(STDERR_FILENO)), start_(Clock::now()), drawn_(start_) {}
  ~ProgressBar() {
    if (shown_) fmt::print(stderr, "\r\033[K");
  }

  void operator()(const RunProgress& p) {
    const auto now = Clock::now();
    if (!visible_ || now - start_ < std::chrono::milliseconds(500) ||
        now - drawn_ < std::chrono::milliseconds(100)) {
      return;
    }
    drawn_ = now;
    shown_ = true;
    constexpr int kWidth = 30;
    const int filled = static_cast<int>(p.share * kWidth);
    const double elapsed = std::chrono::duration<double>(now - start_).count();
    fmt::print(stderr, "\r\033[K[{:#<{}}{:.<{}}] {:3.0f} %  {:.0f} s  step {}  {}", "", filled, "",
               kWidth - filled, p.share * 100, elapsed, p.step, p.op);
    std::fflush(stderr);
  }

 private:
  using Clock = std::chrono::steady_clock;
  bool visible_, shown_ = false;
  Clock::time_point start_, drawn_;
};

}  // namespace attnscope
