// The screen tells the truth: what several panels say of one thing at a step is one thing, and what
// is said belongs to the step, the request and the layer that it names.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>

#include "app/views/cache_view.h"
#include "app/views/error_view.h"
#include "app/views/linkage.h"
#include "app/views/op_order.h"
#include "app/views/pool_view.h"
#include "app/views/selection_view.h"
#include "app/views/top_k_view.h"
#include "app/views/worst_element.h"
#include "engine/family/models.h"
#include "engine/io/plural.h"
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

// What the selection panel, whose lines are pictures, says of the tokens of the picked entry.
std::string pooled_words(DrivenApp& app) {
  const Workbench& bench = app.bench();
  const SelectionView view =
      selection_view({*bench.snapshot()->info, *bench.step(), bench.cursor(), bench.selection(),
                      bench.selected_row(), bench.op(), bench.selected_tap()});
  for (const SelectionPart& part : view.parts) {
    for (const SelectionLine& line : part.lines) {
      if (line.label == "pools") return line.text;
    }
  }
  return "nothing";
}

TEST(Truth, AnEntryKeepsItsRatioWhereverTheCursorGoes) {
  DrivenApp app(References::kNone);
  app.drive([&](User& user) {
    const auto held = app.bench().shared_snapshot();
    const SessionInfo& info = *held->info;
    const int c128 = layer_of_ratio(info, 128), c4 = layer_of_ratio(info, 4);
    run(app, user, fmt::format("cursor.goto=7/{}/sparse_attention", c128));
    user.show("selection");
    run(app, user, "select.entry=0");
    EXPECT_EQ(app.selection().entry_of(0, 128), 0);
    EXPECT_TRUE(shows(user, "Entry 0 of long, one a 128 tokens"));
    EXPECT_TRUE(pooled_words(app).starts_with("tokens 0-127 ")) << pooled_words(app);
    EXPECT_FALSE(app->commands().run("select.entry=1")) << "the second one is not complete";
    run(app, user, fmt::format("cursor.goto=7/{}/sparse_attention", c4));
    EXPECT_TRUE(shows(user, "Entry 0 of long, one a 128 tokens"));
    EXPECT_TRUE(pooled_words(app).starts_with("tokens 0-127 ")) << pooled_words(app);
    user.show("top_k");
    EXPECT_FALSE(shows(user, "entry 0: tokens")) << "this layer's entries are others";
    run(app, user, "select.entry=0");
    EXPECT_TRUE(shows(user, "entry 0: tokens 0-3"));
    user.show("selection");
    EXPECT_TRUE(shows(user, "Entry 0 of long, one a 4 tokens"));
  });
}

TEST(Truth, AnEntryOfAFinishedRequestIsNotItsNeighbours) {
  DrivenApp app(References::kNone);
  app.drive([&](User& user) {
    Scenario scenario = small_scenario(150, 6);
    scenario.requests[2].max_new_tokens = 2;  // "short" ends long before the others
    scenario.requests[2].tokens.assign(9, 'x');
    open(app, user, scenario);
    const int c4 = layer_of_ratio(*app.bench().snapshot()->info, 4);
    run(app, user, fmt::format("cursor.goto=3/{}/sparse_attention", c4));
    std::int64_t alive = -1;  // a step in which it computes
    for (std::int64_t step = 0; step < 8; ++step) {
      const StepTrace* trace = app.bench().snapshot()->trace(step);
      if (trace != nullptr && last_row_of(*trace, 2) >= 0) alive = step;
    }
    ASSERT_GE(alive, 0);
    run(app, user, fmt::format("cursor.goto={}/{}/sparse_attention", alive, c4));
    app.bench().select_token(2, -1);
    run(app, user, "select.entry=1");
    ASSERT_EQ(app.selection().entry_of(2, 4), 1);
    user.show("selection");
    EXPECT_TRUE(shows(user, "Entry 1 of short, one a 4 tokens"));
    EXPECT_EQ(pooled_words(app), "tokens 0-7 \"xxxxxxxx\"");
    run(app, user, "cursor.last");
    ASSERT_EQ(app.bench().cursor().step, app.bench().snapshot()->steps.back()->step);
    ASSERT_NE(app.bench().selected_request(), 2) << "the panels look at a neighbour";
    EXPECT_TRUE(shows(user, "Entry 1 of short, one a 4 tokens"));
    EXPECT_EQ(pooled_words(app), "tokens 0-7 \"xxxxxxxx\"");
    user.show("top_k");
    EXPECT_FALSE(shows(user, "entry 1: tokens"));
  });
}

