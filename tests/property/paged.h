// Paged caches for op tests: shuffled blocks, odd page sizes, pages farther apart than they are
// long, every byte NaN until it is written; and the logical twin that references read.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "engine/session/op_params.h"
#include "engine/trace/compare.h"
#include "kernels/params/tensor_view.h"

namespace attnscope::property {

using Random = std::mt19937_64;

// Normal, mean 0.
float normal(Random& random, float deviation = 1.0f);
std::vector<bf16_t> random_bf16(Random& random, std::int64_t n, float deviation = 1.0f);
std::vector<float> random_f32(Random& random, std::int64_t n, float deviation = 1.0f);

// Rows of several requests in one paged cache.
class PagedRows {
 public:
  // lengths: rows of each request. Blocks are handed out in random order; block 0 stays null.
  PagedRows(std::int32_t record, int width, int rows_per_block, std::vector<std::int64_t> lengths,
            Random& random);

  // Writes a random row of every request into pages and twin.
  void fill(Random& random);
  // The logical bytes (U8) or values (F32, state rows) of the rows that were filled.
  as_cache logical() const;
  as_cache paged() const;

  std::int64_t slot(std::int64_t request, std::int64_t position) const;
  std::int64_t row(std::int64_t request, std::int64_t position) const {
    return base_[static_cast<std::size_t>(request)] + position;
  }
  as_tensor table() const;          // i32 [R,C]
  as_tensor logical_table() const;  // i32 [R,1]
  // The record in a slot, payload then scales.
  std::vector<std::uint8_t> bytes(std::int64_t slot) const;

  // Marks the slab; unchanged() is false when a byte outside the given slots differs from the mark.
  void mark() { mark_ = slab_; }
  bool unchanged_outside(const std::vector<std::int64_t>& slots) const;

 private:
  std::int32_t record_;
  int width_, rows_per_block_;
  std::int64_t page_bytes_, stride_, blocks_, columns_;
  std::vector<std::int64_t> lengths_, base_;
  std::vector<std::int32_t> table_, logical_table_;
  std::vector<std::uint8_t> slab_, logical_, mark_;
};

// Runs an op of a lane; a failure is a test failure with the lane's message.
void run(const as_lane& lane, const OpParams& params);
const as_lane& cpu_lane();
const as_lane& sim();
const as_lane& exact();
// A lane by name, mutants included.
const as_lane& mutant(const std::string& name);

// Compares one output by the op's class in assets/tolerances.json (or the class given).
Comparison check(const OpParams& params, const std::string& tap, const as_tensor& value,
                 const as_tensor& reference, const TapMask& mask = {},
                 const std::string& rule = "");
#define EXPECT_WITHIN(comparison)                                                         \
  do {                                                                                    \
    const Comparison c_ = (comparison);                                                   \
    EXPECT_TRUE(c_.within) << "budget " << c_.budget_used << ", value " << c_.worst.value \
                           << ", reference " << c_.worst.reference << " " << c_.note;     \
  } while (false)

// A tensor that owns its memory.
template <class T>
struct Owned {
  std::vector<T> data;
  as_tensor tensor{};

  Owned(std::initializer_list<std::int64_t> shape, T value = {}) {
    std::int64_t n = 1;
    for (std::int64_t s : shape) n *= s;
    data.assign(static_cast<std::size_t>(n), value);
    if (n > 0) tensor = make_tensor(data.data(), shape);
    if (n == 0) tensor = make_tensor(&empty, shape);
  }
  Owned(const Owned&) = delete;
  Owned& operator=(const Owned&) = delete;
  T empty{};
};

// A rope with its fp32 table of the compressed layers.
const as_rope& rope();

}  // namespace attnscope::property
