// Memory whose bytes are all 0xff, NaN in every float: what nobody put there shows. A cache of a
// case is large and nearly empty, so pages are copies of one file of such bytes, made when somebody
// writes in them.
#pragma once

#include <cstdint>
#include <memory>

namespace attnscope {

struct NanMemoryFree {
  std::int64_t mapped = 0;  // bytes; 0 = from the heap
  void operator()(void* memory) const;
};
using NanMemory = std::unique_ptr<void, NanMemoryFree>;

// At a multiple of 64. Null where there is not so much.
NanMemory nan_memory(std::int64_t bytes);

}  // namespace attnscope