TEST(Truth, ASelectionEndsWithItsScenario) {
  DrivenApp app(References::kNone);
  app.drive([&](User& user) {
    run(app, user, "select.token=1/7");
    run(app, user, "select.block=4");
    run(app, user, "select.head=3");
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

// Whoever names the holders of a block at a step names the same.
TEST(Truth, BytesLifePoolAndSelectionAgreeOnABlock) {
  DrivenApp app(References::kNone);
  app.drive([&](User& user) {
    Scenario scenario;
    scenario.name = "shared";
    scenario.model = *preset("tiny", {1, 2});
    scenario.seed = 11;
    scenario.pool_blocks = 260;
    scenario.limits = {128, 2};
    scenario.requests = {request("donor", 300, 0), request("reader", 290, 4)};
    open(app, user, scenario);
    const auto held = app.bench().shared_snapshot();
    const Snapshot& now = *held;
    ASSERT_TRUE(now.finished);
    // The newest step with a block of two holders: the session has ended since.
    std::int64_t at = -1;
    std::int32_t shared = -1;
    for (const auto& trace : now.traces) {
      for (std::size_t b = 1; b < trace->owners.size(); ++b) {
        if (trace->owners[b].refs != 2) continue;
        at = trace->step;
        shared = static_cast<std::int32_t>(b);
      }
    }
    ASSERT_GE(shared, 0) << "the reader found what the donor had computed";
    run(app, user, fmt::format("cursor.goto={}/1/attn_norm", at));
    const StepTrace& step = *now.trace(at);
    const SessionInfo& info = *now.info;
    EXPECT_TRUE(block_state(info, step, shared).starts_with("held by donor and reader"));
    std::vector<std::int32_t> blocks = {shared, step.free_list.front(),
                                        find_request(step, 1)->tables.back().back()};
    run(app, user, "layout.cache");
    for (const std::int32_t block : blocks) {
      SCOPED_TRACE(block);
      const std::string state = block_state(info, step, block);
      app.bench().select(block_selection(info, step, app.selection(), block));
      user.settle();
      user.show("cache");
      run(app, user, "cache.tab=life");
      EXPECT_TRUE(shows(user, fmt::format("Block {} is {}", block, state))) << state;
      user.show("bytes");
      run(app, user, "bytes.source=block");
      const std::string bytes = user.screen();
      // A block that was free in both is of no group.
      const bool said =
          bytes.find(fmt::format(", {}", state)) != std::string::npos ||
          bytes.find(fmt::format("Block {} is {}", block, state)) != std::string::npos;
      EXPECT_TRUE(said) << state << "\n" << bytes;
      EXPECT_TRUE(
          describe_block(info, step, block).starts_with(fmt::format("block {}: {}", block, state)));
      const SelectionView selected =
          selection_view({info, step, app.bench().cursor(), app.selection(),
                          app.bench().selected_row(), nullptr, nullptr});
      const auto line = std::ranges::find_if(
          selected.parts.back().lines, [](const SelectionLine& l) { return l.label == "state"; });
      ASSERT_NE(line, selected.parts.back().lines.end());
      EXPECT_TRUE(line->text.starts_with(state)) << line->text;
    }
    // The bytes themselves are the session's: later ones.
    app.bench().select(block_selection(info, step, app.selection(), shared));
    user.settle();
    user.show("bytes");
    EXPECT_TRUE(shows(user, fmt::format("bytes as after step {}", now.last.step)));
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

TEST_F(TruthOfCaptures, StepsAreAllThatWereRecorded) {
  DrivenApp app(References::kNone);
  app.drive([&](User& user) {
    open(app, user, small_scenario(90, 40), {"cpu"}, References::kNone);
    const std::string path = (folder_ / "all.acap").string();
    run(app, user, "capture.record=full:" + path);
    run(app, user, "file.open_capture=" + path);
    ASSERT_NE(app.bench().capture(), nullptr);
    const int layer = layer_of_ratio(*app.bench().snapshot()->info, 4);
    const auto& steps = app.bench().capture()->summaries();
    ASSERT_GE(steps.size(), 5u);
    run(app, user, fmt::format("cursor.goto={}/{}/indexer_topk", steps.back()->step, layer));
    app.bench().select_token(0, -1);
    std::int64_t first = -1, last = -1;
    for (const auto& summary : steps) {
      const auto trace = *app.bench().capture()->trace(summary->step);
      if (last_row_of(*trace, 0) < 0) continue;
      if (first < 0) first = summary->step;
      last = summary->step;
    }
    ASSERT_LT(first + 2, last) << "more than what is at hand around the cursor";
    user.show("top_k");
    run(app, user, "top_k.steps");
    user.wait_for("top_k");
    EXPECT_TRUE(shows(user, fmt::format("Steps {}-{}: ", first, last))) << user.screen();
  });
}

// Around the cursor two steps are at hand; what is said is said of all.
TEST_F(TruthOfCaptures, HistoryLifeAndWhyAreOfAllThatWasRecorded) {
  DrivenApp app(References::kNone);
  app.drive([&](User& user) {
    open(app, user, small_scenario(90, 40), {"cpu"}, References::kNone);
    const std::string path = (folder_ / "whole.acap").string();
    run(app, user, "capture.record=full:" + path);
    run(app, user, "why.part=contributions");
    run(app, user, "file.open_capture=" + path);
    ASSERT_NE(app.bench().capture(), nullptr);
    const int layer = layer_of_ratio(*app.bench().snapshot()->info, 4);
    const auto& steps = app.bench().capture()->summaries();
    std::int64_t with_row = 0, last = -1;
    for (const auto& summary : steps) {
      if (last_row_of(**app.bench().capture()->trace(summary->step), 0) < 0) continue;
      ++with_row;
      last = summary->step;
    }
    run(app, user, fmt::format("cursor.goto={}/{}/sparse_attention", last, layer));
    app.bench().select_token(0, -1);
    const auto at_hand = static_cast<std::int64_t>(app.bench().snapshot()->traces.size());
    ASSERT_LT(at_hand, with_row);

    user.show("tensor");
    run(app, user, "tensor.as=history");
    user.wait_for("tensor");
    EXPECT_TRUE(shows(user, fmt::format("over {} recorded steps", with_row))) << user.screen();

    const std::int32_t block = app.bench().step()->requests[0].tables[0][0];
    ASSERT_GT(block, 0);
    std::int64_t events = 0;
    for (const auto& summary : steps) {
      const auto trace = *app.bench().capture()->trace(summary->step);
      events += std::ranges::count(trace->cache_events, block, &CacheEvent::block);
    }
    ASSERT_GT(events, 0);
    Selection chosen = app.bench().selection();
    chosen.group = 0;
    chosen.block = block;
    chosen.row = 0;
    app.bench().select(chosen);
    user.show("cache");
    run(app, user, "cache.tab=life");
    user.wait_for("cache");
    EXPECT_TRUE(shows(
        user, fmt::format("{} in all {} steps.", counted(events, "event", "events"), steps.size())))
        << user.screen();

    user.show("why");
    user.wait_for("why");
    EXPECT_TRUE(shows(user, " window rows with ")) << user.screen();
    EXPECT_FALSE(shows(user, "are not known")) << user.screen();
    user.look_at("why");
    user.ctx->ItemClick("**/writes of the slot");
    user.wait_for("why");
    EXPECT_TRUE(shows(user, fmt::format("In the {} recorded steps.", steps.size())))
        << user.screen();
    EXPECT_FALSE(shows(user, "No step wrote this slot")) << user.screen();
  });
}

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

// A step of more tokens than a trace keeps: what is named can be seen.
TEST(Truth, TheWorstElementIsOneThatIsKeptAndTheOneTheTensorShows) {
  DrivenApp app;
  app.drive([&](User& user) {
    Scenario scenario = small_scenario(200, 2);
    scenario.limits = {256, 8};
    open(app, user, scenario);
    const int layer = layer_of_ratio(*app.bench().snapshot()->info, 4);
    run(app, user, fmt::format("cursor.goto=0/{}/attn_norm", layer));
    const auto held = app.bench().shared_snapshot();
    const StepTrace& step = *held->trace(0);
    ASSERT_LT(step.kept.size(), step.metadata.positions.size()) << "some rows are not kept";
    std::int64_t elsewhere = 0;
    for (const auto& op : step.ops) {
      if (op->place.layer != layer) continue;
      for (const TapResult& result : op->results) {
        const TapCopy* tap = op->tap(result.tap);
        const ShownResult shown = shown_result(step, *op, result);
        elsewhere += shown.elsewhere ? 1 : 0;
        if (tap == nullptr || !shown.result.worst) continue;
        const auto& index = shown.result.worst->index;
        EXPECT_GE(step.kept_index(index[0]), 0) << as_op_find(op->place.op)->name;
        const TapIndex at = worst_index(step, *op, *tap, shown);
        ASSERT_EQ(at.rank, tap->value.rank);
        EXPECT_EQ(element_at(tap->value, at), shown.result.worst->value);
        if (!shown.elsewhere || elsewhere > 3) continue;
        // On the screen.
        SCOPED_TRACE(std::string(as_op_find(op->place.op)->name) + "." + result.tap);
        run(app, user, fmt::format("cursor.goto=0/{}/{}", layer, as_op_find(op->place.op)->name));
        run(app, user, "tensor.tap=" + result.tap);
        run(app, user, "error.show_difference");
        EXPECT_EQ(app.selection().element, index);
        EXPECT_EQ(app.bench().selected_row(), index[0]);
        user.wait_for("tensor");
        const std::string screen = user.screen();
        EXPECT_NE(screen.find("worst kept"), std::string::npos);
        EXPECT_NE(screen.find(worst_text(step, shown.result)), std::string::npos);
        EXPECT_NE(screen.find("at " + element_text(step, *op, *tap, at)), std::string::npos)
            << screen;
        run(app, user, "tensor.largest");
        EXPECT_EQ(app.selection().element, index);
      }
    }
    EXPECT_GT(elsewhere, 0) << "of many taps the worst row of some is not kept";
  });
}

}  // namespace driven_truth_test
}  // namespace attnscope::gui
