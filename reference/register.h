// The two references as lanes: "ref.exact" (float64, no quantisation) and "ref.sim" (rounds exactly
// where the contract says, accumulates in float64).
//
// They take the params structs of kernels/params with these conventions:
//   * inputs of any dtype; outputs F64, or the kernel dtype (then rounded to it). Integer outputs as
//     in the struct. Caches are AS_LOGICAL only: U8 records, or F32/F64 plain values.
//   * ref.sim writes U8 records where the output cache is U8, fp32-rounded values into F32 or F64
//     state rows; ref.exact writes unquantised F64 values.
//   * as_rope: the numbers are used, not the table (ref.sim rebuilds the fp32 table, ref.exact works
//     in float64).
// No exception leaves a lane.
#pragma once

#include <vector>

#include "kernels/params/lane.h"

namespace attnscope::reference {

const as_lane* exact_lane();
const as_lane* sim_lane();

// Threads libtorch may use; 0 = its default.
void set_threads(int n);

}  // namespace attnscope::reference
