#include "engine/io/content_hash.h"

#include <array>
#include <cstring>

namespace attnscope {
namespace {

constexpr std::uint64_t kOdd = 0x9e3779b97f4a7c15u;  // 2^64 over the golden ratio
constexpr std::size_t kSums = 4;                     // side by side: a product takes some cycles
constexpr std::size_t kWords = 8;                    // likewise

// The highest bits of a product come from all bits, the lowest from few: so a word is mixed before
// it is taken in, that a bit of one word and another bit of the next do not take each other away.
std::uint64_t take_in(std::uint64_t sum, std::uint64_t word) {
  word *= kOdd;
  return (sum + (word ^ word >> 32)) * kOdd;
}

}  // namespace

std::uint64_t content_hash(const void* data, std::size_t bytes, std::uint64_t seed) {
  const auto* p = static_cast<const std::uint8_t*>(data);
  std::array<std::uint64_t, kSums> sums;
  for (std::size_t i = 0; i < kSums; ++i) sums[i] = seed + (i + 1) * kOdd;
  std::size_t left = bytes;
  for (; left >= kSums * 8; left -= kSums * 8, p += kSums * 8) {
    for (std::size_t i = 0; i < kSums; ++i) {
      std::uint64_t word = 0;
      std::memcpy(&word, p + 8 * i, 8);
      sums[i] = take_in(sums[i], word);
    }
  }
  std::uint64_t all = bytes;
  for (const std::uint64_t sum : sums) all = take_in(all, sum);
  while (left > 0) {
    const std::size_t part = left < 8 ? left : 8;
    std::uint64_t word = 0;
    std::memcpy(&word, p, part);
    all = take_in(all, word);
    left -= part;
    p += part;
  }
  return all ^ all >> 29;
}

std::uint64_t memory_hash(const void* data, std::size_t bytes) {
  const auto* p = static_cast<const std::uint8_t*>(data);
  std::array<std::uint64_t, kWords> sums;
  for (std::size_t i = 0; i < kWords; ++i) sums[i] = (i + 1) * kOdd;
  std::size_t left = bytes;
  for (; left >= kWords * 8; left -= kWords * 8, p += kWords * 8) {
    for (std::size_t i = 0; i < kWords; ++i) {
      std::uint64_t word = 0;
      std::memcpy(&word, p + 8 * i, 8);
      // The highest bits go into the lower half as well, where the product spreads them.
      word ^= sums[i];
      sums[i] = (word ^ word >> 32) * kOdd;
    }
  }
  std::uint64_t all = content_hash(p, left);
  for (const std::uint64_t sum : sums) all = take_in(all, sum);
  return all ^ all >> 29;
}

}  // namespace attnscope
