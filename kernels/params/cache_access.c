#include "kernels/params/cache_access.h"

#include "kernels/params/attention_params.h"
#include "kernels/params/compressor_params.h"
#include "kernels/params/helper_params.h"
#include "kernels/params/indexer_params.h"
#include "kernels/params/mla_params.h"
#include "kernels/params/offload_params.h"
#include "kernels/params/op_table.h"
#include "kernels/params/paged_params.h"

#define AT(S, field) offsetof(S, field)
#define WRITES_SLOTS(S, cache, slots, role, nth)                                                  \
  {                                                                                               \
    AT(S, cache), AS_TAP_OUT, AS_BY_SLOTS, AT(S, slots), 0, 0, 0, 0, 0, 0, 0, role, nth, 0, 0, 0, \
        0, 0, 0                                                                                   \
  }
#define READS_SLOTS(S, cache, slots, role, nth)                                                  \
  {                                                                                              \
    AT(S, cache), AS_TAP_IN, AS_BY_SLOTS, AT(S, slots), 0, 0, 0, 0, 0, 0, 0, role, nth, 0, 0, 0, \
        0, 0, 0                                                                                  \
  }
#define READS_LIST(S, cache, list, lens, role, nth)                                                \
  {                                                                                                \
    AT(S, cache), AS_TAP_IN, AS_BY_LIST, AT(S, list), AT(S, lens), 0, 0, 0, 0, 0, 0, role, nth, 0, \
        0, 0, 0, 0, 0                                                                              \
  }
#define READS_TABLE(S, cache, table, lens, token_to_req, role, nth)                                \
  {                                                                                                \
    AT(S, cache), AS_TAP_IN, AS_BY_TABLE, AT(S, table), AT(S, lens), AT(S, token_to_req), 0, 0, 0, \
        0, 0, role, nth, 0, 0, 0, 0, 0, 0                                                          \
  }
#define READS_CONTEXT(S, cache, table, role, nth, from, until)                                  \
  {                                                                                             \
    AT(S, cache), AS_TAP_IN, AS_BY_CONTEXT, AT(S, table), AT(S, seq_lens), AT(S, token_to_req), \
        AT(S, positions), 0, AT(S, window), 0, 0, role, nth, AT(S, causal), AT(S, chunk),       \
        AT(S, first_rows), 0, from, until                                                       \
  }
/* The same of an op that is always causal, over all of it. */
#define READS_SEEN(S, cache, role)                                                              \
  {                                                                                             \
    AT(S, cache), AS_TAP_IN, AS_BY_CONTEXT, AT(S, table), AT(S, seq_lens), AT(S, token_to_req), \
        AT(S, positions), 0, 0, 0, 0, role, 0, 0, 0, 0, 0, 0, 0                                 \
  }
/* Entries of ratio 4 overlap: each pools the state rows of the one before it, too. */
#define READS_STATES(nth)                                                                     \
  {                                                                                           \
    AT(as_compress_insert_params, state), AS_TAP_IN, AS_BY_WINDOW,                            \
        AT(as_compress_insert_params, table), 0, AT(as_compress_insert_params, token_to_req), \
        AT(as_compress_insert_params, positions), AT(as_compress_insert_params, slots),       \
        AT(as_compress_insert_params, ratio), 4, AT(as_compress_insert_params, rows_given),   \
        AS_CACHE_STATE, nth, 0, 0, 0, 0, 0, 0                                                 \
  }

/* Of rows that are moved: the cache that the layer selects from, whichever it is. */
#define WRITES_COPIES(S, cache, slots, from)                                                      \
  {                                                                                               \
    AT(S, cache), AS_TAP_OUT, AS_BY_SLOTS, AT(S, slots), 0, 0, 0, 0, 0, 0, 0, AS_CACHE_ANY, 0, 0, \
        0, 0, AT(S, from), 0, 0                                                                   \
  }

static const as_cache_access kInsertAccess[] = {
    WRITES_SLOTS(as_q_rope_kv_insert_params, cache, slots, AS_CACHE_KV, 0),
};

static const as_cache_access kStateAccess[] = {
    WRITES_SLOTS(as_compressor_state_params, state, slots, AS_CACHE_STATE, 0),
};

static const as_cache_access kIndexStateAccess[] = {
    WRITES_SLOTS(as_compressor_state_params, state, slots, AS_CACHE_STATE, 1),
};

static const as_cache_access kCompressAccess[] = {
    READS_STATES(0),
    WRITES_SLOTS(as_compress_insert_params, cache, slots, AS_CACHE_KV, 1),
};

static const as_cache_access kIndexCompressAccess[] = {
    READS_STATES(1),
    WRITES_SLOTS(as_compress_insert_params, cache, slots, AS_CACHE_INDEX, 0),
};

static const as_cache_access kLogitsAccess[] = {
    READS_TABLE(as_indexer_logits_params, cache, table, lens, token_to_req, AS_CACHE_INDEX, 0),
};

static const as_cache_access kAttentionAccess[] = {
    READS_LIST(as_sparse_attention_params, cache, indices, topk_length, AS_CACHE_KV, 0),
    READS_LIST(as_sparse_attention_params, extra_cache, extra_indices, extra_topk_length,
               AS_CACHE_KV, 1),
};

