// What exceptions of libtorch become outside the module.
#pragma once

#include <cstring>
#include <exception>
#include <new>
#include <string>

#include "kernels/params/result.h"

namespace attnscope::reference {

// Allocators of libtorch say so in words.
inline bool is_out_of_memory(const std::exception& e) {
  const auto says = [&](const char* words) { return std::strstr(e.what(), words) != nullptr; };
  return dynamic_cast<const std::bad_alloc*>(&e) != nullptr || says("can't allocate memory") ||
         says("out of memory");
}

// What somebody's work ended with; what is not known is a bug of ours.
inline Error error_of(const char* who, const std::exception& e) {
  if (is_out_of_memory(e)) {
    return {AS_NO_ENVIRONMENT, std::string(who) + ": out of memory",
            "use fewer tokens a step or a smaller model"};
  }
  return internal_error(std::string(who) + ": " + e.what());
}

}  // namespace attnscope::reference
