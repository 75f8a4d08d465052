// The ops that every model of DeepSeek-V4 runs: sessions of the tests are such models, and no
// session runs the ops of another family. attention_plan is a step's where a profile asks for it,
// exchange_rows where rows lie in host memory, swap_out and swap_in where requests wait there.
#pragma once

#include <cstddef>

#include "kernels/params/op_table.h"

namespace attnscope {

inline bool is_of_deepseek_v4(int op) {
  return (as_op_find(op)->layers & AS_LAYER_DEEPSEEK_V4) != 0 && op != AS_OP_ATTENTION_PLAN &&
         op != AS_OP_EXCHANGE_ROWS && op != AS_OP_SWAP_OUT && op != AS_OP_SWAP_IN;
}

// Of layers of dense attention, and of no layer of DeepSeek-V4's.
inline bool is_of_dense(int op) {
  const int layers = as_op_find(op)->layers;
  return (layers & AS_LAYER_DENSE) != 0 && (layers & AS_LAYER_DEEPSEEK_V4) == 0;
}

inline std::size_t count_of_deepseek_v4() {
  std::size_t count = 0;
  for (int op = 0; op < AS_OP_COUNT; ++op) count += is_of_deepseek_v4(op) ? 1 : 0;
  return count;
}

}  // namespace attnscope
