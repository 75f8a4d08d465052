// Where an op finds its cache rows and lists: paged (the engine) or logical (references).
#pragma once

#include "engine/cache/cache_layout.h"
#include "kernels/params/tensor.h"

namespace attnscope {

class CacheSource {
 public:
  virtual ~CacheSource() = default;
  virtual as_cache cache(int layer, CacheKind kind) const = 0;
  virtual as_tensor slots(int layer, CacheKind kind) const = 0;  // i64 [T] where new rows go
  virtual as_tensor table(int layer, CacheKind kind) const = 0;  // i32 [R,C]
  virtual as_tensor swa_indices(int layer) const = 0;            // i32 [T,W]
  virtual as_tensor swa_lens() const = 0;                        // i32 [T]
  virtual as_tensor c128_indices() const = 0;                    // i32 [T,A]
  virtual as_tensor c128_lens() const = 0;                       // i32 [T]
  virtual as_tensor c4_lens() const = 0;                         // i32 [T]
};

}  // namespace attnscope
