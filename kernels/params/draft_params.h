/* Params of what a draft layer (MTP) begins with. The draft of a token is made of the hidden state
 * that its token's logits came from, and of the token that follows it. */
#ifndef ATTNSCOPE_KERNELS_PARAMS_DRAFT_PARAMS_H
#define ATTNSCOPE_KERNELS_PARAMS_DRAFT_PARAMS_H

#include "kernels/params/head.h"

#ifdef __cplusplus
extern "C" {
#endif

/* draft_norm: RMS norms, as rms_norm has them, of two rows of each token t:
 *   h[t] = norm(hidden[t]) * h_weight
 *   e[t] = norm(embedding[tokens[t]]) * e_weight
 * tokens[t] is the token at positions[t] + 1, -1 where there is none. The row of the embedding is
 * zeros then, and so it is at position 0, as vLLM has it; its norm is zeros. */
typedef struct as_draft_norm_params {
  as_params_head head;
  as_tensor hidden;    /* in  bf16 [T,hidden] */
  as_tensor embedding; /* in  bf16 [V,hidden] */
  as_tensor tokens;    /* in  i32 [T] */
  as_tensor positions; /* in  i64 [T] */
  as_tensor h_weight;  /* in  bf16 [hidden] */
  as_tensor e_weight;  /* in  bf16 [hidden] */
  as_tensor h;         /* out bf16 [T,hidden] */
  as_tensor e;         /* out bf16 [T,hidden] */
  double eps;
} as_draft_norm_params;

#ifdef __cplusplus
}
#endif

#endif
