/* Masks and scores of attention as code of a small stack machine: what a user's expression over
 * positions is compiled to (engine/model/mask_expression.h). An op takes it as a tensor f64
 * [N,2]: of each of N instructions its as_mask_op and, of AS_MASK_NUMBER, the number. Instructions
 * run in order; each takes its operands from the end of the stack and puts its result there, the
 * operand that was put first being the left one. One value is left at the end. All is float64;
 * comparisons and logic give 1 or 0, and take every number but 0 as true, NaN as false.
 *
 * A mask says of a query and a key whether the key is seen: where its value is true. A score
 * function gives the new score of a key, from the score so far.
 *
 * A block mask says of every tile of AS_MASK_QUERIES queries and AS_MASK_KEYS keys of a sequence
 * whether the mask hides all of it, shows all of it, or has to be asked key by key. */
#ifndef ATTNSCOPE_KERNELS_PARAMS_MASK_CODE_H
#define ATTNSCOPE_KERNELS_PARAMS_MASK_CODE_H

typedef enum as_mask_op {
  AS_MASK_NUMBER = 0,
  AS_MASK_Q_IDX,   /* place of the query among the keys of its sequence */
  AS_MASK_KV_IDX,  /* of the key */
  AS_MASK_HEAD,    /* query head */
  AS_MASK_REQUEST, /* sequence */
  AS_MASK_SCORE,   /* of score functions alone */
  AS_MASK_ADD,
  AS_MASK_SUB,
  AS_MASK_MUL,
  AS_MASK_DIV,
  AS_MASK_FLOOR_DIV, /* floor(a / b) */
  AS_MASK_MOD,       /* a - b * floor(a / b) */
  AS_MASK_LT,
  AS_MASK_LE,
  AS_MASK_GT,
  AS_MASK_GE,
  AS_MASK_EQ,
  AS_MASK_NE,
  AS_MASK_AND,
  AS_MASK_OR,
  AS_MASK_NOT,
  AS_MASK_NEG,
  AS_MASK_ABS,
  AS_MASK_FLOOR,
  AS_MASK_EXP2,
  AS_MASK_TANH,
  AS_MASK_MIN,
  AS_MASK_MAX,
  AS_MASK_SELECT, /* a ? b : c, of three operands */
  AS_MASK_OPS
} as_mask_op;

#define AS_MASK_STACK 32        /* values at once, at most */
#define AS_MASK_CODE_LENGTH 512 /* instructions, at most */

#define AS_MASK_QUERIES 32 /* of a tile */
#define AS_MASK_KEYS 64

typedef enum as_mask_tile {
  AS_TILE_EMPTY = 0,   /* no key is seen by any query */
  AS_TILE_PARTIAL = 1, /* ask the mask */
  AS_TILE_FULL = 2     /* every key is seen by every query */
} as_mask_tile;

/* Values that an instruction takes; -1 = there is no such instruction. */
static inline int as_mask_operands(int op) {
  if (op < AS_MASK_NUMBER || op >= AS_MASK_OPS) return -1;
  if (op <= AS_MASK_SCORE) return 0;
  if (op >= AS_MASK_NOT && op <= AS_MASK_TANH) return 1;
  return op == AS_MASK_SELECT ? 3 : 2;
}

#endif
