#include "engine/session/step/swap_space.h"

#include <fmt/format.h>

#include <utility>

#include "engine/model/numbers.h"
#include "kernels/params/tensor_view.h"

namespace attnscope {

void SwapSpace::note_marks(std::span<const SwapMove> moves, const Shadow& shadow) {
  leaving_.clear();
  for (const SwapMove& move : moves) leaving_.push_back(shadow.marks(move.group, move.block));
}

void SwapSpace::take_out(std::span<const SwapMove> moves, const as_tensor& staged) {
  for (std::size_t m = 0; m < moves.size(); ++m) {
    const SwapMove& move = moves[m];
    const auto* bytes = at<std::uint8_t>(staged, to_count(m));
    blocks_[move.host] = {
        move.group, static_cast<std::int32_t>(move.request), move.index,
        std::make_shared<const KeptBlock>(KeptBlock{
            std::vector<std::uint8_t>(bytes, bytes + staged.shape[1]), std::move(leaving_[m])})};
  }
  leaving_.clear();
}

const KeptBlock* SwapSpace::held(const SwapMove& move, std::string* why) const {
  const auto found = blocks_.find(move.host);
  const bool there = found != blocks_.end();
  if (there && found->second.group == move.group && found->second.request == move.request &&
      found->second.index == move.index) {
    return found->second.kept.get();
  }
  if (why == nullptr) return nullptr;
  *why = fmt::format("entry {} of request {} in group {} is to come back from block {} of the host",
                     move.index, move.request, move.group, move.host);
  if (!there) {
    *why += ", which holds nothing";
    return nullptr;
  }
  const SwappedBlock& is = found->second;
  *why += fmt::format(", which holds entry {} of request {} in group {}", is.index, is.request,
                      is.group);
  return nullptr;
}

void SwapSpace::bring_back(std::span<const SwapMove> moves, const CacheLayout& layout,
                           const AddressSpace& space, Shadow& shadow) const {
  for (const SwapMove& move : moves) {
    const KeptBlock* kept = held(move);
    if (kept == nullptr) continue;
    shadow.restore_marks(move.group, move.block, kept->marks);
    // Of a row that the session has computed anew since, before it went back, the block has the
    // record of this time.
    for (const int s : layout.groups[to_size(move.group)].specs) {
      const CacheSpec& spec = layout.specs[to_size(s)];
      const as_cache page =
          spec.cache(make_tensor(kept->content.data() + spec.offset, {1, spec.page_bytes}));
      const std::int64_t first =
          space.base(static_cast<std::int32_t>(move.request), row_ratio(spec)) +
          std::int64_t{move.index} * spec.rows_per_block;
      for (std::int64_t r = 0; r < spec.rows_per_block; ++r) {
        const std::int64_t slot = std::int64_t{move.block} * spec.rows_per_block + r;
        if (shadow.row_of(spec, slot) == first + r) {
          shadow.restore_row(spec, page, slot, first + r, r);
        }
      }
    }
  }
}

void SwapSpace::forget_free(const HostBlocks& host) {
  std::erase_if(blocks_, [&](const auto& block) { return host.is_free(block.first); });
}

}  // namespace attnscope
