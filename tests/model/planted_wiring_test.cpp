// Bugs between the ops of the engine, planted where a session lets a lane do something there
// (engine/session/step/between_ops.h). No reference runs, which would see some of them by other
// means: what ref.model alone says of the engine's hidden states and tokens is looked at.
#include <gtest/gtest.h>

#include <algorithm>
#include <utility>

#include "app/views/error_view.h"
#include "app/wiring/wiring.h"
#include "engine/backend/host_ops.h"
#include "engine/session/session.h"
#include "engine/session/step/between_ops.h"
#include "kernels/params/tensor_view.h"
#include "tests/unit/app/small_scenario.h"

namespace attnscope {
namespace planted_wiring_test {

struct Outcome {
  std::optional<TapResult> wrong;  // the first one
  std::int64_t steps = 0;
  Witnessed witnessed;
};

Outcome run(const BetweenOps& between, const Scenario& scenario) {
  LaneRegistry lanes = all_lanes();
  Lane lane{};
  lane.name = "mutant:planted";
  lane.description = "What a test does between two ops.";
  lane.ops[AS_OP_SCHEDULE] = host_schedule;
  lanes.add(lane, &between);
  SessionOptions options;
  options.references = References::kNone;
  options.witness = true;
  options.threads = 2;
  options.lanes = {"cpu", "schedule=mutant:planted"};
  auto session = Session::create(scenario, lanes, options);
  EXPECT_TRUE(session) << session.error().text();
  Outcome outcome;
  while (session && !(*session)->finished() && !outcome.wrong) {
    const auto ok = (*session)->step();
    EXPECT_TRUE(ok) << ok.error().text();
    if (!ok) break;
    ++outcome.steps;
    for (const TapResult& r : (*session)->history().back().results) {
      if (r.verdict == Verdict::kWrong) outcome.wrong = r;
    }
  }
  if (session) outcome.witnessed = (*session)->witnessed();
  return outcome;
}

// All requests decode side by side soon.
Scenario scenario_to_plant_in() {
  Scenario scenario = small_scenario(150, 8);
  scenario.model = *preset("tiny");  // numbers below are of its width
  scenario.model.index_topk = 16;
  return scenario;
}

void expect_wrong(const BetweenOps& between, as_op_id op, const std::string& tap,
                  const std::string& note) {
  const Outcome outcome = run(between, scenario_to_plant_in());
  ASSERT_TRUE(outcome.wrong);
  EXPECT_EQ(outcome.wrong->op, op);
  EXPECT_EQ(outcome.wrong->tap, tap + ".wiring");
  EXPECT_NE(outcome.wrong->note.find(note), std::string::npos) << outcome.wrong->note;
  EXPECT_NE(blame({*outcome.wrong}).front().sentence().find("wiring"), std::string::npos);
}

TEST(PlantedWiring, NothingIsWrongWithoutABug) {
  const Outcome outcome = run({}, scenario_to_plant_in());
  EXPECT_FALSE(outcome.wrong) << outcome.wrong->note;
  EXPECT_GT(outcome.steps, 8);
  EXPECT_EQ(outcome.witnessed.left_out, "");
  EXPECT_GT(outcome.witnessed.drift, 0);
}

// Each samples by the logits of the other.
TEST(PlantedWiring, TokensSwappedBetweenRequests) {
  expect_wrong({.ran =
                    [](const OpParams& p) {
                      if (p.op() != AS_OP_LM_HEAD) return;
                      const as_tensor& y = p.get<as_linear_params>().y;
                      if (y.shape[0] < 2) return;
                      std::swap_ranges(at<float>(y, 0), at<float>(y, 0) + y.shape[1],
                                       at<float>(y, 1));
                    }},
               AS_OP_SAMPLE, "tokens", "was appended; by ref.model it is");
}

TEST(PlantedWiring, TokenAltered) {
  expect_wrong({.ran =
                    [](const OpParams& p) {
                      if (p.op() != AS_OP_LM_HEAD) return;
                      const as_tensor& y = p.get<as_linear_params>().y;
                      *std::min_element(at<float>(y, 0), at<float>(y, 0) + y.shape[1]) = 1e9f;
                    }},
               AS_OP_SAMPLE, "tokens", "was appended; by ref.model it is");
}

TEST(PlantedWiring, RowBeforeTheLastIsSampled) {
  expect_wrong({.planned =
                    [](StepMetadata& step) {
                      if (!step.sample_rows.empty() && step.sample_rows.front() > 0) {
                        --step.sample_rows.front();
                      }
                    }},
               AS_OP_SAMPLE, "tokens", "which nothing was sampled for");
}

// Behind a layer: what the next one reads are rows of other tokens.
TEST(PlantedWiring, RowsOfTokensExchangedBetweenLayers) {
  expect_wrong({.ran =
                    [](const OpParams& p) {
                      if (p.op() != AS_OP_RESIDUAL) return;
                      const as_tensor& out = p.get<as_residual_params>().out;
                      if (out.shape[0] < 2) return;
                      std::swap_ranges(at<bf16_t>(out, 0), at<bf16_t>(out, 0) + out.shape[1],
                                       at<bf16_t>(out, 1));
                    }},
               AS_OP_RESIDUAL, "out", "is off from ref.model by");
}

// A weight of another rank that is written to is named with its rank, without references too.
TEST(PlantedWiring, WeightOfAnotherRank) {
  Scenario scenario = scenario_to_plant_in();
  scenario.parallel = {2, 0};
  SessionOptions options;
  options.references = References::kNone;
  options.witness = true;
  options.threads = 2;
  auto session = Session::create(scenario, all_lanes(), options);
  ASSERT_TRUE(session) << session.error().text();
  const Weights& peer = *(*session)->parts().ranks[1];
  const_cast<float*>(peer.layers[2]["sinks"].f32.data())[3] += 1;
  ASSERT_TRUE((*session)->step());
  const TapResult* wrong = first_wrong((*session)->history().back().results);
  ASSERT_NE(wrong, nullptr);
  EXPECT_EQ(wrong->layer, 2);
  EXPECT_NE(wrong->note.find("layers.2.attn.attn_sink of rank 1 is no longer what it was"),
            std::string::npos)
      << wrong->note;
}

// The next two bend every row, by less than formats may where no ref.sim says how much that is:
// past the limit first is what an indexer chooses by such rows.
//
// The output of attention, not yet turned back, takes the place of what inverse_rope gave.
TEST(PlantedWiring, InverseRopeUnused) {
  static as_tensor o;
  expect_wrong({.ran =
                    [](const OpParams& p) {
                      if (p.op() == AS_OP_SPARSE_ATTENTION) {
                        o = p.get<as_sparse_attention_params>().o;
                      }
                      if (p.op() != AS_OP_INVERSE_ROPE) return;
                      const as_tensor& out = p.get<as_inverse_rope_params>().out;
                      std::copy_n(at<bf16_t>(o), as_tensor_numel(&o), at<bf16_t>(out));
                    }},
               AS_OP_INDEXER_TOPK, "indices",
               "an entry was chosen whose score by ref.model is lower by");
}

TEST(PlantedWiring, NormSkipped) {
  expect_wrong({.ran =
                    [](const OpParams& p) {
                      if (p.op() != AS_OP_ATTN_NORM) return;
                      const auto& norm = p.get<as_rms_norm_params>();
                      std::copy_n(at<bf16_t>(norm.x), as_tensor_numel(&norm.x), at<bf16_t>(norm.y));
                    }},
               AS_OP_INDEXER_TOPK, "indices",
               "an entry was chosen whose score by ref.model is lower by");
}

}  // namespace planted_wiring_test
}  // namespace attnscope
