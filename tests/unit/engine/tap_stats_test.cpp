// Statistics of tensors against sums written down one element after the other.
#include "engine/trace/tap_stats.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "kernels/params/tensor_view.h"

namespace attnscope {
namespace tap_stats_test {

constexpr std::int64_t kBlock = 512, kLanes = 8;

double number_of(const as_tensor& t, std::int64_t i) {
  const auto* bytes = static_cast<const std::uint8_t*>(t.data) + i * as_dtype_size(t.dtype);
  const auto as = [&](auto value) {
    std::memcpy(&value, bytes, sizeof(value));
    return static_cast<double>(value);
  };
  switch (t.dtype) {
    case AS_F64:
      return as(double{});
    case AS_F32:
      return as(float{});
    case AS_I32:
      return as(std::int32_t{});
    case AS_I64:
      return as(std::int64_t{});
    case AS_U8:
      return as(std::uint8_t{});
    default: {
      std::uint16_t half = 0;
      std::memcpy(&half, bytes, sizeof(half));
      const std::uint32_t bits = std::uint32_t{half} << 16;
      float value = 0;
      std::memcpy(&value, &bits, sizeof(value));
      return value;
    }
  }
}

// In the order that captures of all machines share: blocks, in them eight lanes, what is left over
// one by one; a block with an element that is not finite one by one as well.
TapStats expected(const as_tensor& t) {
  TapStats s;
  s.elements = as_tensor_numel(&t);
  double low = std::numeric_limits<double>::infinity(), high = -low, sum = 0, squares = 0;
  const auto add = [&](double v) {
    low = std::min(low, v);
    high = std::max(high, v);
    sum += v;
    squares += v * v;
  };
  for (std::int64_t begin = 0; begin < s.elements; begin += kBlock) {
    const std::int64_t n = std::min(kBlock, s.elements - begin);
    std::int64_t whole = n / kLanes * kLanes;
    for (std::int64_t i = 0; i < whole; ++i) {
      if (!std::isfinite(number_of(t, begin + i))) whole = 0;
    }
    double sums[kLanes] = {}, lane_squares[kLanes] = {};
    for (std::int64_t i = 0; i < whole; ++i) {
      const double v = number_of(t, begin + i);
      low = std::min(low, v);
      high = std::max(high, v);
      sums[i % kLanes] += v;
      lane_squares[i % kLanes] += v * v;
    }
    for (int l = 0; l < kLanes && whole > 0; ++l) {
      sum += sums[l];
      squares += lane_squares[l];
    }
    for (std::int64_t i = whole; i < n; ++i) {
      const double v = number_of(t, begin + i);
      if (std::isnan(v)) {
        ++s.nans;
      } else if (std::isinf(v)) {
        ++s.infinities;
      } else {
        add(v);
      }
    }
  }
  const std::int64_t finite = s.elements - s.nans - s.infinities;
  if (finite == 0) return s;
  s.min = low;
  s.max = high;
  s.mean = sum / static_cast<double>(finite);
  s.l2 = std::sqrt(squares);
  return s;
}

void expect_equal(const TapStats& a, const TapStats& b) {
  EXPECT_EQ(a.elements, b.elements);
  EXPECT_EQ(a.nans, b.nans);
  EXPECT_EQ(a.infinities, b.infinities);
  EXPECT_EQ(a.min, b.min);
  EXPECT_EQ(a.max, b.max);
  EXPECT_EQ(a.mean, b.mean);
  EXPECT_EQ(a.l2, b.l2);
}

as_tensor dense(std::vector<std::uint8_t>& bytes, std::int32_t dtype) {
  as_tensor t = make_tensor(bytes.data(), {static_cast<std::int64_t>(bytes.size())});
  t.dtype = dtype;
  t.shape[0] /= as_dtype_size(dtype);
  return t;
}

// Random bits; floats of every size, NaN and infinities among them where `wild`.
std::vector<std::uint8_t> random_bytes(std::int64_t elements, std::int32_t dtype, bool wild,
                                       std::mt19937_64& random) {
  const auto size = static_cast<std::size_t>(as_dtype_size(dtype));
  std::vector<std::uint8_t> bytes(static_cast<std::size_t>(elements) * size);
  for (std::uint8_t& b : bytes) b = static_cast<std::uint8_t>(random());
  if (dtype != AS_BF16 && dtype != AS_F32 && dtype != AS_F64) return bytes;
  for (std::size_t i = 0; i < bytes.size(); i += size) {
    const bool leave = wild && random() % 64 == 0;
    if (!leave) bytes[i + size - 1] = (bytes[i + size - 1] & 0x80) | (0x3c + random() % 5);
  }
  return bytes;
}

TEST(TapStats, AreThoseOfTheElementsInEveryDtype) {
  std::mt19937_64 random(7);
  for (const std::int32_t dtype : {AS_F64, AS_F32, AS_BF16, AS_U8, AS_I32, AS_I64}) {
    for (const std::int64_t n : {1, 7, 8, 9, 31, 33, 511, 512, 513, 1024, 2000}) {
      for (const bool wild : {false, true}) {
        SCOPED_TRACE(testing::Message() << "dtype " << dtype << ", " << n << " elements");
        std::vector<std::uint8_t> bytes = random_bytes(n, dtype, wild, random);
        const as_tensor tensor = dense(bytes, dtype);
        const TapStats stats = tap_stats(tensor);
        expect_equal(stats, expected(tensor));
        EXPECT_EQ(stats.checksum.size(), 16u);
        EXPECT_EQ(hex64(*checksum_of(stats)), stats.checksum);
      }
    }
  }
}

TEST(TapStats, ElementsThatAreNotFiniteAreCountedWhereverTheyStand) {
  for (const std::int32_t dtype : {AS_F64, AS_F32, AS_BF16}) {
    const auto size = static_cast<std::size_t>(as_dtype_size(dtype));
    for (std::size_t at = 0; at < 600; at += 13) {
      std::vector<std::uint8_t> bytes(600 * size);
      std::memset(&bytes[at * size], 0xFF, size);  // a NaN
      const TapStats stats = tap_stats(dense(bytes, dtype));
      EXPECT_EQ(stats.nans, 1) << at;
      EXPECT_EQ(stats.l2, 0);
    }
    std::vector<std::uint8_t> none(600 * size, 0xFF);
    const TapStats stats = tap_stats(dense(none, dtype));
    EXPECT_EQ(stats.nans, 600);
    EXPECT_EQ(stats.min, 0);
  }
}

TEST(TapStats, FiguresOfEqualBytesAreTakenAndOfOthersAreNot) {
  std::mt19937_64 random(3);
  std::vector<std::uint8_t> bytes = random_bytes(100, AS_F32, false, random);
  TapStats likely = tap_stats(dense(bytes, AS_F32));
  likely.mean = 42;  // so that it shows where figures come from
  EXPECT_EQ(tap_stats(dense(bytes, AS_F32), &likely).mean, 42);
  bytes[11] ^= 1;
  expect_equal(tap_stats(dense(bytes, AS_F32), &likely), expected(dense(bytes, AS_F32)));
}

}  // namespace tap_stats_test
}  // namespace attnscope
