// Keeps the exceptions of libtorch inside the module.
#pragma once

#include <cstring>
#include <exception>
#include <new>
#include <string>

#include "kernels/params/result.h"
#include "reference/tensors.h"
#include "reference/torch/device.h"
#include "reference/torch/module.h"

namespace attnscope::reference {

inline bool fail(TorchFailure* failure, TorchFailure::Kind kind, const char* what) {
  failure->kind = kind;
  std::strncpy(failure->message, what, sizeof(failure->message) - 1);
  failure->message[sizeof(failure->message) - 1] = '\0';
  return false;
}

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

// False: f threw, and `failure` says what.
template <class F>
bool guarded(TorchFailure* failure, const F& f) {
  try {
    f();
    return true;
  } catch (const BadInput& e) {
    return fail(failure, TorchFailure::kBadInput, e.what());
  } catch (const NoDevice& e) {
    return fail(failure, TorchFailure::kNoDevice, e.what());
  } catch (const std::exception& e) {
    if (is_out_of_memory(e)) return fail(failure, TorchFailure::kNoMemory, "out of memory");
    return fail(failure, TorchFailure::kOther, e.what());
  } catch (...) {
    return fail(failure, TorchFailure::kOther, "unknown exception");
  }
}

}  // namespace attnscope::reference
