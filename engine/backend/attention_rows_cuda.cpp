// Backends of attention with keys and values a head, and DeepSeek-style rows elsewhere
// (attention_rows_mla.cpp). Facts are those of vLLM's files below vllm/v1/attention/backends/ at
// the commit that `source` names, and of its table docs/design/attention_backends.md at 00139433,
// which vLLM makes of validate_configuration() itself.
#include "engine/backend/attention_registry.h"

namespace attnscope {
namespace {

using RowTexts = std::vector<std::string>;
constexpr ComputeCapability kAmpere{8, 0};

const RowTexts kPlainCache{"auto", "float16", "bfloat16"};
const RowTexts kFp8Cache{"auto", "float16", "bfloat16", "fp8", "fp8_e4m3", "fp8_e5m2"};
const std::vector<AttentionType> kAllTypes{AttentionType::kDecoder, AttentionType::kEncoder,
                                           AttentionType::kEncoderOnly,
                                           AttentionType::kEncoderDecoder};

CacheShape keys_and_values_outermost() {
  return {{"2", "blocks", "tokens", "kv heads", "head"}, {0, 1, 3, 2, 4}};
}
CacheShape blocks_outermost() {
  return {{"blocks", "2", "tokens", "kv heads", "head"}, {0, 1, 3, 2, 4}};
}

std::string flash_combination(const AttentionRequest& request) {
  const bool old = request.platform == AttentionPlatform::kCuda && request.gpu.major < 9;
  return request.sinks && old ? "sinks on compute capability below 9.0" : "";
}

AttentionBackend flash_attn_row() {
  AttentionBackend b;
  b.name = "FLASH_ATTN";
  b.what = "FlashAttention as vLLM ships it, in three versions";
  b.platforms = {AttentionPlatform::kCuda, AttentionPlatform::kXpu};
  b.head_sizes = {{}, 8, 8, 256};
  b.block_sizes = {{}, 16};
  b.types = kAllTypes;
  b.non_causal = b.batch_invariant = true;
  b.gpus = {kAmpere, {99, 9}};
  b.cache = keys_and_values_outermost();
  b.variants = {{"FA2", kPlainCache, false, false, GraphSupport::kUniformBatch},
                {"FA3", kFp8Cache, true, true, GraphSupport::kAlways},
                {"FA4", kPlainCache, false, true, GraphSupport::kUniformBatch},
                {"XPU", kPlainCache, true, false, GraphSupport::kNotLookedUp}};
  b.variant = [](const AttentionRequest& request) {
    return request.platform == AttentionPlatform::kXpu ? 3 : flash_version(request) - 2;
  };
  b.combination = flash_combination;
  b.cpu_lane = b.cuda_lane = true;
  b.ops = {AS_OP_ROPE_KV_INSERT, AS_OP_PAGED_ATTENTION};
  b.source = "flash_attn.py 5704f34f, fa_utils.py 7283494f";
  return b;
}

AttentionBackend flash_attn_diffkv() {
  AttentionBackend b;
  b.name = "FLASH_ATTN_DIFFKV";
  b.what = "FlashAttention with values of another head size than keys";
  b.platforms = {AttentionPlatform::kCuda};
  b.head_sizes = {{}, 8, 8, 256};
  b.value_sizes = true;
  b.cache_dtypes = {"auto"};
  b.gpus = {kAmpere, {99, 9}};
  b.cache = {{"blocks", "tokens", "kv heads", "head + value"}, {0, 2, 1, 3}};
  b.why_not_here = "models with two head sizes are not computed here";
  b.source = "attention_backends.md 00139433";
  return b;
}

// On sm_10x its kernels are those of TensorRT-LLM, which have sinks and want HND.
AttentionBackend flashinfer() {
  AttentionBackend b;
  b.name = "FLASHINFER";
  b.what = "FlashInfer, on Blackwell with the kernels of TensorRT-LLM";
  b.platforms = {AttentionPlatform::kCuda};
  b.head_sizes = {{64, 128, 256}};
  b.block_sizes = {{16, 32, 64}};
  b.alibi = false;
  b.gpus = {{7, 5}, {12, 1}};
  b.metadata = MetadataForm::kPagedIndices;
  b.cache = blocks_outermost();
  b.variants = {{"native", kFp8Cache, false, false, GraphSupport::kSingleTokenDecode},
                {"TRTLLM", kFp8Cache, true, false, GraphSupport::kUniformBatch}};
  b.variant = [](const AttentionRequest& request) { return request.gpu.major == 10 ? 1 : 0; };
  b.cpu_lane = b.cuda_lane = true;
  b.ops = {AS_OP_ROPE_KV_INSERT, AS_OP_PAD_ROWS, AS_OP_PAGED_ATTENTION};
  b.source = "flashinfer.py 5314c90d, attention_backends.md 00139433";
  return b;
}

AttentionBackend triton_attn() {
  AttentionBackend b;
  b.name = "TRITON_ATTN";
  b.what = "vLLM's own kernels in Triton, decode and prefill in one launch";
  b.platforms = {AttentionPlatform::kCuda, AttentionPlatform::kRocm, AttentionPlatform::kXpu};
  b.head_sizes = {{}, 1, 32};
  b.dtypes = {"float16", "bfloat16", "float32"};
  b.cache_dtypes = kFp8Cache;
  for (const char* packed : {"int2", "int4", "int8", "fp8"}) {
    b.cache_dtypes.push_back(std::string(packed) + "_per_token_head");
  }
  b.block_sizes = {{}, 16};
  b.types = kAllTypes;
  b.sinks = b.mm_prefix = b.batch_invariant = true;
  b.graph = GraphSupport::kAlways;
  b.cache = blocks_outermost();
  b.cpu_lane = b.cuda_lane = true;
  b.ops = {AS_OP_ROPE_KV_INSERT, AS_OP_PAGED_ATTENTION};
  b.source = "triton_attn.py 001ceb3e, attention_backends.md 00139433";
  return b;
}

AttentionBackend flex_attention() {
  AttentionBackend b;
  b.name = "FLEX_ATTENTION";
  b.what = "PyTorch's FlexAttention: mask and score functions, compiled";
  b.platforms = {AttentionPlatform::kCuda};
  b.dtypes = {"float16", "bfloat16", "float32"};
  b.types = {AttentionType::kDecoder, AttentionType::kEncoderOnly};
  b.mm_prefix = b.non_causal = true;
  b.alibi = b.soft_cap = false;
  b.graph = GraphSupport::kNever;
  b.cache = keys_and_values_outermost();
  b.cpu_lane = b.cuda_lane = true;
  b.ops = {AS_OP_ROPE_KV_INSERT, AS_OP_PAGED_ATTENTION};
  b.source = "flex_attention.py 578b05df, attention_backends.md 00139433";
  return b;
}

AttentionBackend tree_attn() {
  AttentionBackend b;
  b.name = "TREE_ATTN";
  b.what = "Drafts as a tree, verified at once";
  b.platforms = {AttentionPlatform::kCuda};
  b.head_sizes = {{32, 64, 96, 128, 160, 192, 224, 256}};
  b.block_sizes = {{}, 16};
  b.cache = keys_and_values_outermost();
  b.why_not_here = "drafts are chains here, no trees";
  b.source = "attention_backends.md 00139433";
  return b;
}

AttentionBackend turboquant() {
  AttentionBackend b;
  b.name = "TURBOQUANT";
  b.what = "Keys and values in 3, 4 or 8 bits, read as they are";
  b.platforms = {AttentionPlatform::kCuda, AttentionPlatform::kRocm, AttentionPlatform::kXpu};
  b.cache_dtypes = {"turboquant_k8v4", "turboquant_4bit_nc", "turboquant_k3v4_nc",
                    "turboquant_3bit_nc"};
  b.block_sizes = {{16, 32, 64, 128}};
  b.cache = {{"blocks", "tokens", "kv heads", "slot"}, {}};
  b.why_not_here = "its packed rows are not among the caches here";
  b.source = "attention_backends.md 00139433";
  return b;
}

}  // namespace

std::vector<AttentionBackend> cuda_attention_rows() {
  return {flash_attn_row(), flash_attn_diffkv(), flashinfer(), triton_attn(),
          flex_attention(), tree_attn(),         turboquant()};
}

}  // namespace attnscope
