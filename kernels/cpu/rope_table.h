// Rotary frequencies and the cos/sin table that as_rope of kernels/params/tensor.h defines.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/params/lane.h"
#include "kernels/params/tensor.h"

namespace attnscope::cpu {

// f_0..f_31 from rope's numbers, in the arithmetic that table.reserved names (the table's values
// are not read). Those of AS_ROPE_FP32 are binary32 numbers.
std::vector<double> rope_frequencies(const as_rope& rope);

// Row t of the table, 32 cos then 32 sin, of frequencies as above.
void rope_table_row(const std::vector<double>& frequencies, std::int64_t t, float* row);

// Rows 0..max_pos-1 of the table, 32 cos then 32 sin each, into out [max_pos,64].
void build_rope_table(const as_rope& rope, std::int64_t max_pos, float* out,
                      const as_threads* threads);

}  // namespace attnscope::cpu
