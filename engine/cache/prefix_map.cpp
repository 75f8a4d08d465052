#include "engine/cache/prefix_map.h"

#include <algorithm>
#include <bit>

namespace attnscope {

PrefixMap::PrefixMap(std::int64_t num_blocks)
    : num_blocks_(static_cast<std::int32_t>(num_blocks)),
      buckets_(std::bit_ceil(static_cast<std::size_t>(num_blocks) * 2), kNone),
      nodes_(static_cast<std::size_t>(num_blocks)) {
  mask_ = buckets_.size() - 1;
}

PrefixKey PrefixMap::primary(std::int32_t block) const {
  const Node& n = nodes_[index(block)];
  return {n.hash, n.group};
}

void PrefixMap::link(std::int32_t node, const PrefixKey& key) {
  Node& n = nodes_[index(node)];
  n = {key.hash, key.group, kNone, kNone, kNone};
  std::int32_t& head = buckets_[bucket(key.hash, key.group)];
  std::int32_t oldest = head;
  while (oldest != kNone && !matches(nodes_[index(oldest)], key.hash, key.group)) {
    oldest = nodes_[index(oldest)].next_key;
  }
  if (oldest == kNone) {
    n.next_key = head;
    n.prev = node;
    head = node;
    ++num_keys_;
    return;
  }
  Node& first = nodes_[index(oldest)];
  nodes_[index(first.prev)].next = node;
  n.prev = first.prev;
  first.prev = node;
}

void PrefixMap::unlink(std::int32_t node) {
  Node& n = nodes_[index(node)];
  std::int32_t* place = &buckets_[bucket(n.hash, n.group)];
  while (!matches(nodes_[index(*place)], n.hash, n.group)) place = &nodes_[index(*place)].next_key;
  Node& oldest = nodes_[index(*place)];
  if (*place == node) {
    if (n.next == kNone) {
      *place = n.next_key;
      --num_keys_;
    } else {
      Node& heir = nodes_[index(n.next)];
      heir.prev = n.prev;
      heir.next_key = n.next_key;
      *place = n.next;
    }
  } else {
    nodes_[index(n.prev)].next = n.next;
    if (n.next == kNone) {
      oldest.prev = n.prev;
    } else {
      nodes_[index(n.next)].prev = n.prev;
    }
  }
  n = {};
}

void PrefixMap::add_secondary(std::int32_t block, const PrefixKey& key) {
  if (first_secondary_.empty()) first_secondary_.assign(index(num_blocks_), kNone);
  std::int32_t node = unused_secondary_;
  if (node == kNone) {
    node = static_cast<std::int32_t>(nodes_.size());
    nodes_.emplace_back();
    secondary_block_.push_back(kNone);
    next_secondary_.push_back(kNone);
  } else {
    unused_secondary_ = next_secondary_[index(node - num_blocks_)];
  }
  secondary_block_[index(node - num_blocks_)] = block;
  next_secondary_[index(node - num_blocks_)] = first_secondary_[index(block)];
  first_secondary_[index(block)] = node;
  link(node, key);
}

std::vector<PrefixKey> PrefixMap::secondaries(std::int32_t block) const {
  std::vector<PrefixKey> keys;
  if (first_secondary_.empty()) return keys;
  for (std::int32_t node = first_secondary_[index(block)]; node != kNone;
       node = next_secondary_[index(node - num_blocks_)]) {
    keys.push_back({nodes_[index(node)].hash, nodes_[index(node)].group});
  }
  return keys;
}

void PrefixMap::erase_secondaries(std::int32_t block) {
  if (first_secondary_.empty()) return;
  std::int32_t node = first_secondary_[index(block)];
  while (node != kNone) {
    unlink(node);
    std::int32_t& next = next_secondary_[index(node - num_blocks_)];
    const std::int32_t following = next;
    next = unused_secondary_;
    unused_secondary_ = node;
    node = following;
  }
  first_secondary_[index(block)] = kNone;
}

bool PrefixMap::has_key(std::int32_t block, const PrefixKey& key) const {
  if (has_primary(block) && primary(block) == key) return true;
  const std::vector<PrefixKey> more = secondaries(block);
  return std::find(more.begin(), more.end(), key) != more.end();
}

void PrefixMap::clear() {
  std::fill(buckets_.begin(), buckets_.end(), kNone);
  nodes_.assign(index(num_blocks_), {});
  secondary_block_.clear();
  next_secondary_.clear();
  first_secondary_.clear();
  unused_secondary_ = kNone;
  num_keys_ = 0;
}

std::vector<std::int32_t> PrefixMap::blocks(const PrefixKey& key) const {
  std::vector<std::int32_t> out;
  std::int32_t node = buckets_[bucket(key.hash, key.group)];
  while (node != kNone && !matches(nodes_[index(node)], key.hash, key.group)) {
    node = nodes_[index(node)].next_key;
  }
  for (; node != kNone; node = nodes_[index(node)].next) out.push_back(block_of(node));
  return out;
}

std::vector<PrefixKey> PrefixMap::keys() const {
  std::vector<PrefixKey> out;
  out.reserve(static_cast<std::size_t>(num_keys_));
  for (const std::int32_t head : buckets_) {
    for (std::int32_t node = head; node != kNone; node = nodes_[index(node)].next_key) {
      out.push_back({nodes_[index(node)].hash, nodes_[index(node)].group});
    }
  }
  return out;
}

}  // namespace attnscope
