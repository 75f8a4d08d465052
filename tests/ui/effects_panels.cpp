#include <fmt/format.h>

#include <filesystem>
#include <fstream>

#include "app/gui/file_dialog.h"
#include "app/reports/causes_run.h"
#include "app/reports/what_if_run.h"
#include "app/views/events_view.h"
#include "app/wiring/wiring.h"
#include "engine/golden/golden_run.h"
#include "tests/ui/command_effects.h"

namespace attnscope::gui {
namespace {

// The panel looks different after each of these.
std::function<void(Trial&)> changes(const char* panel, const std::vector<std::string>& commands) {
  return [=](Trial& t) {
    t.user.show(panel);
    std::uint64_t before = t.picture(panel);
    EXPECT_EQ(t.picture(panel), before) << "nothing moves by itself";
    for (const std::string& command : commands) {
      t.run(command);
      const std::uint64_t now = t.picture(panel);
      EXPECT_NE(now, before) << command;
      before = now;
    }
    const std::string id = commands[0].substr(0, commands[0].find('='));
    EXPECT_FALSE(t.app->commands().run(id + "=nothing of the kind"));
  };
}

// Steps between two places of the timeline, in a session longer than it is wide.
std::int64_t visible_steps(Trial& t) {
  const auto step_at = [&](float x) {
    t.user.look_at("timeline");
    t.user.click("steps", x, 0.4f);
    t.user.settle();
    return t.cursor().step;
  };
  const std::int64_t first = step_at(0.2f);
  return step_at(0.8f) - first;
}

void open_long_session(Trial& t) {
  RunSetup setup;
  setup.scenario = small_scenario(40, 60);
  setup.references = References::kNone;
  t.bench().open(std::move(setup), true);
  t.user.settle();
  t.run("run.until_end");
}

// Two goldens of one op each, with accepted values that no lane gives.
void make_goldens(const std::string& folder) {
  for (const char* name : {"first", "second"}) {
    std::ofstream(folder + "/" + name + ".golden.json")
        << R"({"format": "attnscope-golden", "version": 1, "about": "a norm", "op": "attn_norm",
               "cases": [{"name": "one", "lengths": [4]}]})";
    auto goldens = GoldenFolder::open(folder);
    ASSERT_TRUE(goldens);
    run_golden(*goldens, name, all_lanes(), {});
    GoldenOrigin origin;
    origin.reason = "of old";
    ASSERT_TRUE(goldens->accept(name, origin));
    auto values = goldens->values(name, kAcceptedSuffix);
    ASSERT_TRUE(values);
    values->taps[0].values[0] = 123.5;
    std::ofstream(folder + "/" + name + kAcceptedSuffix) << golden_values_text(*values);
    EXPECT_EQ(run_golden(*goldens, name, all_lanes(), {}).state, GoldenState::kFailed);
  }
}

