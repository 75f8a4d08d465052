// Backends of MLA on CUDA: all heads share one latent row a token. Their layers have no ALiBi, no
// soft cap and no window: the classes refuse them when a layer is made. Facts as in
// attention_rows_cuda.cpp, from vllm/v1/attention/backends/mla/; those of DeepSeek-V4's own from
// vllm/models/deepseek_v4/sparse_mla.py and nvidia/flashinfer_sparse.py as docs.vllm.ai has them
// under "latest".
#include <fmt/format.h>

#include "engine/backend/attention_registry.h"

namespace attnscope {
namespace {

constexpr ComputeCapability kHopper{9, 0}, kHopperLast{9, 9};
constexpr ComputeCapability kBlackwell{10, 0}, kBlackwellLast{10, 9};
constexpr int kNopeDims = 128;

AttentionBackend mla_row(const char* name, const char* what, bool sparse) {
  AttentionBackend b;
  b.name = name;
  b.what = what;
  b.platforms = {AttentionPlatform::kCuda};
  b.mla = true;
  b.sparse = sparse;
  b.value_sizes = true;
  b.alibi = b.soft_cap = b.window = false;
  b.cache = {{"blocks", "tokens", "row"}, {}};
  if (sparse) b.head_sizes = {{576}};
  b.cpu_lane = b.cuda_lane = true;
  b.ops = {AS_OP_MLA_KV_INSERT, AS_OP_MLA_Q_ABSORB,
           sparse ? AS_OP_SPARSE_MLA_ATTENTION : AS_OP_MLA_ATTENTION, AS_OP_MLA_V_UP};
  return b;
}

void add_fp8_codes(AttentionBackend& b) {
  for (const char* dtype : {"fp8", "fp8_e4m3"}) b.cache_dtypes.emplace_back(dtype);
}

std::string flashinfer_dims(const AttentionRequest& request) {
  if (request.nope_dim == 0 || request.nope_dim == kNopeDims) return {};
  return fmt::format("{} dims without RoPE a head, the kernel has {}", request.nope_dim, kNopeDims);
}

AttentionBackend flash_attn_mla() {
  AttentionBackend b = mla_row("FLASH_ATTN_MLA", "FlashAttention 3 over latent rows", false);
  b.block_sizes = {{}, 16};
  b.batch_invariant = true;
  b.graph = GraphSupport::kUniformBatch;
  b.gpus = {kHopper, kHopperLast};
  b.source = "flashattn_mla.py 09aa6b34";
  return b;
}

// Its dense kernel is for Hopper alone, whatever GPUs the class names.
std::string dense_flashmla(const AttentionRequest& request) {
  return request.gpu.major == 9 ? "" : "dense FlashMLA on another GPU than Hopper";
}

AttentionBackend flashmla() {
  AttentionBackend b = mla_row("FLASHMLA", "DeepSeek's decode kernel over latent rows", false);
  add_fp8_codes(b);
  b.block_sizes = {{64}};
  b.graph = GraphSupport::kUniformBatch;
  b.gpus = {kHopper, kBlackwellLast};
  b.combination = dense_flashmla;
  b.source = "flashmla.py e75aca0c";
  return b;
}

AttentionBackend flashinfer_mla() {
  AttentionBackend b = mla_row("FLASHINFER_MLA", "TensorRT-LLM's MLA by FlashInfer", false);
  add_fp8_codes(b);
  b.block_sizes = {{32, 64}};
  b.graph = GraphSupport::kUniformBatch;
  b.gpus = {kBlackwell, kBlackwellLast};
  b.layout = "HND";
  b.combination = flashinfer_dims;
  b.source = "flashinfer_mla.py bb13e932";
  return b;
}

AttentionBackend cutlass_mla() {
  AttentionBackend b = mla_row("CUTLASS_MLA", "NVIDIA's MLA in CUTLASS", false);
  add_fp8_codes(b);
  b.block_sizes = {{128}};
  b.graph = GraphSupport::kSingleTokenDecode;
  b.gpus = {kBlackwell, kBlackwellLast};
  b.source = "attention_backends.md 00139433";
  return b;
}

AttentionBackend triton_mla() {
  AttentionBackend b = mla_row("TRITON_MLA", "vLLM's own MLA in Triton", false);
  b.platforms = {AttentionPlatform::kCuda, AttentionPlatform::kRocm, AttentionPlatform::kXpu};
  add_fp8_codes(b);
  b.block_sizes = {{}, 16};
  b.batch_invariant = true;
  b.source = "attention_backends.md 00139433";
  return b;
}

AttentionBackend flashmla_sparse() {
  AttentionBackend b = mla_row("FLASHMLA_SPARSE", "FlashMLA over the rows of a selection", true);
  b.dtypes = {"bfloat16"};
  b.cache_dtypes = {"auto", "bfloat16", "fp8_ds_mla"};
  b.block_sizes = {{64}};
  b.graph = GraphSupport::kUniformBatch;
  b.gpus = {kHopper, kBlackwellLast};
  b.source = "flashmla_sparse.py 60191e18";
  return b;
}

AttentionBackend flashinfer_mla_sparse() {
  AttentionBackend b =
      mla_row("FLASHINFER_MLA_SPARSE", "TensorRT-LLM's MLA over the rows of a selection", true);
  add_fp8_codes(b);
  b.block_sizes = {{32, 64}};
  b.graph = GraphSupport::kUniformBatch;
  b.gpus = {kBlackwell, kBlackwellLast};
  b.layout = "HND";
  b.combination = flashinfer_dims;
  b.source = "flashinfer_mla_sparse.py dee20921, attention_backends.md 00139433";
  return b;
}

// DeepSeek-V4's layers name their backend themselves; others may not take it.
AttentionBackend own_of_v4(const char* name, const char* what) {
  AttentionBackend b = mla_row(name, what, true);
  b.only_model = "deepseek_v4";
  b.head_sizes = {{512}};
  b.dtypes = {"bfloat16"};
  b.block_sizes = {{256}};
  b.sinks = true;
  b.ops = {AS_OP_Q_ROPE_KV_INSERT, AS_OP_SPARSE_ATTENTION, AS_OP_INVERSE_ROPE};
  b.source = "deepseek_v4/sparse_mla.py, docs.vllm.ai latest";
  return b;
}

AttentionBackend flashmla_v4() {
  AttentionBackend b =
      own_of_v4("FLASHMLA_SPARSE_DSV4", "FlashMLA over DeepSeek-V4's window and its selection");
  b.cache_dtypes = {"auto", "bfloat16", "fp8_ds_mla", "fp8"};
  b.gpus = {kHopper, kBlackwellLast};
  return b;
}

AttentionBackend flashinfer_v4() {
  AttentionBackend b = own_of_v4("FLASHINFER_MLA_SPARSE_DSV4",
                                 "TensorRT-LLM over DeepSeek-V4's window and its selection");
  b.cache_dtypes = {"auto", "bfloat16", "fp8", "fp8_e4m3"};
  b.gpus = {kBlackwell, kBlackwellLast};
  b.cpu_lane = b.cuda_lane = false;
  b.ops.clear();
  b.why_not_here = "its rows without scales of their own are not among the caches here";
  b.source = "deepseek_v4/nvidia/flashinfer_sparse.py, docs.vllm.ai latest";
  return b;
}

}  // namespace

std::vector<AttentionBackend> mla_attention_rows() {
  return {flash_attn_mla(),        flashmla(),    flashinfer_mla(),
          cutlass_mla(),           triton_mla(),  flashmla_sparse(),
          flashinfer_mla_sparse(), flashmla_v4(), flashinfer_v4()};
}

}  // namespace attnscope
