// Whoever makes a session has the witness: runs, recordings, goldens, the app's worker and what its
// Error panel says. The witness of these is told of another model than the session runs.
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>

#include "app/reports/capture_record.h"
#include "app/reports/run.h"
#include "app/views/error_view.h"
#include "app/wiring/model_witness.h"
#include "app/wiring/wiring.h"
#include "engine/checkpoint/hidden_states.h"
#include "engine/golden/golden_run.h"
#include "engine/session/trace_recorder.h"
#include "engine/tensorfile/tensor_writer.h"
#include "tests/unit/app/small_scenario.h"

namespace attnscope {
namespace witness_everywhere_test {

// All lanes, and a witness that is told of another window: of other synthetic sinks too, which
// follow from it.
LaneRegistry misled_lanes() {
  LaneRegistry lanes = all_lanes();
  lanes.set_witness([](const Scenario& scenario, const as_threads* threads) {
    Scenario told = scenario;
    told.model.window = 127;
    return make_model_witness(told, threads);
  });
  return lanes;
}

SessionOptions options_of(References references) {
  SessionOptions options;
  options.references = references;
  options.threads = 2;
  return options;
}

bool says_window(const std::string& text) {
  return text.find("its window is 128; the model's is 127") != std::string::npos;
}

TEST(WitnessEverywhere, BesideEachReference) {
  for (const References references : {References::kSim, References::kBoth}) {
    RunOptions options;
    options.session = options_of(references);
    const auto result = run_scenario(small_scenario(40, 2), misled_lanes(), options, {});
    ASSERT_TRUE(result) << result.error().text();
    EXPECT_EQ(result->summary.verdict(), "wrong");
    ASSERT_EQ(result->summary.blamed.size(), 2u);
    EXPECT_TRUE(says_window(result->summary.blamed[0].sentence()));
    EXPECT_EQ(result->summary.blamed[0].op, AS_OP_SWA_INDEX);
    EXPECT_EQ(result->summary.blamed[0].taps, 1);
    EXPECT_EQ(result->summary.blamed[1].op, AS_OP_SPARSE_ATTENTION);
    EXPECT_EQ(result->summary.blamed[1].first.tap, "sinks.wiring");
    EXPECT_EQ(result->summary.blamed[1].taps, 4);  // layers
  }
}

// Their hidden states are not those of the tokens, so that ref.model does not follow; what the ops
// are given is looked at all the same.
TEST(WitnessEverywhere, WhereLayersAreFedRecordedRows) {
  Scenario scenario = small_scenario(40, 2);
  scenario.hidden_states = ::testing::TempDir() + "attnscope_witnessed.safetensors";
  TensorWriter writer;
  std::vector<float> values;
  for (std::int64_t i = 0; i < 42 * scenario.model.hidden; ++i) {
    values.push_back(std::sin(static_cast<float>(i % 977)));
  }
  for (const int layer : scenario.model.layers) {
    writer.add(HiddenStates::tensor_name(layer), ElementType::kF32, {42, scenario.model.hidden},
               values);
  }
  ASSERT_TRUE(writer.write(scenario.hidden_states));
  RunOptions options;
  options.session = options_of(References::kBoth);
  const auto sound = run_scenario(scenario, all_lanes(), options, {});
  ASSERT_TRUE(sound) << sound.error().text();
  EXPECT_EQ(sound->summary.verdict(), "ok");
  EXPECT_EQ(sound->witnessed.left_out, "layers are fed recorded hidden states");
  const auto misled = run_scenario(scenario, misled_lanes(), options, {});
  ASSERT_TRUE(misled) << misled.error().text();
  EXPECT_EQ(misled->summary.verdict(), "wrong");
  ASSERT_FALSE(misled->summary.blamed.empty());
  EXPECT_TRUE(says_window(misled->summary.blamed[0].sentence()));
  std::filesystem::remove(scenario.hidden_states);
}

TEST(WitnessEverywhere, NotWithoutAReferenceUnlessAskedFor) {
  RunOptions options;
  options.session = options_of(References::kNone);
  auto result = run_scenario(small_scenario(40, 2), misled_lanes(), options, {});
  ASSERT_TRUE(result) << result.error().text();
  EXPECT_EQ(result->witnessed.left_out, "no reference runs");
  EXPECT_EQ(result->summary.count(Verdict::kWrong), 0);
  options.session.witness = true;
  result = run_scenario(small_scenario(40, 2), misled_lanes(), options, {});
  ASSERT_TRUE(result) << result.error().text();
  EXPECT_EQ(result->witnessed.left_out, "");
  EXPECT_EQ(result->summary.count(Verdict::kWrong), 1 + 4);  // the window, sinks of four layers
}

TEST(WitnessEverywhere, InRecordings) {
  const std::string path = ::testing::TempDir() + "attnscope_witnessed.acap";
  std::filesystem::remove_all(path);
  RecordOptions options;
  options.run.session = options_of(References::kSim);
  const auto made = record_scenario(small_scenario(40, 2), misled_lanes(), options, path, nullptr);
  ASSERT_TRUE(made) << made.error().text();
  EXPECT_EQ(made->summary.verdict(), "wrong");
  const auto capture = Capture::open(path);
  ASSERT_TRUE(capture) << capture.error().text();
  const TapResult* wrong = first_wrong((*capture)->summaries().front()->results);
  ASSERT_NE(wrong, nullptr);
  EXPECT_EQ(wrong->tap, "window.wiring");
  std::filesystem::remove_all(path);
}

TEST(WitnessEverywhere, InGoldens) {
  const std::string path = ::testing::TempDir() + "attnscope_witnessed_goldens";
  std::filesystem::remove_all(path);
  std::filesystem::create_directory(path);
  std::ofstream(path + "/small.golden.json")
      << R"({"format": "attnscope-golden", "version": 1, "about": "two layers", "scenario": "small",
             "steps": 2, "rows": 1, "samples": 4, "taps": [{"op": "residual"}]})";
  std::ofstream(path + "/small.json")
      << R"({"version": 1, "name": "small", "model": {"preset": "tiny", "layers": [0, 1]},
             "pool_blocks": 300, "token_budget": 64,
             "requests": [{"name": "a", "text": "What can be seen here?", "max_new_tokens": 3}]})";
  auto goldens = GoldenFolder::open(path);
  ASSERT_TRUE(goldens) << goldens.error().text();
  const GoldenOutcome sound = run_golden(*goldens, "small", all_lanes(), {});
  EXPECT_EQ(sound.state, GoldenState::kNew) << sound.sentence;
  const GoldenOutcome misled = run_golden(*goldens, "small", misled_lanes(), {});
  EXPECT_EQ(misled.state, GoldenState::kBroken);
  EXPECT_TRUE(says_window(misled.sentence)) << misled.sentence;
  ASSERT_TRUE(misled.error);
  EXPECT_EQ(misled.error->code, AS_MISMATCH);
  std::filesystem::remove_all(path);
}

