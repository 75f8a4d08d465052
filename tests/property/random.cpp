#include "tests/property/random.h"

template class std::mersenne_twister_engine<
    std::uint_fast64_t, 64, 312, 156, 31, 0xb5026f5aa96619e9, 29, 0x5555555555555555, 17,
    0x71d67fffeda60000, 37, 0xfff7eee000000000, 43, 6364136223846793005>;

namespace attnscope::properties {

float normal(Random& random) {
  double sum = 0.0;
  for (int i = 0; i < 12; ++i) sum += static_cast<double>(random() >> 11) * 0x1p-53;
  return static_cast<float>(sum - 6.0);
}

std::int64_t below(Random& random, std::int64_t limit) {
  return static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(limit));
}

}  // namespace attnscope::properties
