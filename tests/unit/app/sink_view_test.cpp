// What the sink panel says: shares per head, LSE, the map over layers.
#include "app/views/sink_view.h"

#include <gtest/gtest.h>

#include <cmath>
#include <utility>

#include "app/wiring/wiring.h"
#include "engine/family/models.h"
#include "engine/session/session.h"
#include "engine/session/snapshot.h"
#include "engine/trace/compare.h"
#include "tests/unit/app/small_scenario.h"
#include "tests/unit/app/trace_builder.h"
#include "tests/unit/app/trace_session.h"

namespace attnscope {
namespace sink_view_test {

SessionInfo tiny() {
  SessionInfo info;
  info.config = *preset("tiny");
  info.layout = build_cache_layout(info.config);
  return info;
}

Tolerance tolerance() {
  Tolerance t;
  t.abs = 1e-6;
  t.rel = 1.2e-4;
  return t;
}

// Two heads, two window columns, one entry. Head 0: logits 0, 0, 0 and sink 0, so all parts are
// 1/4 a column. Head 1: no sink. The entry is read when its slot is not -1.
void add_attention(StepTrace& step, int layer, const std::vector<std::int64_t>& slots = {1, 2, 3}) {
  auto copy = std::make_shared<AttentionCopy>();
  copy->heads = 2;
  copy->window = 2;
  copy->extra = 1;
  copy->slots = slots;
  copy->sinks = {0, -std::numeric_limits<float>::infinity()};
  std::int64_t read = 0;
  for (std::int64_t slot : slots) read += slot >= 0;
  for (int head = 0; head < 2; ++head) {
    const float share = 1.0f / static_cast<float>(read + (head == 0));
    for (std::int64_t slot : slots) {
      copy->logits.push_back(slot >= 0 ? 0 : std::numeric_limits<float>::quiet_NaN());
      copy->weights.push_back(slot >= 0 ? share : 0);
    }
    copy->sink_mass.push_back(head == 0 ? share : 0);
  }
  const float lse =
      read > 0 ? std::log(static_cast<float>(read)) : std::numeric_limits<float>::infinity();
  OpTrace& op = add_op(step, layer, AS_OP_SPARSE_ATTENTION);
  add_tap(op, "lse", std::vector<float>{lse, lse}, 1);
  add_reference(op, std::vector<double>{lse, lse}, 1);
  op.attention = copy;
}

SinkView view_of(const SessionInfo& info, const StepTrace& step, int layer) {
  return sink_view({info, step, layer, 0, tolerance()});
}

TEST(SinkView, PartsOfEveryHeadAddUpToOne) {
  const SessionInfo info = tiny();
  StepTrace step = make_step(3, 40, 1);
  add_attention(step, 1);
  const SinkView view = view_of(info, step, 1);
  ASSERT_EQ(view.heads.size(), 2u);
  EXPECT_NEAR(view.heads[0].window, 0.5, 1e-7);
  EXPECT_NEAR(view.heads[0].compressed, 0.25, 1e-7);
  EXPECT_NEAR(view.heads[0].sink, 0.25, 1e-7);
  EXPECT_NEAR(view.heads[1].sink, 0, 1e-7);
  EXPECT_LE(view.worst_sum, SinkView::kSumTolerance);
  EXPECT_NEAR(view.heads[0].lse, std::log(3.0), 1e-6);
  EXPECT_NEAR(view.heads[0].lse_again, std::log(3.0), 1e-12);
  EXPECT_NEAR(view.heads[0].lse_reference, std::log(3.0), 1e-6);
  EXPECT_TRUE(view.lse_error_small);
  EXPECT_EQ(view.window_slots, 2);
  EXPECT_EQ(view.entries, 1);
  EXPECT_EQ(sink_sentence(view, 0),
            "Sink takes 0.25 of head 0's weight; the rest: window 0.5, 1 entry 0.25.");
  EXPECT_NE(sink_sentence(view, 2).find("Head 2 does not exist"), std::string::npos);
}

TEST(SinkView, ColumnsThatWereNotReadCountForNothing) {
  const SessionInfo info = tiny();
  StepTrace step = make_step(3, 40, 1);
  add_attention(step, 1, {1, 2, -1});
  const SinkView view = view_of(info, step, 1);
  EXPECT_EQ(view.entries, 0);
  EXPECT_NEAR(view.heads[0].lse_again, std::log(2.0), 1e-12);
  EXPECT_NE(sink_sentence(view, 0).find("; no entry is visible yet."), std::string::npos);
}

TEST(SinkView, AnSwaLayerHasNoEntries) {
  const SessionInfo info = tiny();
  StepTrace step = make_step(3, 40, 1);
  add_attention(step, 0, {1, 2, -1});
  EXPECT_NE(sink_sentence(view_of(info, step, 0), 1).find("; an SWA layer has no entries."),
            std::string::npos);
}

TEST(SinkView, ATokenWithoutAReadableSlotIsSaidInWords) {
  const SessionInfo info = tiny();
  StepTrace step = make_step(3, 40, 1);
  add_attention(step, 1, {-1, -1, -1});
  const SinkView view = view_of(info, step, 1);
  EXPECT_TRUE(view.nothing_read());
  EXPECT_TRUE(std::isinf(view.heads[0].lse));
  EXPECT_TRUE(view.lse_error_small);  // infinite on both sides
  EXPECT_EQ(
      sink_sentence(view, 0).find("Token 39 has no readable slot in layer 1: its output is 0"), 0u);
}

TEST(SinkView, AWrongLseAndAWrongSumAreSaid) {
  const SessionInfo info = tiny();
  StepTrace step = make_step(3, 40, 1);
  add_attention(step, 1);
  const auto original = step.ops.back();  // its memory backs the copy's reference
  auto op = std::make_shared<OpTrace>(*original);
  auto attention = std::make_shared<AttentionCopy>(*op->attention);
  attention->sink_mass[0] = 0.5f;
  op->attention = attention;
  const std::vector<float> lse = {2.0f, std::log(3.0f)};
  op->taps[0].value = into(op->taps[0].value_bytes, lse, 1);
  step.ops.back() = op;
  const SinkView view = view_of(info, step, 1);
  EXPECT_FALSE(view.lse_error_small);
  EXPECT_NEAR(view.lse_error, 2 - std::log(3.0), 1e-6);
  EXPECT_NEAR(view.worst_sum, 0.25, 1e-6);
  const std::string text = sink_sentence(view, 0);
  EXPECT_NE(text.find("LSE is off by up to"), std::string::npos);
  EXPECT_NE(text.find("do not add up to 1"), std::string::npos);
}

TEST(SinkView, AWrongOutputIsSaidThoughTheSharesAreRight) {
  const SessionInfo info = tiny();
  StepTrace step = make_step(3, 40, 1);
  add_attention(step, 1);
  auto op = std::make_shared<OpTrace>(*step.ops.back());
  const auto original = std::exchange(step.ops.back(), op);  // its memory backs the copy's taps
  TapResult& output = op->results.emplace_back();
  output.tap = "o";
  output.verdict = Verdict::kWrong;
  op->worst = Verdict::kWrong;
  const SinkView view = view_of(info, step, 1);
  EXPECT_EQ(view.verdict, Verdict::kWrong);
  EXPECT_TRUE(view.lse_error_small);
  EXPECT_NE(sink_sentence(view, 0).find("The op's output is wrong"), std::string::npos);
}

TEST(SinkLayer, IsTheNearestWhoseAttentionRan) {
  const SessionInfo info = tiny();
  StepTrace step = make_step(3, 40, 1);
  EXPECT_EQ(sink_layer(info, step, {3, 1, AS_OP_ATTN_NORM}).layer, -1);
  EXPECT_EQ(view_of(info, step, -1).why_empty, "No attention has run in step 3 yet.");
  add_attention(step, 0);
  add_attention(step, 1);
  EXPECT_EQ(sink_layer(info, step, {3, 1, AS_OP_ATTN_NORM}).layer, 1);
  EXPECT_TRUE(sink_layer(info, step, {3, 1, AS_OP_ATTN_NORM}).note.empty());
  EXPECT_EQ(sink_layer(info, step, {3, 3, AS_OP_ATTN_NORM}).layer, 1);
  EXPECT_NE(sink_layer(info, step, {3, 3, AS_OP_ATTN_NORM}).note.find("Shown: layer 1"),
            std::string::npos);
  EXPECT_EQ(sink_layer(info, step, {3, -1, AS_OP_SCHEDULE}).layer, 0);
  EXPECT_EQ(sink_layer(info, step, {3, -1, AS_OP_SAMPLE}).layer, 1);
}

TEST(SinkMap, HoldsTheLayersThatRan) {
  const SessionInfo info = tiny();
  StepTrace step = make_step(3, 40, 1);
  add_attention(step, 0);
  add_attention(step, 2, {1, -1, -1});
  const SinkMap map = sink_map(info, step, 0);
  EXPECT_EQ(map.layers, (std::vector<int>{0, 2}));
  EXPECT_EQ(map.heads, 2);
  ASSERT_EQ(map.mass.size(), 4u);
  EXPECT_FLOAT_EQ(map.mass[0], 0.25f);
  EXPECT_FLOAT_EQ(map.mass[2], 0.5f);
  EXPECT_EQ(map.mass[3], 0);
  EXPECT_TRUE(sink_map(info, step, 9).layers.empty());
}

TEST(SinkForms, DecayFactorAndMergedLseAreEqual) {
  constexpr double kInf = std::numeric_limits<double>::infinity();
  for (const double sink : {-kInf, -800.0, -5.0, -1e-9, 0.0, 0.3, 7.0, 800.0, kInf}) {
    for (const double lse : {-900.0, -3.0, 0.0, 2.5, 900.0}) {
      const double decay = sink_decay(lse, sink);
      const double merged = lse_with_sink(lse, sink);
      EXPECT_NEAR(sink_decay_merged(lse, merged), decay, 1e-12) << sink << ", " << lse;
      EXPECT_GE(decay, 0);
      EXPECT_LE(decay, 1);
      EXPECT_GE(merged, std::max(lse, sink));
    }
    EXPECT_EQ(sink_decay(1, sink), sink == -kInf ? 1 : sink == kInf ? 0 : sink_decay(1, sink));
    // A token that reads nothing has an LSE of +inf, and output 0.
    EXPECT_EQ(sink_decay(kInf, sink), 0);
    EXPECT_EQ(sink_decay_merged(kInf, lse_with_sink(kInf, sink)), 0);
  }
  EXPECT_NEAR(sink_decay(std::log(2.0), std::log(2.0)), 0.5, 1e-15);
}

// A scenario's own sinks: one head without, one that takes all, one of a number.
TEST(SinkForms, EdgesOfAScenarioReachTheKernelsTheReferencesAndTheView) {
  constexpr float kInf = std::numeric_limits<float>::infinity();
  Scenario scenario = small_scenario(60, 4);
  scenario.model.sinks = {{0, -kInf}, {1, kInf}, {2, 0.5f}};
  SessionOptions options;
  options.references = References::kBoth;
  options.threads = 2;
  auto session = Session::create(scenario, all_lanes(), options);
  ASSERT_TRUE(session) << session.error().text();
  TraceRecorder recorder;
  (*session)->set_observer(&recorder);
  run_steps(**session, 4);
  for (const StepRecord& record : (*session)->history()) {
    for (const TapResult& r : record.results) {
      EXPECT_NE(r.verdict, Verdict::kWrong) << as_op_find(r.op)->name << "." << r.tap << r.note;
    }
  }
  const auto info = session_info(**session);
  const auto step = recorder.traces().back();
  for (const int layer : info->config.layers) {
    const SinkView view = sink_view({*info, *step, layer, step->kept.back(), tolerance()});
    ASSERT_EQ(view.heads.size(), static_cast<std::size_t>(scenario.model.heads)) << view.why_empty;
    EXPECT_EQ(view.heads[0].sink, 0);
    EXPECT_EQ(view.heads[0].decay, 1);
    EXPECT_EQ(view.heads[1].sink, 1);
    EXPECT_EQ(view.heads[1].decay, 0);
    EXPECT_EQ(view.heads[2].sink_logit, 0.5);
    EXPECT_LE(view.forms_apart, 1e-6);
    EXPECT_LE(view.worst_sum, SinkView::kSumTolerance);
    const TapCopy* o = step->find(layer, AS_OP_SPARSE_ATTENTION)->tap("o");
    ASSERT_NE(o, nullptr);
    double largest[2] = {};
    for (std::int64_t t = 0; t < o->value.shape[0]; ++t) {
      for (const int head : {0, 1}) {
        for (std::int64_t d = 0; d < 512; ++d) {
          largest[head] = std::max(largest[head], std::fabs(element(o->value, t * 8 + head, d)));
        }
      }
    }
    EXPECT_GT(largest[0], 0);
    EXPECT_EQ(largest[1], 0) << "the sink takes all";
  }
}

}  // namespace sink_view_test
}  // namespace attnscope
