// Owns the block ids: one pool for all groups, one table per request and group, null block 0.
//
// This is the interface the session and the scheduler use; prefix caching, preemption and the exact
// id order of the peer replace what is behind it without changing it.
//
//     free list --grow--> table of (request, group) --drop_window / free--> free list (tail)
//
// Ids 1..num_blocks-1 start in the free list in ascending order.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "engine/cache/block_owner.h"
#include "engine/cache/cache_layout.h"
#include "kernels/params/result.h"

namespace attnscope {

// All tables of one request, by group.
struct RequestTables {
  std::int32_t request = -1;
  std::vector<std::vector<std::int32_t>> tables;
};

class BlockManager {
 public:
  virtual ~BlockManager() = default;

  // Frees what left every group's window at `computed` tokens, then grows every group's table to
  // hold `total` tokens. Returns false, with windows dropped and nothing grown, when the free list
  // is too short.
  virtual bool allocate(std::int32_t request, std::int64_t computed, std::int64_t total) = 0;
  // Gives all blocks of a request back: groups in order, each table tail first.
  virtual void free(std::int32_t request) = 0;

  // Entries of a request's table in a group; 0 = null. Empty for an unknown request.
  virtual std::span<const std::int32_t> table(std::int32_t request, int group) const = 0;
  virtual std::vector<std::int32_t> free_list() const = 0;  // front first
  virtual std::int64_t num_blocks() const = 0;              // null block included
  virtual std::int64_t num_free() const = 0;
  virtual const std::vector<BlockOwner>& owners() const = 0;  // by block id

  // Replaces tables and free list by those of an earlier manager of the same pool. False, with
  // nothing changed, unless every id but the null block is in one of them exactly once.
  virtual bool restore(const std::vector<RequestTables>& tables,
                       const std::vector<std::int32_t>& free_list) = 0;

  // A deep copy, for checkpoints.
  virtual std::unique_ptr<BlockManager> clone() const = 0;
};

std::unique_ptr<BlockManager> make_block_manager(const CacheLayout& layout,
                                                 std::int64_t num_blocks);

}  // namespace attnscope
