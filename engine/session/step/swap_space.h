// Host memory for the blocks of preempted requests (engine/sched/host_blocks.h): their bytes, and
// which rows their slots held. What the scheduler decided of them ops of the step carry out, before
// anything else of it:
//
//   note_marks  which rows the slots of leaving blocks hold, before these get other owners
//   take_out    what swap_out has put out
//   bring_back  once swap_in has run: marks of the shadow are as they were
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
  void note_marks(std::span<const SwapMove> moves, const Shadow& shadow);
  // staged: u8 [moves, block stride].
  void take_out(std::span<const SwapMove> moves, const as_tensor& staged);
  // What comes back with one of StepPlan::swapped_in. nullptr: the block of the host does not hold
  // what is to come back, as `why` says in a sentence. It stays there, and the other one NaN: what
  // is computed from it cannot be right.
  const KeptBlock* held(const SwapMove& move, std::string* why = nullptr) const;
  // moves: StepPlan::swapped_in.
  void bring_back(std::span<const SwapMove> moves, const CacheLayout& layout,
                  const AddressSpace& space, Shadow& shadow) const;
  // Blocks that the scheduler has free hold nothing any more.
  void forget_free(const HostBlocks& host);

  const std::map<std::int32_t, SwappedBlock>& blocks() const { return blocks_; }  // by host block
  void put(std::int32_t host, SwappedBlock block) { blocks_[host] = std::move(block); }

 private:
  std::map<std::int32_t, SwappedBlock> blocks_;
  std::vector<SlotMarks> leaving_;  // of the step, by move
};

}  // namespace attnscope
