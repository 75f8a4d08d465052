#include "kernels/params/rope_field.h"

#include <stddef.h>

#include "kernels/params/attention_params.h"
#include "kernels/params/compressor_params.h"
#include "kernels/params/helper_params.h"
#include "kernels/params/indexer_params.h"
#include "kernels/params/op_ids.h"
#include "kernels/params/paged_params.h"

static const struct {
  as_op_id op;
  uint32_t offset;
} kRopes[] = {
    {AS_OP_Q_ROPE_KV_INSERT, offsetof(as_q_rope_kv_insert_params, rope)},
    {AS_OP_COMPRESS_INSERT, offsetof(as_compress_insert_params, rope)},
    {AS_OP_INDEXER_COMPRESS_INSERT, offsetof(as_compress_insert_params, rope)},
    {AS_OP_INDEXER_Q, offsetof(as_indexer_q_params, rope)},
    {AS_OP_INVERSE_ROPE, offsetof(as_inverse_rope_params, rope)},
    {AS_OP_ROPE_KV_INSERT, offsetof(as_rope_kv_insert_params, rope)},
    {AS_OP_INVERSE_ROPE_QUANTISE, offsetof(as_inverse_rope_quantise_params, rope)},
};

uint32_t as_rope_offset(int32_t op) {
  for (size_t i = 0; i < sizeof(kRopes) / sizeof(kRopes[0]); ++i) {
    if ((int32_t)kRopes[i].op == op) return kRopes[i].offset;
  }
  return 0;
}
