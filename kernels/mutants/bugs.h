// The wrong ops. Each runs the CPU op, on spoiled inputs or with its outputs spoiled afterwards.
#pragma once

#include <cstdint>

#include "kernels/params/lane.h"

namespace attnscope::mutants {

std::int32_t window_off_by_one(const void* params, const as_call* call, as_error* error);
std::int32_t topk_one_short(const void* params, const as_call* call, as_error* error);
std::int32_t scale_rounded_down(const void* params, const as_call* call, as_error* error);
std::int32_t relu_missing(const void* params, const as_call* call, as_error* error);
std::int32_t sink_scaled(const void* params, const as_call* call, as_error* error);
std::int32_t lse_with_sink(const void* params, const as_call* call, as_error* error);
std::int32_t overlap_half_lost(const void* params, const as_call* call, as_error* error);
std::int32_t entry_rope_position(const void* params, const as_call* call, as_error* error);

// The right op.
std::int32_t run_cpu(as_op_id op, const void* params, const as_call* call, as_error* error);

// Whether the params are fit to be copied and changed; if not, running the CPU op reports why.
template <class Params>
bool readable(const void* params) {
  return params != nullptr &&
         static_cast<const Params*>(params)->head.struct_size == sizeof(Params);
}

}  // namespace attnscope::mutants
