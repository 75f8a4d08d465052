#include "app/views/row_pool_view.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <utility>

#include "app/text/format.h"
#include "engine/family/selected_entries.h"
#include "kernels/params/tensor_view.h"

namespace attnscope {
namespace {

using RowsOfStep = std::set<std::pair<std::int32_t, std::int32_t>>;  // request, row

// What the newest token of each request selected in a layer; nothing where it was not kept.
RowsOfStep newest_selections(const StepTrace& step, int layer) {
  RowsOfStep rows;
  const OpTrace* op = step.find_role(layer, AS_ROLE_SELECT);
  const TapCopy* tap = op == nullptr ? nullptr : op->tap("indices");
  if (tap == nullptr || !present(tap->value) || tap->stats) return rows;
  const StepMetadata& m = step.metadata;
  for (std::size_t r = 0; r + 1 < m.query_start_loc.size(); ++r) {
    const std::int64_t last = m.query_start_loc[r + 1] - 1;
    const std::int64_t kept = last < m.query_start_loc[r] ? -1 : step.kept_index(last);
    for (std::int64_t k = 0; kept >= 0 && k < tap->value.shape[1]; ++k) {
      const std::int32_t row = *at<std::int32_t>(tap->value, kept, k);
      if (row >= 0) rows.insert({m.live[r], row});
    }
  }
  return rows;
}

std::optional<double> overlap_of(const StepTrace& step, const StepTrace* before, int layer) {
  if (before == nullptr) return std::nullopt;
  const RowsOfStep now = newest_selections(step, layer), then = newest_selections(*before, layer);
  std::set<std::int32_t> went_on;
  for (const auto& [request, row] : then) went_on.insert(request);
  std::int64_t rows = 0, had = 0;
  for (const auto& row : now) {
    if (!went_on.contains(row.first)) continue;
    ++rows;
    had += then.contains(row) ? 1 : 0;
  }
  if (rows == 0) return std::nullopt;
  return static_cast<double>(had) / static_cast<double>(rows);
}

}  // namespace

const char* pool_place_name(PoolPlace::What what) {
  constexpr const char* kNames[] = {"free", "idle", "hit", "missed", "new"};
  return kNames[static_cast<int>(what)];
}

RowPoolView row_pool_view(const SessionInfo& info, const StepTrace& step, const StepTrace* before,
                          const StepSummary* summary, int layer) {
  RowPoolView view;
  if (!info.config.host_rows) {
    view.off = true;
    view.why_empty =
        "All rows lie on the device. A scenario with \"ess\": {\"ratio\": 0.2} has them in host "
        "memory, behind a pool of rows in each layer that selects; scenario ess is one.";
    return view;
  }
  if (summary == nullptr || summary->pools.empty()) {
    view.why_empty = "No layer has selected in this step yet.";
    return view;
  }
  view.tokens_per_row = tokens_of_selected(info.config);
  const auto shown = std::ranges::find_if(
      summary->pools, [&](const PoolCounts& counts) { return counts.layer >= layer; });
  const PoolCounts& counts = shown == summary->pools.end() ? summary->pools.back() : *shown;
  view.layer = counts.layer;
  for (const PoolCounts& one : summary->pools) {
    view.layers.push_back({one, overlap_of(step, before, one.layer)});
  }
  const auto picture = std::ranges::find(step.pools, view.layer, &PoolPicture::layer);
  if (picture != step.pools.end()) view.places = picture->places;
  const std::int64_t selected = counts.hits + counts.misses;
  const std::string pool =
      view.places.empty() ? std::string("the pool")
                          : fmt::format("the pool of {}", format_count(std::ssize(view.places)));
  view.sentence =
      selected == 0
          ? fmt::format("Layer {}: no token of this step decodes, so none reads through {}.",
                        view.layer, pool)
          : fmt::format(
                "Layer {}: {} of {} selected rows lay in {} ({}), {} came from host memory; "
                "{}.",
                view.layer, format_count(counts.hits), format_count(selected), pool,
                format_share(static_cast<double>(counts.hits) / static_cast<double>(selected)),
                format_count(counts.misses),
                plural(counts.evictions, "gave up its place", "gave up their place"));
  return view;
}

}  // namespace attnscope
