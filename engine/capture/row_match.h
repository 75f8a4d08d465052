// Two taps beside each other, by the rows of the same tokens.
#pragma once

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "engine/capture/capture_diff.h"

namespace attnscope {

// Token rows of two steps that are the same token of the same request.
struct RowMatch {
  const StepTrace* a = nullptr;
  const StepTrace* b = nullptr;
  std::vector<std::pair<std::int32_t, std::int32_t>> rows;
  const as_threads* threads = nullptr;  // to compare with; null = this one alone
};

// Whether a tap lists selected entries: their order does not matter.
bool is_selection(as_op_id op, const std::string& tap);

// Nothing where the two cannot be laid beside each other.
std::optional<TapDiff> compare_taps(const RowMatch& match, const SessionInfo& info_a,
                                    const SessionInfo& info_b, const OpTrace& op,
                                    const OpTrace& twin, const TapCopy& a, const TapCopy& b,
                                    const Tolerances& tolerances);

// Cache rows that were written, by bytes; states as numbers too. What differs first is named by
// the request and the token that wrote it, and by the row of the request that its slot stands for.
TapDiff compare_rows(const RowMatch& match, const SessionInfo& info_a, const RowsCopy& a,
                     const RowsCopy& b);

}  // namespace attnscope
