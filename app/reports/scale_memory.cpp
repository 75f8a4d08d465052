// Bytes of the caches of one request, as the block manager gives its blocks, beside the storage
// report.
#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "app/reports/scale.h"
#include "app/reports/storage_report.h"
#include "engine/cache/kv_manager.h"
#include "engine/family/models.h"
#include "engine/model/numbers.h"

namespace attnscope {
namespace {

constexpr std::int64_t kChunk = 8192;  // tokens of a prefill step
constexpr CacheProfile kProfile = CacheProfile::kA;

struct HeldBlocks {
  std::int64_t kept = 0;  // blocks of groups without a window
  std::int64_t all = 0;
};

HeldBlocks held_blocks(const KvManager& kv, const KvRequest& request) {
  HeldBlocks held;
  for (std::size_t g = 0; g < kv.num_groups(); ++g) {
    const std::int64_t blocks = kv.table(request.slot, g).real();
    held.all += blocks;
    if (kv.options().groups[g].kind == GroupKind::kFull) held.kept += blocks;
  }
  return held;
}

// A request of `context` tokens as a session steps it: its prefill in chunks, then one token.
Result<ScaleMemory> blocks_of_request(const CacheLayout& layout, std::int64_t context) {
  KvOptions options;
  options.groups.assign(layout.groups.begin(), layout.groups.end());
  options.max_model_len = context + 1;
  options.cap_tokens = kChunk;
  options.num_blocks = layout.demand(context + 1, kChunk) + 1;
  options.caching = false;
  options.switches = switches_of(kProfile);
  const Result<KvOptions> checked = check_options(options);
  if (!checked) return checked.error();
  KvManager kv(*checked);
  KvRequest request;
  request.tokens.assign(to_size(context + 1), 7);
  request.prompt_tokens = context;
  kv.add(request);
  const auto step = [&](std::int64_t tokens) -> Result<void> {
    Allocation a;
    a.new_tokens = tokens;
    if (kv.allocate(request, a) != Allocated::kYes) {
      return internal_error("the block manager refused a request that its pool has room for");
    }
    request.computed += tokens;
    return {};
  };
  while (request.computed < context) {
    if (auto ok = step(std::min(kChunk, context - request.computed)); !ok) return ok.error();
  }
  ScaleMemory memory;
  memory.context = context;
  memory.kept_blocks = held_blocks(kv, request).kept;
  if (auto ok = step(1); !ok) return ok.error();
  memory.held_blocks = held_blocks(kv, request).all;
  return memory;
}

bool same(double a, double b) { return std::abs(a - b) <= 1e-9 * std::max(a, b); }

}  // namespace

Result<std::vector<ScaleMemory>> measure_memory(const ModelConfig& config,
                                                const std::vector<std::int64_t>& contexts) {
  const CacheLayout layout = build_cache_layout(config);
  const auto stride = static_cast<double>(layout.block_stride);
  std::vector<ScaleMemory> out;
  for (const std::int64_t context : contexts) {
    Result<ScaleMemory> memory = blocks_of_request(layout, context);
    if (!memory) return memory.error();
    const auto tokens = static_cast<double>(context);
    const nlohmann::ordered_json report =
        storage_report(config, {kProfile, layout.block_stride, context + 1, 1, {}});
    const double block = report.at("block_stride_bytes").get<double>();
    memory->kept_per_token = static_cast<double>(memory->kept_blocks) * stride / tokens;
    memory->report_kept_per_token = report.at("kept_bytes_per_token").get<double>();
    memory->report_held_blocks = report.at("request_blocks").get<std::int64_t>();
    memory->held_per_token = static_cast<double>(memory->held_blocks) * stride / tokens;
    memory->report_held_per_token =
        static_cast<double>(memory->report_held_blocks) * block / tokens;
    memory->equal = same(memory->kept_per_token, memory->report_kept_per_token) &&
                    same(memory->held_per_token, memory->report_held_per_token);
    out.push_back(*memory);
  }
  return out;
}

}  // namespace attnscope
