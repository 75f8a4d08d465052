// Loops over the elements of a row that comparisons spend their time in, for the widest registers
// that the processor has: all choices give the same bits.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "kernels/params/tensor.h"

namespace attnscope {

// Bits of the registers that the loops use.
enum class RowWidth { k128 = 128, k256 = 256, k512 = 512 };
// Those that this processor has, the widest one last.
const std::vector<RowWidth>& row_widths();
inline RowWidth widest() { return row_widths().back(); }

// What the elements of a row add: a is the engine's, b the reference's.
struct RowSums {
  double ab = 0, squares = 0;  // sum a b; sum a^2 + b^2
  double max_abs = 0;          // largest |a - b|
  double max_rel = 0;          // largest |a - b| / (|b| + 1e-6), where it is above the one known
  std::int64_t equal = 0;      // a = b
  std::int64_t unlike = 0;     // a is not what b rounds to
  std::int64_t max_ulp = 0;    // between a and what b rounds to; only of bf16 and fp32
  bool tiny = false;  // one of the unlike has |b| < 2^-126: rounded and max_ulp do not hold
};

// Where a row's numbers go, one an element.
struct RowNumbers {
  double* differences = nullptr;  // |a - b|
  double* rounded = nullptr;      // what b rounds to in the dtype of a, nearest even
};

// dtype: of a; AS_BF16 and AS_F32 round, all others do not. known: max_rel of rows before. Not
// finite sums where an element is not, or where squares leave the range of a double.
RowSums row_sums(std::int32_t dtype, const double* a, const double* b, std::int64_t count,
                 double known, const RowNumbers& out, RowWidth width = widest());

// Not finite where an element is not, or where squares leave the range of a double.
double sum_of_squares(const double* values, std::int64_t count, RowWidth width = widest());

// count elements side by side, of dtype AS_BF16, AS_F32 or AS_F64, as doubles.
void load_doubles(std::int32_t dtype, const void* from, std::int64_t count, double* out,
                  RowWidth width = widest());

// How often differences of each size occur, 8 bins an octave from 2^-160 to 2^160; smaller ones,
// zeros too, lie in the first bin, larger ones in the last.
class DifferenceBins {
 public:
  static constexpr int kPerOctave = 8, kFirst = (1023 - 160) * kPerOctave, kBins = 320 * kPerOctave;

  void count(const double* differences, std::int64_t count, RowWidth width = widest());
  std::int64_t of(int bin) const {
    const auto at = static_cast<std::size_t>(bin);
    return std::int64_t{tables_[0][at]} + tables_[1][at] + tables_[2][at] + tables_[3][at];
  }

 private:
  // Neighbours often fall into one bin; in one table each would wait for the one before.
  std::array<std::array<std::int32_t, kBins>, 4> tables_{};
};

}  // namespace attnscope