// What the worker of the app shows: the step, the op's own trace, and the sentence of the panel.
TEST(WitnessEverywhere, InTracesAndTheirSentence) {
  auto session =
      Session::create(small_scenario(40, 2), misled_lanes(), options_of(References::kSim));
  ASSERT_TRUE(session) << session.error().text();
  TraceRecorder recorder{TraceOptions{}};
  (*session)->set_observer(&recorder);
  ASSERT_TRUE((*session)->step());
  (*session)->set_observer(nullptr);
  const auto trace = recorder.trace(0);
  const auto summary = recorder.summary(0);
  ASSERT_NE(trace, nullptr);
  ASSERT_NE(summary, nullptr);
  ASSERT_NE(first_wrong(summary->results), nullptr);
  const auto op = std::ranges::find_if(
      trace->ops, [](const auto& o) { return o->place.op == AS_OP_SWA_INDEX; });
  ASSERT_NE(op, trace->ops.end());
  EXPECT_EQ((*op)->worst, Verdict::kWrong);
  EXPECT_TRUE(says_window(error_sentence(trace.get(), *summary, op->get(), (*op)->place)));
  // Seen from another op.
  EXPECT_TRUE(says_window(error_sentence(trace.get(), *summary, nullptr, {0, 2, AS_OP_WO_A})));
  EXPECT_EQ(error_verdict(*summary, nullptr), Verdict::kWrong);
}

}  // namespace witness_everywhere_test
}  // namespace attnscope
