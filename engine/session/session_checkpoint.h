// What a checkpoint of a session holds. Private to the session.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "engine/session/session.h"
#include "kernels/cpu/thread_pool.h"

namespace attnscope {

// A step boundary. Histories are not copied: rows are addressed by position, and a replay writes
// the same ones again. Only where a request was preempted later and computed a row anew does the
// shadow's record come from the block's bytes.
struct Session::Checkpoint {
  std::int64_t step = 0;
  Serving serving;
  WorkerTables tables;
  std::vector<std::int32_t> ids;      // blocks with content, free ones with a key among them
  std::vector<std::uint8_t> content;  // ids.size() * block stride
  std::vector<SlotMarks> marks;       // by id: which rows the block's slots hold
};

struct Session::Threads {
  explicit Threads(int n) : pool(n) {}
  cpu::ThreadPool pool;
};

}  // namespace attnscope
