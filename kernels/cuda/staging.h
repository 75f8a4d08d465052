// Runs ops of the CUDA lane on tensors that lie on the host: copies what an op reads to the GPU,
// what it wrote back. The host's memory stays the truth: of caches the touched pages travel with
// every call, so that lanes can be mixed from op to op. Large weights stay on the GPU for as long
// as their bytes are the same.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <unordered_map>
#include <vector>

#include "kernels/cuda/device.h"
#include "kernels/params/lane.h"
#include "kernels/params/op_table.h"
#include "kernels/params/tensor.h"

namespace attnscope::cuda {

// GPU memory handed out piece by piece and taken back all at once; grows to what a call needed.
class Arena {
 public:
  Result<unsigned char*> take(std::size_t bytes);
  // All pieces are free again. Nothing on the GPU may still use them.
  void reset();

 private:
  static constexpr std::size_t kAlignment = 256;
  std::vector<DeviceMemory> chunks_;
  std::size_t used_ = 0;   // of the last chunk
  std::size_t total_ = 0;  // taken since reset
};

// Weights on the GPU by where they lie on the host. A hash over all bytes tells whether the copy
// still holds: reading them is several times faster than sending them.
class WeightMirrors {
 public:
  // The mirror of `bytes` bytes; uploads on the stream where it is new or has changed.
  Result<unsigned char*> get(const void* host, std::size_t bytes, const Stream& stream,
                             const as_threads* threads);

 private:
  struct Mirror {
    DeviceMemory memory;
    std::uint64_t hash = 0;
    std::uint64_t last_used = 0;
  };
  // Frees the mirrors that were used longest ago until `bytes` fit beside a reserve.
  void make_room(std::size_t bytes);

  std::unordered_map<const void*, Mirror> mirrors_;
  std::uint64_t clock_ = 0;
};

// The taps of an op or helper op.
struct Taps {
  const as_tap_info* items;
  std::uint32_t count;
};

// Rows of a cache by block id (paged) or row number (logical), without repeats, ascending.
using Blocks = std::vector<std::int64_t>;

// The copies of one call. The first failure ends it; finish() tells.
class Staging {
 public:
  Staging(const Stream& stream, Arena& arena, WeightMirrors& weights, const as_threads* threads)
      : stream_(stream), arena_(arena), weights_(weights), threads_(threads) {}

  // Every tensor tap of the op: `params` gets GPU addresses in place of the host's.
  void tensors(const Taps& taps, void* params);
  // A cache's blocks to the GPU; with `written` back again in the end.
  void cache(as_cache& c, Blocks blocks, bool written);
  // Rows [first, last] of a rotary table.
  void rope(as_rope& rope, std::int64_t first, std::int64_t last);
  unsigned char* workspace(std::size_t bytes);

  bool ok() const { return ok_.operator bool(); }
  const Error& error() const { return ok_.error(); }
  // Copies results back and waits for them.
  Result<void> finish();

 private:
  enum class Way { kUp, kDown };
  unsigned char* take(std::size_t bytes);
  void keep(Result<void> result);
  void copy(void* host, void* device, std::int64_t host_pitch, std::int64_t device_pitch,
            std::int64_t row_bytes, std::int64_t rows, Way way);
  // A strided host tensor from or to dense GPU memory.
  void copy_tensor(const as_tensor& host, unsigned char* device, Way way);
  void copy_blocks(const as_cache& host, unsigned char* device, std::int64_t pitch,
                   const Blocks& blocks, Way way);
  void tensor(as_tensor& t, const as_tap_info& tap);

  const Stream& stream_;
  Arena& arena_;
  WeightMirrors& weights_;
  const as_threads* threads_;
  Result<void> ok_;
  std::vector<std::function<void()>> back_;
};

}  // namespace attnscope::cuda
