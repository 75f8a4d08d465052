// Answers to what people ask of a cache: why did this prompt miss, why is the head not admitted,
// what did preemptions cost.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/sched/block_scheduler.h"

namespace attnscope {

// Per group: how far its own blocks reach, and what is missing for more.
struct GroupMiss {
  std::int32_t group = 0;
  std::int64_t reach = 0;  // tokens: its right-most aligned boundary with all that a hit needs
  // What the longest possible hit lacks in this group; -1 = nothing.
  std::int64_t missing_entry = -1;
  std::int64_t missing_position = -1;  // first token of that entry
  bool ever_stored = true;             // whether the group would have kept that entry at all
};
struct MissReport {
  std::int64_t tokens = 0;   // of the request
  std::int64_t hit = 0;      // joint
  std::int64_t longest = 0;  // aligned tokens that a lookup may cover at most
  std::vector<GroupMiss> groups;
  std::vector<std::int32_t> limiting;  // groups whose reach is not above the joint hit
};
MissReport explain_miss(const KvManager& kv, const KvRequest& request);
std::string miss_text(const MissReport& report);

struct GroupDemand {
  std::int32_t group = 0;
  std::int64_t required = 0;   // blocks for all known tokens
  std::int64_t cap = -1;       // most that a windowed group holds at once; -1 = none
  std::int64_t hit = 0;        // entries that a lookup brings
  std::int64_t evictable = 0;  // of these, real ones in the free queue: they leave it
  std::int64_t need = 0;       // blocks to take from the queue
};
struct AdmissionReport {
  std::int64_t request = -1;  // -1: nobody waits
  std::vector<GroupDemand> groups;
  std::int64_t need = 0;
  std::int64_t swapped = 0;      // its tokens whose rows come back from host memory with it
  std::int64_t host_blocks = 0;  // in which they lie
  std::int64_t watermark = 0;    // blocks to leave free beside running requests
  std::int64_t free = 0;
  std::int64_t held = 0;  // by requests
  std::int64_t running = 0, max_running = 0;
  bool blocks_short = false;
  bool slots_short = false;
  bool never_fits = false;  // not even into the empty pool
};
AdmissionReport explain_admission(const BlockScheduler& scheduler);
std::string admission_text(const AdmissionReport& report);

struct PreemptionCost {
  std::int64_t request = -1;
  std::int64_t preemptions = 0;
  std::int64_t recomputed = 0;  // tokens computed again
  std::int64_t swaps = 0;       // of the preemptions: with its rows kept in host memory
};
// Of the live requests that were preempted, in slot order.
std::vector<PreemptionCost> preemption_costs(const BlockScheduler& scheduler);

// How long chunks of prefill may be in a step, and why: "at most 160 tokens of a prompt in this
// step, as 37 of 127 blocks are free: 16 + (512 - 16) x 37 / 127"; empty where nothing limits them.
std::string chunk_text(const BlockScheduler& scheduler, const StepPlan& plan);

}  // namespace attnscope
