// Content hashes of token blocks, chained: the hash of block i covers tokens [0, (i+1) * size) of
// its request and whatever else tells requests apart (adapter, media items, tenant's salt). Ids and
// hits depend on equality of hashes alone.
//
// SipHash-2-4 with 128-bit output under a fixed key: reproducible across machines, and good enough
// to trust equality inside one workbench; it is no protection against somebody who looks for
// collisions.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace attnscope {

struct BlockHash {
  std::uint64_t low = 0;
  std::uint64_t high = 0;
  bool operator==(const BlockHash&) const = default;
};
std::string hash_text(const BlockHash& hash);  // 32 hex digits

// An image, a sound: placeholder tokens [offset, offset + length) stand for it.
struct MediaItem {
  std::string identifier;
  std::int64_t offset = 0;
  std::int64_t length = 0;
};

// What tells equal tokens of different requests apart.
struct HashExtras {
  std::string adapter;           // name of a LoRA adapter; empty = none
  std::string salt;              // enters the first block, and through the chain all others
  std::vector<MediaItem> media;  // by offset

  bool empty() const { return adapter.empty() && salt.empty() && media.empty(); }
};

// One extra of one block: a name, and for a media item its offset from the block's start (negative
// when it began before).
struct ExtraKey {
  std::string name;
  std::optional<std::int64_t> offset;
  bool operator==(const ExtraKey&) const = default;
};

// Extras of tokens [start, end). `item` is where to look first among the media, -1 = at the last
// one; moved on past items that end here.
std::vector<ExtraKey> block_extras(const HashExtras& extras, std::int64_t start, std::int64_t end,
                                   std::int64_t& item);

// Hash of a block after `parent` (nullptr: the first one).
BlockHash hash_block(const BlockHash* parent, std::span<const std::int32_t> tokens,
                     std::span<const ExtraKey> extras);

// The hashes of all full blocks of a growing token list.
class HashChain {
 public:
  // Hashes the blocks of `size` tokens that have become full.
  void extend(const std::vector<std::int32_t>& tokens, std::int64_t size, const HashExtras& extras);
  // With caching off nobody asks for hashes.
  void clear() { *this = {}; }

  std::int64_t size() const { return static_cast<std::int64_t>(hashes_.size()); }
  const BlockHash& operator[](std::int64_t i) const { return hashes_[static_cast<std::size_t>(i)]; }
  const std::vector<BlockHash>& hashes() const { return hashes_; }

 private:
  std::vector<BlockHash> hashes_;
  std::int64_t item_ = 0;
};

}  // namespace attnscope
