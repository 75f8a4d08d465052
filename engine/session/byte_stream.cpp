#include "engine/session/byte_stream.h"

#include <bit>

namespace attnscope {
namespace {

constexpr std::uint64_t kPrimes[4] = {0x9e3779b97f4a7c15u, 0xc2b2ae3d27d4eb4fu, 0x165667b19e3779f9u,
                                      0xd6e8feb86659fd93u};

// A bijection of the lane for every word, so that no change of one word can be lost.
std::uint64_t mix(std::uint64_t lane, std::uint64_t word, std::uint64_t prime) {
  return std::rotl((lane ^ word) * prime, 31);
}

}  // namespace

std::uint64_t checksum(const std::uint8_t* data, std::size_t n) {
  std::uint64_t lanes[4] = {n, 1, 2, 3};
  std::size_t i = 0;
  for (; i + 32 <= n; i += 32) {
    std::uint64_t words[4];
    std::memcpy(words, data + i, sizeof(words));
    for (int l = 0; l < 4; ++l) lanes[l] = mix(lanes[l], words[l], kPrimes[l]);
  }
  std::uint64_t sum = 0;
  for (int l = 0; l < 4; ++l) sum = mix(sum, lanes[l], kPrimes[l]);
  for (; i < n; ++i) sum = mix(sum, data[i], kPrimes[0]);
  return sum;
}

}  // namespace attnscope
