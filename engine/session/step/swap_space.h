// Host memory for the blocks of preempted requests (engine/sched/host_blocks.h): their bytes, and
// which rows their slots held. What the scheduler decided of them is carried out here, before
// anything else of a step:
//
//   take_out    before blocks of the step get other content
//   bring_back  once these start as NaN: content and marks of the shadow are as they were
//
// A plain value: blocks are shared with the rewind points in which they are the same.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "engine/sched/block_scheduler.h"
#include "engine/session/step/history.h"
#include "engine/session/step/slab.h"

namespace attnscope {

// A block as it was: one block stride of bytes, and which rows its slots held.
struct KeptBlock {
  std::vector<std::uint8_t> content;
  SlotMarks marks;
};

struct SwappedBlock {
  std::int32_t group = -1;
  std::int32_t request = -1;
  std::int32_t index = -1;  // entry of the request's table
  std::shared_ptr<const KeptBlock> kept;
};

class SwapSpace {
 public:
  // moves: StepPlan::swapped_out.
  void take_out(std::span<const SwapMove> moves, const Slab& slab, const Shadow& shadow);
  // moves: StepPlan::swapped_in. A block of the host that does not hold what is to come back stays
  // there, and the other NaN: what is computed from it cannot be right. In a sentence, of the first
  // one; empty = all came.
  std::string bring_back(std::span<const SwapMove> moves, const CacheLayout& layout,
                         const AddressSpace& space, Slab& slab, Shadow& shadow);
  // Blocks that the scheduler has free hold nothing any more.
  void forget_free(const HostBlocks& host);

  const std::map<std::int32_t, SwappedBlock>& blocks() const { return blocks_; }  // by host block
  void put(std::int32_t host, SwappedBlock block) { blocks_[host] = std::move(block); }

 private:
  std::map<std::int32_t, SwappedBlock> blocks_;
};

}  // namespace attnscope
