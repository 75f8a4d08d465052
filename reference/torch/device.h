// The device that tensor programs compute on.
#pragma once

#include <c10/core/Device.h>

#include <cstddef>
#include <cstdint>
#include <stdexcept>

#include "reference/torch/module.h"

namespace attnscope::reference {

class NoDevice : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// Where numbers are computed: the host unless another was chosen.
at::Device torch_device();

// Whether the GPU has half of its memory left with so many bytes more. False where it cannot say.
bool leaves_half_free(std::size_t bytes);

// Of the calling thread: what is left to the host beside a GPU are small ops, for which threads of
// libtorch would spend their time waiting for each other.
void one_thread_beside_gpu();

// Of the calling thread, on a GPU: its work is queued on a stream of its own, so that threads do
// not wait for one another's. What others are to use is there when a copy from the host has
// returned.
void own_stream();

// As long as it lives, an op of few numbers computes on the host: the way to a GPU and back would
// take longer than the op.
class FewOnHost {
 public:
  explicit FewOnHost(std::int64_t numbers);
  ~FewOnHost();
  FewOnHost(const FewOnHost&) = delete;
  FewOnHost& operator=(const FewOnHost&) = delete;

 private:
  bool before_;
};

// See module.h.
void* allocate_pinned(std::size_t bytes);
void release_pinned(void* memory);
bool use_torch_device(const char* name, TorchFailure* failure);

}  // namespace attnscope::reference