// What the review does, in one go: each of its commands leads to the next.
void review_goldens(Trial& t) {
  EXPECT_FALSE(t.app->commands().run("review.skip")) << "nothing is pending";
  EXPECT_FALSE(t.app->commands().run("review.open=" + t.folder + "/nowhere"));
  const std::string folder = t.folder + "/goldens";
  std::filesystem::remove_all(folder);
  std::filesystem::create_directories(folder);
  make_goldens(folder);
  t.run("layout.review");
  // File, Open and a drop take the folder too.
  EXPECT_EQ(opening_command(folder), "review.open=" + folder);
  EXPECT_EQ(opening_command(t.folder), "scenario.open=" + t.folder);
  t.run("scenario.open=" + folder);
  EXPECT_TRUE(t.in_front("review"));
  EXPECT_TRUE(t.shows("2 of 2 goldens in"));
  t.run("review.open=" + folder);
  EXPECT_TRUE(t.in_front("review"));
  EXPECT_TRUE(t.shows("2 of 2 goldens in"));
  EXPECT_TRUE(t.shows("first: y of one is wrong"));
  EXPECT_TRUE(t.shows("of old"));
  EXPECT_TRUE(t.shows("123.5"));
  t.run("review.skip");
  EXPECT_TRUE(t.shows("second: y of one is wrong"));
  t.run("review.select=first");
  EXPECT_TRUE(t.shows("first: y of one is wrong"));
  EXPECT_FALSE(t.app->commands().run("review.select=third"));
  t.user.look_at("review");
  t.user.ctx->ComboClick("##golden/second");
  t.user.wait(2);
  EXPECT_TRUE(t.shows("second: y of one is wrong"));
  t.run("review.select=first");
  EXPECT_FALSE(t.app->commands().run("review.accept= ")) << "no reason";
  // As a user does it: a reason, and the button.
  t.user.look_at("review");
  t.user.ctx->ItemInputValue("##reason", "the weights are new");
  t.user.settle();
  auto accepted = GoldenFolder::open(folder)->values("first", kAcceptedSuffix);
  ASSERT_TRUE(accepted);
  EXPECT_EQ(accepted->origin.reason, "the weights are new");
  EXPECT_NE(accepted->taps[0].values[0], 123.5);
  EXPECT_TRUE(t.shows("1 accepted, 0 rejected"));
  t.run("review.reject");
  EXPECT_TRUE(t.shows("None of the 2 goldens"));
  EXPECT_TRUE(t.shows("Nothing waits for a decision."));
  EXPECT_TRUE(GoldenFolder::open(folder)->pending().empty());
  EXPECT_FALSE(t.app->commands().run("review.reject"));
  // Of a new golden all that was received is shown, and no budget that was not measured.
  std::filesystem::remove(folder + "/second" + kAcceptedSuffix);
  auto goldens = GoldenFolder::open(folder);
  ASSERT_TRUE(goldens);
  run_golden(*goldens, "second", all_lanes(), {});
  t.run("review.open=" + folder);
  EXPECT_TRUE(t.shows("second: new: 1 value"));
  EXPECT_TRUE(t.shows("discs accepted, rings received."));
  EXPECT_TRUE(t.shows("element "));
}

// Asked of a planted bug: the mistakes that give its output are named, and the session stays.
void ask_causes(Trial& t) {
  t.run("lane.set=sparse_attention=mutant:sink_scaled");
  t.run("cursor.first_failure");
  const Place failed = t.cursor();
  t.run("error.causes");
  ASSERT_TRUE(t.bench().causes());
  EXPECT_EQ(t.bench().causes()->place, failed);
  const std::string named = t.bench().causes()->why.causes().front();
  EXPECT_NE(named.find("mutant:sink_scaled"), std::string::npos) << named;
  EXPECT_TRUE(t.shows("mutant:sink_scaled gives the same output"));
  EXPECT_EQ(t.cursor(), failed);
  t.run("lane.set=q_rope_kv_insert=mutant:codes_cut_off");
  t.run("cursor.first_failure");
  t.run("error.causes");
  EXPECT_TRUE(t.shows("codes of all blocks, no scale")) << "rows of a cache have a pattern, too";
  t.run("lane.set=cpu");
  EXPECT_FALSE(t.bench().causes()) << "those were of another session";
}

// Asked of a planted bug: the op's own error is found, with what removes it; the session stays.
void ask_what_if(Trial& t) {
  t.user.show("why");
  t.run("why.what_if");
  ASSERT_TRUE(t.bench().what_if());
  EXPECT_EQ(t.bench().what_if()->place, t.cursor());
  EXPECT_TRUE(t.bench().what_if()->changes.front().right());
  EXPECT_TRUE(t.shows("The op is right as it ran"));
  EXPECT_TRUE(t.shows("no sink"));

  t.run("lane.set=sparse_attention=mutant:sink_scaled");
  EXPECT_FALSE(t.bench().what_if()) << "that was of another session";
  t.run("cursor.first_failure");
  EXPECT_EQ(t.cursor().op, AS_OP_SPARSE_ATTENTION);
  const Place failed = t.cursor();
  t.user.look_at("why");
  t.user.ctx->ItemClick("###ask");
  t.user.settle();
  ASSERT_TRUE(t.bench().what_if());
  EXPECT_EQ(t.bench().what_if()->place, failed);
  EXPECT_FALSE(t.bench().what_if()->changes.front().right());
  const std::string& said = t.bench().what_if()->sentence;
  EXPECT_NE(said.find("The error goes away with: no sink."), std::string::npos) << said;
  EXPECT_NE(said.find("lane cpu"), std::string::npos) << said;
  EXPECT_TRUE(t.shows("goes away"));
  EXPECT_EQ(t.cursor(), failed);

  t.run("cursor.goto=" + std::to_string(failed.step) + "/-/swa_index");
  EXPECT_FALSE(t.app->commands().run("why.what_if")) << "there is nothing to change in lists";
  t.run("cursor.goto=" + std::to_string(failed.step) + "/3/wo_b");
  ASSERT_TRUE(t.app->commands().run("why.what_if"));
  EXPECT_FALSE(t.app->commands().run("why.what_if")) << "one at a time";
  t.run("run.cancel");
  EXPECT_TRUE(t.app.said("Stopped: a what-if is being computed."));
  EXPECT_EQ(t.bench().what_if()->place, failed);
  EXPECT_FALSE(t.bench().busy());
}

