// End of the name of a tap that a witness without any of the session's wiring computed otherwise.
#pragma once

namespace attnscope {

inline constexpr const char* kWiringTap = ".wiring";

}  // namespace attnscope
