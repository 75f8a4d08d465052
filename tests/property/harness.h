// What the property tests share: memory with poison and guards, paged caches with a logical twin,
// calling a lane and the references, judging by the tolerance file and by stated bounds.
//
// A check returns a Report instead of failing at once, so that the same check can be shown to fail
// for a lane with a planted bug. ATTNSCOPE_PROPERTY_SEED=N gives other random values.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <iosfwd>
#include <limits>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "engine/model/numbers.h"
#include "engine/session/step/op_params.h"
#include "engine/trace/compare.h"
#include "kernels/cpu/codec.h"
#include "kernels/cpu/cpu_lane.h"
#include "kernels/layout/records.h"
#include "kernels/params/tensor_view.h"
#include "reference/register.h"
#include "tests/property/random.h"

namespace attnscope::properties {

inline constexpr std::int64_t kWindow = 128;
// Half a step of bf16 (8 significant bits) relative to the largest value of a binade; relative to
// the smallest it is twice that, so that 2 * kBf16Half bounds one rounding of any value.
inline constexpr double kBf16Half = 0x1p-9;
inline constexpr float kInfinity = std::numeric_limits<float>::infinity();
inline constexpr std::int32_t kFp8 = AS_RECORD_INDEX_FP8;
inline constexpr std::int32_t kMxfp4 = AS_RECORD_INDEX_MXFP4;

// The seed of a case: its name and ATTNSCOPE_PROPERTY_SEED.
std::uint64_t case_seed(std::string_view name);
bf16_t to_bf16(float value);
float to_float(bf16_t value);

// Failures of one check, by tap.
class Report {
 public:
  explicit Report(std::uint64_t seed) : seed_(seed) {}

  void fail(const std::string& tap, const std::string& what);
  bool ok() const { return failures_.empty(); }
  const std::set<std::string>& taps() const { return taps_; }
  std::uint64_t seed() const { return seed_; }
  // The lane whose tolerances count.
  void judge_as(std::string lane) { lane_ = std::move(lane); }
  const std::string& lane() const { return lane_; }
  friend std::ostream& operator<<(std::ostream& out, const Report& report);

 private:
  std::uint64_t seed_;
  std::string lane_ = "cpu";
  std::vector<std::string> failures_;
  std::set<std::string> taps_;
};

// Owns tensors. New elements hold poison: NaN as floats, 0xff as bytes, 0x7b7b7b7b as integers.
// `pad` elements of the same lie between the rows of the first axis, guards before and after.
class Memory {
 public:
  as_tensor make(std::int32_t dtype, std::vector<std::int64_t> shape, std::int64_t pad = 0);
  as_tensor ints(const std::vector<std::int32_t>& values, std::vector<std::int64_t> shape);
  as_tensor ints64(const std::vector<std::int64_t>& values);
  as_tensor normals(std::int32_t dtype, std::vector<std::int64_t> shape, Random& random,
                    float scale = 1.0f, std::int64_t pad = 0);
  // Says so in the report when a byte outside the elements has changed.
  void check_guards(Report* report) const;

 private:
  struct Block {
    std::unique_ptr<unsigned char[]> bytes;
    std::size_t size = 0;
    as_tensor tensor{};
    unsigned char poison = 0;
  };
  std::vector<Block> blocks_;
};

inline constexpr unsigned char kIntegerPoison = 0x7b;

// Calls visit(flat row over all axes but the last, element 0 of the row).
void for_each_row(const as_tensor& t, const std::function<void(std::int64_t, char*)>& visit);

// Pages of a cache: rows in each, bytes between two pages.
struct Pages {
  std::int32_t rows = 64;
  std::int64_t gap = 0;
};

// One cache twice: rows of `lengths[r]` positions of request r in shuffled pages, and the same
// bytes one after another. Rows never put hold 0xff (NaN in every record).
class TwinCache {
 public:
  TwinCache(std::int32_t record, std::int32_t width, std::vector<std::int64_t> lengths, Pages pages,
            Random& random);
  TwinCache(const TwinCache&) = delete;
  TwinCache& operator=(const TwinCache&) = delete;

