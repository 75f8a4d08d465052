// Single elements of a dump's tensors, and of the tensors that an op takes in their place.
#pragma once

#include <cstdint>

#include "engine/tensorfile/float_value.h"

namespace attnscope {

// Element as a double; exact for every type, i64 up to 2^53.
double value_of(ElementType type, const std::uint8_t* at);

bool has_value(ElementType type);

bool is_fp8(ElementType type);

// Codes that a tap of bytes takes as they are.
bool is_plain_byte(ElementType type);

// Puts the nearest value of the AS_ type; false when that is another one, unless it may be rounded.
bool put_value(double value, std::int32_t dtype, bool round, std::uint8_t* to);

}  // namespace attnscope
