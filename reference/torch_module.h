// libtorch, opened when something first needs it and kept until the process ends.
#pragma once

#include <cstddef>
#include <stdexcept>
#include <string>

#include "kernels/params/result.h"
#include "reference/torch/module.h"

namespace attnscope::reference {

// libtorch, or the module that is linked with it, is missing or does not load. Caught at the border
// of a lane.
class NoTorch : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// Loads it at the first call, from any thread. Throws NoTorch, at later calls too.
const TorchModule& torch_module();

// Throws what `failure` tells.
[[noreturn]] void throw_failure(const TorchFailure& failure);

struct TorchState {
  std::string version;      // empty: it does not load
  std::string problem;      // then: what does not load and why
  std::string advice;       // and what to do about it
  bool mkl_inside = false;  // PyTorch's own builds hold MKL
};

// Loads it, as torch_module() does, to see whether it does.
TorchState torch_state();

// On which device of libtorch the references compute from now on: "cpu", "cuda", "cuda:1", .. Asked
// for once, before they run. "cpu" loads nothing.
Result<void> use_device(const std::string& name);
// Whether that is another one than the host.
bool beside_host();
// Memory of the host that this device copies from and to by itself; null: there is none.
void* allocate_host_memory(std::size_t bytes);
void release_host_memory(void* memory);

}  // namespace attnscope::reference
