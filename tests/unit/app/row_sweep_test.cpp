// Sweeps over pools of rows: the numbers are the simulator's, each plot has its curves, a sweep can
// be stopped.
#include "engine/offload/row_sweep.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "app/views/row_sweep_view.h"

namespace attnscope {
namespace row_sweep_test {

const GeneratorOptions kOptions{
    .context = 600, .batch = 2, .topk = 40, .steps = 5, .layers = 3, .overlap = 0.7, .seed = 4};

SweepAsk small_ask() {
  SweepAsk ask;
  ask.ratios = {0.02, 0.2, 0.5, 1};
  ask.contexts = {300, 1200};
  return ask;
}

const SweepPlot& plot_of(const RowSweepView& view, std::string_view title) {
  const auto at = std::ranges::find_if(
      view.plots, [&](const SweepPlot& plot) { return plot.title.starts_with(title); });
  EXPECT_NE(at, view.plots.end()) << title;
  return at == view.plots.end() ? view.plots.front() : *at;
}

TEST(RowSweep, HasTheNumbersOfTheSimulator) {
  SweepProgress progress;
  const auto sweep = sweep_generated(kOptions, small_ask(), progress);
  ASSERT_TRUE(sweep) << sweep.error().text();
  EXPECT_EQ(progress.done, progress.all);
  const auto trace = generated_trace(kOptions);
  EXPECT_EQ(sweep->source, trace->source);
  ASSERT_EQ(sweep->by_ratio.size(), 4u);
  EXPECT_NE(sweep->by_ratio[0].refused, "") << "24 places for 80 rows";
  for (std::size_t i = 1; i < 4; ++i) {
    const auto due = simulate_offload(*trace, {.ratio = sweep->by_ratio[i].ratio});
    EXPECT_EQ(sweep->by_ratio[i].result.total.misses, due->total.misses);
    EXPECT_EQ(sweep->by_ratio[i].result.us, due->us);
  }
  GeneratorOptions longer = kOptions;
  longer.context = 1200;
  const auto due = simulate_offload(*generated_trace(longer), {.ratio = 0.2});
  ASSERT_EQ(sweep->by_context.size(), 2u);
  EXPECT_EQ(sweep->by_context[1].result.total.misses, due->total.misses);
  EXPECT_EQ(sweep->by_context[1].context, 1205);
}

TEST(RowSweep, ViewOfGeneratedSelections) {
  SweepProgress progress;
  const auto sweep = sweep_generated(kOptions, small_ask(), progress);
  ASSERT_TRUE(sweep);
  const RowSweepView view = row_sweep_view(*sweep);
  EXPECT_EQ(view.source, sweep->source);
  for (const SweepPlot& plot : view.plots) EXPECT_TRUE(plot.title.ends_with("(generated)"));
  EXPECT_EQ(view.sentence.find("With 20 % of the rows in the pool"), 0u) << view.sentence;
  const SweepPlot& missed = plot_of(view, "missed by pool");
  ASSERT_EQ(missed.curves.size(), 4u);  // all layers, and each
  EXPECT_EQ(missed.curves[0].x, (std::vector<double>{0.2, 0.5, 1}));
  EXPECT_EQ(missed.curves[2].y[0], sweep->by_ratio[1].result.layers[1].total.miss_rate());
  EXPECT_GE(missed.curves[0].y[0], missed.curves[0].y[1]);
  EXPECT_EQ(plot_of(view, "missed by context").curves[0].x, (std::vector<double>{305, 1205}));
  EXPECT_EQ(plot_of(view, "selections that the step before had").curves.size(), 3u);
  EXPECT_EQ(plot_of(view, "selections that the step before had").curves[0].x.size(), 4u);
  const SweepPlot& rates = plot_of(view, "tokens/s by pool");
  ASSERT_EQ(rates.curves.size(), 5u);
  EXPECT_EQ(rates.curves[3].name, "DBA");
  EXPECT_DOUBLE_EQ(rates.curves[2].y[0],
                   sweep->by_ratio[1].result.throughput(*sweep->by_ratio[1].result.us[2]));
  // All layers and each, of pools and of contexts; a pool that is too small has one row.
  EXPECT_EQ(view.rows.size(), 1u + 3 * 4 + 2 * 4);
  EXPECT_NE(view.rows.front().refused, "");
}

TEST(RowSweep, ARecordedTraceHasItsOwnContexts) {
  auto trace = generated_trace(kOptions);
  trace->source = "capture x.acap of y";
  SweepProgress progress;
  const auto sweep = sweep_rows(*trace, small_ask(), progress);
  ASSERT_TRUE(sweep);
  EXPECT_TRUE(sweep->by_context.empty());
  const RowSweepView view = row_sweep_view(*sweep);
  const SweepPlot& by_context = plot_of(view, "missed by context, pool 0.2");
  EXPECT_TRUE(by_context.title.ends_with("(capture)")) << by_context.title;
  ASSERT_EQ(by_context.curves.size(), 3u);
  EXPECT_EQ(by_context.curves[0].x, (std::vector<double>{601, 602, 603, 604, 605}));
}

TEST(RowSweep, OneRequestHasNoHalves) {
  GeneratorOptions one = kOptions;
  one.batch = 1;
  SweepProgress progress;
  const auto sweep = sweep_generated(one, small_ask(), progress);
  ASSERT_TRUE(sweep);
  const RowSweepView view = row_sweep_view(*sweep);
  for (const SweepCurve& curve : plot_of(view, "tokens/s by pool").curves) {
    EXPECT_NE(curve.name, "DBA");
  }
}

// A step of one request has no halves; the others of the trace do.
TEST(RowSweep, StepsOfOneRequestAreNotCut) {
  auto trace = generated_trace(kOptions);
  ASSERT_TRUE(trace);
  for (LayerSelection& layer : trace->steps.back().layers) {
    std::erase_if(layer.selected, [](const HostRow& row) { return row.request > 0; });
    layer.halves.clear();
  }
  const auto result = simulate_offload(*trace, {.ratio = 0.5});
  ASSERT_TRUE(result) << result.error().text();
  ASSERT_TRUE(result->us[3]);
  trace->steps.erase(trace->steps.begin(), trace->steps.end() - 1);
  EXPECT_FALSE(simulate_offload(*trace, {.ratio = 0.5})->us[3]);
}

TEST(RowSweep, IsStopped) {
  SweepProgress progress;
  progress.stopped = true;
  const auto stopped = sweep_generated(kOptions, small_ask(), progress);
  ASSERT_FALSE(stopped);
  EXPECT_EQ(stopped.error().message, "it was stopped");
  EXPECT_EQ(progress.done, 0) << "not even its selections are made";
  EXPECT_FALSE(generated_trace(kOptions, &progress.stopped));
}

TEST(RowSweep, SaysWhatOfATraceWasLeftOut) {
  auto trace = generated_trace(kOptions);
  ASSERT_TRUE(trace);
  SweepProgress whole, cut;
  EXPECT_EQ(row_sweep_view(*sweep_rows(*trace, small_ask(), whole)).source, trace->source);
  trace->left = "Steps 3 and 4 are not in it.";
  EXPECT_EQ(row_sweep_view(*sweep_rows(*trace, small_ask(), cut)).source,
            trace->source + ". Steps 3 and 4 are not in it.");
}

}  // namespace row_sweep_test
}  // namespace attnscope
