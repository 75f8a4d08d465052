#include "engine/session/step/step_trace.h"

#include <algorithm>

namespace attnscope {

std::int64_t RowsRead::find(std::int64_t slot) const {
  const auto it = std::ranges::lower_bound(slots, slot);
  return it != slots.end() && *it == slot ? it - slots.begin() : -1;
}

const TapCopy* OpTrace::tap(std::string_view name) const {
  const auto it = std::ranges::find(taps, name, &TapCopy::name);
  return it != taps.end() ? &*it : nullptr;
}

const RowsCopy* OpTrace::cache_rows(std::string_view name) const {
  const auto it = std::ranges::find(rows, name, &RowsCopy::name);
  return it != rows.end() ? &*it : nullptr;
}

const TapResult* OpTrace::result(std::string_view tap) const {
  const auto it = std::ranges::find(results, tap, &TapResult::tap);
  return it != results.end() ? &*it : nullptr;
}

const OpTrace* StepTrace::find(int layer, as_op_id op) const {
  for (const auto& trace : ops) {
    if (trace->place.layer == layer && trace->place.op == op) return trace.get();
  }
  return nullptr;
}

const OpTrace* StepTrace::find_role(int layer, as_role role) const {
  for (const auto& trace : ops) {
    if (trace->place.layer == layer && as_op_role(trace->place.op) == role) return trace.get();
  }
  return nullptr;
}

std::int64_t StepTrace::kept_index(std::int64_t token_row) const {
  const auto it = std::lower_bound(kept.begin(), kept.end(), token_row);
  return it != kept.end() && *it == token_row ? it - kept.begin() : -1;
}

std::int64_t StepTrace::token_row(std::int32_t request, std::int64_t position) const {
  const auto row =
      static_cast<std::size_t>(std::ranges::find(metadata.live, request) - metadata.live.begin());
  if (row + 1 >= metadata.query_start_loc.size()) return -1;
  const std::int64_t begin = metadata.query_start_loc[row], end = metadata.query_start_loc[row + 1];
  if (begin == end) return -1;
  const std::int64_t offset = position - metadata.positions[static_cast<std::size_t>(begin)];
  return offset >= 0 && offset < end - begin ? begin + offset : -1;
}

std::int32_t StepTrace::request_of(std::int64_t token_row) const {
  if (token_row < 0 || token_row >= metadata.num_tokens_in_step()) return -1;
  const std::int32_t row = metadata.token_to_req[static_cast<std::size_t>(token_row)];
  return metadata.live[static_cast<std::size_t>(row)];
}

const char* event_kind_name(EventKind kind) {
  switch (kind) {
    case EventKind::kAdmit:
      return "admit";
    case EventKind::kFinish:
      return "finish";
    case EventKind::kAllocate:
      return "allocate";
    case EventKind::kFree:
      return "free";
    case EventKind::kSample:
      return "sample";
    case EventKind::kWrong:
      return "wrong";
    case EventKind::kNearTie:
      return "near_tie";
    case EventKind::kBack:
      return "back";
    case EventKind::kError:
      return "error";
    case EventKind::kHit:
      return "hit";
    case EventKind::kPreempt:
      return "preempt";
    case EventKind::kAbort:
      return "abort";
    case EventKind::kShare:
      return "share";
    case EventKind::kEvict:
      return "evict";
    case EventKind::kChunk:
      return "chunk";
  }
  return "?";
}

}  // namespace attnscope
