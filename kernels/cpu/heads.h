// Turning heads of tokens in bulk: runs of heads of one token, and outputs that are stored past the
// caches.
#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/cpu/parallel.h"
#include "kernels/cpu/simd/simd.h"
#include "kernels/params/tensor_view.h"

namespace attnscope::cpu {

// An output of so many bytes is gone from the caches when it is read, its beginning at least, and
// stored past them it need not be read before it is written.
inline constexpr std::size_t kStreamedBytes = std::size_t{16} << 20;
inline bool is_streamed(const as_tensor& out) { return tensor_bytes(out) >= kStreamedBytes; }

// Calls body(token, first head, heads) for all heads of all tokens, at most `most` at once.
template <class Body>
void for_heads(const as_call* call, std::int64_t tokens, std::int64_t heads, std::int64_t most,
               const Body& body) {
  parallel_for(call, tokens * heads, 32, [&](std::int64_t item, std::int64_t end) {
    while (item < end) {
      const std::int64_t h = item % heads;
      const std::int64_t count = std::min({most, heads - h, end - item});
      body(item / heads, h, count);
      item += count;
    }
    simd::kernels().end_stream();
  });
}

}  // namespace attnscope::cpu
