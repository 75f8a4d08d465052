// Masks and score functions of attention as a user writes them, as FlexAttention's mask_mod and
// score_mod: an expression over places, parsed to code of a stack machine (mask_code.h).
//
//   auto mask = parse_mask("kv_idx <= q_idx && (q_idx - kv_idx < 64 || kv_idx < 4)");
//   auto score = parse_score("soft_cap(20) - 0.5 * abs(q_idx - kv_idx)");
//
// Names: q_idx and kv_idx, places among the keys of a sequence, from 0; head, request; score, in
// score functions alone. Numbers, ( ), and from what binds least:
//   c ? a : b    ||    &&    < <= > >= == !=    + -    * / // %    - !
// // is the quotient rounded down, a % b what is left by it. Functions: abs, floor, exp2, tanh,
// min, max. Masks by name: causal, sliding(window), prefix_lm(tokens), document(start, ..), the
// places from 1 on where documents begin. Scores by name: alibi(heads), soft_cap(cap). Nothing else
// can be said: no loops, no memory. Errors name the column, from 1.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "kernels/params/mask_code.h"
#include "kernels/params/result.h"
#include "kernels/params/tensor.h"

namespace attnscope {

struct MaskInstruction {
  double op = 0;  // as_mask_op
  double number = 0;
};

struct MaskCode {
  std::vector<MaskInstruction> instructions;
  // f64 [N,2], of this code while it lives.
  as_tensor tensor() const;
  bool uses(as_mask_op variable) const;
};

Result<MaskCode> parse_mask(std::string_view text);
Result<MaskCode> parse_score(std::string_view text);

}  // namespace attnscope
