/* Params of the C4A indexer: quantised queries, head weights, logits, selection. Absorbed MLA
 * (mla_params.h) has logits, selection and slots from here: its entries are tokens.
 * J index heads (64), N columns of the logits, K = index_topk. d = 128. */
#ifndef ATTNSCOPE_KERNELS_PARAMS_INDEXER_PARAMS_H
#define ATTNSCOPE_KERNELS_PARAMS_INDEXER_PARAMS_H

#include "kernels/params/head.h"
#include "kernels/params/numeric_rules.h"

#ifdef __cplusplus
extern "C" {
#endif

/* indexer_q: q_row = q_raw with dims 64..127 = rope(q_raw) (fp32 inside), hadamard: then the
 * normalised Hadamard transform of all 128 dims; one rounding to bf16, with AS_HADAMARD_ROUNDED
 * another before the transform. Then, by format:
 *   INDEX_FP8    per (token, head): qs = 2^ceil(log2(max(amax, 1e-4) / 448));
 *                q = e4m3 codes [T,J,128]; weights = ((w_raw * qs) * d^-0.5) * J^-0.5 in fp32
 *   INDEX_MXFP4  q = packed e2m1 [T,J,64], q_scale = UE8M0 [T,J,4];
 *                weights = (w_raw * d^-0.5) * J^-0.5 in fp32
 * scale_floor and fp4_rule may change floors and ties (numeric_rules.h).
 * References in F64: q holds q_row's unquantised values, weights carries no scale.
 * rows_given: q_row is an input, only the quantisation and the weights run. */
typedef struct as_indexer_q_params {
  as_params_head head;
  as_tensor q_raw;       /* in  bf16 [T,J,128] */
  as_tensor weights_raw; /* in  bf16 [T,J] output of indexer_weights_proj */
  as_tensor positions;   /* in  i64 [T] */
  as_rope rope;          /* in  the layer's rotary embedding */
  as_tensor q_row;       /* out bf16 [T,J,128], optional */
  as_tensor q;           /* out u8 [T,J,128] or [T,J,64] */
  as_tensor q_scale;     /* out u8 [T,J,4], MXFP4 only */
  as_tensor weights;     /* out f32 [T,J] */
  int32_t format;        /* AS_RECORD_INDEX_FP8 or AS_RECORD_INDEX_MXFP4 */
  int32_t hadamard;      /* as_hadamard */
  int32_t rows_given;
  int32_t scale_floor; /* as_scale_floor */
  int32_t fp4_rule;    /* as_fp4_rule */
  int32_t reserved;
} as_indexer_q_params;

/* indexer_logits: for c < lens[t]: logits[t,c] = kscale_c * sum_j relu(q_j . k_c) * weights_j
 * (per-head ReLU on the raw dot product; MXFP4 applies the block scales inside the dot). Entry c of
 * the token's request lies in slot table[c / rows] * rows + c % rows. Columns >= lens[t] are not
 * written. lens[t] = (position + 1) / 4, of MLA position + 1, 0 for padding.
 * weights.reserved (as_score_rule): AS_SCORES_BF16 rounds as ops on bf16 tensors do: with b() to
 * bf16, b(sum_j b(relu(b(q_j . k_c)) * b(weights_j))); logits are fp32 all the same. AS_SCORES_E4M3
 * lets a lane multiply FP8 codes as they are. No reference follows: the tolerance is wider. */
typedef struct as_indexer_logits_params {
  as_params_head head;
  as_tensor q;            /* in  u8 [T,J,128 or 64] */
  as_tensor q_scale;      /* in  u8 [T,J,4], MXFP4 only */
  as_tensor weights;      /* in  f32 [T,J] */
  as_cache cache;         /* in  index keys */
  as_tensor table;        /* in  i32 [R,C] MLA group */
  as_tensor token_to_req; /* in  i32 [T] */
  as_tensor lens;         /* in  i32 [T] */
  as_tensor logits;       /* out f32 [T,N], N >= max lens */
} as_indexer_logits_params;

/* indexer_topk: the min(K, lens[t]) best entries of a row, written in ascending order of entry,
 * then -1. Ties: the lowest entry wins. NaN never wins over a number; -0 equals 0. */
typedef struct as_indexer_topk_params {
  as_params_head head;
  as_tensor logits;  /* in  f32 [T,N] */
  as_tensor lens;    /* in  i32 [T] */
  as_tensor indices; /* out i32 [T,K] entries of the request, 0-based */
} as_indexer_topk_params;

/* topk_to_slots: slots[t,k] = table[j / rows] * rows + j % rows for j = indices[t,k] >= 0, else -1;
 * lens[t] = number of j >= 0, 0 for padding. */
typedef struct as_topk_to_slots_params {
  as_params_head head;
  as_tensor indices;      /* in  i32 [T,K] */
  as_tensor table;        /* in  i32 [R,C] MLA group */
  as_tensor token_to_req; /* in  i32 [T] */
  as_tensor slots;        /* out i32 [T,K] */
  as_tensor lens;         /* out i32 [T] */
  int32_t rows_per_block; /* block_size / 4, of MLA block_size */
  int32_t reserved;
} as_topk_to_slots_params;

#ifdef __cplusplus
}
#endif

#endif
