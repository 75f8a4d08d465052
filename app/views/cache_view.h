// What the cache panel shows of a step: the life of one block, the free list, the prefix map, the
// requests, the pool's use over time, entries of the ops' tables that the manager has dropped.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "engine/session/snapshot.h"

namespace attnscope {

// "SWA-a, positions 64-127 of manual"; "nothing that is known" for a block without content.
std::string content_text(const SessionInfo& info, const BlockOwner& owner);

// What happened to all blocks in the steps that are known, oldest first.
struct BlockEvents {
  std::vector<std::pair<std::int64_t, CacheEvent>> events;  // with their steps
  std::string steps;  // that are known: "all 14 steps", "the last 9 of 14 steps"
};
void add_block_events(std::int64_t step, const std::vector<CacheEvent>& events, BlockEvents& known);
// Of the steps whose summaries have them, whether or not their tensors are kept.
BlockEvents kept_block_events(const std::vector<std::shared_ptr<const StepSummary>>& steps);

// One thing that happened to a block.
struct LifeEvent {
  std::int64_t step = 0;
  CacheEventKind kind = CacheEventKind::kAllocate;
  std::int32_t request = -1;
  std::int32_t refs = 0;  // holders afterwards
  AllocationStage stage = AllocationStage::kNone;
  std::string text;
};
struct BlockLife {
  std::string sentence;
  std::vector<LifeEvent> events;  // oldest first
};
// As it is at the end of `step`, and what is known of it from all steps.
BlockLife block_life(const SessionInfo& info, const StepTrace& step, std::int32_t block,
                     const BlockEvents& known);

struct FreeEntry {
  std::int32_t block = -1;
  std::string holds;  // what a lookup would still find in it; empty = nothing
};
struct FreeListView {
  std::string sentence;
  std::vector<FreeEntry> entries;  // in the order in which they are taken
};
FreeListView free_list_view(const SessionInfo& info, const StepTrace& step);

struct PrefixEntry {
  std::string hash;  // 16 hex digits
  std::int32_t block = -1;
  std::int32_t group = -1;
  std::int64_t tokens = 0;  // of the prefix that it ends
  std::int32_t refs = 0;
  std::string holds, text;  // text: the last tokens of the prefix
};
struct PrefixView {
  std::string sentence;
  std::vector<PrefixEntry> entries;
};
PrefixView prefix_view(const SessionInfo& info, const StepTrace& step);

struct CacheRequest {
  std::int32_t request = -1;
  std::string name;
  const char* state = "";
  std::int64_t prompt = 0, computed = 0, hit = 0, preemptions = 0, recomputed = 0;
  std::int64_t blocks = 0, shared = 0, nulls = 0;
  std::string why;  // what its lookup in this step did not find; empty = it had none
};
struct CacheRequestsView {
  std::string sentence;
  std::vector<CacheRequest> rows;
  std::string waiting;  // why the head is not admitted; empty: nobody waits
};
CacheRequestsView cache_requests_view(const SessionInfo& info, const StepTrace& step);

struct UsageView {
  std::string sentence;
  // By step that is known, oldest first; shares in blocks.
  std::vector<std::int64_t> steps;
  std::vector<PoolUsage> usage;
  std::vector<std::int64_t> hit_tokens, preemptions;
};
UsageView usage_view(const Snapshot& snapshot);

// An entry of the tables that the ops read which the manager has dropped.
struct DeadEntry {
  std::int32_t request = -1;
  std::int32_t group = -1;
  std::int32_t index = -1;
  std::int32_t block = -1;
  std::string now;         // what the block holds meanwhile
  std::int64_t reads = 0;  // tokens of the request that read the block in this step
};
struct DeadEntriesView {
  std::string sentence;
  std::vector<DeadEntry> entries;
};
DeadEntriesView dead_entries_view(const SessionInfo& info, const StepTrace& step);

// The invariants of the block manager and the scheduler, and what checking them has cost.
struct CheckedInvariant {
  const char* name;
  const char* holds;
  Invariants least;  // level that checks it
  bool full_walk;    // at level "step" only every 1,000 steps
};
struct ChecksView {
  std::string sentence;
  std::span<const CheckedInvariant> rows;
  std::string broken;  // name of the one that stopped the session; empty = none
};
ChecksView checks_view(const Snapshot& snapshot);

}  // namespace attnscope
