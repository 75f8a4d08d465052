// Random numbers of the property tests. Drawing them takes longer than what is tested with them,
// unless it is optimised: random.cpp is, and holds the generator for all who include this.
#pragma once

#include <cstdint>
#include <random>

extern template class std::mersenne_twister_engine<
    std::uint_fast64_t, 64, 312, 156, 31, 0xb5026f5aa96619e9, 29, 0x5555555555555555, 17,
    0x71d67fffeda60000, 37, 0xfff7eee000000000, 43, 6364136223846793005>;

namespace attnscope::properties {

using Random = std::mt19937_64;  // the engine above

float normal(Random& random);                            // N(0,1), the same everywhere
std::int64_t below(Random& random, std::int64_t limit);  // 0..limit-1

}  // namespace attnscope::properties
