// Where an op finds its cache rows and lists: paged (the engine) or logical (references).
#pragma once

#include <string_view>

#include "engine/cache/cache_layout.h"
#include "kernels/params/tensor.h"

namespace attnscope {

class CacheSource {
 public:
  virtual ~CacheSource() = default;
  virtual as_cache cache(int layer, CacheId id) const = 0;
  virtual as_tensor slots(int layer, CacheId id) const = 0;  // i64 [T] where new rows go
  virtual as_tensor table(int layer, CacheId id) const = 0;  // i32 [R,C]
  // Of the lists that the step has made: what the layer reads of it, i32 [T] or [T,K].
  virtual as_tensor list(int layer, std::string_view name) const = 0;
};

}  // namespace attnscope
