// What a rewind point of a session holds. Private to the session.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "engine/session/session.h"
#include "engine/session/step/swap_space.h"
#include "kernels/cpu/thread_pool.h"

namespace attnscope {

// A step boundary. Histories are not copied: rows are addressed by position, and a replay writes
// the same ones again. Only where a request was preempted later and computed a row anew does the
// shadow's record come from the block's bytes. Blocks are shared with rewind points around it in
// which they are the same: most of them, since a step writes only the last block of each group.
struct RewindPoint {
  std::int64_t step = 0;
  Serving serving;
  ServingJudge judge;
  WorkerTables tables;
  std::vector<std::int32_t> ids;  // blocks with content, free ones with a key among them; ascending
  std::vector<std::shared_ptr<const KeptBlock>> blocks;  // by place in ids
  // Which rows the pools hold; their bytes are those of the pages.
  std::optional<HostTier> tier = std::nullopt;
  SwapSpace swapped = {};

  // Null when the block had no content.
  std::shared_ptr<const KeptBlock> find(std::int32_t id) const;
};

struct Session::Threads {
  explicit Threads(int n) : pool(n) {}
  cpu::ThreadPool pool;
};

}  // namespace attnscope
