// Where an op finds its cache rows and lists: paged (the engine) or logical (references).
#pragma once

#include "engine/cache/cache_layout.h"
#include "kernels/params/tensor.h"

namespace attnscope {

class CacheSource {
 public:
  virtual ~CacheSource() = default;
  // peer: that of another rank (CacheLayout::find); -1 = the own one.
  virtual as_cache cache(int layer, CacheId id, int peer = -1) const = 0;
  virtual as_tensor slots(int layer, CacheId id) const = 0;  // i64 [T] where new rows go
  virtual as_tensor table(int layer, CacheId id) const = 0;  // i32 [R,C]
  // Of a tensor that is the family's own, by its place among them: what the layer reads of it,
  // i32 [T] or [T,K].
  virtual as_tensor list(int layer, int own) const = 0;
  // Tokens of the chunks that what reads the cache has to heed itself; 0 = none, also where each
  // row of a table ends with its chunk.
  virtual std::int32_t chunk(int layer, CacheId id) const = 0;
};

}  // namespace attnscope
