// What an option's number has to be, or its device. CLI::Range lets NaN through: it is below
// nothing.
#pragma once

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cmath>
#include <cstdint>
#include <string>

namespace attnscope {

// A finite number from `least` to `most`.
inline CLI::Validator number_between(double least, double most) {
  const auto check = [least, most](const std::string& text) {
    double value = 0;
    const bool good = CLI::detail::lexical_cast(text, value) && std::isfinite(value) &&
                      value >= least && value <= most;
    return good ? std::string() : fmt::format("Value {} not in range [{} - {}]", text, least, most);
  };
  return CLI::Validator(check, fmt::format("FLOAT in [{} - {}]", least, most));
}

// A whole number from `least` on, of steps, tokens, slots or entries.
inline CLI::Range whole_from(std::int64_t least) { return {least, std::int64_t{1} << 40}; }

// A device of libtorch; which there are it knows itself.
inline CLI::Validator device_name() {
  const auto check = [](const std::string& text) {
    return text.empty() ? std::string("names no device") : std::string();
  };
  return CLI::Validator(check, "DEVICE");
}

}  // namespace attnscope
