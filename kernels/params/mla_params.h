/* Params of the ops of absorbed MLA (DeepSeek-V3, V3.2): latent rows that are key and value of all
 * heads at once, and the lightning indexer that scores every cached token by a key of its own.
 *
 * Letters: T tokens, H heads, N dims of a head's query without RoPE, V dims of a head's value, J
 * index heads, R requests, C columns of a block table, K places of a list.
 *
 * A latent row has L = 512 latent dims, then P = 64 dims with RoPE: 576, of which the first 512 are
 * the value. kv_b_proj makes keys and values of latent rows; absorbed, its first N rows of a head
 * (W_UK) turn queries into latent space and the V behind them (W_UV) turn outputs back:
 *   q . k = (q_nope W_UK) . c + q_rope . k_rope,   o = W_UV (sum of p_i c_i)
 *
 * RoPE with c = cos and s = sin of pair i < 32 in table row positions[t], [max_pos,64], cos then
 * sin: a' = a c - b s, b' = b c + a s. Of attention the pair is dims 2i and 2i + 1; of the indexer
 * dims i and i + 32 of the FIRST 64 of 128.
 *
 * Caches of latent rows hold AS_RECORD_LATENT_656 or AS_RECORD_BF16 with one head, width 576; of
 * index keys AS_RECORD_INDEX_FP8. Pages have any number of rows, 64 as published.
 *
 * FP8 of a block of 128, with a = max(max|x|, 1e-4), NaN counting nothing, scale by as_scale_rule:
 *   AS_SCALE_FLOAT         scale = fp32(a / 448)
 *   AS_SCALE_POWER_OF_TWO  scale = 2^ceil(log2(a / 448))
 *   code = e4m3fn_rne_sat(fp32(x / scale)), of NaN 0x7f; of an infinite a every finite x has 0
 */
#ifndef ATTNSCOPE_KERNELS_PARAMS_MLA_PARAMS_H
#define ATTNSCOPE_KERNELS_PARAMS_MLA_PARAMS_H

#include "kernels/params/head.h"
#include "kernels/params/numeric_rules.h"

