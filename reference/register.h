// The two references as lanes: "ref.exact" (float64, no quantisation) and "ref.sim" (rounds exactly
// where the contract says, accumulates in float64).
//
// They take the params structs of kernels/params with these conventions:
//   * inputs of any dtype; outputs F64, or the kernel dtype (then rounded to it); integer outputs
//     as in the struct. Caches are AS_LOGICAL only: U8 records, or F32/F64 plain values.
//   * output caches: U8 takes quantised records, F32/F64 state rows take values that ref.sim rounds
//     to fp32. Other rows in F64: ref.exact writes the values unquantised, ref.sim writes what
//     reading back its quantised record gives.
//   * block tables: where an op takes rows_per_block (block size), 0 means logical rows,
//     table[r][0] + position, as in a logical cache.
//   * indexer_q with F64 q: q holds the row's values and weights carry no scale.
//   * as_rope: the numbers are used, not the table (ref.sim rebuilds the fp32 table row by row,
//     ref.exact works in float64).
//   * rows that an op masks (slot -1, columns beyond lens) are left untouched; index rows are
//     written in full, -1 included.
// No exception leaves a lane. Ops that compute with numbers need libtorch, which the first of them
// loads (AS_NO_ENVIRONMENT where that fails). Its BLAS multiplies matrices: another number of
// threads may change the last bits of a float64 sum.
#pragma once

#include "kernels/params/lane_table.h"

namespace attnscope::reference {

const Lane* exact_lane();
const Lane* sim_lane();
// "ref.fp32": ref.sim with products and sums in fp32. It tells what the accumulation alone costs;
// nothing is judged by it.
const Lane* fp32_lane();

}  // namespace attnscope::reference