// A session with a planted bug beside a capture without it, in one go.
void compare_runs(Trial& t) {
  EXPECT_FALSE(t.app->commands().run("compare.first")) << "nothing is compared";
  EXPECT_FALSE(t.app->commands().run("compare.open=/no/such.acap"));
  // Why a comparison was given up is the answer to whoever asks for its result.
  t.run("compare.open=" ATTNSCOPE_SOURCE_DIR "/tests/fixtures/83b8554/short.acap");
  t.user.wait_for("compare");
  const auto refused = t.app->commands().run("compare.first");
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.error().text().find("other dimensions or layers"), std::string::npos)
      << refused.error().text();
  t.run("compare.close");
  const std::string path = t.folder + "/right.acap";
  std::filesystem::remove_all(path);
  t.run("capture.record=full:" + path);
  t.user.settle();
  t.run("layout.compare");
  EXPECT_TRUE(t.in_front("compare"));
  EXPECT_TRUE(t.shows("Another run beside this one"));
  t.run("compare.open=" + path);
  t.user.wait_for("compare");
  EXPECT_TRUE(t.shows("No op's output differs beyond its tolerance"));
  t.run("compare.next");
  EXPECT_TRUE(t.app.said("No op behind this one differs"));
  t.run("compare.close");
  EXPECT_TRUE(t.shows("Another run beside this one"));

  t.run("lane.set=swa_index=mutant:window_off_by_one");
  t.user.settle();
  t.run("compare.open=" + path);
  t.user.wait_for("compare");
  EXPECT_TRUE(t.shows("swa_index in step"));
  EXPECT_TRUE(t.shows("is where they part: its inputs agree"));
  t.run("compare.first");
  t.user.settle();
  EXPECT_EQ(t.cursor().op, AS_OP_SWA_INDEX);
  EXPECT_EQ(t.selection().tap, "indices");
  EXPECT_FALSE(t.selection().element.empty()) << "the element that differs most is selected";
  t.run("compare.tab=ops");
  EXPECT_TRUE(t.shows("begins here"));
  const Place first = t.cursor();
  t.run("compare.next");
  t.user.settle();
  EXPECT_NE(t.cursor(), first);
  t.run(fmt::format("cursor.goto={}/0/sparse_attention", first.step));
  t.user.settle();
  t.run("compare.tab=values");
  EXPECT_TRUE(t.shows("values differ, by"));
  t.run("compare.tab=lists");
  EXPECT_TRUE(t.shows("in the second alone"));
  const auto rows = [&t] {
    t.user.look_at("compare");
    return t.user.numbers("##row ").size();
  };
  const std::size_t all = rows();
  t.run("compare.differences");
  EXPECT_LT(rows(), all);
  EXPECT_GT(rows(), 0u);
  EXPECT_TRUE(t.shows("in the second alone"));
  t.run("compare.tab=steps");
  // The recording ended with the scenario's decode steps, the session with its last request.
  EXPECT_TRUE(t.shows("1 step in one of them alone."));
  EXPECT_EQ(rows(), 1u);
  t.run("compare.differences");
  EXPECT_EQ(rows(), t.bench().snapshot()->steps.size());
  // Steps of either timeline are gone to.
  const std::int64_t last = t.bench().snapshot()->steps.back()->step;
  for (const float y : {0.2f, 0.8f}) {
    t.user.look_at("compare");
    const ImRect at = t.user.rect("##timelines");
    const float names = ImGui::CalcTextSize("second ").x;
    const float column = std::min((at.GetWidth() - names) / static_cast<float>(last + 1), px(40));
    t.user.click({at.Min.x + names + column * 2.5f, at.Min.y + y * at.GetHeight()});
    t.user.settle();
    EXPECT_EQ(t.cursor().step, 2) << y;
    t.run(fmt::format("cursor.goto={}/0/sparse_attention", first.step));
  }
  t.run("compare.tab=tables");
  EXPECT_TRUE(t.shows("SWA"));
  EXPECT_TRUE(t.shows("of the block tables: the same blocks in both."));
  // A row selects its block, of a list the row in it; the token stays.
  const Selection before = t.selection();
  for (const char* tab : {"tables", "lists"}) {
    t.run(std::string("compare.tab=") + tab);
    const bool lists = std::string_view(tab) == "lists";
    t.user.look_at("compare");
    const auto shown = t.user.numbers("##row ");
    ASSERT_FALSE(shown.empty()) << tab;
    // The oldest row of the window is in the second alone.
    const std::int64_t row = lists ? shown.back() : shown.front();
    t.user.ctx->ItemClick(fmt::format("**/##row {}", row).c_str());
    t.user.settle();
    EXPECT_GT(t.selection().block, 0) << tab;
    EXPECT_EQ(t.selection().row >= 0, lists);
    EXPECT_EQ(t.selection().position, before.position) << tab;
  }
  EXPECT_FALSE(t.app->commands().run("compare.tab=everything"));
  t.run("compare.close");
  EXPECT_TRUE(t.shows("Another run beside this one"));
  t.run("lane.set=cpu");
  t.user.settle();
}

}  // namespace

