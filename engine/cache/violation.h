// What a check of an invariant finds, and where.
#pragma once

#include <fmt/format.h>

#include <optional>
#include <string>
#include <utility>

namespace attnscope {

struct Violation {
  std::string invariant;  // "I2 conservation"
  std::string what;
  // "allocate of request 3", "schedule": the call after which it did not hold; empty = not known.
  std::string met{};
  std::string text() const {
    return invariant + ": " + what + (met.empty() ? "" : ", met by " + met);
  }
};
using Finding = std::optional<Violation>;

template <class... Arguments>
Finding violation(const char* invariant, fmt::format_string<Arguments...> what,
                  Arguments&&... arguments) {
  return Violation{invariant, fmt::format(what, std::forward<Arguments>(arguments)...)};
}

}  // namespace attnscope
