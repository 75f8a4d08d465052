// What the pool map shows: who holds every block, and the sentence above it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "app/views/selection.h"
#include "engine/session/snapshot.h"

namespace attnscope {

struct PoolOwner {
  std::int32_t request = -1;
  std::string name;
  std::int64_t blocks = 0;
  std::vector<std::int64_t> by_group;
};

// Blocks first .. first + length - 1 that are all free; length 0 = none.
struct FreeRun {
  std::int32_t first = -1;
  std::int64_t length = 0;
};

struct PoolView {
  std::string sentence;
  std::int64_t blocks = 0;  // null block not counted
  std::int64_t used = 0, free = 0;
  FreeRun longest;                // by id
  std::vector<PoolOwner> owners;  // by request, those that hold any
  // By block id: its rows that layers select from lie in host memory; empty = no block's do.
  std::vector<bool> on_host;
};

// Of one step: owners as its block_tables left them.
PoolView pool_view(const SessionInfo& info, const StepTrace& step);

// Everything known of one block, lines of text for a tooltip. Walks the lists of the step: once a
// block, not once a frame.
std::string describe_block(const SessionInfo& info, const StepTrace& step, std::int32_t block);

// The selection after a click on a block: block, group, owner, and the first token in it. Free and
// null blocks change the block alone.
Selection block_selection(const SessionInfo& info, const StepTrace& step, Selection selection,
                          std::int32_t block);

}  // namespace attnscope