#ifdef __cplusplus
extern "C" {
#endif

enum {
  AS_MLA_LATENT = 512, /* L */
  AS_MLA_ROPE = 64,    /* P */
  AS_MLA_WIDTH = 576,  /* L + P */
  AS_MLA_MAX_DIM = 256 /* of N and of V; both are multiples of 8 */
};

/* mla_q_absorb:
 *   q[t,h,0..511]   = bf16(sum over n < N of q_raw[t,h,n] * kv_b[h,n,:])
 *   q[t,h,512..575] = bf16(rope(q_raw[t,h,N..N+63]))
 * Products summed in fp32 or better, rope in fp32; one rounding each. */
typedef struct as_mla_q_absorb_params {
  as_params_head head;
  as_tensor q_raw;     /* in  bf16 [T,H,N+64] */
  as_tensor kv_b;      /* in  bf16 [H,N+V,512]; the first N rows of a head */
  as_tensor positions; /* in  i64 [T] */
  as_rope rope;        /* in  the layer's rotary embedding */
  as_tensor q;         /* out bf16 [T,H,576] */
} as_mla_q_absorb_params;

/* mla_kv_insert:
 *   kv_row[t,0..511]   = kv[t]                                the row before quantisation
 *   kv_row[t,512..575] = bf16(rope(the last 64 columns of qkv[t])), fp32 inside
 *   cache row slots[t] = kv_row[t] as its record stores it    nothing for slot -1
 * LATENT_656: 512 codes with a scale for each 128 of them, 64 dims in bf16 as they are. BF16: the
 * row as it is. rows_given: kv_row is an input, only the quantisation and insertion run (kv, qkv,
 * positions unused). */
typedef struct as_mla_kv_insert_params {
  as_params_head head;
  as_tensor kv;        /* in  bf16 [T,512] normed latent */
  as_tensor qkv;       /* in  bf16 [T,W], W >= 64: the projection whose end is the rotary key */
  as_tensor positions; /* in  i64 [T] */
  as_rope rope;        /* in  the layer's rotary embedding */
  as_tensor slots;     /* in  i64 [T] */
  as_tensor kv_row;    /* out bf16 [T,576], optional */
  as_cache cache;      /* out latent rows */
  int32_t rows_given;
  int32_t scale_rule; /* as_scale_rule; of LATENT_656 */
} as_mla_kv_insert_params;

/* index_query: of each index head
 *   r = q_raw[t,j] with its first 64 dims = bf16(rope(..))
 *   q_row[t,j] = bf16(H r / sqrt(128)) where hadamard is 1 (H the Sylvester matrix), else r
 *   q[t,j] = FP8 codes of q_row[t,j], one block, with scale qs
 *   weights[t,j] = ((weights_raw[t,j] * J^-0.5) * qs) * 128^-0.5, fp32 after each product
 * r is rounded once from exact products (float64 is enough): what falls on the wrong side of a
 * rounding boundary is spread over all dims by the transform.
 * References in F64: q holds q_row's unquantised values, weights carries no scale.
 * rows_given: q_row is an input, only the quantisation and the weights run. */
typedef struct as_index_query_params {
  as_params_head head;
  as_tensor q_raw;       /* in  bf16 [T,J,128] */
  as_tensor weights_raw; /* in  f32 [T,J] output of index_weights_proj */
  as_tensor positions;   /* in  i64 [T] */
  as_rope rope;          /* in  the layer's rotary embedding */
  as_tensor q_row;       /* out bf16 [T,J,128], optional */
  as_tensor q;           /* out u8 [T,J,128] */
  as_tensor weights;     /* out f32 [T,J] */
  int32_t hadamard;      /* 0 or 1 */
  int32_t rows_given;
  int32_t scale_rule; /* as_scale_rule */
  int32_t reserved;
} as_index_query_params;

/* index_key_insert:
 *   n = bf16((k - mean) * rsqrt(var + eps) * weight + bias), mean and var = mean((k - mean)^2) over
 *       the 128 dims
 *   r = n with its first 64 dims = bf16(rope(..))
 *   row[t] = bf16(H r / sqrt(128)) where hadamard is 1, else r
 *   cache row slots[t] = FP8 codes of row[t], one block, with its scale; nothing for slot -1
 * n and r are rounded once from results in float64 (see index_query). rows_given: row is an input,
 * only the quantisation and insertion run. */
typedef struct as_index_key_insert_params {
  as_params_head head;
  as_tensor k;         /* in  bf16 [T,128] output of index_k_proj */
  as_tensor weight;    /* in  bf16 [128] of the LayerNorm */
  as_tensor bias;      /* in  bf16 [128] */
  as_tensor positions; /* in  i64 [T] */
  as_rope rope;        /* in  the layer's rotary embedding */
  as_tensor slots;     /* in  i64 [T] */
  as_tensor row;       /* out bf16 [T,128], optional */
  as_cache cache;      /* out index keys */
  double eps;          /* of the LayerNorm, 1e-6 */
  int32_t hadamard;    /* 0 or 1 */
  int32_t rows_given;
  int32_t scale_rule; /* as_scale_rule */
  int32_t reserved;
} as_index_key_insert_params;

/* mla_attention: token t at position p of request r, head h, over the rows 0 .. end - 1 of its
 * request, end = min(p + 1, seq_lens[r]); with x the 576 values of a row as decoded:
 *   l_i = scale * q[t,h] . x_i;  o[t,h] = sum e^l_i x_i[0..511] / sum e^l_i;  lse = ln sum e^l_i
 * Nothing rounded inside but fp32 sums, one rounding to bf16. No row, and padding (token_to_req
 * negative): o = 0, lse = -inf. NaN in rows that a token does not see never reaches it. Row i lies
 * in slot table[r,i / rows] * rows + i % rows. Decode and chunked prefill rows are the same op. */
typedef struct as_mla_attention_params {
  as_params_head head;
  as_tensor q;            /* in  bf16 [T,H,576] */
  as_cache cache;         /* in  latent rows */
  as_tensor table;        /* in  i32 [R,C] */
  as_tensor token_to_req; /* in  i32 [T] row of the table, negative = padding */
  as_tensor positions;    /* in  i64 [T] */
  as_tensor seq_lens;     /* in  i32 [R] rows that a request has after this step */
  as_tensor o;            /* out bf16 [T,H,512] */
  as_tensor lse;          /* out f32 [T,H] */
  double scale;           /* (N + 64)^-0.5, times the square of YaRN's mscale */
} as_mla_attention_params;

/* sparse_mla_attention: the same over the rows that a token lists. Entry k of a list is valid iff
 * k < topk_length[t] and index >= 0; nothing else is ever read. No valid entry: o = 0, lse = -inf.
 * A slot that is listed twice counts twice. */
typedef struct as_sparse_mla_attention_params {
  as_params_head head;
  as_tensor q;           /* in  bf16 [T,H,576] */
  as_cache cache;        /* in  latent rows */
  as_tensor indices;     /* in  i32 [T,K] slots */
  as_tensor topk_length; /* in  i32 [T] */
  as_tensor o;           /* out bf16 [T,H,512] */
  as_tensor lse;         /* out f32 [T,H] */
  double scale;
} as_sparse_mla_attention_params;

/* mla_v_up: y[t,h,d] = bf16(sum over c < 512 of o[t,h,c] * kv_b[h,N+d,c]), d < V; products summed
 * in fp32 or better. N follows from kv_b and y. */
typedef struct as_mla_v_up_params {
  as_params_head head;
  as_tensor o;    /* in  bf16 [T,H,512] */
  as_tensor kv_b; /* in  bf16 [H,N+V,512]; the last V rows of a head */
  as_tensor y;    /* out bf16 [T,H,V] */
} as_mla_v_up_params;

#ifdef __cplusplus
}
#endif

#endif
