#include "engine/session/step/swap_space.h"

#include <fmt/format.h>

#include <cstring>
#include <utility>

#include "engine/model/numbers.h"

namespace attnscope {
namespace {

using Blocks = std::map<std::int32_t, SwappedBlock>;

// Empty: the block is the one that is to come back.
std::string misfit_of(const SwapMove& move, Blocks::const_iterator found,
                      Blocks::const_iterator end) {
  const bool there = found != end;
  if (there && found->second.group == move.group && found->second.request == move.request &&
      found->second.index == move.index) {
    return {};
  }
  const std::string wanted =
      fmt::format("entry {} of request {} in group {} is to come back from block {} of the host",
                  move.index, move.request, move.group, move.host);
  if (!there) return wanted + ", which holds nothing";
  const SwappedBlock& is = found->second;
  return fmt::format("{}, which holds entry {} of request {} in group {}", wanted, is.index,
                     is.request, is.group);
}

}  // namespace

void SwapSpace::take_out(std::span<const SwapMove> moves, const Slab& slab, const Shadow& shadow) {
  const auto stride = to_size(slab.block_stride());
  for (const SwapMove& move : moves) {
    const std::uint8_t* bytes = slab.block(move.block);
    blocks_[move.host] = {move.group, static_cast<std::int32_t>(move.request), move.index,
                          std::make_shared<const KeptBlock>(
                              KeptBlock{std::vector<std::uint8_t>(bytes, bytes + stride),
                                        shadow.marks(move.group, move.block)})};
  }
}

std::string SwapSpace::bring_back(std::span<const SwapMove> moves, const CacheLayout& layout,
                                  const AddressSpace& space, Slab& slab, Shadow& shadow) {
  std::string misfit;
  for (const SwapMove& move : moves) {
    const auto found = blocks_.find(move.host);
    if (const std::string what = misfit_of(move, found, blocks_.end()); !what.empty()) {
      if (misfit.empty()) misfit = what;
      continue;
    }
    const KeptBlock& kept = *found->second.kept;
    std::memcpy(slab.block(move.block), kept.content.data(), kept.content.size());
    slab.wrote(move.block);
    shadow.restore_marks(move.group, move.block, kept.marks);
    // Of a row that the session has computed anew since, before it went back, the page has the
    // record of this time.
    for (const int s : layout.groups[to_size(move.group)].specs) {
      const CacheSpec& spec = layout.specs[to_size(s)];
      const std::int64_t first =
          space.base(static_cast<std::int32_t>(move.request), row_ratio(spec)) +
          std::int64_t{move.index} * spec.rows_per_block;
      for (std::int64_t r = 0; r < spec.rows_per_block; ++r) {
        const std::int64_t slot = std::int64_t{move.block} * spec.rows_per_block + r;
        if (shadow.row_of(spec, slot) == first + r) {
          shadow.restore_row(spec, slab.cache(spec), slot, first + r);
        }
      }
    }
  }
  return misfit;
}

void SwapSpace::forget_free(const HostBlocks& host) {
  std::erase_if(blocks_, [&](const auto& block) { return host.is_free(block.first); });
}

}  // namespace attnscope
