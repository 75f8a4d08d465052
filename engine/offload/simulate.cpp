#include "engine/offload/simulate.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "engine/io/stopped.h"

namespace attnscope {
namespace {

void add(OffloadCounts& sum, const OffloadCounts& one) {
  sum.hits += one.hits;
  sum.misses += one.misses;
  sum.written += one.written;
  sum.evictions += one.evictions;
}

std::vector<HostRow> sorted_rows(std::vector<HostRow> rows) {
  std::ranges::sort(rows);
  rows.erase(std::unique(rows.begin(), rows.end()), rows.end());
  return rows;
}

// Means of the share of a step's rows that the step before had, over requests that are in both.
class OverlapMean {
 public:
  std::optional<double> step(const std::vector<HostRow>& selected) {
    const std::vector<HostRow> now = sorted_rows(selected);
    std::set<std::int32_t> went_on;
    for (const HostRow& row : before_) went_on.insert(row.request);
    std::int64_t rows = 0, kept = 0;
    for (const HostRow& row : now) {
      if (!went_on.contains(row.request)) continue;
      ++rows;
      kept += std::ranges::binary_search(before_, row) ? 1 : 0;
    }
    before_ = now;
    if (rows == 0) return std::nullopt;
    const double share = static_cast<double>(kept) / static_cast<double>(rows);
    sum_ += share;
    ++steps_;
    return share;
  }
  std::optional<double> mean() const {
    if (steps_ == 0) return std::nullopt;
    return sum_ / static_cast<double>(steps_);
  }

 private:
  std::vector<HostRow> before_;
  double sum_ = 0;
  std::int64_t steps_ = 0;
};

Result<PoolStep> step_by_halves(RowPool& pool, const LayerSelection& layer) {
  auto step = pool.write(layer.written);
  for (const std::uint8_t half : {1, 2}) {
    std::vector<HostRow> rows;
    for (std::size_t i = 0; i < layer.selected.size(); ++i) {
      if ((layer.halves[i] & half) != 0) rows.push_back(layer.selected[i]);
    }
    if (!step) return step;
    if (auto ok = pool.select(rows, *step); !ok) return ok.error();
  }
  return step;
}

Result<OffloadLayer> simulate_layer(const SelectionTrace& trace, std::size_t index,
                                    std::int64_t pool_rows, const OffloadOptions& options) {
  OffloadLayer out;
  out.layer = trace.layers[index];
  RowPool pool({.rows = pool_rows, .policy = options.policy});
  OverlapMean overlap;
  bool cut = false;  // some batch has two requests
  out.us.fill(0.0);
  for (const SelectionStep& step : trace.steps) {
    if (is_stopped(options.stop)) return stopped_error();
    const LayerSelection& layer = step.layers[index];
    for (const HostRowRange& gone : step.gone) pool.drop(gone);
    if (options.warm) pool.warm(layer.warm);
    const bool halves = options.attend.of(out.layer) == Overlap::kDba && !layer.halves.empty();
    auto done = halves ? step_by_halves(pool, layer) : pool.step(layer.written, layer.selected);
    if (!done) {
      return bad_input(
          fmt::format("step {}, layer {}: {}", step.step, out.layer, done.error().message),
          done.error().hint);
    }
    out.step_overlap.push_back(overlap.step(layer.selected));
    const OffloadCounts counts{std::ssize(done->hits), std::ssize(done->misses),
                               std::ssize(done->written), std::ssize(done->evictions)};
    add(out.total, counts);
    out.steps.push_back(counts);
    std::set<std::int32_t> requests;
    for (const HostRow& row : layer.selected) requests.insert(row.request);
    const auto times = layer_times({.requests = std::ssize(requests),
                                    .context_rows = trace.context * std::ssize(requests),
                                    .selected = std::ssize(layer.selected),
                                    .misses = counts.misses,
                                    .written = counts.written,
                                    .row_bytes = trace.row_bytes},
                                   options.constants);
    cut = cut || times[static_cast<std::size_t>(Overlap::kDba)].has_value();
    for (std::size_t i = 0; i < times.size(); ++i) {
      // A batch of one request is not cut: rows come beside what does not need them.
      *out.us[i] += times[i].value_or(*times[static_cast<std::size_t>(Overlap::kPreAttn)]);
    }
  }
  if (!cut) out.us[static_cast<std::size_t>(Overlap::kDba)].reset();
  out.overlap = overlap.mean();
  for (int i = 1; i < kOverlaps; ++i) {
    const auto& time = out.us[static_cast<std::size_t>(i)];
    if (time && *time < *out.us[static_cast<std::size_t>(out.best)]) {
      out.best = static_cast<Overlap>(i);
    }
  }
  return out;
}

}  // namespace

Result<OffloadResult> simulate_offload(const SelectionTrace& trace, const OffloadOptions& options) {
  if (!(options.ratio > 0 && options.ratio <= 1)) {
    return usage_error(fmt::format("--ratio {}: out of range", options.ratio),
                       "above 0, at most 1: the share of a layer's rows that its pool holds");
  }
  OffloadResult result;
  result.pool_rows =
      options.pool_rows > 0 ? options.pool_rows : pool_rows(options.ratio, trace.rows);
  result.us.fill(0.0);
  for (const SelectionStep& step : trace.steps) result.tokens += step.tokens;
  for (std::size_t i = 0; i < trace.layers.size(); ++i) {
    auto layer = simulate_layer(trace, i, result.pool_rows, options);
    if (!layer) return layer.error();
    add(result.total, layer->total);
    for (std::size_t k = 0; k < result.us.size(); ++k) {
      if (!layer->us[k]) {
        result.us[k].reset();
      } else if (result.us[k]) {
        *result.us[k] += *layer->us[k];
      }
    }
    result.best_us += *layer->us[static_cast<std::size_t>(layer->best)];
    result.layers.push_back(std::move(*layer));
  }
  result.bytes_in = result.total.misses * trace.row_bytes;
  result.bytes_back = result.total.written * trace.row_bytes;
  return result;
}

}  // namespace attnscope
