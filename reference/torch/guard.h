// Keeps the exceptions of libtorch inside the module.
#pragma once

#include <cstring>
#include <exception>
#include <new>

#include "reference/torch/module.h"

namespace attnscope::reference {

inline bool fail(TorchFailure* failure, const char* what, bool no_memory) {
  failure->no_memory = no_memory;
  std::strncpy(failure->message, what, sizeof(failure->message) - 1);
  failure->message[sizeof(failure->message) - 1] = '\0';
  return false;
}

// False: f threw, and `failure` says what.
template <class F>
bool guarded(TorchFailure* failure, const F& f) {
  try {
    f();
    return true;
  } catch (const std::bad_alloc&) {
    return fail(failure, "out of memory", true);
  } catch (const std::exception& e) {
    return fail(failure, e.what(), false);
  } catch (...) {
    return fail(failure, "unknown exception", false);
  }
}

}  // namespace attnscope::reference
