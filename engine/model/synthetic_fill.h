// Counter-based random tensors: every value is a function of (seed, tensor name, element index), so
// that any number of threads, in any order, writes the same bytes. Integer arithmetic up to the one
// final multiplication, so the bytes do not depend on the maths library either.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "kernels/params/lane.h"
#include "kernels/params/tensor_view.h"

namespace attnscope {

// A 64-bit mix (the finaliser of splitmix64, Steele et al. 2014).
constexpr std::uint64_t mix64(std::uint64_t x) {
  x ^= x >> 30;
  x *= 0xbf58476d1ce4e5b9ULL;
  x ^= x >> 27;
  x *= 0x94d049bb133111ebULL;
  x ^= x >> 31;
  return x;
}

// Key of a tensor: seed and name.
std::uint64_t tensor_key(std::uint64_t seed, std::string_view name);

// Hash of element `index` of the tensor with this key.
constexpr std::uint64_t element_hash(std::uint64_t key, std::uint64_t index) {
  return mix64(key + (index + 1) * 0x9e3779b97f4a7c15ULL);
}

// About N(0, 1): the sum of the four 16-bit fields, centred and scaled; never beyond +- 3.47.
float approx_normal(std::uint64_t hash);

// Uniform in [-1, 1).
float uniform(std::uint64_t hash);

// A queue of fills, carried out together so that small tensors do not serialise the threads.
class FillQueue {
 public:
  explicit FillQueue(std::uint64_t seed) : seed_(seed) {}

  // offset + scale * N(0, 1), rounded once to nearest even.
  void normal(bf16_t* data, std::int64_t count, std::string_view name, double scale,
              double offset = 0.0);
  // scale * U[-1, 1).
  void uniform(float* data, std::int64_t count, std::string_view name, double scale);

  void run(const as_threads* threads) const;

 private:
  struct Chunk {
    bf16_t* bf16 = nullptr;
    float* f32 = nullptr;
    std::int64_t begin = 0;
    std::int64_t end = 0;
    std::uint64_t key = 0;
    float scale = 0.0f;
    float offset = 0.0f;
  };
  void push(Chunk chunk, std::int64_t count);
  static void fill(const Chunk& chunk);

  std::uint64_t seed_;
  std::vector<Chunk> chunks_;
};

}  // namespace attnscope
