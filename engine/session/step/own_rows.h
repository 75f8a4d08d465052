// Rows of their own for what an op writes to caches: a reference writes to no paged cache.
#pragma once

#include <array>
#include <vector>

#include "engine/session/step/frame.h"
#include "engine/session/step/op_params.h"
#include "kernels/params/cache_access.h"

namespace attnscope {

// Of an access by slots, by token: its own number where it has a slot, -1 where it has none.
std::vector<std::int64_t> rows_by_token(const void* params, const as_cache_access& access);

// The cache without pages that it would be with these rows: records, or numbers of this dtype where
// rows are nothing else.
void make_logical(as_cache& cache, std::int64_t rows, std::int32_t values, Scratch& memory);

class OwnRows {
 public:
  // Token t of `params` writes row t of a logical cache in the place of each cache it writes to.
  // Valid until the next call.
  void replace(OpParams& params);
  // Copies them to where `engine`, the params before replace(), would have written.
  void put(const OpParams& engine) const;

 private:
  std::array<Scratch, 16> memory_;  // by access
  std::array<as_tensor, 16> rows_{};
  std::array<std::vector<std::int64_t>, 16> slots_;
};

}  // namespace attnscope
