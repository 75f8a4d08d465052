// Conversions and constants that sources of every folder need.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>

namespace attnscope {

inline constexpr double kInfinity = std::numeric_limits<double>::infinity();

// Of a number known not to be negative.
inline std::size_t to_size(std::int64_t n) { return static_cast<std::size_t>(n); }
// Of a size in memory.
inline std::int64_t to_count(std::size_t n) { return static_cast<std::int64_t>(n); }
inline std::int64_t ceil_div(std::int64_t n, std::int64_t d) { return (n + d - 1) / d; }

}  // namespace attnscope
