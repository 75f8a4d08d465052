// What the time panel shows, and the same as a file of trace events.
#include "app/views/op_time_view.h"

#include <nlohmann/json.hpp>

#include "app/reports/chrome_trace.h"
#include "engine/family/family.h"
#include "tests/unit/app/cli_fixture.h"
#include "tests/unit/app/stepped_session.h"

namespace attnscope {
namespace op_time_view_test {

using nlohmann::json;

class OpTimes : public SteppedSession {
 protected:
  void SetUp() override {
    SteppedSession::SetUp();
    graph_ = model_graph(info_->config);
  }
  // Two streams of layer 1: 10 and 20 us, the second from 5 on; then 10 us after a gap of 5.
  static StepSummary overlapping() {
    StepSummary step;
    step.step = 3;
    step.tokens = 2;
    step.timings = {{AS_OP_ATTN_NORM, 1, 10, 100, 0},
                    {AS_OP_COMPRESSOR_PROJ, 1, 20, 105, 1},
                    {AS_OP_Q_B_PROJ, 1, 10, 130, 0},
                    {AS_OP_LM_HEAD, -1, 5, 140, 0}};
    return step;
  }
  static TimedStep timed(const StepSummary& s) { return {s.step, s.tokens, &s.timings}; }

  std::shared_ptr<const ModelGraph> graph_;
};

TEST_F(OpTimes, AddUpOnTheirAxis) {
  const OpTimeView view = op_time_view(overlapping(), *graph_, info_->config.layers, 1);
  ASSERT_EQ(view.rows.size(), 2u);
  EXPECT_EQ(view.rows[0].name, "main");
  EXPECT_EQ(view.rows[1].name, graph_->branches[1]);
  EXPECT_EQ(view.sum, 40);
  EXPECT_EQ(view.span, 40);
  EXPECT_EQ(view.idle, 5);
  EXPECT_EQ(view.rows[0].busy, 20);
  EXPECT_EQ(view.rows[1].spans[0].start, 5);
  EXPECT_NE(view.sentence.find("Step 3, layer 1: 3 ops take 40"), std::string::npos)
      << view.sentence;
  EXPECT_NE(view.sentence.find("nothing gained by 2 streams"), std::string::npos) << view.sentence;

  StepSummary closer = overlapping();
  closer.timings[2].start = 125;
  const OpTimeView all = op_time_view(closer, *graph_, info_->config.layers, {});
  EXPECT_EQ(all.sum, 45);
  EXPECT_EQ(all.span, 45);
  closer.timings[2].start = 110;
  const OpTimeView layer = op_time_view(closer, *graph_, info_->config.layers, 1);
  EXPECT_EQ(layer.span, 25);
  EXPECT_EQ(layer.idle, 0);
  EXPECT_NE(layer.sentence.find("(38 %) gained by streams beside each other; the longest is "
                                "compressor_proj"),
            std::string::npos)
      << layer.sentence;
  EXPECT_NE(time_span_text(layer, layer.rows[1].spans[0]).find("50 % of all ops' time"),
            std::string::npos);
}

// In layer 1 (C4A) the compressor's path waits for nothing, the indexer's product with the latent
// queries for their norm, attention for both.
TEST_F(OpTimes, ShowPhasesAndWhoWaitedForWhom) {
  StepSummary step;
  step.step = 3;
  step.timings = {{AS_OP_ATTN_NORM, 1, 10, 0, 0},
                  {AS_OP_Q_KV_A_PROJ, 1, 20, 10, 0},
                  {AS_OP_INDEXER_WEIGHTS_PROJ, 1, 5, 10, 3},
                  {AS_OP_Q_KV_NORM, 1, 10, 30, 0},
                  {AS_OP_INDEXER_Q_PROJ, 1, 30, 41, 3},
                  {AS_OP_Q_B_PROJ, 1, 10, 42, 0},
                  {AS_OP_TOPK_TO_SLOTS, 1, 20, 71, 3},
                  {AS_OP_Q_ROPE_KV_INSERT, 1, 10, 52, 0},
                  {AS_OP_SPARSE_ATTENTION, 1, 10, 95, 0},
                  {AS_OP_RESIDUAL, 1, 2, 105, 0}};
  const OpTimeView view = op_time_view(step, *graph_, info_->config.layers, 1);
  std::vector<std::string> names;
  for (const TimePhase& p : view.phases) names.push_back(p.name);
  EXPECT_EQ(names,
            (std::vector<std::string>{"1 projections", "2 norms", "3 queries, rows, selection",
                                      "4 attention", "5 output"}));
  EXPECT_EQ(view.phases[2].start, 42);
  EXPECT_EQ(view.phases[2].end, 62);
  const auto wait = [&](const char* op) {
    return std::ranges::find(view.waits, op, &TimeWait::label);
  };
  const auto query = wait("indexer_q_proj"), attention = wait("sparse_attention");
  ASSERT_NE(query, view.waits.end());
  EXPECT_EQ(query->from_label, "q_kv_norm");
  EXPECT_EQ(query->from, 40);
  EXPECT_EQ(query->until, 41);
  EXPECT_EQ(query->idle, 25);
  ASSERT_NE(attention, view.waits.end());
  EXPECT_EQ(attention->from_label, "topk_to_slots");
  EXPECT_EQ(attention->idle, 91 - 62);
  EXPECT_EQ(wait("q_b_proj"), view.waits.end());
  EXPECT_NE(time_wait_text(view, *query)
                .find("indexer_q_proj on indexer queries needs q_kv_norm on "
                      "main"),
            std::string::npos)
      << time_wait_text(view, *query);
  EXPECT_NE(time_span_text(view, view.rows[0].spans[0]).find("phase 1 of 5: projections"),
            std::string::npos);
  // On one stream nobody waits, and a step has no phases.
  for (OpTiming& t : step.timings) t.stream = 0;
  EXPECT_TRUE(op_time_view(step, *graph_, info_->config.layers, 1).waits.empty());
  EXPECT_TRUE(op_time_view(step, *graph_, info_->config.layers, {}).phases.empty());
}

TEST_F(OpTimes, SayWhyThereAreNone) {
  StepSummary step = overlapping();
  for (OpTiming& t : step.timings) t.microseconds = t.start = OpTiming::kNotMeasured;
  EXPECT_NE(
      op_time_view(step, *graph_, info_->config.layers, {}).why_empty.find("as a whole on the GPU"),
      std::string::npos);
  EXPECT_NE(op_time_view(overlapping(), *graph_, info_->config.layers, 2)
                .why_empty.find("No op of this layer"),
            std::string::npos);
  step.timings.clear();
  EXPECT_NE(op_time_view(step, *graph_, info_->config.layers, {}).why_empty.find("was not kept"),
            std::string::npos);
  const auto none = chrome_trace({timed(step)}, *graph_, "t");
  ASSERT_FALSE(none);
  EXPECT_EQ(none.error().code, AS_BAD_INPUT);
}

// Of a session on the host: one op after another, all of them, in every step.
TEST_F(OpTimes, OfASessionFollowEachOther) {
  for (const auto& step : snapshot_->steps) {
    double end = 0;
    ASSERT_FALSE(step->timings.empty()) << step->step;
    for (const OpTiming& t : step->timings) {
      EXPECT_GE(t.start, end * (1 - 1e-9)) << step->step << " " << t.op;
      EXPECT_EQ(t.stream, 0);
      end = t.start + t.microseconds;
    }
    EXPECT_NEAR(end, step->seconds * 1e6, 1e-3 * end);
    const OpTimeView view = op_time_view(*step, *graph_, info_->config.layers, {});
    EXPECT_EQ(view.rows.size(), 1u);
    EXPECT_NE(view.sentence.find("one after another"), std::string::npos) << view.sentence;
  }
}

TEST_F(OpTimes, AreTraceEvents) {
  StepSummary first = overlapping(), second = overlapping();
  second.step = 4;
  const auto text = chrome_trace({timed(first), timed(second)}, *graph_, "a run");
  ASSERT_TRUE(text) << text.error().text();
  const json events = json::parse(*text)["traceEvents"];
  std::map<int, std::string> tracks;
  int ops = 0, steps = 0;
  for (const json& e : events) {
    if (e["ph"] == "M") {
      if (e["name"] == "thread_name") tracks[e["tid"]] = e["args"]["name"];
      continue;
    }
    ASSERT_EQ(e["ph"], "X");
    (e["cat"] == "op" ? ops : steps) += 1;
    if (e["name"] != "compressor_proj [1]") continue;
    EXPECT_EQ(e["dur"], 20.0);
    EXPECT_EQ(e["ts"], e["args"]["step"] == 3 ? 105.0 : 145.0 + 105.0);
    EXPECT_EQ(e["tid"], 2);
  }
  EXPECT_EQ(ops, 8);
  EXPECT_EQ(steps, 2);
  EXPECT_EQ(tracks,
            (std::map<int, std::string>{{0, "steps"}, {1, "main"}, {2, graph_->branches[1]}}));
}

class TimelineFiles : public CliTest {};

TEST_F(TimelineFiles, ComeFromRecordingsOfStepsAsTheyAreServed) {
  const std::string capture = path("served.acap");
  Outcome done = run({"record", "early", "--as-served", "--steps", "3", "-o", capture});
  EXPECT_EQ(done.code, 0) << done.err;
  done = run({"show", capture, "--timeline", path("t.json")});
  EXPECT_EQ(done.code, 0) << done.err;
  int steps = 0;
  const json whole = json::parse(read(path("t.json")));
  for (const json& e : whole["traceEvents"]) steps += e.value("cat", "") == "step" ? 1 : 0;
  EXPECT_EQ(steps, 3);
  for (const std::vector<std::string>& other : {std::vector<std::string>{"--rows", "8"},
                                                {"--level", "full"},
                                                {"--references", "sim"},
                                                {"--weights"}}) {
    std::vector<std::string> command = {"record", "early", "--as-served", "-o", path("no.acap")};
    command.insert(command.end(), other.begin(), other.end());
    done = run(command);
    EXPECT_EQ(done.code, 2) << other.front();
    EXPECT_NE(done.err.find("--as-served keeps when ops ran"), std::string::npos) << done.err;
  }
}

// Of a run and of its capture the same ops; a run without any loses nothing else.
TEST_F(TimelineFiles, AreWrittenBesideWhatElseACommandGives) {
  const std::string file = path("t.json");
  const auto ops_of = [&] {
    std::vector<std::string> names;
    const json whole = json::parse(read(file));
    for (const json& e : whole["traceEvents"]) {
      if (e["ph"] == "X" && e["cat"] == "op") names.push_back(e["name"]);
    }
    std::filesystem::remove(file);
    return names;
  };
  const std::vector<std::string> steps = {"--steps", "2", "--references", "none"};
  std::vector<std::string> command = {"run",      "early",        "--timeline", file,
                                      "--report", path("r.json"), "--reuse"};
  command.insert(command.end(), steps.begin(), steps.end());
  Outcome done = run(command);
  EXPECT_EQ(done.code, 0) << done.err;
  EXPECT_NE(done.out.find("timeline: "), std::string::npos) << done.out;
  const auto ops = ops_of();
  EXPECT_GT(ops.size(), 100u);
  done = run(command);  // the report is kept, the timeline is not
  EXPECT_EQ(done.code, 0) << done.err;
  EXPECT_EQ(ops_of(), ops);

  command = {"record", "early", "--level", "tables", "-o", path("c.acap")};
  command.insert(command.end(), steps.begin(), steps.end());
  done = run(command);
  EXPECT_EQ(done.code, 0) << done.err;
  done = run({"show", path("c.acap"), "--timeline", file});
  EXPECT_EQ(done.code, 0) << done.err;
  EXPECT_EQ(ops_of(), ops);

  done = run({"run", "early", "--steps", "0", "--references", "none", "--timeline", file});
  EXPECT_EQ(done.code, 3);
  EXPECT_NE(done.err.find("no op of these steps has a time"), std::string::npos) << done.err;
  EXPECT_NE(done.out.find("verdict: "), std::string::npos) << done.out;
  EXPECT_EQ(run({"run", "early", "--timeline", path("no/t.json")}).code, 3);
  EXPECT_EQ(run({"show", path("c.acap"), "--timeline", ""}).code, 2);
}

}  // namespace op_time_view_test
}  // namespace attnscope
