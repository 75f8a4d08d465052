// attention_plan: splits of every token's lists, type of layers by type.
#include <algorithm>
#include <vector>

#include "kernels/cpu/attention_plan_check.h"
#include "kernels/cpu/ops.h"
#include "kernels/params/tensor_view.h"

namespace attnscope::cpu {
namespace {

using I64 = std::int64_t;
using Params = as_attention_plan_params;

constexpr I64 kOverhead = 5;  // of FlashMLA's rule: tiles that a row costs beside its own

I64 tiles_of(I64 entries) { return (entries + AS_PLAN_TILE - 1) / AS_PLAN_TILE; }

// The plan of one type, written from its first split on.
class PlanOfType {
 public:
  PlanOfType(const Params& p, I64 type)
      : p_(p), type_(type), blocks_of_row_((p.heads + AS_PLAN_HEADS - 1) / AS_PLAN_HEADS) {
    const as_tensor& lens = type == 1 ? p.c4_lens : p.c128_lens;
    if (type > 0 && !present(lens)) {
      tiles_.assign(static_cast<std::size_t>(p.window_lens.shape[0]), 0);
      return;
    }
    for (I64 t = 0; t < p.window_lens.shape[0]; ++t) {
      const I64 window = std::max(*at<std::int32_t>(p.window_lens, t), 0);
      I64 entries = type > 0 ? std::max(*at<std::int32_t>(lens, t), 0) : 0;
      if (type == 1) entries = std::min<I64>(entries, p.top_k);
      const bool padding = window == 0 && entries == 0;
      tiles_.push_back(padding ? 0 : tiles_of(std::max<I64>(window, 1)) + tiles_of(entries));
    }
  }

  void write() {
    p_.rule == AS_PLAN_FLASHMLA ? fill_parts() : cut_alike();
    *at<std::int32_t>(p_.counts, type_, 0) = static_cast<std::int32_t>(splits_);
    *at<std::int32_t>(p_.counts, type_, 1) = static_cast<std::int32_t>(combined_);
    for (; splits_ < p_.splits.shape[1]; ++splits_) {
      std::fill_n(at<std::int32_t>(p_.splits, type_, splits_), AS_PLAN_COLUMNS, -1);
    }
  }

 private:
  void fill_parts() {
    const I64 parts = std::max<I64>(1, p_.multiprocessors / blocks_of_row_);
    I64 cost = 0;
    for (const I64 tiles : tiles_) cost += tiles > 0 ? tiles + kOverhead : 0;
    const I64 budget = (cost + parts - 1) / parts + kOverhead;
    I64 part = 0, left = budget;
    for (std::size_t row = 0; row < tiles_.size(); ++row) {
      begin_row();
      if (tiles_[row] > 0) {
        I64 done = 0;
        for (; left < tiles_[row] - done + kOverhead; ++part, left = budget) {
          if (left <= kOverhead) continue;
          add(row, done, done + left - kOverhead, part);
          done += left - kOverhead;
        }
        add(row, done, tiles_[row], part);
        left -= tiles_[row] - done + kOverhead;
      }
      end_row(row);
    }
  }

  void cut_alike() {
    constexpr I64 kMostSplits = 64;
    // In tenths of a microsecond: a tile, what a second kernel costs.
    constexpr I64 kTileCost = 16, kCombineCost = 25;
    const auto padding = std::ranges::count(tiles_, I64{0});
    const I64 blocks = (static_cast<I64>(tiles_.size()) - padding) * blocks_of_row_;
    const I64 longest = tiles_.empty() ? 0 : *std::ranges::max_element(tiles_);
    I64 wanted = 1, least = longest * kTileCost;
    for (I64 n = 2; n <= std::min(kMostSplits, longest); ++n) {
      if (blocks * n > p_.multiprocessors) break;
      const I64 cost = (longest + n - 1) / n * kTileCost + kCombineCost + blocks * n / 2;
      if (cost >= least) continue;
      least = cost;
      wanted = n;
    }
    for (std::size_t row = 0; row < tiles_.size(); ++row) {
      begin_row();
      for (I64 j = 0; j < wanted; ++j) {
        const I64 begin = tiles_[row] * j / wanted, end = tiles_[row] * (j + 1) / wanted;
        if (begin < end) add(row, begin, end, splits_);
      }
      end_row(row);
    }
  }

  void begin_row() { first_ = splits_; }

  void add(std::size_t row, I64 begin, I64 end, I64 part) {
    std::int32_t* split = at<std::int32_t>(p_.splits, type_, splits_++);
    split[AS_PLAN_ROW] = static_cast<std::int32_t>(row);
    split[AS_PLAN_BEGIN] = static_cast<std::int32_t>(begin);
    split[AS_PLAN_END] = static_cast<std::int32_t>(end);
    split[AS_PLAN_PART] = static_cast<std::int32_t>(part);
    split[AS_PLAN_PLACE] = -1;
  }

  void end_row(std::size_t row) {
    std::int32_t* out = at<std::int32_t>(p_.rows, type_, static_cast<I64>(row));
    out[0] = static_cast<std::int32_t>(first_);
    out[1] = static_cast<std::int32_t>(splits_ - first_);
    if (splits_ - first_ < 2) return;
    ++combined_;
    for (I64 n = first_; n < splits_; ++n) {
      *at<std::int32_t>(p_.splits, type_, n, AS_PLAN_PLACE) = static_cast<std::int32_t>(places_++);
    }
  }

  const Params& p_;
  const I64 type_, blocks_of_row_;
  std::vector<I64> tiles_;  // [T] 0 = padding
  I64 first_ = 0;           // split of the row at hand
  I64 splits_ = 0, combined_ = 0, places_ = 0;
};

}  // namespace

void attention_plan(const Params& p, const as_call*, Check& check) {
  if (!check_params(p, true, check)) return;
  for (I64 type = 0; type < AS_PLAN_TYPES; ++type) PlanOfType(p, type).write();
}

}  // namespace attnscope::cpu
