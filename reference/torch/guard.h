// Keeps the exceptions of libtorch inside the module.
#pragma once

#include <cstring>
#include <exception>

#include "reference/tensors.h"
#include "reference/torch/device.h"
#include "reference/torch/errors.h"
#include "reference/torch/module.h"

namespace attnscope::reference {

inline bool fail(TorchFailure* failure, TorchFailure::Kind kind, const char* what) {
  failure->kind = kind;
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
