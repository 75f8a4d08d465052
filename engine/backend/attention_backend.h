// Attention backends of vLLM as data: what each can do and where, so that a choice among them can
// be explained rule by rule (attention_selector.h). Nothing here computes attention.
#pragma once

#include <compare>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/params/op_ids.h"
#include "kernels/params/result.h"

namespace attnscope {

enum class AttentionPlatform { kCuda, kRocm, kXpu, kCpu };
enum class AttentionType { kDecoder, kEncoder, kEncoderOnly, kEncoderDecoder };

// What a layer is. Those below attention keep a state in the place of keys and values, and name
// their backend themselves: nothing is selected.
enum class AttentionLayerKind { kAttention, kMamba1, kMamba2, kShortConv, kLinear, kGatedDelta };

// Of which batches a full CUDA graph can be recorded.
enum class GraphSupport { kNever, kSingleTokenDecode, kUniformBatch, kAlways, kNotLookedUp };

// What a step's metadata is made of.
enum class MetadataForm {
  kBlockTables,   // a row of block numbers a request, padded
  kPagedIndices,  // indptr, indices, tokens in the last page
  kPrefillOnly,   // lengths alone, no cache
  kStateIndices,  // one state a request
};

// Of an NVIDIA GPU: sm_90 is 9.0, sm_103 is 10.3.
struct ComputeCapability {
  int major = 0, minor = 0;
  friend auto operator<=>(const ComputeCapability&, const ComputeCapability&) = default;
};

struct CapabilityRange {
  ComputeCapability first{0, 0}, last{99, 9};
  bool has(ComputeCapability c) const { return first <= c && c <= last; }
};

// Listed ones, else all between two ends that are multiples.
struct HeadSizes {
  std::vector<int> listed;
  int multiple_of = 1;
  int smallest = 1, largest = 0;  // largest 0 = no end
  bool has(int size) const;
};

// Tokens of a block that a kernel takes. A larger block that is a multiple of one of them is cut.
struct BlockSizes {
  std::vector<int> fixed;
  int multiple_of = 1;  // where nothing is fixed
  bool has(int tokens) const;
};

// Axes by name, outermost first: "2", "blocks", "tokens", "kv heads", "head", "head + value",
// "row" (of one token, all that it keeps), "slot", "tokens x kv heads x head", "state".
struct CacheShape {
  std::vector<const char*> axes;
  std::vector<int> hnd;  // order of the axes in memory with layout HND; empty = as with NHD
};

// One way in which a backend runs: a version of its library, by GPU and head size. It takes the
// place of the backend's own fields.
struct BackendVariant {
  const char* name;
  std::vector<std::string> cache_dtypes;
  bool sinks = false;
  bool head_scales = false;
  GraphSupport graph = GraphSupport::kNever;
};

// What a layer asks of its backend, and where it is to run.
struct AttentionRequest {
  std::string model;       // for people
  std::string model_type;  // what backends of one model alone are asked by
  AttentionLayerKind kind = AttentionLayerKind::kAttention;
  int layers = 0;  // of the model; of them with a window:
  int windowed = 0;
  int heads = 0, kv_heads = 0;
  int head_size = 0;   // of queries and keys; with MLA of the latent row, 576
  int value_size = 0;  // of values; with MLA the latent dims, 512
  int nope_dim = 0;    // with MLA: dims of a head without RoPE; 0 = not said
  std::string dtype = "bfloat16";
  std::string cache_dtype = "auto";  // that of the model
  int block_size = 0;                // 0 = not said: the backend has its own
  AttentionType type = AttentionType::kDecoder;
  bool mla = false, sparse = false, sinks = false, alibi = false;
  double soft_cap = 0;  // of scores, 0 = none
  int window = 0;       // tokens, 0 = none
  bool mm_prefix = false, non_causal = false;
  bool head_scales = false;      // of quantised caches, one a head
  int first_tokens_16bit = 0;    // of a request, which quantised caches have in 16 bits too
  bool batch_invariant = false;  // the same bytes for every batch
  bool kv_connector = false;     // blocks go to other machines
  AttentionPlatform platform = AttentionPlatform::kCuda;
  ComputeCapability gpu{9, 0};
  std::string backend;  // a name that must be taken; empty = selected
};

struct AttentionBackend {
  std::string name;
  std::string what;  // a sentence without its full stop
  std::vector<AttentionPlatform> platforms;
  AttentionLayerKind kind = AttentionLayerKind::kAttention;
  std::string only_model;  // model_type that it is for; empty = any
  HeadSizes head_sizes;
  bool value_sizes = false;  // values may have another head size than keys
  std::vector<std::string> dtypes{"float16", "bfloat16"};
  std::vector<std::string> cache_dtypes{"auto", "float16", "bfloat16"};
  BlockSizes block_sizes;
  std::vector<AttentionType> types{AttentionType::kDecoder};
  bool mla = false, sparse = false, sinks = false;
  bool soft_cap = true, alibi = true, window = true;
  bool mm_prefix = false, non_causal = false, head_scales = false, batch_invariant = false;
  bool kv_connector = true;
  GraphSupport graph = GraphSupport::kNotLookedUp;
  CapabilityRange gpus;  // of platform cuda
  MetadataForm metadata = MetadataForm::kBlockTables;
  CacheShape cache;
  const char* layout = "";  // the only one that it takes; "" = either
  std::vector<BackendVariant> variants;
  // Which of them answers the request; where there are none nobody calls it.
  int (*variant)(const AttentionRequest& request) = nullptr;
  // What the backend refuses though each value alone would do; empty = nothing.
  std::string (*combination)(const AttentionRequest& request) = nullptr;
  // Lanes of this program that compute what it does, by other kernels; why there are none.
  bool cpu_lane = false, cuda_lane = false;
  std::vector<as_op_id> ops;  // of them: what writes rows, what comes before attention, attention
  std::string why_not_here;
  const char* source = "";  // where its rules were read

