#include "engine/backend/attention_backend.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "engine/io/json_object.h"
#include "engine/io/plural.h"

namespace attnscope {
namespace {

// Bytes of a packed row: 512 codes, 4 scales in fp32, 64 dims in bf16; and of DeepSeek-V4's: 448
// codes, 64 dims in bf16, 8 bytes of scales.
constexpr std::int64_t kPackedRow576 = 656, kPackedRow512 = 584;

std::int64_t cache_axis_size(std::string_view axis, const CacheNumbers& n) {
  if (axis == "2") return 2;
  if (axis == "blocks") return n.blocks;
  if (axis == "tokens") return n.tokens;
  if (axis == "kv heads") return n.kv_heads;
  if (axis == "head") return n.head;
  if (axis == "head + value") return n.head + n.value;
  if (axis == "tokens x kv heads x head") return n.tokens * n.kv_heads * n.head;
  if (axis == "row") {
    if (n.cache_dtype != "fp8_ds_mla") return n.head;
    return n.head == 512 ? kPackedRow512 : kPackedRow576;
  }
  return 0;
}

}  // namespace

bool HeadSizes::has(int size) const {
  if (!listed.empty()) return std::ranges::find(listed, size) != listed.end();
  return size >= smallest && (largest == 0 || size <= largest) && size % multiple_of == 0;
}

bool BlockSizes::has(int tokens) const {
  if (fixed.empty()) return tokens % multiple_of == 0;
  return std::ranges::any_of(fixed, [&](int one) { return tokens % one == 0; });
}

AttentionBackend as_asked(const AttentionBackend& backend, const AttentionRequest& request) {
  AttentionBackend asked = backend;
  if (backend.variants.empty()) return asked;
  const auto index = static_cast<std::size_t>(backend.variant(request));
  const BackendVariant& variant = backend.variants[index];
  asked.cache_dtypes = variant.cache_dtypes;
  asked.sinks = variant.sinks;
  asked.head_scales = variant.head_scales;
  asked.graph = variant.graph;
  return asked;
}

std::string variant_name(const AttentionBackend& backend, const AttentionRequest& request) {
  if (backend.variants.empty()) return {};
  return backend.variants[static_cast<std::size_t>(backend.variant(request))].name;
}

// vllm/v1/attention/backends/fa_utils.py at 7283494f and 00bd1493 (4 on sm_10x alone).
int flash_version(const AttentionRequest& request) {
  if (request.platform != AttentionPlatform::kCuda || request.alibi) return 2;
  if (request.gpu.major == 9) return 3;
  if (request.gpu.major != 10) return 2;
  return request.head_size > 128 && request.head_size != 192 ? 2 : 4;
}

int preferred_block_size(const AttentionBackend& backend, int wanted) {
  const BlockSizes& sizes = backend.block_sizes;
  if (sizes.has(wanted)) return wanted;
  return sizes.fixed.empty() ? sizes.multiple_of : *std::ranges::min_element(sizes.fixed);
}

Result<std::vector<std::int64_t>> cache_shape(const AttentionBackend& backend,
                                              const CacheNumbers& numbers) {
  std::vector<std::int64_t> shape;
  for (const char* axis : backend.cache.axes) {
    const std::int64_t size = cache_axis_size(axis, numbers);
    if (size <= 0) {
      return bad_input(fmt::format("{}: axis \"{}\" of its cache has no size", backend.name, axis),
                       "choose a backend whose cache is of keys and values, and sizes above 0");
    }
    shape.push_back(size);
  }
  return shape;
}

std::vector<std::int64_t> cache_strides(const AttentionBackend& backend,
                                        const std::vector<std::int64_t>& shape,
                                        std::string_view layout) {
  std::vector<int> order = layout == "HND" ? backend.cache.hnd : std::vector<int>();
  if (order.empty()) {
    for (std::size_t i = 0; i < shape.size(); ++i) order.push_back(static_cast<int>(i));
  }
  std::vector<std::int64_t> strides(shape.size());
  std::int64_t stride = 1;
  for (auto axis = order.rbegin(); axis != order.rend(); ++axis) {
    strides[static_cast<std::size_t>(*axis)] = stride;
    stride *= shape[static_cast<std::size_t>(*axis)];
  }
  return strides;
}

const char* platform_name(AttentionPlatform platform) {
  static constexpr const char* kNames[] = {"cuda", "rocm", "xpu", "cpu"};
  return kNames[static_cast<int>(platform)];
}

const char* attention_type_name(AttentionType type) {
  static constexpr const char* kNames[] = {"decoder", "encoder", "encoder_only", "encoder_decoder"};
  return kNames[static_cast<int>(type)];
}

const char* layer_kind_name(AttentionLayerKind kind) {
  static constexpr const char* kNames[] = {"attention",         "mamba1",           "mamba2",
                                           "short convolution", "linear attention", "gated delta"};
  return kNames[static_cast<int>(kind)];
}

const char* graph_support_name(GraphSupport support) {
  static constexpr const char* kNames[] = {"never", "decode of one token", "uniform batch",
                                           "always", "not looked up"};
  return kNames[static_cast<int>(support)];
}

const char* metadata_form_name(MetadataForm form) {
  static constexpr const char* kNames[] = {"block tables", "indptr, indices, last page",
                                           "prefill only, no cache", "a state a request"};
  return kNames[static_cast<int>(form)];
}

std::string capability_name(ComputeCapability capability) {
  return fmt::format("sm_{}{}", capability.major, capability.minor);
}

std::string describe(const CapabilityRange& range) {
  const auto [first, last] = range;
  if (last.major == 99) {
    return first.major == 0 ? "any" : fmt::format("{}.{} and newer", first.major, first.minor);
  }
  if (first.minor != 0 || last.minor != 9) {
    return fmt::format("{}.{} to {}.{}", first.major, first.minor, last.major, last.minor);
  }
  return first.major == last.major ? fmt::format("{}.x", first.major)
                                   : fmt::format("{}.x to {}.x", first.major, last.major);
}

std::string describe(const HeadSizes& sizes) {
  if (!sizes.listed.empty()) return fmt::format("{}", fmt::join(sizes.listed, ", "));
  std::string text =
      sizes.multiple_of > 1 ? fmt::format("multiples of {}", sizes.multiple_of) : "any";
  if (sizes.smallest > 1) text += fmt::format(" from {}", sizes.smallest);
  if (sizes.largest > 0) text += fmt::format(" up to {}", sizes.largest);
  return text;
}

std::string describe(const BlockSizes& sizes) {
  if (!sizes.fixed.empty()) {
    return fmt::format("{} and multiples of {}", fmt::join(sizes.fixed, ", "),
                       agree(sizes.fixed.size(), "it", "them"));
  }
  return sizes.multiple_of > 1 ? fmt::format("multiples of {}", sizes.multiple_of) : "any";
}

Result<void> set_platform(AttentionRequest& request, std::string_view text) {
  for (const auto platform :
       {AttentionPlatform::kRocm, AttentionPlatform::kXpu, AttentionPlatform::kCpu}) {
    if (text != platform_name(platform)) continue;
    request.platform = platform;
    request.gpu = {};
    return {};
  }
  const std::string_view digits = text.starts_with("sm_") ? text.substr(3) : std::string_view();
  const bool number = digits.size() >= 2 && digits.size() <= 3 && digits[0] != '0' &&
                      std::ranges::all_of(digits, [](char c) { return c >= '0' && c <= '9'; });
  if (!number) {
    return usage_error(fmt::format("GPU {} is not known", shown_name(text)),
                       "say sm_80, sm_90, sm_100 or another compute capability, rocm, xpu, or cpu");
  }
  int all = 0;
  for (const char digit : digits) all = 10 * all + (digit - '0');
  // Of CUDA, up to 13.
  constexpr int kCapabilities[] = {30, 35, 37, 50, 52, 53, 60,  61,  62,  70,  72,  75,
                                   80, 86, 87, 88, 89, 90, 100, 101, 103, 110, 120, 121};
  if (std::ranges::find(kCapabilities, all) == std::end(kCapabilities)) {
    std::string known;
    for (const int one : kCapabilities)
      known += fmt::format("{}sm_{}", known.empty() ? "" : ", ", one);
    return bad_input(fmt::format("no GPU has compute capability {}", text), "allowed: " + known);
  }
  request.platform = AttentionPlatform::kCuda;
  request.gpu = {all / 10, all % 10};
  return {};
}

}  // namespace attnscope
