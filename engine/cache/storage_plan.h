// How a model's caches are stored and what that means for capacity: page sizes, groups, bytes per
// block id, blocks of one request, how many requests fit. Two ways of storing:
//
//   per tensor  for tuple i and each page size p of the full group one tensor of p bytes a block,
//               shared by the i-th layer with page p of every group; windowed pages are padded up
//               to the smallest page of the full group that holds them
//   packed      one slab; inside a block the layers of a group lie densely from offset 0, and the
//               largest group is the stride
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/cache/cache_layout.h"
#include "engine/cache/cache_switches.h"
#include "engine/cache/group_spec.h"

namespace attnscope {

struct PlannedPage {
  std::int64_t real_bytes = 0;    // of the rows
  std::int64_t padded_bytes = 0;  // in the pool
  std::int64_t layers = 0;        // that have such a page in the group
};

struct PlannedGroup {
  std::string name;
  GroupSpec spec;
  std::vector<PlannedPage> pages;  // by first appearance
  std::int64_t layers = 0;
  std::int64_t bytes = 0;  // padded pages of all its layers
};

struct StoragePlan {
  StorageLayout layout = StorageLayout::kPacked;
  std::vector<PlannedGroup> groups;
  std::int64_t tuples = 0;           // most layers that share one page size in a group
  std::int64_t bytes_per_block = 0;  // what one block id costs in all layers
  std::int64_t checked_bytes = 0;    // per block in the check at startup: the per-tensor formula
};

StoragePlan plan_storage(const CacheLayout& caches, StorageLayout layout);

// What the plan means for a pool.
struct Capacity {
  std::int64_t num_blocks = 0;
  std::vector<std::int64_t> request_blocks;  // by group: most that one longest request holds
  std::int64_t request_total = 0;
  std::int64_t request_bytes = 0;    // of the check at startup
  double concurrency_worker = 0;     // longest requests at once, as the worker reports it
  double concurrency_scheduler = 0;  // as the scheduler does
  std::int64_t alignment = 0;        // tokens; hits end at multiples
  std::int64_t hash_block = 0;
};
Capacity capacity_of(const StoragePlan& plan, std::int64_t bytes, std::int64_t max_model_len,
                     std::int64_t token_budget, ConcurrencyFigure figure);

}  // namespace attnscope
