// The screen tells the truth: what several panels say of one thing at a step is one thing, and what
// is said belongs to the step, the request and the layer that it names.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>

#include "app/common/op_order.h"
#include "app/common/views/linkage.h"
#include "app/common/views/pool_view.h"
#include "tests/ui/driven_app.h"

namespace attnscope::gui {
namespace driven_truth_test {

bool shows(User& user, const std::string& text) {
  return user.screen().find(text) != std::string::npos;
}

void run(DrivenApp& app, User& user, const std::string& command) {
  const auto ok = app->commands().run(command);
  EXPECT_TRUE(ok) << command << ": " << (ok ? "" : ok.error().text());
  user.settle();
}

void open(DrivenApp& app, User& user, Scenario scenario, std::vector<std::string> lanes = {"cpu"},
          References references = References::kSim) {
  RunSetup setup;
  setup.scenario = std::move(scenario);
  setup.lanes = std::move(lanes);
  setup.references = references;
  app.bench().open(std::move(setup), false);
  user.settle();
  app.bench().run_until("to the end", [](const Session&) { return false; });
  user.settle();
}

// Tokens of a prompt that another may share.
ScenarioRequest request(const std::string& name, std::int64_t tokens, std::int64_t arrival) {
  ScenarioRequest r;
  r.name = name;
  for (std::int64_t t = 0; t < tokens; ++t) {
    r.tokens.push_back(static_cast<std::int32_t>((t * 29 + t / 7) % 251));
  }
  r.max_new_tokens = 6;
  r.arrival_step = arrival;
  return r;
}

int layer_of_ratio(const SessionInfo& info, int ratio) {
  for (int i = 0; i < info.config.num_layers(); ++i) {
    if (info.config.ratio(i) == ratio) return info.config.layers[static_cast<std::size_t>(i)];
  }
  ADD_FAILURE() << "no layer of ratio " << ratio;
  return -1;
}

TEST(Truth, ASelectionEndsWithItsScenario) {
  DrivenApp app(References::kNone);
  app.drive([&](User& user) {
    run(app, user, "select.token=1/7");
    run(app, user, "select.block=4");
    run(app, user, "select.head=5");
    run(app, user, "references.set=sim");
    EXPECT_EQ(app.selection().block, 4) << "the same scenario, compared";
    EXPECT_EQ(app.selection().request, 1);
    open(app, user, small_scenario(120, 6));
    EXPECT_EQ(app.selection(), Selection{});
  });
}

TEST(Truth, LimitsAndThePoolBelongToTheStepShown) {
  DrivenApp app(References::kNone);
  app.drive([&](User& user) {
    const auto held = app.bench().shared_snapshot();
    const Snapshot& now = *held;
    std::int64_t steps = 0;
    for (const auto& summary : now.steps) {
      run(app, user, fmt::format("cursor.goto={}/1/attn_norm", summary->step));
      const StepTrace* step = app.bench().step();
      ASSERT_NE(step, nullptr);
      const RequestView* first = find_request(*step, 0);
      ASSERT_NE(first, nullptr);
      const std::int64_t tokens = first->request.num_tokens();
      EXPECT_TRUE(app->commands().run(fmt::format("select.token=0/{}", tokens - 1)));
      const auto beyond = app->commands().run(fmt::format("select.token=0/{}", tokens));
      ASSERT_FALSE(beyond) << "step " << step->step << " knows no such token";
      EXPECT_NE(beyond.error().text().find(fmt::format("0 to {}", tokens - 1)), std::string::npos);
      const PoolView pool = pool_view(*now.info, *step);
      EXPECT_TRUE(shows(user, fmt::format("pool {}/{}", pool.used, pool.blocks)))
          << "step " << step->step;
      ++steps;
    }
    EXPECT_GE(steps, 6);
  });
}

class TruthOfCaptures : public testing::Test {
 protected:
  TruthOfCaptures()
      : folder_(std::filesystem::temp_directory_path() /
                ("attnscope-truth-" + std::to_string(getpid()))) {
    std::filesystem::create_directories(folder_);
  }
  ~TruthOfCaptures() override { std::filesystem::remove_all(folder_); }
  std::filesystem::path folder_;
};

TEST_F(TruthOfCaptures, ARecordingSaysHowManyTapsWereWrong) {
  DrivenApp app;
  app.drive([&](User& user) {
    open(app, user, small_scenario(90, 3), {"cpu", "attn_norm=mutant:norm_weight_plus_one"});
    run(app, user, "capture.record=tables:" + (folder_ / "wrong.acap").string());
    std::string text;
    for (const Message& message : app.bench().messages()) {
      if (message.text.find("recorded in") != std::string::npos) text = message.text;
    }
    std::int64_t wrong = 0;
    auto capture = Capture::open((folder_ / "wrong.acap").string());
    ASSERT_TRUE(capture);
    for (const auto& summary : (*capture)->summaries()) {
      wrong += std::ranges::count(summary->results, Verdict::kWrong, &TapResult::verdict);
    }
    ASSERT_GT(wrong, 0);
    EXPECT_NE(text.find(fmt::format("taps compared, {} wrong", wrong)), std::string::npos) << text;
    EXPECT_EQ(text.find("all taps"), std::string::npos) << text;
  });
}

}  // namespace driven_truth_test
}  // namespace attnscope::gui
