// The device that tensor programs compute on.
#pragma once

#include <stdexcept>

#include "reference/torch/module.h"

namespace attnscope::reference {

class NoDevice : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// See module.h.
bool use_torch_device(const char* name, TorchFailure* failure);

}  // namespace attnscope::reference
