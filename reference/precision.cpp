#include "reference/precision.h"

#include <bit>
#include <cmath>

namespace attnscope::reference {

namespace {

constexpr int kDroppedBits = 52 - 7;  // fraction bits of binary64 that bf16 does not have
constexpr double kSmallestNormal = 0x1p-126;
constexpr double kSubnormalStep = 0x1p-133;
constexpr double kLargest = 0x1.FEp127;

}  // namespace

double round_to_bf16(double x) {
  if (std::isnan(x) || std::isinf(x)) return x;
  if (std::fabs(x) < kSmallestNormal) {
    return std::nearbyint(x / kSubnormalStep) * kSubnormalStep;
  }
  // Adding just under half a step, plus the lowest kept bit, carries exactly when nearest-even
  // rounds up.
  auto bits = std::bit_cast<std::uint64_t>(x);
  const std::uint64_t lowest_kept = bits >> kDroppedBits & 1;
  bits += (std::uint64_t{1} << (kDroppedBits - 1)) - 1 + lowest_kept;
  bits &= ~((std::uint64_t{1} << kDroppedBits) - 1);
  const double rounded = std::bit_cast<double>(bits);
  return std::fabs(rounded) > kLargest ? std::copysign(HUGE_VAL, x) : rounded;
}

double round_to_fp32(double x) { return static_cast<double>(static_cast<float>(x)); }

}  // namespace attnscope::reference
