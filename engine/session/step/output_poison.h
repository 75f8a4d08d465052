// What an op's outputs hold before it runs, so that a lane that leaves an element alone does not
// inherit the right answer: no number that an op may put there, and another one the second time,
// as one alone may be what a lane takes for empty.
#pragma once

#include <cstdint>

#include "kernels/params/op_table.h"
#include "kernels/params/tensor.h"

namespace attnscope {

// The byte that fills the tensor of an output tap. Integers are negative, so that whoever takes
// them for slots reads nothing, and not -1. Floats and codes are NaN the first time; the second
// time floats are 3.4e38, which a maximum or a sum keeps where it drops NaN. What an op may leave
// alone (rows without a slot, columns behind a length) stays NaN: it is shown to people.
inline std::uint8_t poison_byte(const as_tap_info& tap, std::int32_t dtype, bool second) {
  if (dtype == AS_I32 || dtype == AS_I64) return second ? 0xaa : 0x80;
  return second && tap.mask == AS_MASK_ALL ? 0x7f : 0xff;
}

}  // namespace attnscope
