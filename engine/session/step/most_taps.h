// How many taps an op has at most, for arrays by tap. op_table_test.cpp holds the table to it.
#pragma once

#include <cstddef>

namespace attnscope {

inline constexpr std::size_t kMostTaps = 24;

}  // namespace attnscope
