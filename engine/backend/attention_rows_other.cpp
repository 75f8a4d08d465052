// Backends of other platforms, and of layers that keep a state in the place of keys and values:
// rows with their rules, so that what was not taken can be explained. Facts as in
// attention_rows_cuda.cpp; the form of batches that mamba's graphs take from mamba_attn.py at
// 85d29311.
#include "engine/backend/attention_registry.h"

namespace attnscope {
namespace {

const char* const kNoAmd = "cannot run here: there is no lane for AMD's GPUs";
const std::vector<AttentionType> kEveryType{AttentionType::kDecoder, AttentionType::kEncoder,
                                            AttentionType::kEncoderOnly,
                                            AttentionType::kEncoderDecoder};

AttentionBackend rocm_row(const char* name, const char* what) {
  AttentionBackend b;
  b.name = name;
  b.what = what;
  b.platforms = {AttentionPlatform::kRocm};
  b.cache = {{"2", "blocks", "tokens", "kv heads", "head"}, {}};
  b.why_not_here = kNoAmd;
  b.source = "attention_backends.md 00139433";
  return b;
}

AttentionBackend rocm_attn() {
  AttentionBackend b = rocm_row("ROCM_ATTN", "vLLM's paged attention for AMD");
  b.head_sizes = {{32, 64, 80, 96, 128, 160, 192, 224, 256}};
  b.dtypes = {"float16", "bfloat16", "float32"};
  b.cache_dtypes = {"auto", "float16", "bfloat16", "fp8", "fp8_e4m3", "fp8_e5m2"};
  b.block_sizes = {{}, 16};
  b.types = {AttentionType::kDecoder, AttentionType::kEncoder, AttentionType::kEncoderOnly};
  b.mm_prefix = true;
  b.kv_connector = false;
  b.graph = GraphSupport::kAlways;
  b.cache = {{"2", "blocks", "tokens x kv heads x head"}, {}};
  return b;
}

AttentionBackend aiter_fa() {
  AttentionBackend b = rocm_row("ROCM_AITER_FA", "AITER's FlashAttention");
  b.head_sizes = {{64, 128, 256}};
  b.cache_dtypes = {"auto", "float16", "bfloat16", "fp8", "fp8_e4m3", "fp8_e5m2"};
  b.block_sizes = {{16, 32}};
  b.graph = GraphSupport::kUniformBatch;
  return b;
}

AttentionBackend aiter_unified() {
  AttentionBackend b = rocm_row("ROCM_AITER_UNIFIED_ATTN", "AITER's decode and prefill in one");
  b.cache_dtypes = {"auto"};
  b.block_sizes = {{}, 16};
  b.types = kEveryType;
  b.sinks = b.mm_prefix = true;
  return b;
}

AttentionBackend aiter_latent(const char* name, const char* what, bool sparse) {
  AttentionBackend b = rocm_row(name, what);
  b.mla = true;
  b.sparse = sparse;
  b.value_sizes = true;
  b.alibi = b.soft_cap = b.window = false;
  b.block_sizes = {{1}};
  b.cache = {{"blocks", "tokens", "row"}, {}};
  return b;
}

AttentionBackend aiter_mla() {
  AttentionBackend b = aiter_latent("ROCM_AITER_MLA", "AITER's MLA", false);
  b.cache_dtypes = {"auto", "float16", "bfloat16", "fp8", "fp8_e4m3", "fp8_e5m2"};
  b.graph = GraphSupport::kSingleTokenDecode;
  return b;
}

AttentionBackend aiter_triton_mla() {
  AttentionBackend b = aiter_latent("ROCM_AITER_TRITON_MLA", "AITER's MLA in Triton", false);
  b.cache_dtypes = {"auto"};
  return b;
}

AttentionBackend xpu_mla_sparse() {
  AttentionBackend b = aiter_latent("XPU_MLA_SPARSE", "MLA over a selection, for Intel", true);
  b.platforms = {AttentionPlatform::kXpu};
  b.head_sizes = {{576}};
  b.block_sizes = {};
  b.layout = "NHD";
  b.why_not_here = "cannot run here: there is no lane for Intel's GPUs";
  return b;
}

AttentionBackend cpu_attn() {
  AttentionBackend b;
  b.name = "CPU_ATTN";
  b.what = "vLLM's paged attention for processors";
  b.platforms = {AttentionPlatform::kCpu};
  b.head_sizes = {{32, 64, 80, 96, 112, 128, 160, 192, 224, 256, 512}};
  b.dtypes = {"float16", "bfloat16", "float32"};
  b.cache_dtypes = {"auto"};
  b.types = kEveryType;
  b.graph = GraphSupport::kNever;
  b.cache = {{"2", "blocks", "kv heads", "tokens", "head"}, {}};
  b.cpu_lane = true;
  b.ops = {AS_OP_ROPE_KV_INSERT, AS_OP_PAGED_ATTENTION};
  b.source = "attention_backends.md 00139433";
  return b;
}

AttentionBackend layer_state_row(const char* name, AttentionLayerKind kind, GraphSupport graph,
                                 const char* source) {
  AttentionBackend b;
  b.name = name;
  b.what = "layers with a state in the place of keys and values";
  b.kind = kind;
  b.platforms = {AttentionPlatform::kCuda, AttentionPlatform::kRocm, AttentionPlatform::kXpu,
                 AttentionPlatform::kCpu};
  b.dtypes = {"float16", "bfloat16", "float32"};
  b.metadata = MetadataForm::kStateIndices;
  b.graph = graph;
  b.cache = {{"blocks", "state"}, {}};
  b.why_not_here = "cannot run here: no family has layers with a state of this kind";
  b.source = source;
  return b;
}

}  // namespace

std::vector<AttentionBackend> other_attention_rows() {
  constexpr auto kSingle = GraphSupport::kSingleTokenDecode;
  return {rocm_attn(),
          aiter_fa(),
          aiter_unified(),
          aiter_mla(),
          aiter_latent("ROCM_AITER_MLA_SPARSE", "AITER's MLA over a selection", true),
          aiter_triton_mla(),
          xpu_mla_sparse(),
          cpu_attn(),
          layer_state_row("MAMBA1", AttentionLayerKind::kMamba1, kSingle, "mamba_attn.py 85d29311"),
          layer_state_row("MAMBA2", AttentionLayerKind::kMamba2, kSingle, "mamba_attn.py 85d29311"),
          layer_state_row("SHORT_CONV", AttentionLayerKind::kShortConv, GraphSupport::kNotLookedUp,
                          "registry.py 0033bf03"),
          layer_state_row("LINEAR", AttentionLayerKind::kLinear, GraphSupport::kNotLookedUp,
                          "registry.py 0033bf03"),
          layer_state_row("GDN_ATTN", AttentionLayerKind::kGatedDelta, GraphSupport::kNotLookedUp,
                          "registry.py 0033bf03")};
}

}  // namespace attnscope
