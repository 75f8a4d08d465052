// What a checkpoint of a session holds. Private to the session.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "engine/session/session.h"
#include "kernels/cpu/thread_pool.h"

namespace attnscope {

// A step boundary. Histories are not copied: rows are addressed by position, lie beyond every
// length until they are written again, and a replay writes the same bytes.
struct Session::Checkpoint {
  std::int64_t step = 0;
  Scheduler scheduler;
  std::unique_ptr<BlockManager> blocks;
  std::vector<std::int32_t> ids;      // blocks in use
  std::vector<std::uint8_t> content;  // ids.size() * block stride
};

struct Session::Threads {
  explicit Threads(int n) : pool(n) {}
  cpu::ThreadPool pool;
};

}  // namespace attnscope
