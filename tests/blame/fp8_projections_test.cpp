// Projections in FP8 in whole sessions: a sound one blames nobody, a planted bug of their scales is
// named, and blocks of a weight that differ in scale come from a checkpoint as they are.
#include <stdlib.h>

#include <filesystem>

#include "engine/checkpoint/export_checkpoint.h"
#include "engine/family/model_weights.h"
#include "kernels/cpu/codec.h"
#include "tests/blame/trial.h"

namespace attnscope {
namespace fp8_projections_test {

namespace fs = std::filesystem;

constexpr const char* kFp8 = "vllm,projections=fp8";

// The tiny model with the blocks of wq_b far apart in size, as an FP8 checkpoint.
class Fp8Projections : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = (fs::temp_directory_path() / "attnscope-blame-XXXXXX").string();
    ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
    scenario_ = tiny_scenario(7, 396, kFp8);
    ModelConfig plain = scenario_.model;
    plain.switches = {};
    Weights weights = synthetic_weights(plain, 7, nullptr);
    for (WeightList& layer : weights.layers) {
      for (std::int64_t i = 0; i < layer["wq_b"].bf16.size(); ++i) {
        const int block = static_cast<int>(i / plain.q_lora / 128);
        bf16_t& w = layer["wq_b"].bf16.data()[i];
        w.bits = cpu::float_to_bf16(cpu::bf16_to_float(w.bits) * cpu::exp2i(block % 3 - 1));
      }
    }
    scenario_.checkpoint = (folder_ / "m").string();
    auto totals =
        export_checkpoint(weights, plain, scenario_.checkpoint, ExportDtype::kFp8, nullptr);
    ASSERT_TRUE(totals) << totals.error().text();
  }
  void TearDown() override { fs::remove_all(folder_); }

  fs::path folder_;
  Scenario scenario_;
};

TEST_F(Fp8Projections, ASoundRunBlamesNobody) {
  auto session = session_of(scenario_, References::kBoth);
  ASSERT_NE(session, nullptr);
  int in_fp8 = 0, groups_in_fp8 = 0, quantised = 0;
  while (!session->finished()) {
    ASSERT_TRUE(session->op());
    const OpParams& params = session->last_params();
    if (!session->ran_any()) continue;
    if (params.op() == AS_OP_Q_B_PROJ) {
      in_fp8 += params.get<as_linear_params>().weight.dtype == AS_U8 ? 1 : 0;
    } else if (params.op() == AS_OP_WO_A) {
      groups_in_fp8 += params.get<as_grouped_linear_params>().x.dtype == AS_U8 ? 1 : 0;
    }
  }
  EXPECT_GT(in_fp8, 0);
  EXPECT_EQ(groups_in_fp8, in_fp8);
  for (const StepRecord& step : session->history()) {
    const auto blamed = blame(step.results);
    EXPECT_TRUE(blamed.empty()) << sentences(blamed);
    for (const TapResult& r : step.results) {
      EXPECT_NE(r.verdict, Verdict::kWrong) << r.note;
      // In the first layer; rounding to bf16 alone is below 1e-6.
      const bool first = r.layer == 0 && r.op == AS_OP_Q_B_PROJ && r.quantisation;
      quantised += first && r.quantisation->cosine > 1e-5 ? 1 : 0;
    }
  }
  EXPECT_GT(quantised, 0);
}

TEST_F(Fp8Projections, BugsOfTheirScalesAreNamed) {
  Trial trial(session_of(scenario_));
  int bugs = 0;
  for (const Lane& lane : mutants::lanes()) {
    if (!in_fp8_alone(lane)) continue;
    int of = 0;
    while (of < AS_OP_COUNT && lane.ops[of] == nullptr) ++of;
    if (!is_of_deepseek_v4(of)) continue;  // of rows that other models keep in FP8
    ++bugs;
    SCOPED_TRACE(lane.name);
    const auto op = static_cast<as_op_id>(of);
    const std::vector<Blame> blamed = trial.run({{lane.name, op, op}});
    ASSERT_EQ(blamed.size(), 1u) << sentences(blamed);
    EXPECT_EQ(blamed[0].op, op);
    EXPECT_EQ(blamed[0].first.step, kStepUnderTest);
  }
  EXPECT_EQ(bugs, 5);
}

}  // namespace fp8_projections_test
}  // namespace attnscope
