/* Places where published writers and norms compute otherwise; 0 is what all ops did before the
 * choice existed, so that numbers which nobody set mean the usual rule. */
#ifndef ATTNSCOPE_KERNELS_PARAMS_NUMERIC_RULES_H
#define ATTNSCOPE_KERNELS_PARAMS_NUMERIC_RULES_H

/* What max|x| of an FP8 block is raised to before its scale is computed. */
typedef enum as_scale_floor {
  AS_SCALE_FLOOR_1E4 = 0, /* 1e-4: no latent scale byte below 105 */
  AS_SCALE_FLOOR_1E8 = 1, /* 1e-8: none below 92 */
  AS_SCALE_FLOOR_1E10 = 2 /* 1e-10, of attention's output alone: no exponent below -42 */
} as_scale_floor;

/* In which arithmetic the frequencies of a rotary embedding are computed: as_rope.table.reserved.
 */
typedef enum as_rope_frequencies {
  AS_ROPE_FP64 = 0, /* powers and YaRN's blend in float64, one rounding to fp32 */
  AS_ROPE_FP32 = 1  /* every step rounded to fp32, as torch computes them from fp32 exponents */
} as_rope_frequencies;

/* How a block of 32 values becomes e2m1. */
typedef enum as_fp4_rule {
  AS_FP4_EVEN = 0, /* amax floor 6 * 2^-126, nearest, ties to the even code */
  AS_FP4_DOWN = 1  /* amax / 6 floored at 1e-4, nearest, ties towards zero, no code of -0 */
} as_fp4_rule;

/* The Hadamard transform of index queries and keys. */
typedef enum as_hadamard {
  AS_HADAMARD_OFF = 0,
  AS_HADAMARD_ON = 1,     /* of the rotated values; the result alone is rounded to bf16 */
  AS_HADAMARD_ROUNDED = 2 /* of the rotated values rounded to bf16 */
} as_hadamard;

/* Arithmetic of index scores: weights.reserved of indexer_logits. */
typedef enum as_score_rule {
  AS_SCORES_FP32 = 0,
  AS_SCORES_BF16 = 1, /* head weights, dot products, weighted products and their sum each rounded */
  AS_SCORES_E4M3 = 2  /* sums of products of FP8 codes may lose what lies 13 bits below the largest,
                         as in tensor cores of Hopper; MXFP4: as AS_SCORES_FP32 */
} as_score_rule;

/* The norm of a query's heads, x * rsqrt(mean(x^2) + eps). */
typedef enum as_q_norm {
  AS_Q_NORM_FP32 = 0, /* in fp32, nothing rounded before RoPE */
  AS_Q_NORM_BF16 = 1, /* squares, their mean, mean + eps, rsqrt and product each rounded to bf16 */
  AS_Q_NORM_BF16_FACTOR = 2 /* rsqrt(..) and the product rounded to bf16 */
} as_q_norm;

/* The fp32 scale of an FP8 block of absorbed MLA, a being its largest |x|: scale_fmt of published
 * configurations, null or "ue8m0". */
typedef enum as_scale_rule {
  AS_SCALE_FLOAT = 0,       /* a / 448 */
  AS_SCALE_POWER_OF_TWO = 1 /* 2^ceil(log2(a / 448)) */
} as_scale_rule;

/* How attention_plan cuts the lists of a step: where a sum is cut, fp32 rounds it otherwise. */
typedef enum as_plan_rule {
  AS_PLAN_NONE = 0,    /* there is no plan: attention cuts as its lane likes */
  AS_PLAN_OWN = 1,     /* all rows into as many equal runs, by a model of the cost */
  AS_PLAN_FLASHMLA = 2 /* FlashMLA's: parts of equal cost, filled with one row after another */
} as_plan_rule;

/* In which passes paged_attention goes over the rows of a token. Of request r, c_r = the lowest
 * position of its tokens in the call: the rows before it were computed before. */
typedef enum as_paged_form {
  AS_PAGED_ONE_PASS = 0, /* rows from before and new ones in one, as prefix prefill does it */
  AS_PAGED_MERGED = 1,   /* rows before c_r, then those from c_r on: two states of the same query,
                            merged by LSE, as chunked prefill does it */
  AS_PAGED_CASCADE = 2   /* the common prefix once for the tokens of all requests, what is behind it
                            request by request, merged by LSE. The prefix: the leading columns in
                            which the tables of all requests with tokens have the same blocks, of
                            which at least two must be there, and no more than c_r rows of any */
} as_paged_form;

#endif
