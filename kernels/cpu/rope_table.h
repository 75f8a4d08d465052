// Rotary frequencies and the cos/sin table that as_rope of kernels/params/tensor.h defines.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/layout/records.h"
#include "kernels/params/lane.h"
#include "kernels/params/tensor.h"

namespace attnscope::cpu {

// dims: that are rotated, N.

// f_0..f_(N/2-1) from rope's numbers, in the arithmetic that table.reserved names (the table's
// values are not read). Those of AS_ROPE_FP32 are binary32 numbers.
std::vector<double> rope_frequencies(const as_rope& rope, int dims = AS_ROPE_DIM);

// Row t of the table, N/2 cos then N/2 sin, of frequencies as above.
void rope_table_row(const std::vector<double>& frequencies, std::int64_t t, float* row);

// Rows 0..max_pos-1 of the table into out [max_pos,N].
void build_rope_table(const as_rope& rope, std::int64_t max_pos, float* out,
                      const as_threads* threads, int dims = AS_ROPE_DIM);

}  // namespace attnscope::cpu
