// What a summary says of a tensor that is not kept itself: enough to see that two of them differ,
// and roughly how.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "kernels/params/tensor.h"

namespace attnscope {

struct TapStats {
  std::int64_t elements = 0;
  std::int64_t nans = 0, infinities = 0;
  // Over the finite elements; 0 without any. Raw bytes are taken as whole numbers.
  double min = 0, max = 0, mean = 0, l2 = 0;
  std::string checksum;  // of the dense bytes, 16 hex digits
};

// Of a dense tensor in host memory. likely: of one of the same dtype that may have the same bytes;
// where its checksum says so, its figures are taken.
TapStats tap_stats(const as_tensor& tensor, const TapStats* likely = nullptr);

template <class V>
void fields(V& v, TapStats& s) {
  v("elements", s.elements);
  v("nans", s.nans);
  v("infinities", s.infinities);
  v("min", s.min);
  v("max", s.max);
  v("mean", s.mean);
  v("l2", s.l2);
  v("checksum", s.checksum);
}

// As a number, where it is there.
std::optional<std::uint64_t> checksum_of(const TapStats& stats);
// 16 hex digits.
std::string hex64(std::uint64_t n);
// Of the bytes, as 16 hex digits.
std::string text_checksum(std::string_view text);

}  // namespace attnscope
