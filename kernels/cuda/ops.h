// The ops of the CUDA lane: each puts its kernels on a stream and returns. All tensors lie on the
// GPU and have been checked by the caller; nothing is allocated, nothing waits, so that a graph can
// capture them. Results do not depend on the stream and are the same bytes on every run.
//
// Returned is a cudaError_t; 0 is success.
#pragma once

#include <cstddef>

#include "kernels/params/attention_params.h"
#include "kernels/params/compressor_params.h"
#include "kernels/params/dense_params.h"
#include "kernels/params/draft_params.h"
#include "kernels/params/indexer_params.h"
#include "kernels/params/lane.h"
#include "kernels/params/mla_params.h"
#include "kernels/params/offload_params.h"
#include "kernels/params/op_ids.h"
#include "kernels/params/paged_params.h"
#include "kernels/params/step_params.h"

namespace attnscope::cuda {

// Built with ATTNSCOPE_CUDA_CHECKED: kernels stop at an index out of range.
constexpr bool kChecked =
#ifdef ATTNSCOPE_CUDA_CHECKED
    true;
#else
    false;
#endif

// What kernels choose their shape by.
struct Gpu {
  int multiprocessors = 1;
  std::size_t shared_memory = 48u << 10;  // bytes that a block may have
  // Use Hopper's own instructions: the code is there and ATTNSCOPE_HOPPER is not 0.
  bool hopper = false;
  // ATTNSCOPE_ATTENTION=exact: on Hopper too a weight is the sum of two bf16, whatever the rows, or
  // stays fp32, and index scores are summed in float64, codes never multiplied as they are.
  bool exact = false;
};

struct Launch {
  void* stream = nullptr;              // cudaStream_t
  unsigned char* workspace = nullptr;  // 256-byte aligned, of the size that the op asked for
  std::size_t workspace_bytes = 0;
  Gpu gpu;
};

// Bytes of workspace that the op wants for these params, a function of shapes alone.
std::size_t workspace_bytes(const as_sparse_attention_params& p, const Gpu& gpu);
std::size_t workspace_bytes(const as_linear_params& p, const Gpu& gpu);
std::size_t workspace_bytes(const as_grouped_linear_params& p, const Gpu& gpu);
std::size_t workspace_bytes(const as_paged_attention_params& p, const Gpu& gpu);
std::size_t workspace_bytes(const as_mla_q_absorb_params& p, const Gpu& gpu);
std::size_t workspace_bytes(const as_mla_attention_params& p, const Gpu& gpu);
std::size_t workspace_bytes(const as_sparse_mla_attention_params& p, const Gpu& gpu);
std::size_t workspace_bytes(const as_mla_v_up_params& p, const Gpu& gpu);
template <class Params>
std::size_t workspace_bytes(const Params&, const Gpu&) {
  return 0;
}

// The ops, by the list of op_ids.h:
//   int residual(const as_residual_params& p, const Launch& launch);
#define AS_DECLARE(id, number, params, function) \
  int function(const params& p, const Launch& launch);
AS_FOR_EACH_KERNEL(AS_DECLARE)
#undef AS_DECLARE

// linear without the library, whatever the shape.
int linear_plain(const as_linear_params& p, const Launch& launch);

}  // namespace attnscope::cuda
