// What must hold of the block manager's state after every call, one function each. The arithmetic
// of groups is written out again from its definition: a checker that calls what it checks would
// agree with any mistake in it.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "engine/cache/cache_layout.h"
#include "engine/cache/group_spec.h"
#include "engine/cache/kv_snapshot.h"
#include "engine/cache/violation.h"

namespace attnscope {

// First position that the token after `computed` ones sees, from the definition of the kind.
std::int64_t first_seen(const GroupSpec& spec, std::int64_t computed);

// A state and what the manager itself does not know of it.
struct KvFacts {
  const KvManager& kv;
  const KvSnapshot& state;
  std::span<const std::int32_t> pins;  // blocks held beside the tables, once per reference
  // The request whose tables a slot holds; nullptr: not known.
  std::function<const KvRequest*(std::int32_t slot)> request;
  // By slot: computed tokens when its windows were last dropped; -1 = never.
  std::span<const std::int64_t> drop_points;
  std::int64_t lookahead = 0;    // that every allocation asks for
  bool keys_taken_away = false;  // by an evict or reset call
};

Finding check_partition(const KvFacts& f);     // I1: free queue and holders split the blocks
Finding check_conservation(const KvFacts& f);  // I2: references are table entries and pins
Finding check_ownership(const KvFacts& f);     // I3: shared only at the same place, under a key
Finding check_map(const KvFacts& f);           // I4: map and blocks name the same keys
Finding check_content(const KvFacts& f);       // I5: a key is the hash of the tokens in the block
Finding check_nulls(const KvFacts& f);         // I7: null entries are what left the window
Finding check_cap(const KvFacts& f);           // I8: windowed groups stay below their cap
Finding check_commit(const KvFacts& f);        // I9: what was committed is findable
Finding check_quiescence(const KvFacts& f);    // I17: without requests all is free
Finding check_metrics(const KvFacts& f);       // I22: the figures add up

// I21: layers that share a slab do not overlap inside a block.
Finding check_storage(const CacheLayout& layout);

// All of the state; every one that fails.
std::vector<Violation> check_state(const KvFacts& f);

}  // namespace attnscope
