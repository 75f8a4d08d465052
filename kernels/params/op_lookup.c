/* What follows from an op's entry in the table. */
#include "kernels/params/op_table.h"

int as_op_has(int32_t id, int32_t trait) {
  const as_op_info* op = as_op_find(id);
  return op != NULL && (op->traits & trait) != 0;
}

int32_t as_op_role(int32_t id) {
  const as_op_info* op = as_op_find(id);
  return op != NULL ? op->role : AS_ROLE_UNKNOWN;
}

const as_tap_info* as_op_row(int32_t id) {
  const as_op_info* op = as_op_find(id);
  uint32_t i;
  for (i = 0; op != NULL && i < op->num_taps; ++i) {
    if (op->taps[i].given_by != 0) return &op->taps[i];
  }
  return NULL;
}

uint32_t as_rope_offset(int32_t id) {
  const as_op_info* op = as_op_find(id);
  uint32_t i;
  for (i = 0; op != NULL && i < op->num_fields; ++i) {
    if (op->fields[i].kind == AS_PARAM_ROPE) return op->fields[i].offset;
  }
  return 0;
}

/* Indexed by role. */
static const char* const kRoles[AS_ROLE_COUNT] = {
    "?",     "metadata", "index list", "norm",     "projection", "cache write", "query",
    "score", "select",   "attention",  "rotation", "residual",   "sample",      "copy"};

const char* as_role_name(int32_t role) {
  return kRoles[role > AS_ROLE_UNKNOWN && role < AS_ROLE_COUNT ? role : AS_ROLE_UNKNOWN];
}