  as_cache paged() const { return paged_; }
  as_cache logical() const;  // records, or fp32 rows of STATE
  as_cache values() const;   // F64: what was put, before quantisation
  as_tensor table() const;   // i32 [R,C]; columns beyond a request hold ids that do not exist
  as_tensor logical_table() const;
  std::int64_t slot(std::int64_t request, std::int64_t position) const;
  std::int64_t row(std::int64_t request, std::int64_t position) const;
  std::int64_t row_of_slot(std::int64_t slot) const;  // -1: of no request
  const std::vector<std::int64_t>& lengths() const { return lengths_; }

  void put(std::int64_t request, std::int64_t position, const float* values);
  void put_all(Random& random, float scale = 1.0f);  // bf16-valued normals
  // Takes over into the logical rows what a lane wrote into the pages.
  void adopt(std::int64_t request, std::int64_t position);
  // Null block for every table entry whose positions are all below `position`.
  void drop_below(std::int64_t request, std::int64_t position);
  std::vector<double> decoded(std::int64_t slot) const;
  std::vector<unsigned char> slab() const { return slab_; }  // a copy: ops write to it

 private:
  std::vector<std::int64_t> lengths_;
  std::vector<std::int64_t> first_row_;
  std::vector<std::int32_t> table_;
  std::vector<std::int32_t> logical_table_;
  std::vector<std::int64_t> row_of_block_;  // first row, -1 = of no request
  std::int64_t columns_ = 0;
  std::vector<unsigned char> slab_;
  std::vector<unsigned char> rows_;
  std::vector<double> values_;
  as_cache paged_{};
};

// Tokens of a step: the last `queries` of every request's length, or all it has.
struct Tokens {
  std::vector<std::int32_t> token_to_req;
  std::vector<std::int64_t> positions;
  std::int64_t size() const { return static_cast<std::int64_t>(positions.size()); }
};
Tokens last_tokens(const std::vector<std::int64_t>& lengths, std::int64_t queries);

// Rotary numbers with a table of 4096 rows.
const as_rope& plain_rope();
const as_rope& compressed_rope();

// Runs an op of a lane (the CPU lane's where it has none); inputs must stay as they are.
bool run(const Lane& lane, const OpParams& params, Report* report);
// The same params with F64 (integers: same dtype) outputs for a reference. Caches are left to the
// caller.
OpParams with_own_outputs(const OpParams& params, Memory* memory);

// By the class that the op table and assets/tolerances.json name: one tap, or every output tensor.
void judge(const OpParams& value, const OpParams& sim, std::string_view tap, Report* report);
void judge_all(const OpParams& value, const OpParams& sim, Report* report);
// Same elements, bit by bit (integers and bytes).
void judge_equal(const std::string& tap, const as_tensor& value, const as_tensor& expected,
                 Report* report);
// Every output tensor equal to that of ref.sim and of ref.exact: ops of integers.
void judge_integers(const OpParams& engine, Memory* memory, Report* report);
// Every element within bound(flat row, column, exact value) of ref.exact. slots: rows with -1 hold
// nothing; nullptr = all rows. An infinite bound: nothing is said about the element.
using Bound = std::function<double(std::int64_t, std::int64_t, double)>;
void judge_bound(const std::string& tap, const as_tensor& value, const as_tensor& exact,
                 const std::int64_t* slots, const Bound& bound, Report* report);
// The slab as it was, with records[t] (U8 [T,bytes]) written to slots[t]: nothing else may differ.
void judge_slab(const TwinCache& cache, const std::vector<unsigned char>& before,
                const as_tensor& slots, const as_tensor& records, Report* report);

// Output cache of a reference: row t is what token t writes; slots [T] say which do.
struct RowsOut {
  as_cache cache{};
  as_tensor slots{};
};
RowsOut rows_out(const as_cache& engine, const as_tensor& slots, bool values, Memory* memory);

// How far reading back a quantised row may lie from it: half a step of the format at value x, where
// the block's largest value is amax.
double quantisation_step(std::int32_t record, std::int64_t column, double x, double amax);
// Largest |x| of the quantisation block that a column belongs to; 0 for columns kept as bf16.
double block_amax(std::int32_t record, std::int64_t column, const double* row);

}  // namespace attnscope::properties
