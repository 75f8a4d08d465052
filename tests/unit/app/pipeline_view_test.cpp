// The pipeline: what reads what (compared with a real step's bytes), where cards stand, words.
#include "app/views/pipeline_view.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <memory>
#include <utility>

#include "app/wiring/wiring.h"
#include "engine/family/family.h"
#include "engine/family/models.h"
#include "engine/session/worker.h"
#include "tests/unit/app/small_scenario.h"
#include "tests/unit/app/trace_builder.h"

namespace attnscope {
namespace pipeline_view_test {

const std::vector<as_op_id> kBefore = {AS_OP_SCHEDULE, AS_OP_BLOCK_TABLES, AS_OP_SLOT_MAPPING,
                                       AS_OP_SWA_INDEX, AS_OP_C128_INDEX};
const std::vector<as_op_id> kAfter = {AS_OP_FINAL_NORM, AS_OP_LM_HEAD, AS_OP_SAMPLE};

const ModelGraph& tiny_graph() {
  static const std::shared_ptr<const ModelGraph> kGraph = model_graph(*preset("tiny"));
  return *kGraph;
}

std::vector<LayerGraph> all_parts() {
  std::vector<LayerGraph> parts = {tiny_graph().before, tiny_graph().after};
  parts.insert(parts.end(), tiny_graph().layers.begin(), tiny_graph().layers.end());
  return parts;
}

std::vector<OpRead> all_reads() {
  std::vector<OpRead> all;
  for (const LayerGraph& part : all_parts()) {
    for (const OpRead& read : reads_within(tiny_graph(), part)) all.push_back(read);
  }
  return all;
}

SessionInfo tiny_info() {
  SessionInfo info;
  info.config = *preset("tiny");
  for (int i = 0; i < info.config.num_layers(); ++i) {
    info.ops.push_back(tiny_graph().layer(i).ops());
  }
  info.ops_before = kBefore;
  info.ops_after = kAfter;
  info.lane_of.assign(AS_OP_COUNT, "cpu");
  return info;
}

// A snapshot that has only a summary of step 3, and that summary.
std::pair<Snapshot, std::shared_ptr<StepSummary>> step_without_trace() {
  auto summary = std::make_shared<StepSummary>();
  summary->step = 3;
  Snapshot snapshot;
  snapshot.info = std::make_shared<SessionInfo>(tiny_info());
  snapshot.steps.push_back(summary);
  return {std::move(snapshot), summary};
}

bool has_tap(as_op_id op, const char* name, int direction) {
  const as_op_info* info = as_op_find(op);
  return std::any_of(info->taps, info->taps + info->num_taps, [&](const as_tap_info& tap) {
    return std::strcmp(tap.name, name) == 0 && tap.direction == direction;
  });
}

TEST(PipelineReads, NameTapsOfTheOpTable) {
  for (const OpRead& read : all_reads()) {
    EXPECT_TRUE(has_tap(read.reader, read.input, AS_TAP_IN))
        << as_op_find(read.reader)->name << "." << read.input;
    EXPECT_TRUE(has_tap(read.writer, read.output, AS_TAP_OUT))
        << as_op_find(read.writer)->name << "." << read.output;
  }
}

TEST(PipelineReads, WritersRunBeforeReadersAndOnlyTheFirstOpOfAPartReadsNone) {
  for (const LayerGraph& part : all_parts()) {
    const std::vector<as_op_id>& ops = part.ops();
    const auto at = [&](as_op_id op) { return std::find(ops.begin(), ops.end(), op); };
    for (as_op_id op : ops) {
      int reads = 0;
      for (const OpRead& read : all_reads()) {
        if (read.reader != op || at(read.writer) == ops.end()) continue;
        ++reads;
        EXPECT_LT(at(read.writer), at(op)) << as_op_find(op)->name;
      }
      EXPECT_EQ(reads == 0, op == ops.front()) << as_op_find(op)->name;
    }
  }
}

// The kept rows of both copies are the same rows, so whole tensors have the same bytes.
TEST(PipelineReads, AreWhatAStepReallyReads) {
  SessionOptions options;
  options.references = References::kNone;
  SessionWorker worker([&] { return Session::create(small_scenario(), all_lanes(), options); }, {});
  for (int i = 0; i < 2; ++i) worker.post("step", [](Session& s) { return s.step(); });
  worker.wait_idle();
  const auto snapshot = worker.snapshot();
  ASSERT_NE(snapshot, nullptr);
  const StepTrace* trace = snapshot->trace(1);
  ASSERT_NE(trace, nullptr);
  std::vector<int> layers = snapshot->info->config.layers;
  layers.push_back(-1);
  int compared = 0;
  for (const OpRead& read : all_reads()) {
    if (!read.whole) continue;
    for (int layer : layers) {
      const OpTrace* reader = trace->find(layer, read.reader);
      const OpTrace* writer = trace->find(layer, read.writer);
      if (reader == nullptr || writer == nullptr) continue;
      const TapCopy* input = reader->tap(read.input);
      const TapCopy* output = writer->tap(read.output);
      const std::string what = std::string(as_op_find(read.reader)->name) + "." + read.input;
      ASSERT_NE(input, nullptr) << what;
      ASSERT_NE(output, nullptr) << what;
      // An input that is another op's output may share its copy.
      const auto bytes = [](const as_tensor& t) {
        std::int64_t n = as_dtype_size(t.dtype);
        for (int axis = 0; axis < t.rank; ++axis) n *= t.shape[axis];
        return static_cast<std::size_t>(n);
      };
      ASSERT_EQ(bytes(input->value), bytes(output->value)) << what;
      EXPECT_EQ(std::memcmp(input->value.data, output->value.data, bytes(input->value)), 0) << what;
      ++compared;
    }
  }
  EXPECT_GT(compared, 60);
}

// Under tensor parallelism residual reads a sum of which this rank's wo_b is a part.
TEST(PipelineState, ARanksPartIsToldFromTheSum) {
  SessionInfo info = tiny_info();
  const auto card = [](const PipelineState& state, as_op_id op) {
    return *std::ranges::find(state.cards, op, &PipelineCard::op);
  };
  Snapshot snapshot;
  const auto look = [&] {
    snapshot.info = std::make_shared<const SessionInfo>(info);
    return pipeline_state(snapshot, {PipelinePart::Kind::kLayer, 1}, 0);
  };
  const PipelineState whole = look();
  EXPECT_EQ(whole.ranks, 1);
  EXPECT_EQ(whole.title.find("rank"), std::string::npos);
  EXPECT_EQ(card(whole, AS_OP_WO_B).part, "");
  info.config.parallel = {2, 1};
  const PipelineState part = look();
  EXPECT_EQ(part.ranks, 2);
  EXPECT_NE(part.title.find(", rank 1 of 2"), std::string::npos) << part.title;
  EXPECT_NE(pipeline_card_text(card(part, AS_OP_WO_B)).find("residual reads the sum over all 2"),
            std::string::npos);
  EXPECT_EQ(card(part, AS_OP_RESIDUAL).part, "y is the sum of wo_b over all 2 ranks");
  EXPECT_EQ(card(part, AS_OP_WO_A).part, "");
  const auto graph = model_graph(info.config);
  const PipelineChart chart = pipeline_chart(*graph, graph->layer(1));
  int sums = 0;
  for (const PipelineEdge& edge : chart.edges) {
    const as_op_id from = chart.nodes[static_cast<std::size_t>(edge.from)].op;
    const as_op_id to = chart.nodes[static_cast<std::size_t>(edge.to)].op;
    EXPECT_EQ(edge.sums, from == AS_OP_WO_B && to == AS_OP_RESIDUAL);
    sums += edge.sums ? 1 : 0;
  }
  EXPECT_EQ(sums, 1);
  for (const PipelineEdge& edge : pipeline_chart(tiny_graph(), tiny_graph().layer(1)).edges) {
    EXPECT_FALSE(edge.sums);
  }
}

TEST(PipelineChart, CardsNeverShareAPlaceAndConnectorsRunLeftToRight) {
  for (const LayerGraph& part : all_parts()) {
    const PipelineChart chart = pipeline_chart(tiny_graph(), part);
    ASSERT_EQ(chart.nodes.size(), part.ops().size());
    EXPECT_EQ(chart.captions.size(), static_cast<std::size_t>(chart.rows));
    for (std::size_t i = 0; i < chart.nodes.size(); ++i) {
      EXPECT_LT(chart.nodes[i].column, chart.columns);
      EXPECT_LT(chart.nodes[i].row, chart.rows);
      for (std::size_t j = 0; j < i; ++j) {
        EXPECT_FALSE(chart.nodes[i].column == chart.nodes[j].column &&
                     chart.nodes[i].row == chart.nodes[j].row);
      }
    }
    for (const PipelineEdge& edge : chart.edges) {
      const PipelineNode& from = chart.nodes[static_cast<std::size_t>(edge.from)];
      const PipelineNode& to = chart.nodes[static_cast<std::size_t>(edge.to)];
      EXPECT_LT(from.column, to.column);
      const int row = edge.route == PipelineEdge::Route::kLate ? from.row : to.row;
      if (edge.route == PipelineEdge::Route::kBelow) continue;
      EXPECT_TRUE(row == 0 || to.column <= chart.free_from) << as_op_find(to.op)->name;
      for (int column = from.column + 1; column < to.column; ++column) {
        EXPECT_FALSE(chart.taken(row, column)) << as_op_find(from.op)->name;
      }
    }
  }
}

TEST(PipelineChart, BranchesOfALayerStandSideBySide) {
  const auto of = [](const LayerGraph& part) { return pipeline_chart(tiny_graph(), part); };
  EXPECT_EQ(of(tiny_graph().layer(0)).rows, 1);
  EXPECT_EQ(of(tiny_graph().layer(2)).rows, 2);
  const PipelineChart c4 = of(tiny_graph().layer(1));
  EXPECT_EQ(c4.rows, 4);
  EXPECT_EQ(c4.captions,
            (std::vector<std::string>{"", "compressor", "indexer keys", "indexer queries"}));
  const auto column = [&](as_op_id op) {
    return std::find_if(c4.nodes.begin(), c4.nodes.end(), [&](const auto& n) { return n.op == op; })
        ->column;
  };
  EXPECT_EQ(column(AS_OP_COMPRESSOR_PROJ), column(AS_OP_Q_KV_A_PROJ));
  EXPECT_GT(column(AS_OP_SPARSE_ATTENTION), column(AS_OP_TOPK_TO_SLOTS));
  EXPECT_EQ(c4.free_from, column(AS_OP_SPARSE_ATTENTION));
  EXPECT_EQ(of(tiny_graph().before).rows, 3);
  const auto label = [&](as_op_id op) {
    return std::ranges::find(c4.nodes, op, &PipelineNode::op)->label;
  };
  EXPECT_EQ(label(AS_OP_INDEXER_LOGITS), "logits");
  EXPECT_EQ(label(AS_OP_INDEXER_COMPRESS_INSERT), "compress_insert");
  EXPECT_EQ(label(AS_OP_WO_A), "wo_a");
}

TEST(PipelinePart, FollowsTheCursor) {
  const SessionInfo info = tiny_info();
  using Kind = PipelinePart::Kind;
  EXPECT_EQ(pipeline_part(info, {1, 2, AS_OP_WO_A}), (PipelinePart{Kind::kLayer, 2}));
  EXPECT_EQ(pipeline_part(info, {1, -1, AS_OP_SLOT_MAPPING}), (PipelinePart{Kind::kBefore, -1}));
  EXPECT_EQ(pipeline_part(info, {1, -1, AS_OP_SAMPLE}), (PipelinePart{Kind::kAfter, -1}));
  EXPECT_EQ(pipeline_ops(info, {Kind::kLayer, 0}).size(), info.ops[0].size());
  EXPECT_TRUE(pipeline_ops(info, {Kind::kLayer, 77}).empty());
}

TapResult result(int layer, as_op_id op, const char* tap, Verdict verdict, double budget) {
  TapResult r;
  r.step = 3;
  r.layer = layer;
  r.op = op;
  r.tap = tap;
  r.lane = "cpu";
  r.verdict = verdict;
  r.budget_used = budget;
  return r;
}

void add_ran(StepTrace& step, as_op_id id, double us, Verdict verdict, double budget) {
  OpTrace& op = add_op(step, 0, id);
  op.lane = "cpu";
  op.microseconds = us;
  op.results = {result(0, id, "y", verdict, budget)};
  op.worst = verdict;
  op.budget_used = budget;
}

Snapshot with_step(const SessionInfo& info, const StepTrace& step) {
  Snapshot snapshot;
  snapshot.info = std::make_shared<SessionInfo>(info);
  snapshot.traces.push_back(std::make_shared<StepTrace>(step));
  return snapshot;
}

const PipelinePart kLayer0{PipelinePart::Kind::kLayer, 0};

TEST(PipelineSentence, SaysHowFarTheLayerIs) {
  const SessionInfo info = tiny_info();
  StepTrace step = make_step(3, 40, 1);
  EXPECT_EQ(pipeline_sentence(pipeline_state(with_step(info, step), kLayer0, 3)),
            "Layer 0 (SWA): none of its 10 ops has run in step 3 yet.");
  add_ran(step, AS_OP_ATTN_NORM, 8, Verdict::kRounding, 0.25);
  add_ran(step, AS_OP_Q_KV_A_PROJ, 20, Verdict::kEqual, 0);
  const PipelineState state = pipeline_state(with_step(info, step), kLayer0, 3);
  EXPECT_EQ(state.ran, 2);
  EXPECT_TRUE(state.cards[0].ran);
  EXPECT_FALSE(state.cards[2].ran);
  const std::string text = pipeline_sentence(state);
  EXPECT_EQ(text.find("Layer 0 (SWA): 2 of 10 ops have run in step 3, next is q_kv_norm; so far "),
            0u)
      << text;
  EXPECT_NE(text.find("slowest q_kv_a_proj with 20"), std::string::npos) << text;
  EXPECT_NE(text.find("none of 2 taps wrong, at most 25 % of the tolerance, by attn_norm."),
            std::string::npos)
      << text;
  EXPECT_EQ(pipeline_verdict(state), Verdict::kRounding);
}

TEST(PipelineSentence, NamesTheFirstWrongOp) {
  const SessionInfo info = tiny_info();
  StepTrace step = make_step(3, 40, 1);
  for (as_op_id op : info.ops[0]) {
    const bool wrong = op == AS_OP_WO_A || op == AS_OP_RESIDUAL;
    add_ran(step, op, 1, wrong ? Verdict::kWrong : Verdict::kEqual, wrong ? 3 : 0);
  }
  const PipelineState state = pipeline_state(with_step(info, step), kLayer0, 3);
  EXPECT_EQ(
      pipeline_sentence(state),
      "Layer 0 (SWA): wo_a is wrong although its inputs are right. y: beyond its tolerance, 3 "
      "times the tolerance; 1 more op is wrong.");
  EXPECT_EQ(pipeline_verdict(state), Verdict::kWrong);
}

TEST(PipelineState, FallsBackOnTheSummaryOfAStepWhoseTraceIsGone) {
  const auto [snapshot, summary] = step_without_trace();
  summary->complete = true;
  summary->results = {result(0, AS_OP_WO_A, "y", Verdict::kRounding, 0.5)};
  summary->layers = {{.layer = 0, .worst = Verdict::kRounding, .microseconds = 10}};
  const PipelineState state = pipeline_state(snapshot, kLayer0, 3);
  EXPECT_FALSE(state.kept);
  EXPECT_EQ(state.ran, 10);
  const auto card = std::find_if(state.cards.begin(), state.cards.end(),
                                 [](const auto& c) { return c.op == AS_OP_WO_A; });
  EXPECT_EQ(card->worst, Verdict::kRounding);
  EXPECT_LT(card->microseconds, 0);
  EXPECT_NE(pipeline_card_text(*card).find("not kept"), std::string::npos);
}

TEST(PipelineState, KnowsWhatOpsTookAndLaunchedWithoutATrace) {
  auto [snapshot, summary] = step_without_trace();
  summary->complete = true;
  snapshot.costs = {{{3, 0, AS_OP_WO_A}, 12.5, OpLaunches::not_known("the card is gone")},
                    {{2, 0, AS_OP_WO_B}, 99.0, {}}};
  const PipelineState state = pipeline_state(snapshot, kLayer0, 3);
  for (const PipelineCard& card : state.cards) {
    if (card.op == AS_OP_WO_A) {
      EXPECT_EQ(card.microseconds, 12.5);
      const std::string text = pipeline_card_text(card);
      EXPECT_NE(text.find("12.5 µs"), std::string::npos) << text;
      EXPECT_NE(text.find("the card is gone"), std::string::npos) << text;
    } else {
      EXPECT_LT(card.microseconds, 0) << as_op_find(card.op)->name;
      EXPECT_EQ(card.launches, nullptr);
    }
  }
}

TEST(PipelineState, MarksOpsOfAnotherLane) {
  SessionInfo info = tiny_info();
  info.lane_of[AS_OP_WO_A] = "mutant:wo_a_swapped";
  info.lane_of[AS_OP_SCHEDULE] = "host";
  const StepTrace step = make_step(3, 40, 1);
  for (const PipelineCard& card : pipeline_state(with_step(info, step), kLayer0, 3).cards) {
    EXPECT_EQ(card.other_lane, card.op == AS_OP_WO_A);
  }
  const PipelinePart before{PipelinePart::Kind::kBefore, -1};
  EXPECT_FALSE(pipeline_state(with_step(info, step), before, 3).cards[0].other_lane);
}

TEST(PipelineCardText, SaysWhatItDoesReadsAndWrites) {
  const SessionInfo info = tiny_info();
  StepTrace step = make_step(3, 40, 1);
  add_ran(step, AS_OP_ATTN_NORM, 8, Verdict::kRounding, 0.25);
  OpTrace& op = const_cast<OpTrace&>(*step.ops.back());
  add_tap(op, "x", std::vector<float>{1, 2}, 1);
  add_tap(op, "y", std::vector<float>{1, 2, 3}, 1);
  op.taps.back().output = true;
  const Snapshot snapshot = with_step(info, step);
  const PipelineState state = pipeline_state(snapshot, kLayer0, 3);
  const std::string text = pipeline_card_text(state.cards[0]);
  EXPECT_NE(text.find("attn_norm\nRMS norm of the hidden state.\nlane cpu, 8"), std::string::npos)
      << text;
  EXPECT_NE(text.find("1 tap compared: rounding, 25 % of the tolerance by y"), std::string::npos);
  EXPECT_NE(text.find("reads x f32 [1,2]"), std::string::npos) << text;
  EXPECT_NE(text.find("writes y f32 [1,3]"), std::string::npos) << text;
  EXPECT_NE(text.find("\ny: 1 KiB, read last by q_kv_a_proj"), std::string::npos) << text;
  EXPECT_EQ(text.find("ends here"), std::string::npos) << "residual reads x too";
  EXPECT_NE(pipeline_card_text(state.cards[1]).find("has not run"), std::string::npos);
}

// A token of the small model: 512 numbers of bf16.
TEST(PipelineCardText, SaysHowLongValuesLive) {
  const SessionInfo info = tiny_info();
  StepTrace step = make_step(3, 40, 1);
  for (const as_op_id op : {AS_OP_Q_ROPE_KV_INSERT, AS_OP_RESIDUAL}) {
    add_ran(step, op, 8, Verdict::kRounding, 0.25);
  }
  const PipelineState state = pipeline_state(with_step(info, step), kLayer0, 3);
  const auto lives = [&](as_op_id op) {
    return std::ranges::find(state.cards, op, &PipelineCard::op)->lives;
  };
  EXPECT_EQ(lives(AS_OP_Q_ROPE_KV_INSERT),
            (std::vector<std::string>{
                "ends here: q_raw of q_b_proj, 8 KiB", "ends here: kv of q_kv_norm, 1 KiB",
                "q: 8 KiB, read last by sparse_attention", "kv_row: 1 KiB, read by no op"}));
  EXPECT_EQ(lives(AS_OP_RESIDUAL),
            (std::vector<std::string>{"ends here: h, 1 KiB", "ends here: y of wo_b, 1 KiB",
                                      "out: 1 KiB, the next layer begins with it"}));
}

TEST(PipelineStops, GoToTheSameOpOrWhatStandsForIt) {
  const auto [snapshot, summary] = step_without_trace();
  summary->layers = {{.layer = -1, .worst = Verdict::kEqual, .microseconds = 1},
                     {.layer = 0, .worst = Verdict::kNearTie, .microseconds = 10},
                     {.layer = 1}};
  summary->results = {result(-1, AS_OP_SLOT_MAPPING, "slots", Verdict::kEqual, 0)};
  const auto stops = pipeline_stops(snapshot, {3, 1, AS_OP_INDEXER_TOPK});
  ASSERT_EQ(stops.size(), 6u);
  EXPECT_EQ(stops[0].name, "before");
  EXPECT_TRUE(stops[0].ran);
  EXPECT_EQ(stops[0].worst, Verdict::kEqual);
  EXPECT_EQ(stops[1].type, "SWA");
  EXPECT_EQ(stops[1].worst, Verdict::kNearTie);
  EXPECT_EQ(stops[1].target, (Place{3, 0, AS_OP_SPARSE_ATTENTION}));
  EXPECT_EQ(stops[2].target, (Place{3, 1, AS_OP_INDEXER_TOPK}));
  EXPECT_FALSE(stops[2].ran);
  EXPECT_EQ(stops[5].target, (Place{3, -1, AS_OP_SAMPLE}));
  EXPECT_FALSE(stops[5].ran);
}

}  // namespace pipeline_view_test
}  // namespace attnscope
