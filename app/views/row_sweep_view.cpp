#include "app/views/row_sweep_view.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string_view>

#include "app/text/format.h"
#include "engine/model/numbers.h"

namespace attnscope {
namespace {

constexpr std::size_t kMostCurves = 8;  // layers of a plot, beside that of all

constexpr const char* kSweepNames[kOverlaps] = {"none", "PreAttn", "DA", "DBA"};

std::optional<double> tokens_rate(const OffloadResult& result, const std::optional<double>& us) {
  if (!us || *us <= 0) return std::nullopt;
  return result.throughput(*us);
}

// Of points that a sweep has, by x: the misses of all layers, and of each of the first ones.
SweepPlot misses_plot(std::string title, std::string x, const std::vector<int>& layers,
                      const std::vector<SweepPoint>& points, bool by_context) {
  SweepPlot plot{.title = std::move(title),
                 .x = std::move(x),
                 .share = true,
                 .log_x = by_context,
                 .curves = {{.name = "all layers", .x = {}, .y = {}}}};
  for (std::size_t k = 0; layers.size() > 1 && k < std::min(layers.size(), kMostCurves); ++k) {
    plot.curves.push_back({.name = fmt::format("layer {}", layers[k]), .x = {}, .y = {}});
  }
  for (const SweepPoint& p : points) {
    if (!p.refused.empty()) continue;
    for (std::size_t c = 0; c < plot.curves.size(); ++c) {
      plot.curves[c].x.push_back(by_context ? static_cast<double>(p.context) : p.ratio);
      plot.curves[c].y.push_back(c == 0 ? p.result.total.miss_rate()
                                        : p.result.layers[c - 1].total.miss_rate());
    }
  }
  return plot;
}

// Of a recorded trace the context grows from step to step: what each missed, of the pool nearest to
// a fifth of the rows.
SweepPlot misses_by_step(const RowSweep& sweep, const SweepPoint& point) {
  SweepPlot plot{.title = fmt::format("missed by context, pool {}", format_number(point.ratio)),
                 .x = "rows of the longest request",
                 .share = true,
                 .log_x = false,
                 .dots = true,
                 .curves = {}};
  for (std::size_t k = 0; k < std::min(sweep.layers.size(), kMostCurves); ++k) {
    SweepCurve curve{.name = fmt::format("layer {}", sweep.layers[k]), .x = {}, .y = {}};
    for (std::size_t s = 0; s < sweep.step.size(); ++s) {
      curve.x.push_back(static_cast<double>(sweep.context[s]));
      curve.y.push_back(point.result.layers[k].steps[s].miss_rate());
    }
    plot.curves.push_back(std::move(curve));
  }
  return plot;
}

SweepPlot overlaps_plot(const RowSweep& sweep, const SweepPoint& point) {
  SweepPlot plot{.title = "selections that the step before had, too",
                 .x = "step",
                 .share = true,
                 .log_x = false,
                 .curves = {}};
  for (std::size_t k = 0; k < std::min(sweep.layers.size(), kMostCurves); ++k) {
    SweepCurve curve{.name = fmt::format("layer {}", sweep.layers[k]), .x = {}, .y = {}};
    const auto& shares = point.result.layers[k].step_overlap;
    for (std::size_t s = 0; s < shares.size(); ++s) {
      if (!shares[s]) continue;
      curve.x.push_back(static_cast<double>(sweep.step[s]));
      curve.y.push_back(*shares[s]);
    }
    plot.curves.push_back(std::move(curve));
  }
  return plot;
}

SweepPlot rates_plot(std::string title, std::string x, const std::vector<SweepPoint>& points,
                     bool by_context) {
  SweepPlot plot{.title = std::move(title),
                 .x = std::move(x),
                 .share = false,
                 .log_x = by_context,
                 .curves = {}};
  for (int i = 0; i <= kOverlaps; ++i) {
    SweepCurve curve{
        .name = i < kOverlaps ? kSweepNames[i] : "best of each layer", .x = {}, .y = {}};
    for (const SweepPoint& p : points) {
      if (!p.refused.empty()) continue;
      const auto us = i < kOverlaps ? p.result.us[static_cast<std::size_t>(i)]
                                    : std::optional<double>(p.result.best_us);
      const auto y = tokens_rate(p.result, us);
      if (!y) continue;
      curve.x.push_back(by_context ? static_cast<double>(p.context) : p.ratio);
      curve.y.push_back(*y);
    }
    if (!curve.x.empty()) plot.curves.push_back(std::move(curve));
  }
  return plot;
}

void add_rows(const RowSweep& sweep, const std::vector<SweepPoint>& points, bool by_context,
              std::vector<SweepRow>& rows) {
  for (const SweepPoint& p : points) {
    SweepRow all;
    all.of = by_context ? fmt::format("context {}", format_count(p.context))
                        : fmt::format("pool {}", format_number(p.ratio));
    all.ratio = p.ratio;
    all.context = p.context;
    all.refused = p.refused;
    if (!p.refused.empty()) {
      rows.push_back(std::move(all));
      continue;
    }
    all.pool_rows = p.result.pool_rows;
    all.missed = p.result.total.miss_rate();
    for (std::size_t i = 0; i < all.rates.size(); ++i) {
      all.rates[i] = tokens_rate(p.result, p.result.us[i]);
    }
    rows.push_back(all);
    for (std::size_t k = 0; k < sweep.layers.size(); ++k) {
      const OffloadLayer& layer = p.result.layers[k];
      SweepRow one = all;
      one.layer = layer.layer;
      one.missed = layer.total.miss_rate();
      one.overlap = layer.overlap;
      one.best = kSweepNames[static_cast<int>(layer.best)];
      for (std::size_t i = 0; i < one.rates.size(); ++i) {
        one.rates[i] = tokens_rate(p.result, layer.us[i]);
      }
      rows.push_back(std::move(one));
    }
  }
}

}  // namespace

RowSweepView row_sweep_view(const RowSweep& sweep) {
  RowSweepView view;
  view.source = sweep.source;
  if (!sweep.left.empty()) view.source += ". " + sweep.left;
  const SweepPoint* fifth = nullptr;  // that ran, the nearest to a fifth of the rows
  for (const SweepPoint& p : sweep.by_ratio) {
    if (!p.refused.empty()) continue;
    if (fifth == nullptr || std::abs(p.ratio - 0.2) < std::abs(fifth->ratio - 0.2)) fifth = &p;
  }
  add_rows(sweep, sweep.by_ratio, false, view.rows);
  add_rows(sweep, sweep.by_context, true, view.rows);
  if (fifth == nullptr) {
    view.sentence = "Each step needs more rows at once than any of these pools has.";
    return view;
  }
  std::string fastest;
  const auto none = tokens_rate(fifth->result, fifth->result.us[0]);
  const auto best = tokens_rate(fifth->result, fifth->result.best_us);
  if (none && best) {
    fastest = fmt::format(
        "; by the model {} tokens/s without overlap, {} with what is best for "
        "each layer",
        format_count(std::llround(*none)), format_count(std::llround(*best)));
  }
  view.sentence =
      fmt::format("With {} of the rows in the pool {} of what {} select is missed{}.",
                  format_share(fifth->ratio), format_share(fifth->result.total.miss_rate()),
                  plural(std::ssize(sweep.layers), "layer", "layers"), fastest);
  view.plots.push_back(
      misses_plot("missed by pool", "pool, of all rows", sweep.layers, sweep.by_ratio, false));
  if (sweep.by_context.empty()) {
    view.plots.push_back(misses_by_step(sweep, *fifth));
  } else {
    view.plots.push_back(misses_plot(
        fmt::format("missed by context, pool {}", format_number(sweep.by_context.front().ratio)),
        "rows of a request", sweep.layers, sweep.by_context, true));
  }
  view.plots.push_back(overlaps_plot(sweep, *fifth));
  view.plots.push_back(
      rates_plot("tokens/s by pool, modelled", "pool, of all rows", sweep.by_ratio, false));
  if (!sweep.by_context.empty()) {
    view.plots.push_back(
        rates_plot("tokens/s by context, modelled", "rows of a request", sweep.by_context, true));
  }
  // Each picture says which trace it is of, also where it is seen alone.
  const std::string_view source = sweep.source;
  const char* of = source.starts_with("generated") ? "generated"
                   : source.starts_with("capture") ? "capture"
                                                   : "this session";
  for (SweepPlot& plot : view.plots) plot.title += fmt::format(" ({})", of);
  return view;
}

}  // namespace attnscope
