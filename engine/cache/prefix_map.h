// Which blocks hold which content: (hash, group) -> blocks, oldest first. Equal content computed
// twice gives two blocks under one key.
//
// Buckets of 32-bit links over an array of nodes, so that nothing is allocated per block: node b
// below num_blocks is block b's primary key, later nodes are the further keys that a block may have
// (a prompt's end inside it). The oldest node of a key stands in its bucket, the others hang off
// it.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/cache/block_hash.h"

namespace attnscope {

struct PrefixKey {
  BlockHash hash;
  std::int32_t group = 0;
  bool operator==(const PrefixKey&) const = default;
};

class PrefixMap {
 public:
  explicit PrefixMap(std::int64_t num_blocks);

  // The oldest block under the key; -1 = none.
  std::int32_t find(const BlockHash& hash, std::int32_t group) const {
    std::int32_t node = buckets_[bucket(hash, group)];
    while (node != kNone && !matches(nodes_[index(node)], hash, group)) {
      node = nodes_[index(node)].next_key;
    }
    return node == kNone ? kNone : block_of(node);
  }
  std::int64_t num_keys() const { return num_keys_; }

  // Primary key of a block; at most one.
  bool has_primary(std::int32_t block) const { return nodes_[index(block)].group != kNone; }
  PrefixKey primary(std::int32_t block) const;  // has_primary(block)
  void set_primary(std::int32_t block, const PrefixKey& key) { link(block, key); }
  void erase_primary(std::int32_t block) { unlink(block); }

  // Further keys of a block, newest first.
  void add_secondary(std::int32_t block, const PrefixKey& key);
  std::vector<PrefixKey> secondaries(std::int32_t block) const;
  bool has_secondary(std::int32_t block) const {
    return !first_secondary_.empty() && first_secondary_[index(block)] != kNone;
  }
  void erase_secondaries(std::int32_t block);
  // Whether the block has this key, as primary or further one.
  bool has_key(std::int32_t block, const PrefixKey& key) const;

  void clear();

  // All blocks under a key, oldest first.
  std::vector<std::int32_t> blocks(const PrefixKey& key) const;
  // Every key once.
  std::vector<PrefixKey> keys() const;

 private:
  static constexpr std::int32_t kNone = -1;
  struct Node {
    BlockHash hash;
    std::int32_t group = kNone;     // kNone: unused
    std::int32_t next_key = kNone;  // of the bucket; for the oldest node of a key
    std::int32_t next = kNone;      // younger node of the same key
    std::int32_t prev = kNone;      // older one; of the oldest: the youngest
  };

  static std::size_t index(std::int32_t i) { return static_cast<std::size_t>(i); }
  static bool matches(const Node& n, const BlockHash& hash, std::int32_t group) {
    return n.hash == hash && n.group == group;
  }
  std::size_t bucket(const BlockHash& hash, std::int32_t group) const {
    return (hash.low + static_cast<std::uint64_t>(group) * 0x9e3779b97f4a7c15u) & mask_;
  }
  std::int32_t block_of(std::int32_t node) const {
    return node < num_blocks_ ? node : secondary_block_[index(node - num_blocks_)];
  }
  void link(std::int32_t node, const PrefixKey& key);
  void unlink(std::int32_t node);

  std::int32_t num_blocks_;
  std::uint64_t mask_ = 0;
  std::int64_t num_keys_ = 0;
  std::vector<std::int32_t> buckets_;
  std::vector<Node> nodes_;
  // Of nodes num_blocks_ and up: their block, and the next of that block (or of the unused ones).
  std::vector<std::int32_t> secondary_block_;
  std::vector<std::int32_t> next_secondary_;
  std::vector<std::int32_t> first_secondary_;  // by block; empty until there is one
  std::int32_t unused_secondary_ = kNone;
};

}  // namespace attnscope
