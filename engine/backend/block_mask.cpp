#include "engine/backend/block_mask.h"

#include <algorithm>

#include "engine/model/numbers.h"
#include "kernels/cpu/mask_code.h"
#include "kernels/params/tensor_view.h"

namespace attnscope {

BlockMask::BlockMask(const MaskCode& mask, std::span<const MaskedSequence> sequences,
                     std::int64_t heads)
    : maps_(mask.uses(AS_MASK_HEAD) ? heads : 1), sequences_(sequences.begin(), sequences.end()) {
  for (const MaskedSequence& s : sequences_) {
    blocks_ = std::max(blocks_, ceil_div(s.queries, AS_MASK_QUERIES));
    across_ = std::max(across_, ceil_div(s.keys, AS_MASK_KEYS));
  }
  tiles_.assign(to_size(to_count(sequences_.size()) * maps_ * blocks_ * across_), AS_TILE_EMPTY);
  for (std::size_t n = 0; n < sequences_.size(); ++n) {
    for (std::int64_t map = 0; map < maps_; ++map) look(mask, sequences_[n], to_count(n), map);
  }
}

void BlockMask::look(const MaskCode& mask, const MaskedSequence& sequence, std::int64_t number,
                     std::int64_t map) {
  const as_tensor code = mask.tensor();
  const std::int64_t place_of_first = sequence.place.value_or(sequence.keys - sequence.queries);
  for (std::int64_t b = 0; b * AS_MASK_QUERIES < sequence.queries; ++b) {
    const std::int64_t query = b * AS_MASK_QUERIES;
    const std::int64_t last = std::min<std::int64_t>(query + AS_MASK_QUERIES, sequence.queries);
    for (std::int64_t k = 0; k * AS_MASK_KEYS < sequence.keys; ++k) {
      const std::int64_t key = k * AS_MASK_KEYS;
      const std::int64_t end = std::min<std::int64_t>(key + AS_MASK_KEYS, sequence.keys);
      std::int64_t seen = 0;
      for (std::int64_t i = query; i < last; ++i) {
        const std::int64_t place = place_of_first + i;
        for (std::int64_t j = key; j < end; ++j) {
          if (cpu::mask_shows(code, {place, j, map, number})) ++seen;
        }
      }
      const std::int64_t all = (last - query) * (end - key);
      const as_mask_tile state = seen == 0     ? AS_TILE_EMPTY
                                 : seen == all ? AS_TILE_FULL
                                               : AS_TILE_PARTIAL;
      tiles_[to_size(((number * maps_ + map) * blocks_ + b) * across_ + k)] =
          static_cast<std::uint8_t>(state);
      ++(state == AS_TILE_EMPTY  ? counts_.empty
         : state == AS_TILE_FULL ? counts_.full
                                 : counts_.partial);
      counts_.seen += seen;
      counts_.elements += all;
    }
  }
}

as_mask_tile BlockMask::tile(std::int64_t sequence, std::int64_t map, std::int64_t block,
                             std::int64_t across) const {
  const std::int64_t at_tile = ((sequence * maps_ + map) * blocks_ + block) * across_ + across;
  return static_cast<as_mask_tile>(tiles_[to_size(at_tile)]);
}

as_tensor BlockMask::tensor() const {
  return make_tensor(tiles_.data(), {to_count(sequences_.size()), maps_, blocks_, across_});
}

std::string BlockMask::drawing(std::int64_t sequence, std::int64_t map) const {
  const MaskedSequence& s = sequences_[to_size(sequence)];
  std::string text;
  for (std::int64_t b = 0; b * AS_MASK_QUERIES < s.queries; ++b) {
    for (std::int64_t k = 0; k * AS_MASK_KEYS < s.keys; ++k) {
      text += ".+#"[tile(sequence, map, b, k)];
    }
    text += '\n';
  }
  return text;
}

}  // namespace attnscope
