// Which sanitizer a test was built with: g++ tells of one by a macro, clang by a feature.
#pragma once

namespace attnscope {

#ifndef __has_feature
#define __has_feature(feature) 0
#endif
#ifdef __SANITIZE_ADDRESS__
inline constexpr bool kAddressSanitizer = true;
#else
inline constexpr bool kAddressSanitizer = __has_feature(address_sanitizer);
#endif
#ifdef __SANITIZE_THREAD__
inline constexpr bool kThreadSanitizer = true;
#else
inline constexpr bool kThreadSanitizer = __has_feature(thread_sanitizer);
#endif

}  // namespace attnscope
