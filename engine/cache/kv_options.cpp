#include "engine/cache/kv_options.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

namespace attnscope {
namespace {

constexpr std::int64_t kMostTokens = std::int64_t{1} << 30;  // token counts fit 32 bits
constexpr std::int64_t kMostOfPool = std::int64_t{1} << 30;
constexpr std::size_t kMostGroups = 64;

Error out_of_range(const std::string& what, std::int64_t value, std::int64_t low,
                   std::int64_t high) {
  return bad_input(fmt::format("{} is {}", what, value),
                   fmt::format("allowed: {} to {}", low, high));
}

Result<void> check_group(const GroupSpec& g, std::size_t i) {
  const std::string name = fmt::format("groups[{}]", i);
  if (g.block_tokens < 1 || g.block_tokens > kMostTokens) {
    return out_of_range(name + ".block_size", g.block_tokens, 1, kMostTokens);
  }
  if (g.kind != GroupKind::kFull && (g.window < 1 || g.window > kMostTokens)) {
    const char* const number = g.kind == GroupKind::kSliding   ? ".window"
                               : g.kind == GroupKind::kChunked ? ".chunk"
                                                               : ".first";
    return out_of_range(name + number, g.window, 1, kMostTokens);
  }
  if ((g.kind == GroupKind::kChunked || g.kind == GroupKind::kFirst) && g.flagged) {
    return bad_input(fmt::format("{} is {} and flagged", name, group_kind_name(g.kind)),
                     "a draft model's group is full or sliding");
  }
  if (g.kind == GroupKind::kFirst && g.window % g.block_tokens != 0) {
    return bad_input(fmt::format("{}.first {} is no multiple of its block_size {}", name, g.window,
                                 g.block_tokens),
                     "the first tokens fill whole blocks");
  }
  return {};
}

// Alignment and hash block against the groups.
Result<void> check_blocks(const KvOptions& o) {
  for (std::size_t i = 0; i < o.groups.size(); ++i) {
    const GroupSpec& g = o.groups[i];
    if (g.block_tokens % o.hash_block != 0) {
      return bad_input(fmt::format("groups[{}].block_size {} is no multiple of hash_block_size {}",
                                   i, g.block_tokens, o.hash_block),
                       "choose a hash block that divides every group's block");
    }
    if (o.alignment % g.block_tokens != 0) {
      return bad_input(
          fmt::format("scheduler_block_size {} is no multiple of groups[{}].block_size {}",
                      o.alignment, i, g.block_tokens),
          "choose the least common multiple of the groups' blocks");
    }
    if (o.caching && g.kind == GroupKind::kChunked && g.window % g.block_tokens != 0) {
      return bad_input(fmt::format("groups[{}].chunk {} is no multiple of its block_size {}", i,
                                   g.window, g.block_tokens),
                       "with caching a chunk ends with a block");
    }
    if (o.caching && g.kind == GroupKind::kChunked && g.block_tokens != o.alignment) {
      return bad_input(fmt::format("groups[{}] is chunked with blocks of {} tokens, hits end at "
                                   "multiples of {}",
                                   i, g.block_tokens, o.alignment),
                       "beside a chunked group all groups have its block size");
    }
  }
  if (o.caching && o.groups.size() == 1 && o.groups[0].block_tokens != o.hash_block) {
    return bad_input(fmt::format("hash_block_size is {}, the only group's block_size {}",
                                 o.hash_block, o.groups[0].block_tokens),
                     "with one group both are equal");
  }
  return {};
}

}  // namespace

Result<KvOptions> check_options(KvOptions o) {
  // Models without a cache have no group, and nothing that a prefix could be found in.
  if ((o.groups.empty() && o.caching) || o.groups.size() > kMostGroups) {
    return out_of_range("the number of groups", static_cast<std::int64_t>(o.groups.size()), 1,
                        kMostGroups);
  }
  if (!o.groups.empty() && std::ranges::all_of(o.groups, [](const GroupSpec& g) {
        return g.kind == GroupKind::kFirst;
      })) {
    return bad_input("all groups have rows of first tokens alone",
                     "add the group that has all tokens");
  }
  std::int64_t multiple = 1;
  std::int64_t divisor = 0;
  for (std::size_t i = 0; i < o.groups.size(); ++i) {
    if (Result<void> good = check_group(o.groups[i], i); !good) return good.error();
    const std::int64_t block = o.groups[i].block_tokens;
    multiple = std::lcm(multiple, block);
    divisor = std::gcd(divisor, block);
    if (multiple > kMostTokens) {
      return bad_input(
          fmt::format("the groups' blocks have no common multiple up to {}", kMostTokens),
          "choose block sizes that divide each other");
    }
  }
  if (o.alignment == 0) o.alignment = multiple;
  if (o.hash_block == 0) o.hash_block = std::max<std::int64_t>(divisor, 1);
  if (o.alignment < 1 || o.alignment > kMostTokens) {
    return out_of_range("scheduler_block_size", o.alignment, 1, kMostTokens);
  }
  if (o.hash_block < 1 || o.hash_block > kMostTokens) {
    return out_of_range("hash_block_size", o.hash_block, 1, kMostTokens);
  }
  if (o.num_blocks < 1 || o.num_blocks > kMostOfPool) {
    return out_of_range("the number of blocks", o.num_blocks, 1, kMostOfPool);
  }
  if (o.first_block < 1 || o.first_block > kMostOfPool - o.num_blocks) {
    return out_of_range("first_block", o.first_block, 1, kMostOfPool - o.num_blocks);
  }
  if (o.max_model_len < 1 || o.max_model_len > kMostTokens) {
    return out_of_range("max_model_len", o.max_model_len, 1, kMostTokens);
  }
  // Without a figure there is no effective cap.
  if (o.cap_tokens <= 0) o.cap_tokens = o.max_model_len;
  if (!(o.watermark >= 0 && o.watermark < 1)) {
    return bad_input(fmt::format("watermark is {}", o.watermark), "allowed: 0 up to below 1");
  }
  if (o.retention && *o.retention < 0) {
    return bad_input(fmt::format("retention is {}", *o.retention),
                     "it must be non-negative: 0, or a multiple of scheduler_block_size");
  }
  if (o.retention && *o.retention % o.alignment != 0) {
    return bad_input(fmt::format("retention {} is not a multiple of scheduler_block_size {}",
                                 *o.retention, o.alignment),
                     "choose \"dense\", 0 or such a multiple");
  }
  if (Result<void> good = check_blocks(o); !good) return good.error();
  return o;
}

}  // namespace attnscope
