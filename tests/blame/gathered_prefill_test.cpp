// Prompts that attend over gathered rows, switch prefill=gathered, in whole sessions: a sound one
// blames nobody and gives what the direct path gives, and a planted bug of the workspace is named.
#include <algorithm>
#include <cmath>

#include "engine/trace/compare.h"
#include "tests/blame/trial.h"

namespace attnscope {
namespace gathered_prefill_test {

constexpr const char* kGathered = "vllm,prefill=gathered";

// What attention of a model of one layer put out, by step, and how many of its tokens prefilled.
struct Outputs {
  std::vector<std::vector<double>> o;
  std::vector<std::int64_t> prefilled, tokens;
  std::vector<std::int32_t> sampled;
};

Outputs outputs_of(const char* profile, int layer, References references) {
  Outputs out;
  Scenario scenario = tiny_scenario(7, 396, profile);
  scenario.model.layers = {layer};
  const auto session = session_of(scenario, references);
  while (session != nullptr && !session->finished()) {
    const auto ok = session->op();
    EXPECT_TRUE(ok) << ok.error().text();
    if (!ok) break;
    const OpParams& params = session->last_params();
    if (!session->ran_any() || params.op() != AS_OP_SPARSE_ATTENTION) continue;
    const auto& p = params.get<as_sparse_attention_params>();
    std::vector<double>& o = out.o.emplace_back();
    std::int64_t prefilled = 0;
    for (std::int64_t t = 0; t < p.q.shape[0]; ++t) {
      prefilled += present(p.prefill) && *at<std::int32_t>(p.prefill, t, 0) >= 0 ? 1 : 0;
      for (std::int64_t i = 0; i < p.q.shape[1] * p.q.shape[2]; ++i) {
        o.push_back(element(p.o, t * p.q.shape[1] + i / p.q.shape[2], i % p.q.shape[2]));
      }
    }
    out.prefilled.push_back(prefilled);
    out.tokens.push_back(p.q.shape[0]);
  }
  if (session == nullptr) return out;
  for (const StepRecord& step : session->history()) {
    const auto blamed = blame(step.results);
    EXPECT_TRUE(blamed.empty()) << sentences(blamed);
    for (const TapResult& r : step.results) EXPECT_NE(r.verdict, Verdict::kWrong) << r.note;
  }
  for (const Request& request : session->serving().requests()) {
    out.sampled.insert(out.sampled.end(), request.tokens.begin(), request.tokens.end());
  }
  return out;
}

// Of a layer with windows alone, with selected entries, with all entries.
class GatheredPrefill : public testing::TestWithParam<int> {};

TEST_P(GatheredPrefill, ASoundRunGivesWhatTheDirectPathGives) {
  const Outputs direct = outputs_of("vllm", GetParam(), References::kNone);
  const Outputs gathered = outputs_of(kGathered, GetParam(), References::kBoth);
  EXPECT_EQ(direct.tokens, gathered.tokens);
  EXPECT_EQ(direct.sampled, gathered.sampled);
  // Two steps of prompts, then decodes.
  ASSERT_GT(gathered.prefilled.size(), 2u);
  EXPECT_EQ(gathered.prefilled[0], gathered.tokens[0]);
  EXPECT_EQ(gathered.prefilled[1], gathered.tokens[1]);
  EXPECT_EQ(gathered.prefilled.back(), 0);
  ASSERT_EQ(direct.o.size(), gathered.o.size());
  double scale = 0, worst = 0;
  for (std::size_t step = 0; step < direct.o.size(); ++step) {
    ASSERT_EQ(direct.o[step].size(), gathered.o[step].size());
    for (std::size_t i = 0; i < direct.o[step].size(); ++i) {
      scale = std::max(scale, std::fabs(direct.o[step][i]));
      worst = std::max(worst, std::fabs(direct.o[step][i] - gathered.o[step][i]));
    }
  }
  EXPECT_GT(scale, 0);
  EXPECT_LE(worst, scale * 0x1p-7) << "more than the last step of bf16";
}

INSTANTIATE_TEST_SUITE_P(Layers, GatheredPrefill, testing::Values(0, 1, 2));

TEST(GatheredPrefillMutants, AreNamed) {
  Trial trial(session_of(tiny_scenario(7, 396, kGathered)));
  int bugs = 0;
  for (const Lane& lane : mutants::lanes()) {
    if (!in_gathered_prefill_alone(lane)) continue;
    ++bugs;
    SCOPED_TRACE(lane.name);
    const std::vector<Blame> blamed =
        trial.run({{lane.name, AS_OP_SPARSE_ATTENTION, AS_OP_SPARSE_ATTENTION}});
    ASSERT_EQ(blamed.size(), 1u) << sentences(blamed);
    EXPECT_EQ(blamed[0].op, AS_OP_SPARSE_ATTENTION);
    EXPECT_EQ(blamed[0].first.step, kStepUnderTest);
  }
  EXPECT_EQ(bugs, 3);
}

}  // namespace gathered_prefill_test
}  // namespace attnscope