static const as_cache_access kRopeKvAccess[] = {
    WRITES_SLOTS(as_rope_kv_insert_params, k_cache, slots, AS_CACHE_K, 0),
    WRITES_SLOTS(as_rope_kv_insert_params, v_cache, slots, AS_CACHE_V, 0),
    WRITES_SLOTS(as_rope_kv_insert_params, k_wide, wide_slots, AS_CACHE_K, 1),
    WRITES_SLOTS(as_rope_kv_insert_params, v_wide, wide_slots, AS_CACHE_V, 1),
};

/* Rows of the first positions come from the one pair of caches, all others from the other one. */
#define READS_REST(cache, role)                                   \
  READS_CONTEXT(as_paged_attention_params, cache, table, role, 0, \
                AT(as_paged_attention_params, wide_tokens), 0)
#define READS_FIRST(cache, role)                                          \
  READS_CONTEXT(as_paged_attention_params, cache, wide_table, role, 1, 0, \
                AT(as_paged_attention_params, wide_tokens))

static const as_cache_access kPagedAccess[] = {
    READS_REST(k_cache, AS_CACHE_K),
    READS_REST(v_cache, AS_CACHE_V),
    READS_FIRST(k_wide, AS_CACHE_K),
    READS_FIRST(v_wide, AS_CACHE_V),
};

static const as_cache_access kMlaInsertAccess[] = {
    WRITES_SLOTS(as_mla_kv_insert_params, cache, slots, AS_CACHE_KV, 0),
};

static const as_cache_access kIndexKeyAccess[] = {
    WRITES_SLOTS(as_index_key_insert_params, cache, slots, AS_CACHE_INDEX, 0),
};

static const as_cache_access kMlaAccess[] = {
    READS_SEEN(as_mla_attention_params, cache, AS_CACHE_KV),
};

static const as_cache_access kSparseMlaAccess[] = {
    READS_LIST(as_sparse_mla_attention_params, cache, indices, topk_length, AS_CACHE_KV, 0),
};

static const as_cache_access kGatherAccess[] = {
    READS_SLOTS(as_gather_rows_params, cache, slots, AS_CACHE_ANY, 0),
};

static const as_cache_access kConvertAccess[] = {
    READS_SLOTS(as_convert_rows_params, from, slots, AS_CACHE_ANY, 0),
    WRITES_SLOTS(as_convert_rows_params, to, slots, AS_CACHE_ANY, 0),
};

static const as_cache_access kExchangeAccess[] = {
    READS_SLOTS(as_exchange_rows_params, fresh, fresh_from, AS_CACHE_ANY, 0),
    WRITES_COPIES(as_exchange_rows_params, pages, pages_to, fresh_from),
    READS_SLOTS(as_exchange_rows_params, missed, missed_from, AS_CACHE_ANY, 0),
    WRITES_COPIES(as_exchange_rows_params, pool, pool_to, missed_from),
};

static const as_cache_access kSwapOutAccess[] = {
    READS_SLOTS(as_swap_out_params, blocks, from, AS_CACHE_ANY, 0),
};

static const as_cache_access kSwapInAccess[] = {
    WRITES_SLOTS(as_swap_in_params, blocks, to, AS_CACHE_ANY, 0),
};

#define ACCESSES(op, list) \
  { op, (uint32_t)(sizeof(list) / sizeof(list[0])), list }

static const struct {
  int32_t op;
  uint32_t count;
  const as_cache_access* accesses;
} kAccesses[] = {
    ACCESSES(AS_OP_Q_ROPE_KV_INSERT, kInsertAccess),
    ACCESSES(AS_OP_COMPRESSOR_STATE, kStateAccess),
    ACCESSES(AS_OP_COMPRESS_INSERT, kCompressAccess),
    ACCESSES(AS_OP_INDEXER_COMPRESSOR_STATE, kIndexStateAccess),
    ACCESSES(AS_OP_INDEXER_COMPRESS_INSERT, kIndexCompressAccess),
    ACCESSES(AS_OP_INDEXER_LOGITS, kLogitsAccess),
    ACCESSES(AS_OP_SPARSE_ATTENTION, kAttentionAccess),
    ACCESSES(AS_OP_ROPE_KV_INSERT, kRopeKvAccess),
    ACCESSES(AS_OP_PAGED_ATTENTION, kPagedAccess),
    ACCESSES(AS_OP_MLA_KV_INSERT, kMlaInsertAccess),
    ACCESSES(AS_OP_INDEX_KEY_INSERT, kIndexKeyAccess),
    ACCESSES(AS_OP_MLA_ATTENTION, kMlaAccess),
    ACCESSES(AS_OP_SPARSE_MLA_ATTENTION, kSparseMlaAccess),
    ACCESSES(AS_OP_EXCHANGE_ROWS, kExchangeAccess),
    ACCESSES(AS_OP_SWAP_OUT, kSwapOutAccess),
    ACCESSES(AS_OP_SWAP_IN, kSwapInAccess),
    ACCESSES(AS_OP_GATHER_ROWS, kGatherAccess),
    ACCESSES(AS_OP_CONVERT_ROWS, kConvertAccess),
};

const as_cache_access* as_cache_accesses(int32_t op, uint32_t* count) {
  for (size_t i = 0; i < sizeof(kAccesses) / sizeof(kAccesses[0]); ++i) {
    if (kAccesses[i].op != op) continue;
    *count = kAccesses[i].count;
    return kAccesses[i].accesses;
  }
  *count = 0;
  return NULL;
}