Effects panel_effects() {
  Effects e;
  for (const char* id : {"compare.open", "compare.first", "compare.next", "compare.close",
                         "compare.tab", "compare.differences"}) {
    e[id] = compare_runs;
  }
  for (const char* id :
       {"review.open", "review.select", "review.accept", "review.reject", "review.skip"}) {
    e[id] = review_goldens;
  }
  e["timeline.zoom_in"] = [](Trial& t) {
    open_long_session(t);
    const std::int64_t before = visible_steps(t);
    t.run("timeline.zoom_in");
    EXPECT_LT(visible_steps(t), before);
    EXPECT_FALSE(t.app.checked("timeline.fit"));
  };
  e["timeline.zoom_out"] = [](Trial& t) {
    open_long_session(t);
    t.run("timeline.zoom_in");
    t.run("timeline.zoom_in");
    const std::int64_t before = visible_steps(t);
    t.run("timeline.zoom_out");
    EXPECT_GT(visible_steps(t), before);
  };
  e["timeline.fit"] = [](Trial& t) {
    open_long_session(t);
    const std::int64_t before = visible_steps(t);
    t.run("timeline.zoom_in");
    t.run("timeline.fit");
    EXPECT_TRUE(t.app.checked("timeline.fit"));
    EXPECT_EQ(visible_steps(t), before);
  };
  e["time.zoom_op"] = [](Trial& t) {
    t.run("panel.time");
    const std::uint64_t all = t.picture("time");
    t.run("time.zoom_op");
    EXPECT_TRUE(t.app.checked("time.zoom_op"));
    EXPECT_NE(t.picture("time"), all);
    // A click in the middle meets the op that it was zoomed to.
    const Place here = t.cursor();
    t.user.look_at("time");
    t.run("time.zoom_op");
    EXPECT_FALSE(t.app.checked("time.zoom_op"));
    EXPECT_EQ(t.cursor(), here);
    // The wheel does the same.
    t.user.look_at("time");
    const ImRect at = t.user.rect("##time");
    t.user.ctx->MouseMoveToPos(at.GetCenter());
    t.user.ctx->MouseWheelY(4);
    t.user.wait(2);
    EXPECT_TRUE(t.app.checked("time.zoom_op"));
    t.run("time.zoom_op");
    EXPECT_FALSE(t.app.checked("time.zoom_op"));
  };
  e["time.layer"] = [](Trial& t) {
    const bool before = t.app.checked("time.layer");
    t.run("time.layer");
    EXPECT_NE(t.app.checked("time.layer"), before);
    t.run("time.layer");
    EXPECT_EQ(t.app.checked("time.layer"), before);
  };
  e["timeline.follow"] = [](Trial& t) {
    const bool before = t.app.checked("timeline.follow");
    t.run("timeline.follow");
    EXPECT_NE(t.app.checked("timeline.follow"), before);
  };
  e["block.next"] = [](Trial& t) {
    t.run("block.next");
    const std::int32_t first = t.selection().block;
    EXPECT_GT(first, 0);
    t.run("select.block=" + std::to_string(t.bench().step()->requests[0].tables[4].back()));
    const std::int32_t last = t.selection().block;
    t.run("block.previous");
    t.run("block.next");
    EXPECT_EQ(t.selection().block, last);
  };
  e["block.previous"] = [](Trial& t) {
    const auto& table = t.bench().step()->requests[0].tables[4];
    t.run("select.block=" + std::to_string(table.back()));
    t.run("block.previous");
    EXPECT_EQ(t.selection().block, table[table.size() - 2]);
    EXPECT_EQ(t.selection().group, 4);
  };
  e["block.next_group"] = [](Trial& t) {
    t.run("block.next_group");
    const int first = t.selection().group;
    EXPECT_GE(first, 0);
    t.run("block.next_group");
    EXPECT_NE(t.selection().group, first);
    EXPECT_GT(t.selection().block, 0);
  };
  e["pool.free_order"] = [](Trial& t) {
    const bool before = t.settings().free_list_order;
    t.run("pool.free_order");
    EXPECT_NE(t.settings().free_list_order, before);
    EXPECT_EQ(t.app.checked("pool.free_order"), !before);
    t.run("settings.undo");
    EXPECT_EQ(t.settings().free_list_order, before);
  };
  e["cache.tab"] = [](Trial& t) {
    t.run("layout.cache");
    t.run("panel.pool");
    t.run("cache.tab=free");
    EXPECT_TRUE(t.in_front("cache"));
    std::uint64_t before = 0;
    for (const char* tab : {"life", "free", "prefixes", "common", "requests", "usage", "dead",
                            "checks", "stream", "slab"}) {
      t.run(std::string("cache.tab=") + tab);
      const std::uint64_t now = t.picture("cache");
      EXPECT_NE(now, before) << tab;
      before = now;
    }
    EXPECT_FALSE(t.app->commands().run("cache.tab=dreams"));
    // Bars stand right of the axis, and each is its step's.
    t.run("cache.tab=usage");
    EXPECT_TRUE(t.shows("blocks, step by step"));
    t.user.look_at("cache");
    const ImRect bars = t.user.rect("##usage");
    const auto steps = static_cast<float>(t.bench().snapshot()->steps.size());
    const float bar = std::min(bars.GetWidth() / steps, px(24));
    t.user.click({bars.Min.x + 1.5f * bar, bars.Min.y + bars.GetHeight() / 2});
    t.user.settle();
    EXPECT_EQ(t.cursor().step, t.bench().snapshot()->steps[1]->step);
  };
  const auto events = [](Trial& t) {
    const std::string path = t.folder + "/events.jsonl";
    std::ofstream(path) << R"([1.5, [["BlockStored", [11, 12], null, [1, 2, 3, 4], 2]]]
[2.0, [["BlockRemoved", [12]], ["BlockStored", [13], 11, [7, 8], 2]]]
)";
    t.run("layout.cache");
    t.run("panel.cache");
    t.run("file.open_events=" + path);
    t.user.wait_for("cache");
    EXPECT_TRUE(t.shows("After batch 2 of 2: 2 keys find 2 blocks in 1 group"));
    EXPECT_TRUE(t.shows("7 8"));
    t.run("cache.batch=1");
    t.user.wait_for("cache");
    EXPECT_TRUE(t.shows("After batch 1 of 2"));
    EXPECT_FALSE(t.shows("7 8"));
    EXPECT_FALSE(t.app->commands().run("cache.batch=3"));
    EXPECT_FALSE(t.app->commands().run("cache.batch=x"));
    std::ofstream(path) << "[1.5, [[\"BlockMoved\"]]]";
    EXPECT_TRUE(t.app->commands().run("file.open_events=" + path));
    t.user.settle();
    EXPECT_NE(t.bench().messages().back().text.find("BlockMoved"), std::string::npos);
    EXPECT_EQ(t.bench().events()->batches.size(), 2u) << "the one before stays";
  };
  e["file.open_events"] = events;
  e["cache.batch"] = events;
  e["backends.ask"] = changes(
      "backends", {"backends.ask=gpu=rocm", "backends.ask=dtype=float32", "backends.ask=gpu=cpu"});
  e["backends.reset"] = [](Trial& t) {
    t.user.show("backends");
    t.run("backends.ask=gpu=cpu");
    t.run("backends.reset");
    const std::uint64_t before = t.picture("backends");
    EXPECT_FALSE(t.app->commands().run("backends.reset")) << "nothing else is asked";
    t.run("backends.ask=gpu=xpu");
    EXPECT_NE(t.picture("backends"), before);
    t.run("backends.reset");
    EXPECT_EQ(t.picture("backends"), before);
  };
  e["top_k.order"] = [](Trial& t) {
    t.run("top_k.order=entry");
    t.run("top_k.next_entry");
    EXPECT_EQ(t.selection().entry, 0);
    t.run("select.none");
    t.run("top_k.order=rank");
    t.run("top_k.next_entry");
    EXPECT_NE(t.selection().entry, 0) << "the best one is another";
    EXPECT_TRUE(t.shows("rank 1 of 38"));
    EXPECT_FALSE(t.app->commands().run("top_k.order=alphabet"));
  };
  e["top_k.steps"] = [](Trial& t) {
    t.user.show("top_k");
    t.run("top_k.steps");
    EXPECT_TRUE(t.app.checked("top_k.steps"));
    EXPECT_FALSE(t.shows("By entry"));
    t.run("top_k.steps");
    EXPECT_TRUE(t.shows("By entry"));
  };
  e["top_k.next_entry"] = [](Trial& t) {
    t.run("top_k.order=entry");
    t.run("select.entry=6");
    t.run("top_k.next_entry");
    EXPECT_EQ(t.selection().entry, 7);
    EXPECT_EQ(t.selection().row, 7);
  };
  e["top_k.previous_entry"] = [](Trial& t) {
    t.run("top_k.order=entry");
    t.run("select.entry=6");
    t.run("top_k.previous_entry");
    EXPECT_EQ(t.selection().entry, 5);
  };
  e["tensor.view"] = changes("tensor", {"tensor.view=reference", "tensor.view=difference",
                                        "tensor.view=before", "tensor.view=value"});
  e["tensor.as"] = changes(
      "tensor", {"tensor.as=numbers", "tensor.as=heat", "tensor.as=history", "tensor.as=heat"});
  e["tensor.tap"] = [](Trial& t) {
    t.run("tensor.tap=lse");
    ASSERT_NE(t.bench().selected_tap(), nullptr);
    EXPECT_EQ(t.bench().selected_tap()->name, "lse");
    EXPECT_FALSE(t.app->commands().run("tensor.tap=no tap"));
  };
  e["tensor.largest"] = [](Trial& t) {
    t.user.show("tensor");
    // Which of both outputs has an element that differs is up to the numbers.
    const char* tap = t.bench().op()->result("lse")->worst ? "lse" : "o";
    t.run(fmt::format("tensor.tap={}", tap));
    t.user.wait(20);  // the differences are read in slices of time
    t.run("tensor.largest");
    const TapResult& result = *t.bench().op()->result(tap);
    ASSERT_TRUE(result.worst);
    EXPECT_EQ(t.selection().element, result.worst->index) << "the one that the error panel names";
  };
  e["tensor.copy"] = [](Trial& t) {
    t.user.show("tensor");
    t.run("tensor.tap=lse");
    t.run("tensor.copy");
    const std::string text = t.clipboard();
    EXPECT_NE(text.find(','), std::string::npos) << text.substr(0, 80);
    EXPECT_GE(std::count(text.begin(), text.end(), '\n'), 3) << "a line a token, and a header";
  };
  e["bytes.source"] = [](Trial& t) {
    t.run("cursor.goto=7/3/q_rope_kv_insert");
    t.user.show("bytes");
    t.run("select.block=2");
    t.run("bytes.source=op");
    EXPECT_TRUE(t.shows("Row of token"));
    t.run("bytes.source=block");
    EXPECT_FALSE(t.shows("Row of token"));
  };
  e["bytes.form"] = [](Trial& t) {
    t.run("cursor.goto=7/3/q_rope_kv_insert");
    changes("bytes", {"bytes.form=values", "bytes.form=codes", "bytes.form=hex"})(t);
  };
  const auto bar_of = [](Trial& t, const char* label) {
    t.user.look_at("error");
    return t.user.ctx->ItemExists((std::string("**/") + label).c_str());
  };
  e["error.scope"] = [bar_of](Trial& t) {
    t.run("error.scope=layer");
    EXPECT_TRUE(bar_of(t, "sparse_attention##17"));
    t.run("error.scope=step");
    EXPECT_FALSE(bar_of(t, "sparse_attention##17"));
    t.run("error.scope=run");
    t.run("error.scope=layer");
    EXPECT_TRUE(bar_of(t, "sparse_attention##17"));
    EXPECT_FALSE(t.app->commands().run("error.scope=world"));
  };
  e["error.figure"] =
      changes("error", {"error.figure=cosine", "error.figure=rel", "error.figure=abs"});
  e["error.show_difference"] = [](Trial& t) {
    t.run("panel.bytes");
    t.run("error.show_difference");
    EXPECT_FALSE(t.selection().tap.empty());
    EXPECT_FALSE(t.selection().element.empty());
    EXPECT_TRUE(t.in_front("tensor"));
  };
  e["why.what_if"] = ask_what_if;
  e["error.causes"] = ask_causes;
  e["why.part"] = changes("why", {"why.part=left_out", "why.part=writes", "why.part=pooled",
                                  "why.part=what_if", "why.part=contributions"});
  e["events.show"] = [](Trial& t) {
    t.run("panel.events");
    t.bench().say(Message::Kind::kInfo, "a message of the test");
    t.run("events.show=log");
    EXPECT_TRUE(t.shows(log_sentence(t.bench().messages())));
    t.run("events.show=events");
    EXPECT_FALSE(t.shows(log_sentence(t.bench().messages())));
    t.run("stop.add=evict");
    t.run("events.show=stops");
    EXPECT_TRUE(t.shows("evict"));
    t.run("stop.remove=evict");
    EXPECT_TRUE(t.shows("name it below"));
    t.run("events.show=events");
    EXPECT_FALSE(t.app->commands().run("events.show=both"));
  };
  e["events.toggle"] = [](Trial& t) {
    t.run("panel.events");
    const auto kind = static_cast<std::uint32_t>(event_kind_by_name("allocate"));
    const EventsView all = events_view(*t.bench().snapshot(), kAllEventKinds, 10000);
    const EventsView fewer =
        events_view(*t.bench().snapshot(), kAllEventKinds ^ (1u << kind), 10000);
    EXPECT_TRUE(t.shows(std::to_string(all.rows.size()) + " ["));
    t.run("events.toggle=allocate");
    EXPECT_TRUE(t.shows(std::to_string(fewer.rows.size()) + " ["));
    EXPECT_FALSE(t.app->commands().run("events.toggle=nothing"));
  };
  e["events.copy_log"] = [](Trial& t) {
    t.bench().say(Message::Kind::kInfo, "a message of the test");
    t.run("events.copy_log");
    EXPECT_EQ(t.clipboard(), log_text(t.bench().messages()));
  };
  e.merge(history_effects());
  return e;
}

}  // namespace attnscope::gui
