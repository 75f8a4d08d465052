// What the timeline shows: cells, merging to the worst, targets of clicks, words, zoom.
#include "app/views/timeline_view.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>

#include "engine/family/deepseek_v4/deepseek_v4.h"
#include "engine/family/family.h"
#include "engine/family/models.h"

namespace attnscope {
namespace timeline_view_test {

std::shared_ptr<const SessionInfo> tiny_info() {
  auto info = std::make_shared<SessionInfo>();
  info->config = *preset("tiny");
  for (const LayerGraph& layer : model_graph(info->config)->layers) {
    info->ops.push_back(layer.ops());
  }
  info->ops_before = {AS_OP_SCHEDULE, AS_OP_BLOCK_TABLES, AS_OP_SLOT_MAPPING, AS_OP_SWA_INDEX,
                      AS_OP_C128_INDEX};
  info->ops_after = {AS_OP_FINAL_NORM, AS_OP_LM_HEAD, AS_OP_SAMPLE};
  return info;
}

TapResult result(std::int64_t step, int layer, as_op_id op, Verdict verdict, double budget) {
  TapResult r;
  r.step = step;
  r.layer = layer;
  r.op = op;
  r.tap = "y";
  r.verdict = verdict;
  r.budget_used = budget;
  return r;
}

// A step whose layers each have one equal tap.
std::shared_ptr<StepSummary> make_summary(const SessionInfo& info, std::int64_t step,
                                          bool decode = true) {
  auto summary = std::make_shared<StepSummary>();
  summary->step = step;
  summary->tokens = decode ? 1 : 512;
  summary->decode_only = decode;
  summary->complete = true;
  summary->seconds = decode ? 0.02 : 1.5;
  std::vector<int> layers = {-1};
  layers.insert(layers.end(), info.config.layers.begin(), info.config.layers.end());
  for (int layer : layers) {
    LayerCell& cell = summary->layers.emplace_back();
    cell.layer = layer;
    cell.worst = Verdict::kEqual;
    cell.microseconds = 100;
    cell.counts[0] = 1;
    summary->results.push_back(
        result(step, layer, layer < 0 ? AS_OP_SCHEDULE : AS_OP_ATTN_NORM, Verdict::kEqual, 0));
  }
  return summary;
}

void add_result(StepSummary& summary, int layer, as_op_id op, Verdict verdict, double budget) {
  summary.results.push_back(result(summary.step, layer, op, verdict, budget));
  for (LayerCell& cell : summary.layers) {
    if (cell.layer != layer) continue;
    ++cell.counts[static_cast<std::size_t>(verdict)];
    cell.budget_used = std::max(cell.budget_used, budget);
    if (severity(verdict) > severity(cell.worst)) cell.worst = verdict;
  }
}

Snapshot snapshot_of(std::shared_ptr<const SessionInfo> info,
                     std::vector<std::shared_ptr<StepSummary>> steps) {
  Snapshot snapshot;
  snapshot.info = std::move(info);
  snapshot.steps.assign(steps.begin(), steps.end());
  if (!steps.empty()) snapshot.last = {steps.back()->step, -1, AS_OP_SAMPLE};
  return snapshot;
}

TEST(TimelineData, HoldsOneCellAStepAndLayer) {
  const auto info = tiny_info();
  auto steps = {make_summary(*info, 0, false), make_summary(*info, 1), make_summary(*info, 2)};
  add_result(**(steps.begin() + 1), 2, AS_OP_INDEXER_TOPK, Verdict::kNearTie, 0);
  const Snapshot snapshot = snapshot_of(info, steps);
  TimelineData data;
  data.update(snapshot);
  EXPECT_EQ(data.layers(), (std::vector<int>{-1, 0, 1, 2, 3}));
  EXPECT_EQ(data.end_step(), 3);
  EXPECT_EQ(data.cell(0, 3), severity(Verdict::kEqual));
  EXPECT_EQ(data.cell(1, 3), severity(Verdict::kNearTie));
  EXPECT_EQ(data.cell(1, 2), severity(Verdict::kEqual));
  EXPECT_EQ(data.cell(7, 0), kNothingRan);
  EXPECT_FLOAT_EQ(data.seconds(0), 1.5f);
  ASSERT_EQ(data.runs().size(), 2u);
  EXPECT_EQ(timeline_run_name(data.runs()[0]), "prefill, " + std::string("512 tokens"));
  EXPECT_EQ(timeline_run_name(data.runs()[1]), "decode");
  EXPECT_EQ(data.runs()[1].end, 3);
  EXPECT_EQ(data.counts()[static_cast<std::size_t>(Verdict::kEqual)], 15);
  EXPECT_EQ(data.counts()[static_cast<std::size_t>(Verdict::kNearTie)], 1);
}

TEST(TimelineData, TakesOverOnlyWhatChangedAndStartsAfreshForAnotherSession) {
  const auto info = tiny_info();
  const auto first = make_summary(*info, 0), second = make_summary(*info, 1);
  TimelineData data;
  data.update(snapshot_of(info, {first, second}));
  const std::uint64_t version = data.version();
  data.update(snapshot_of(info, {first, second}));
  EXPECT_EQ(data.version(), version);
  const auto replayed = make_summary(*info, 1);
  add_result(*replayed, 0, AS_OP_WO_B, Verdict::kWrong, 4);
  data.update(snapshot_of(info, {first, replayed}));
  EXPECT_GT(data.version(), version);
  EXPECT_EQ(data.cell(1, 1), severity(Verdict::kWrong));
  EXPECT_EQ(data.cell(0, 1), severity(Verdict::kEqual));
  data.update(snapshot_of(tiny_info(), {first}));
  EXPECT_EQ(data.end_step(), 1);
  data.update(snapshot_of(tiny_info(), {}));
  EXPECT_TRUE(data.empty());
}

TEST(TimelineData, KnowsStepsThatLieAheadOfTheSession) {
  const auto info = tiny_info();
  Snapshot snapshot = snapshot_of(info, {make_summary(*info, 0), make_summary(*info, 1)});
  TimelineData data;
  data.update(snapshot);
  EXPECT_EQ(data.ahead(), 2);
  snapshot.last.step = 0;
  data.update(snapshot);
  EXPECT_EQ(data.ahead(), 1);
}

TEST(TimelineData, ALayerThatHasNotRunHasNoCell) {
  const auto info = tiny_info();
  const auto step = make_summary(*info, 0);
  step->complete = false;
  step->layers.back() = LayerCell{};
  step->layers.back().layer = info->config.layers.back();
  TimelineData data;
  data.update(snapshot_of(info, {step}));
  EXPECT_EQ(data.cell(0, 4), kNothingRan);
  EXPECT_EQ(data.cell(0, 3), severity(Verdict::kEqual));
}

TEST(TimelineGrid, MergesToTheWorstAndLosesNoWrongCell) {
  const auto info = tiny_info();
  std::vector<std::shared_ptr<StepSummary>> steps;
  for (int i = 0; i < 1000; ++i) steps.push_back(make_summary(*info, i));
  add_result(*steps[637], 2, AS_OP_INDEXER_TOPK, Verdict::kWrong, 3);
  steps[412]->seconds = 9;
  TimelineData data;
  data.update(snapshot_of(info, steps));
  for (std::int64_t columns : {1, 7, 64, 999, 1000, 5000}) {
    for (std::int64_t rows : {2, 3, 5, 60}) {
      const TimelineGrid grid = timeline_grid(data, 0, 1000, columns, rows);
      EXPECT_LE(grid.rows, std::max<std::int64_t>(2, std::min<std::int64_t>(rows, 5)));
      EXPECT_LE(grid.columns, std::min<std::int64_t>(columns, 1000));
      int wrong = 0;
      for (std::int64_t row = 0; row < grid.rows; ++row) {
        const auto [first, end] = grid_layers(grid, row, data.rows());
        for (std::int64_t column = 0; column < grid.columns; ++column) {
          if (grid.at(row, column) != severity(Verdict::kWrong)) continue;
          ++wrong;
          EXPECT_EQ(column, 637 / grid.per_column);
          EXPECT_LE(first, 3u);
          EXPECT_GT(end, 3u);
        }
      }
      EXPECT_EQ(wrong, 1) << columns << " x " << rows;
      EXPECT_FLOAT_EQ(*std::max_element(grid.seconds.begin(), grid.seconds.end()), 9);
      EXPECT_EQ(grid.at(0, 0), severity(Verdict::kEqual));
    }
  }
  const auto cell = worst_cell(data, 600, 700, 0, data.rows());
  ASSERT_TRUE(cell.has_value());
  EXPECT_EQ(cell->step, 637);
  EXPECT_EQ(cell->row, 3u);
  EXPECT_FALSE(worst_cell(data, 2000, 3000, 0, data.rows()).has_value());
}

TEST(TimelineGrid, ColumnsStandStillWhileThePictureMoves) {
  const auto info = tiny_info();
  std::vector<std::shared_ptr<StepSummary>> steps;
  for (int i = 0; i < 200; ++i) steps.push_back(make_summary(*info, i));
  TimelineData data;
  data.update(snapshot_of(info, steps));
  for (double from : {0.0, 3.2, 17.0, 55.5}) {
    const TimelineGrid grid = timeline_grid(data, from, from + 100, 25, 5);
    EXPECT_EQ(grid.per_column, 4);
    EXPECT_EQ(grid.first % 4, 0);
    EXPECT_LE(static_cast<double>(grid.first), from);
  }
  EXPECT_EQ(timeline_grid(data, 300, 400, 25, 5).columns, 0);
}

TEST(TimelineGrid, TenThousandStepsOfSixtyLayersTakeAFractionOfAFrame) {
  auto info = std::make_shared<SessionInfo>();
  info->config = *preset("v4-pro");
  std::vector<std::shared_ptr<StepSummary>> steps;
  for (int i = 0; i < 10000; ++i) steps.push_back(make_summary(*info, i));
  const Snapshot snapshot = snapshot_of(info, steps);
  TimelineData data;
  data.update(snapshot);
  const auto start = std::chrono::steady_clock::now();
  const TimelineGrid grid = timeline_grid(data, 0, 10000, 500, 30);
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
  EXPECT_LE(grid.columns, 500);
  EXPECT_LE(grid.rows, 30);
  EXPECT_LT(took.count(), 0.1);
}

TEST(TimelineTarget, LeadsToTheFirstWrongOpElseKeepsTheOp) {
  const auto info = tiny_info();
  auto step = make_summary(*info, 4);
  const Snapshot snapshot = snapshot_of(info, {step});
  const Place cursor{4, 3, AS_OP_INDEXER_TOPK};
  EXPECT_EQ(timeline_target(snapshot, *step, 3, cursor), cursor);
  // The same op does not exist in an SWA layer, nor outside the layers.
  EXPECT_EQ(timeline_target(snapshot, *step, 0, cursor), (Place{4, 0, AS_OP_SPARSE_ATTENTION}));
  EXPECT_EQ(timeline_target(snapshot, *step, -1, cursor), (Place{4, -1, AS_OP_SAMPLE}));
  add_result(*step, 3, AS_OP_INDEXER_LOGITS, Verdict::kNearTie, 0);
  EXPECT_EQ(timeline_target(snapshot, *step, 3, cursor).op, AS_OP_INDEXER_LOGITS);
  add_result(*step, 3, AS_OP_WO_A, Verdict::kWrong, 2);
  add_result(*step, 3, AS_OP_WO_B, Verdict::kWrong, 9);
  EXPECT_EQ(timeline_target(snapshot, *step, 3, cursor).op, AS_OP_WO_A);
}

TEST(TimelineTarget, DoesNotRunWhatHasNotRun) {
  const auto info = tiny_info();
  auto step = make_summary(*info, 4);
  step->complete = false;
  Snapshot snapshot = snapshot_of(info, {step});
  snapshot.last = {4, 1, AS_OP_Q_B_PROJ};
  const Place cursor{3, 1, AS_OP_RESIDUAL};
  EXPECT_EQ(timeline_target(snapshot, *step, 1, cursor), snapshot.last);
  EXPECT_EQ(timeline_target(snapshot, *step, -1, {3, -1, AS_OP_SAMPLE}).op, AS_OP_C128_INDEX);
}

TEST(TimelineSentence, CountsAndNamesTheLargestBudgetOrTheFirstWrongTap) {
  const auto info = tiny_info();
  auto first = make_summary(*info, 0, false), second = make_summary(*info, 1);
  add_result(*second, 2, AS_OP_INDEXER_LOGITS, Verdict::kRounding, 0.62);
  TimelineData data;
  data.update(snapshot_of(info, {first, second}));
  EXPECT_EQ(timeline_sentence(data),
            "2 steps, 1 of prefill; 11 taps compared, none wrong; at most 62 % of the tolerance, "
            "at step 1, layer 2, indexer_logits.");
  EXPECT_EQ(timeline_verdict(data), Verdict::kRounding);
  second = std::make_shared<StepSummary>(*second);
  add_result(*second, 1, AS_OP_WO_B, Verdict::kWrong, 7);
  add_result(*second, 3, AS_OP_WO_A, Verdict::kWrong, 9);
  data.update(snapshot_of(info, {first, second}));
  EXPECT_EQ(timeline_sentence(data),
            "First wrong tap: step 1, layer 1, wo_b, y. 2 of 13 compared taps in 2 steps are "
            "wrong.");
  EXPECT_EQ(timeline_verdict(data), Verdict::kWrong);
}

TEST(TimelineSentence, NamesStepsOfAnEarlierStart) {
  const auto info = tiny_info();
  auto first = make_summary(*info, 0), second = make_summary(*info, 1),
       third = make_summary(*info, 2);
  EXPECT_EQ(resumed_steps(snapshot_of(info, {first, second, third})), "");
  first->resumed = second->resumed = true;
  const Snapshot snapshot = snapshot_of(info, {first, second, third});
  EXPECT_EQ(resumed_steps(snapshot), "steps 0-1 ran when it was open before");
  EXPECT_NE(timeline_cell_text(snapshot, *first, 1).find("of an earlier start"), std::string::npos);
  EXPECT_EQ(timeline_cell_text(snapshot, *third, 1).find("of an earlier start"), std::string::npos);
}

TEST(TimelineSentence, SaysThatNothingWasCompared) {
  const auto info = tiny_info();
  auto step = make_summary(*info, 0, false);
  step->results.clear();
  TimelineData data;
  data.update(snapshot_of(info, {step}));
  EXPECT_EQ(timeline_sentence(data),
            "1 step, all of prefill; nothing was compared, because references are off.");
  EXPECT_EQ(timeline_verdict(data), Verdict::kNotCompared);
}

TEST(TimelineCellText, SaysCountsBudgetTimesAndSelection) {
  const auto info = tiny_info();
  auto step = make_summary(*info, 9);
  const auto layer =
      *std::find_if(info->config.layers.begin(), info->config.layers.end(),
                    [&](int l) { return type_of_layer(info->config, l) == LayerType::kC4A; });
  add_result(*step, layer, AS_OP_INDEXER_LOGITS, Verdict::kRounding, 0.5);
  step->selective = true;
  Snapshot snapshot = snapshot_of(info, {step});
  std::string text = timeline_cell_text(snapshot, *step, layer);
  EXPECT_NE(text.find("2 taps: 1 equal, 1 rounding"), std::string::npos) << text;
  EXPECT_NE(text.find("at most 50 % of the tolerance, y of indexer_logits"), std::string::npos)
      << text;
  EXPECT_NE(text.find("more entries are visible than"), std::string::npos) << text;
  EXPECT_EQ(text.find("went back"), std::string::npos);
  snapshot.last.step = 3;
  text = timeline_cell_text(snapshot, *step, layer);
  EXPECT_NE(text.find("computed before the session went back"), std::string::npos) << text;
  EXPECT_NE(timeline_cell_text(snapshot, *step, 17).find("has not run"), std::string::npos);
}

TEST(TimelineCellText, SaysWhereOpsWereNotMeasured) {
  const auto info = tiny_info();
  const auto step = make_summary(*info, 9);
  const int layer = info->config.layers.front();
  const Snapshot snapshot = snapshot_of(info, {step});
  EXPECT_EQ(timeline_cell_text(snapshot, *step, layer).find("not measured"), std::string::npos);
  for (LayerCell& cell : step->layers) cell.microseconds = OpTiming::kNotMeasured;
  const std::string text = timeline_cell_text(snapshot, *step, layer);
  EXPECT_NE(text.find("not measured (step back and step again, to watch it) here, 20"),
            std::string::npos)
      << text;
}

TEST(VerdictWord, HasNoUnderscore) {
  EXPECT_EQ(verdict_word(Verdict::kNearTie), "near-tie");
  EXPECT_EQ(verdict_word(Verdict::kNotCompared), "not compared");
  EXPECT_EQ(verdict_word(Verdict::kEqual), "equal");
}

TEST(AxisDistance, IsARoundNumberOfSteps) {
  EXPECT_EQ(axis_distance(40, 30), 1);
  EXPECT_EQ(axis_distance(20, 30), 2);
  EXPECT_EQ(axis_distance(10, 30), 5);
  EXPECT_EQ(axis_distance(1, 30), 50);
  EXPECT_EQ(axis_distance(0.01, 30), 5000);
}

TEST(TimelineZoom, ShowsAllStepsUntilZoomed) {
  TimelineZoom zoom;
  zoom.set(1000, 50, 0, 10);
  EXPECT_DOUBLE_EQ(zoom.per_step(), 50);  // never wider than the widest
  EXPECT_TRUE(zoom.fits());
  zoom.set(1000, 50, 0, 100);
  EXPECT_DOUBLE_EQ(zoom.per_step(), 10);
  EXPECT_DOUBLE_EQ(zoom.visible_end(), 100);
  zoom.set(1000, 50, 0, 4000);
  EXPECT_DOUBLE_EQ(zoom.per_step(), 0.25);
}

TEST(TimelineZoom, KeepsTheStepUnderTheMouse) {
  TimelineZoom zoom;
  zoom.set(1000, 50, 0, 1000);
  const double step = zoom.step_at(400);
  zoom.zoom(4, 400);
  EXPECT_NEAR(zoom.step_at(400), step, 1e-9);
  EXPECT_FALSE(zoom.follows());
  zoom.zoom(1e-6, 400);
  EXPECT_TRUE(zoom.fits());  // zoomed out as far as it goes
  EXPECT_DOUBLE_EQ(zoom.from(), 0);
}

TEST(TimelineZoom, FollowsTheNewestStepUntilItIsDraggedAway) {
  TimelineZoom zoom;
  zoom.set(1000, 50, 0, 1000);
  zoom.zoom(10);  // by key: the newest stays
  EXPECT_TRUE(zoom.follows());
  EXPECT_DOUBLE_EQ(zoom.visible_end(), 1000);
  zoom.set(1000, 50, 0, 1005);
  EXPECT_DOUBLE_EQ(zoom.visible_end(), 1005);
  zoom.pan(200);
  EXPECT_FALSE(zoom.follows());
  EXPECT_DOUBLE_EQ(zoom.visible_end(), 985);
  zoom.set(1000, 50, 0, 1010);
  EXPECT_DOUBLE_EQ(zoom.visible_end(), 985);
  zoom.pan(1e9);
  EXPECT_DOUBLE_EQ(zoom.from(), 0);
  zoom.pan(-1e9);
  EXPECT_DOUBLE_EQ(zoom.visible_end(), 1010);
  EXPECT_TRUE(zoom.follows());
}

TEST(TimelineZoom, BringsAStepIntoViewWithTheLeastMove) {
  TimelineZoom zoom;
  zoom.set(1000, 50, 0, 1000);
  zoom.zoom(10);  // 10 pixels a step, 100 steps
  zoom.show(300);
  EXPECT_DOUBLE_EQ(zoom.from(), 300);
  zoom.show(350);
  EXPECT_DOUBLE_EQ(zoom.from(), 300);
  zoom.show(420);
  EXPECT_DOUBLE_EQ(zoom.visible_end(), 421);
}

TEST(StepTrouble, AFaultIsMoreThanAPreemption) {
  StepSummary step;
  EXPECT_EQ(trouble_of(step), StepTrouble::kNone);
  EXPECT_EQ(trouble_text(step), "");
  step.preemptions = 2;
  EXPECT_EQ(trouble_of(step), StepTrouble::kPreemption);
  EXPECT_EQ(trouble_text(step), "2 preemptions");
  Event event;
  event.kind = EventKind::kError;
  event.text = "The lane of wo_a failed.";
  step.events.push_back(event);
  EXPECT_EQ(trouble_of(step), StepTrouble::kFault);
  EXPECT_EQ(trouble_text(step), "2 preemptions\nThe lane of wo_a failed.");
}

}  // namespace timeline_view_test
}  // namespace attnscope
