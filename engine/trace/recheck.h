// Some elements of a comparison compared once more, by the plainest code there is: a mistake of
// compare() would pass every kernel's.
#pragma once

#include <string>

#include "engine/trace/compare.h"

namespace attnscope {

// Looks at the first, the middle and the last place of the first axis that the mask leaves. What an
// element beyond its bound is and should be; empty where there is none. Not for top-k.
std::string passed_over(const as_tensor& value, const as_tensor& reference, const TapMask& mask,
                        const Tolerance& tolerance);

}  // namespace attnscope
