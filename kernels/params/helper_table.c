#include "kernels/params/helper_table.h"

#include "kernels/params/helper_params.h"
#include "kernels/params/tap_macros.h"

static const as_tap_info kMergeStates[] = {
    IN(as_merge_states_params, a, "T,H,D", "bf16|f32"),
    IN(as_merge_states_params, lse_a, "T,H", "f32"),
    IN(as_merge_states_params, b, "T,H,D", "bf16|f32"),
    IN(as_merge_states_params, lse_b, "T,H", "f32"),
    OUT(as_merge_states_params, out, "T,H,D", "bf16|f32", "row"),
    OUT(as_merge_states_params, lse, "T,H", "f32", "lse"),
};

static const as_tap_info kGatherRows[] = {
    IN_CACHE(as_gather_rows_params, cache, "rows,bytes"),
    IN(as_gather_rows_params, slots, "N", "i64"),
    OUT(as_gather_rows_params, out, "N,width", "bf16|f32", "bytes"),
};

static const as_tap_info kCopyBlocks[] = {
    IN(as_copy_blocks_params, from, "B,bytes", "u8"),
    IN(as_copy_blocks_params, pairs, "N,2", "i64"),
    OUT(as_copy_blocks_params, to, "C,bytes", "u8", "bytes"),
};

static const as_tap_info kWorkspaceAttention[] = {
    IN(as_workspace_attention_params, q, "T,H,D", "bf16"),
    IN(as_workspace_attention_params, rows, "N,D", "bf16"),
    IN(as_workspace_attention_params, indices, "T,K", "i32"),
    IN(as_workspace_attention_params, lens, "T", "i32"),
    IN(as_workspace_attention_params, sinks, "H", "f32"),
    OUT(as_workspace_attention_params, o, "T,H,D", "bf16", "attention"),
    OUT(as_workspace_attention_params, lse, "T,H", "f32", "lse"),
};

static const as_tap_info kInverseRopeQuantise[] = {
    IN(as_inverse_rope_quantise_params, o, "T,H,D", "bf16"),
    IN(as_inverse_rope_quantise_params, positions, "T", "i64"),
    OUT(as_inverse_rope_quantise_params, codes, "T,H,D", "u8", "bytes"),
    OUT(as_inverse_rope_quantise_params, scales, "T,H,D/128", "f32", "bytes"),
};

static const as_tap_info kFp8Linear[] = {
    IN(as_fp8_linear_params, x, "T,in", "u8"),
    IN(as_fp8_linear_params, x_scale, "T,in/128", "f32"),
    IN(as_fp8_linear_params, weight, "out,in", "u8"),
    IN(as_fp8_linear_params, weight_scale, "out/128,in/128", "f32"),
    OUT(as_fp8_linear_params, y, "T,out", "bf16|f32", "dense"),
};

#define HELPER(id, name, summary, S, taps) \
  { name, summary, id, sizeof(S), (uint32_t)(sizeof(taps) / sizeof(taps[0])), taps }

/* By id - AS_HELPER_FIRST. */
static const as_helper_info kHelpers[AS_HELPER_COUNT] = {
    HELPER(AS_HELPER_MERGE_STATES, "merge_states",
           "Attention over two disjoint sets of entries as one.", as_merge_states_params,
           kMergeStates),
    HELPER(AS_HELPER_GATHER_ROWS, "gather_rows", "Values of cache rows, by slot.",
           as_gather_rows_params, kGatherRows),
    HELPER(AS_HELPER_COPY_BLOCKS, "copy_blocks", "Blocks copied or exchanged by pairs of ids.",
           as_copy_blocks_params, kCopyBlocks),
    HELPER(AS_HELPER_WORKSPACE_ATTENTION, "workspace_attention",
           "Sparse attention over rows gathered before.", as_workspace_attention_params,
           kWorkspaceAttention),
    HELPER(AS_HELPER_INVERSE_ROPE_QUANTISE, "inverse_rope_quantise",
           "Undoes the rotation of the values and quantises them to FP8.",
           as_inverse_rope_quantise_params, kInverseRopeQuantise),
    HELPER(AS_HELPER_FP8_LINEAR, "fp8_linear", "Projection of FP8 inputs with block scales.",
           as_fp8_linear_params, kFp8Linear),
};

const as_helper_info* as_helper_find(int32_t id) {
  return id >= AS_HELPER_FIRST && id < AS_HELPER_END ? &kHelpers[id - AS_HELPER_FIRST] : NULL;
}
