// What the tensor inspector says about one tap: its axes by name, which elements hold values, a
// slice of two axes, statistics read in slices of time, sentences, CSV.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "app/views/matrix_scan.h"
#include "app/views/selection.h"
#include "engine/session/snapshot.h"
#include "engine/session/step/step_trace.h"

namespace attnscope {

enum class TensorMode { kValue, kReference, kDifference, kBefore };
inline constexpr std::array<const char*, 4> kTensorModes = {"value", "reference", "difference",
                                                            "before"};

enum class AxisLink { kNone, kToken, kHead, kDim };
struct TapAxis {
  std::string letters;  // "H"
  std::string name;     // "head"
  std::int64_t size = 0;
  AxisLink link = AxisLink::kNone;
};
// Letters of the glossary in words: "H" is "head".
// beside: all letters of the tap, where they say which of two meanings a letter has.
std::string axis_name(const std::string& letters, std::span<const std::string> beside = {});
// Axes of a tap. The T axis of ops after the layers is over sampled rows.
std::vector<TapAxis> axes_of(const StepTrace& step, const OpTrace& op, const TapCopy& tap);
// Token row of the step for an index of a T axis, and back; -1 when there is none.
std::int64_t token_row_at(const StepTrace& step, const OpTrace& op, std::int64_t index);
std::int64_t index_of_token_row(const StepTrace& step, const OpTrace& op, std::int64_t token_row);
// Row of a tap's first axis as a tensor of one row.
as_tensor one_row(const as_tensor& tensor, std::int64_t row);
// "2051", with more than one request in the step "1:2051" (request:position).
std::string token_label(const StepTrace& step, std::int64_t token_row);
// "rows 480-511 of 512 kept"; empty when all are.
std::string kept_rows(const StepTrace& step);

// Index along the axes of a tap, without an allocation.
struct TapIndex {
  std::array<std::int64_t, AS_MAX_RANK> at{};
  int rank = 0;  // 0 = no element
  TapIndex() = default;
  explicit TapIndex(const std::vector<std::int64_t>& index);
  std::vector<std::int64_t> vector() const { return {at.begin(), at.begin() + rank}; }
  std::int64_t& operator[](int axis) { return at[static_cast<std::size_t>(axis)]; }
  std::int64_t operator[](int axis) const { return at[static_cast<std::size_t>(axis)]; }
};

// Element along all axes; any dtype.
double element_at(const as_tensor& tensor, const TapIndex& index);
bool is_float_tensor(const as_tensor& tensor);
// The reference, rounded to the tap's dtype, is the value.
bool same_when_rounded(double value, double reference, std::int32_t dtype);

// Which elements hold values: rows with a slot, columns below the row's length, list entries >= 0,
// table entries that are no null block.
struct TapGaps {
  const TapCopy* slots = nullptr;  // row valid iff >= 0
  const TapCopy* lens = nullptr;   // columns below are valid
  bool minus_one = false;          // -1 = none
  bool null_block = false;         // 0 = null
  bool any() const { return slots != nullptr || lens != nullptr || minus_one || null_block; }
  // Whether an element holds no value, and why ("none", "null block", ..), nullptr if it does.
  const char* why(const TapCopy& tap, const TapIndex& index) const;
};
TapGaps gaps_of(const OpTrace& op, const TapCopy& tap);

// Two axes of a tap as a matrix, the others fixed. A tap of one axis is wrapped to lines.
struct TapSlice {
  static constexpr std::int64_t kWrap = 64;
  int row_axis = -1, column_axis = 0;  // row_axis -1: one axis, wrapped
  TapIndex fixed;                      // index along every axis; those drawn do not count
  TapIndex shape;

  std::int64_t rows() const;
  std::int64_t columns() const;
  // Rank 0 beyond the end of a wrapped axis.
  TapIndex index(std::int64_t row, std::int64_t column) const;
  // Cell of an element, whatever its place along the fixed axes; -1 where it names no cell.
  CellAt cell(const TapIndex& element) const;
};
// The last two axes.
TapSlice default_slice(const TapCopy& tap);

// For every kept row the row of the same request in the step before, counted from its last row;
// -1 = none.
std::vector<std::int64_t> rows_before(const StepTrace& step, const StepTrace& before);
// The same for ops after the layers: for every sampled row the request's sampled row then.
std::vector<std::int64_t> sampled_rows_before(const StepTrace& step, const StepTrace& before);

// The four ways to look at a tap, element by element. Holds what it needs alive.
struct TapReader {
  std::shared_ptr<const OpTrace> op, op_before;
  const TapCopy* tap = nullptr;
  const TapCopy* tap_before = nullptr;
  TapGaps gaps, gaps_before;
  std::vector<std::int64_t> before;  // by index of the T axis
  int token_axis = -1;
  TensorMode mode = TensorMode::kValue;
  bool beyond_rounding = true;  // difference: 0 where the reference rounds to the value

  double value(const TapIndex& index) const;
  bool absent(const TapIndex& index) const;
};
// Why a mode has nothing to show; empty when it has.
std::string why_not(const TapReader& reader, const StepTrace* before, TensorMode mode);

// Statistics over a whole tap, read in slices.
class TapScan {
 public:
  void start(std::shared_ptr<const OpTrace> op, const TapCopy* tap);
  bool advance(ScanClock::time_point deadline);
  bool done() const { return done_; }
  double progress() const;

  double min = 0, max = 0;
  std::int64_t elements = 0, present = 0, nan = 0, inf = 0, none = 0, null_blocks = 0;
  std::int64_t differing = 0;  // not the reference rounded to the dtype
  double largest = 0;          // |value - reference| among those
  TapIndex largest_at;

 private:
  std::shared_ptr<const OpTrace> op_;
  const TapCopy* tap_ = nullptr;
  TapGaps gaps_;
  TapIndex index_;
  bool done_ = false;
};

// "token 2051, head 5, dim 17"
std::string element_text(const StepTrace& step, const OpTrace& op, const TapCopy& tap,
                         const TapIndex& index);
std::string shape_text(const StepTrace& step, const OpTrace& op,
                       const TapCopy& tap);  // "[T 3, H 8, D 512]"
// Which KV head the heads of a tap read or serve, as the end of a sentence: "; head 5 reads KV head
// 1 of 2". Empty where the layer has no keys of their own, or the tap no heads. head: -1 = none.
std::string kv_head_text(const SessionInfo& info, const OpTrace& op, const TapCopy& tap, int head);

// The sentence of the panel; `scan` may still be running. worst: the element that used most of its
// tolerance, as the error panel names it; rank 0 = none, the largest difference is named then.
std::string tensor_sentence(const StepTrace& step, const OpTrace& op, const TapCopy& tap,
                            const TapScan& scan, const TapIndex& worst = {});

// Names of rows above and before, values in full precision; at most `limit` cells, whole rows.
std::string slice_csv(std::int64_t rows, std::int64_t columns, const CellValue& value,
                      const CellAbsent& absent,
                      const std::function<std::string(std::int64_t)>& row_name,
                      const std::function<std::string(std::int64_t)>& column_name,
                      std::int64_t limit);

}  // namespace attnscope
