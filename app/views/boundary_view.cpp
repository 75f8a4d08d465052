#include "app/views/boundary_view.h"

#include <fmt/format.h>

#include <algorithm>

#include "app/text/format.h"
#include "app/views/linkage.h"
#include "engine/model/numbers.h"

namespace attnscope {
namespace {

constexpr std::int64_t kCellsOfEntry = 4;
constexpr std::int64_t kEntriesShown = 6;

// Tokens that an entry of the layer stands for; 0 = it has none.
std::int64_t ratio_of(const SessionInfo& info, int layer) {
  std::int64_t ratio = 0;
  for (const CacheSpec& spec : info.layout.specs) {
    if (info.config.layers[to_size(spec.layer)] != layer || spec.tokens_per_row == 1) continue;
    ratio = std::max<std::int64_t>(ratio, spec.tokens_per_row);
  }
  return ratio;
}

// Where the step's own tokens of the request put what they complete; by position.
std::int64_t slot_in_step(const StepTrace& step, std::int64_t ratio, std::int32_t request,
                          std::int64_t position) {
  const std::int64_t token = step.token_row(request, position);
  const StepTensor* slots = step.metadata.entry_slots(ratio);
  if (token < 0 || slots == nullptr) return -1;
  std::int64_t slot = -1;
  slots->values([&](const auto& values) {
    if (to_size(token) < values.size()) slot = static_cast<std::int64_t>(values[to_size(token)]);
  });
  return slot;
}

}  // namespace

BoundaryView boundary_view(const SessionInfo& info, const StepTrace& step, int layer,
                           std::int32_t request, std::int64_t position, std::int64_t entry) {
  BoundaryView view;
  view.ratio = ratio_of(info, layer);
  const RequestView* owner = find_request(step, request);
  if (view.ratio <= 0 || owner == nullptr || position < 0) {
    view.why_empty = view.ratio <= 0 ? "This layer has a window alone: no token completes an entry."
                                     : "Select a token: a cell of the window does it.";
    return view;
  }
  view.token = position;
  view.entry = entry >= 0 ? entry : position / view.ratio;
  const int ratio = static_cast<int>(view.ratio);
  const TokenRange pooled = tokens_of_entry(info.layout, ratio, view.entry);
  const std::int64_t own = view.entry * view.ratio;
  const std::int64_t length = length_in_step(step, *owner);
  const std::int64_t unit = view.ratio / kCellsOfEntry;
  const std::int64_t first = std::max<std::int64_t>(0, view.entry - kEntriesShown / 2) * view.ratio;
  for (std::int64_t i = 0; i < kEntriesShown * kCellsOfEntry; ++i) {
    BoundaryCell& cell = view.cells.emplace_back();
    cell.first = first + i * unit;
    cell.end = cell.first + unit;
    cell.computed = cell.end <= length;
    for (std::int64_t p = cell.first; p < cell.end && !cell.in_step; ++p) {
      cell.in_step = step.token_row(request, p) >= 0;
    }
    cell.own = cell.first >= own && cell.first < own + view.ratio;
    cell.older = pooled.contains(cell.first) && !cell.own;
    if (cell.end % view.ratio > 0) continue;
    cell.completes = cell.end / view.ratio - 1;
    cell.slot = slot_in_step(step, view.ratio, request, cell.end - 1);
  }
  const std::int64_t maker = own + view.ratio - 1;
  view.sentence = fmt::format(
      "Entry {} pools tokens {}-{}{} and is made by token {}", format_count(view.entry),
      format_count(pooled.begin), format_count(pooled.end - 1),
      pooled.begin < own ? fmt::format(", {}-{} by their first half", format_count(pooled.begin),
                                       format_count(own - 1))
                         : std::string(),
      format_count(maker));
  view.sentence += maker < length ? fmt::format("; tokens from {} on see it.", format_count(maker))
                                  : std::string(", which is still to come.");
  return view;
}

}  // namespace attnscope
