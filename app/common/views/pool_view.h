// What the pool map shows: who holds every block, and the sentence above it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/session/snapshot.h"

namespace attnscope {

struct PoolOwner {
  std::int32_t request = -1;
  std::string name;
  std::int64_t blocks = 0;
};

struct PoolView {
  std::string sentence;
  std::int64_t blocks = 0;  // null block not counted
  std::int64_t used = 0, free = 0;
  std::vector<PoolOwner> owners;  // by request, those that hold any
};

// Of one step: owners as its block_tables left them.
PoolView pool_view(const SessionInfo& info, const StepTrace& step);

// Everything known of one block, lines of text for a tooltip.
std::string describe_block(const SessionInfo& info, const StepTrace& step, std::int32_t block);

}  // namespace attnscope
