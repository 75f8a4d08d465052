// A value read from memory by its dtype, one element at a time: what second looks at results and
// recordings use in the place of the readers that they check.
#pragma once

#include <cstdint>

namespace attnscope {

// at: the first byte, aligned or not. Of dtypes without numbers (records, codes) the byte there.
double plain_number(const void* at, std::int32_t dtype);

}  // namespace attnscope
