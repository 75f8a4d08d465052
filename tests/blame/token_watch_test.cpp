// From the sample tap to the requests: swapped, altered, lost and additional tokens are named.
#include "engine/session/verify/token_watch.h"

#include "kernels/params/tensor_view.h"
#include "tests/blame/planted_around.h"

namespace attnscope {
namespace token_watch_test {

using Tokens = std::vector<std::int32_t>;

// Steps in which a bug of these is in begin with the third one that samples from both requests.
int steps;
bool due(const Tokens& sampled) {
  return std::ranges::count_if(sampled, [](std::int32_t t) { return t >= 0; }) == 2 && ++steps == 2;
}

PlantedRun run_planted(const BetweenOps& between, const DraftOptions& drafts = {}) {
  steps = 0;
  Scenario scenario = tiny_scenario(7, 150);
  for (ScenarioRequest& request : scenario.requests) request.max_new_tokens = 8;
  scenario.decode_steps = 6;
  scenario.serving.drafts = drafts;
  return run_with(scenario, between);
}

TEST(TokenWatch, TokensOfOtherRequestsAreNamed) {
  static const BetweenOps kSwapped = {
      .appending = [](const StepMetadata&, Tokens& sampled, Tokens&) {
        if (due(sampled)) std::swap(sampled[0], sampled[1]);
      }};
  expect_blamed(run_planted(kSwapped), 2, -1, AS_OP_SAMPLE, "tokens.appended",
                {"the tokens that were appended", "request 0 (r0) got token ", " at position 151, ",
                 "was sampled (row 0 of the tap)"});
}

TEST(TokenWatch, AnAlteredAndALostTokenAreNamed) {
  static const BetweenOps kAltered = {
      .appending = [](const StepMetadata&, Tokens& sampled, Tokens&) {
        if (due(sampled)) sampled[1] ^= 1;
      }};
  expect_blamed(run_planted(kAltered), 2, -1, AS_OP_SAMPLE, "tokens.appended",
                {"request 1 (r1) got token ", "at position 19, "});
  static const BetweenOps kLost = {.appending = [](const StepMetadata&, Tokens& sampled, Tokens&) {
    if (due(sampled)) sampled[1] = -1;
  }};
  expect_blamed(run_planted(kLost), 2, -1, AS_OP_SAMPLE, "tokens.appended",
                {"request 1 (r1) got 0 of the 1 tokens that were sampled for it"});
}

TEST(TokenWatch, ADraftThatDidNotHoldIsNamed) {
  static const BetweenOps kAccepted = {
      .appending = [](const StepMetadata& step, Tokens& sampled, Tokens& accepted) {
        const bool drafted = step.sample_rows.size() > 2;
        if (drafted && due(sampled)) ++accepted[0];
      }};
  const PlantedRun run = run_planted(kAccepted, {.tokens = 2, .accept = {1, 1}});
  expect_blamed(run, 3, -1, AS_OP_SAMPLE, "tokens.appended",
                {"request 0 (r0) got token ", "was sampled (row 1 of the tap)"});
}

TEST(TokenWatch, ASoundRunWithDraftsIsNotAccused) {
  static const BetweenOps kNothing;
  const PlantedRun run = run_planted(kNothing, {.tokens = 3, .accept = {3, 0, 2, 1}});
  EXPECT_EQ(run.summary.verdict(), "ok");
  EXPECT_EQ(run.exit, AS_OK);
  EXPECT_EQ(run.summary.count(Verdict::kWrong), 0);
}

// One request of two known tokens; a step samples from one row.
class TokenWatchAlone : public testing::Test {
 protected:
  TokenWatchAlone() {
    request_.name = "r";
    request_.tokens = {1, 2};
    step_.live = {0};
    step_.tokens = {2};
    step_.num_scheduled_tokens = {1};
    step_.sample_rows = {0};
    step_.sample_request = {0};
    logits_[7] = 10;
    logits_[8] = 9;
  }
  std::vector<TapResult> append(TokenWatch& watch, std::int32_t sampled) {
    as_sample_params params{};
    params.logits = make_tensor(logits_.data(), {1, 256});
    params.tokens = make_tensor(&sampled, {1});
    watch.sampled(params);
    request_.tokens.push_back(sampled);
    return watch.appended(step_, {request_});
  }

  Request request_;
  StepMetadata step_;
  std::vector<float> logits_ = std::vector<float>(256);
};

TEST_F(TokenWatchAlone, TokensAreThoseOfTheRunWithoutDrafts) {
  TokenWatch watch({request_});
  watch.set_plain({{1, 2, 8, 3}});
  const auto found = append(watch, 7);
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].note,
            "request 0 (r) got token 7 at position 2; without drafts it got 8, whose logit is "
            "lower by 1 here");
  EXPECT_TRUE(append(watch, 9).empty()) << "what follows from it is no second fault";
}

TEST_F(TokenWatchAlone, ATieIsNoFaultAndNeitherAreOtherLanes) {
  logits_[8] = 9.95f;
  TokenWatch tie({request_});
  tie.set_plain({{1, 2, 8, 3}});
  EXPECT_TRUE(append(tie, 7).empty());
  logits_[8] = 0;
  request_.tokens = {1, 2};
  TokenWatch other({request_});
  other.set_plain({{1, 2, 8, 3}});
  other.forget_plain();
  EXPECT_TRUE(append(other, 7).empty());
}

TEST_F(TokenWatchAlone, ATokenThatChangesLaterIsNamed) {
  TokenWatch watch({request_});
  request_.tokens[0] = 5;
  const auto found = append(watch, 7);
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].note, "request 0 (r): its token at position 0 was 1 and is 5");
}

}  // namespace token_watch_test
}  // namespace attnscope
