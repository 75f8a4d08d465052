/* The ids of the op table. An id is the unit that is stepped, traced, compared, timed and replaced.
 * Ids never change meaning once released; new ones go before AS_OP_COUNT with the next number,
 * those of helper ops behind the last one. */
#ifndef ATTNSCOPE_KERNELS_PARAMS_OP_IDS_H
#define ATTNSCOPE_KERNELS_PARAMS_OP_IDS_H

#include <stdint.h>

typedef enum as_op_id {
  /* once per step, before the layers */
  AS_OP_SCHEDULE = 0,
  AS_OP_BLOCK_TABLES = 1,
  AS_OP_SLOT_MAPPING = 2,
  AS_OP_SWA_INDEX = 3,
  AS_OP_C128_INDEX = 4,
  /* every layer */
  AS_OP_ATTN_NORM = 5,
  AS_OP_Q_KV_A_PROJ = 6,
  AS_OP_Q_KV_NORM = 7,
  AS_OP_Q_B_PROJ = 8,
  AS_OP_Q_ROPE_KV_INSERT = 9,
  /* C4A and C128A layers */
  AS_OP_COMPRESSOR_PROJ = 10,
  AS_OP_COMPRESSOR_STATE = 11,
  AS_OP_COMPRESS_INSERT = 12,
  /* C4A layers */
  AS_OP_INDEXER_COMPRESSOR_PROJ = 13,
  AS_OP_INDEXER_COMPRESSOR_STATE = 14,
  AS_OP_INDEXER_COMPRESS_INSERT = 15,
  AS_OP_INDEXER_Q_PROJ = 16,
  AS_OP_INDEXER_Q = 17,
  AS_OP_INDEXER_WEIGHTS_PROJ = 18,
  AS_OP_INDEXER_LOGITS = 19,
  AS_OP_INDEXER_TOPK = 20,
  AS_OP_TOPK_TO_SLOTS = 21,
  /* every layer */
  AS_OP_SPARSE_ATTENTION = 22,
  AS_OP_INVERSE_ROPE = 23,
  AS_OP_WO_A = 24,
  AS_OP_WO_B = 25,
  AS_OP_RESIDUAL = 26,
  /* once per step, after the layers */
  AS_OP_FINAL_NORM = 27,
  AS_OP_LM_HEAD = 28,
  AS_OP_SAMPLE = 29,
  /* layers of dense attention */
  AS_OP_ROPE_KV_INSERT = 30,
  AS_OP_PAGED_ATTENTION = 31,
  AS_OP_Q_PROJ = 32,
  AS_OP_K_PROJ = 33,
  AS_OP_V_PROJ = 34,
  AS_OP_O_PROJ = 35,
  AS_OP_COUNT = 36, /* ids below it have a place in a step */
  /* helper ops: what serving code needs around the others, called on their own */
  AS_OP_MERGE_STATES = 1000,
  AS_OP_GATHER_ROWS = 1001,
  AS_OP_COPY_BLOCKS = 1002,
  AS_OP_WORKSPACE_ATTENTION = 1003,
  AS_OP_INVERSE_ROPE_QUANTISE = 1004,
  AS_OP_FP8_LINEAR = 1005
} as_op_id;

/* The table's list: the ops of a step, then the helper ops. */
enum {
  AS_FIRST_HELPER = AS_OP_MERGE_STATES,
  AS_END_OF_HELPERS = AS_OP_FP8_LINEAR + 1,
  AS_NUM_OPS = AS_OP_COUNT + AS_END_OF_HELPERS - AS_FIRST_HELPER
};

/* The place of an id in that list, -1 for an unknown one. */
static inline int32_t as_op_index(int32_t id) {
  if (id >= 0 && id < AS_OP_COUNT) return id;
  return id >= AS_FIRST_HELPER && id < AS_END_OF_HELPERS ? id - AS_FIRST_HELPER + AS_OP_COUNT : -1;
}

#endif