  bool runs_here() const { return cpu_lane || cuda_lane; }
};

// The backend as it answers the request: with the fields of the variant that it takes.
AttentionBackend as_asked(const AttentionBackend& backend, const AttentionRequest& request);
// "FA3"; empty = it has no variants.
std::string variant_name(const AttentionBackend& backend, const AttentionRequest& request);

// FlashAttention's version: 3 on Hopper, 4 on sm_10x, else 2; 2 with ALiBi, which 3 and 4 have not,
// and on sm_10x with heads of more than 128 dims, but 192.
int flash_version(const AttentionRequest& request);

// `wanted` where the kernel takes it, else the smallest that it does.
int preferred_block_size(const AttentionBackend& backend, int wanted = 16);

struct CacheNumbers {
  std::int64_t blocks = 0, tokens = 0, kv_heads = 0, head = 0, value = 0;
  std::string cache_dtype = "auto";
};
// Elements along each axis; bytes where rows are packed (fp8_ds_mla). AS_BAD_INPUT for caches of
// states and of packed slots, whose sizes are others'.
Result<std::vector<std::int64_t>> cache_shape(const AttentionBackend& backend,
                                              const CacheNumbers& numbers);
// Of each axis of `shape`, in elements, with layout "NHD" or "HND".
std::vector<std::int64_t> cache_strides(const AttentionBackend& backend,
                                        const std::vector<std::int64_t>& shape,
                                        std::string_view layout);

const char* platform_name(AttentionPlatform platform);
const char* attention_type_name(AttentionType type);
const char* layer_kind_name(AttentionLayerKind kind);
const char* graph_support_name(GraphSupport support);
const char* metadata_form_name(MetadataForm form);
std::string capability_name(ComputeCapability capability);  // "sm_90"
std::string describe(const CapabilityRange& range);         // "9.x to 10.x", "8.0 and newer"
std::string describe(const HeadSizes& sizes);               // "multiples of 8 up to 256"
std::string describe(const BlockSizes& sizes);              // "multiples of 16"

// "sm_90", "rocm", "xpu" or "cpu": sets platform and gpu.
Result<void> set_platform(AttentionRequest& request, std::string_view text);

}  // namespace attnscope
