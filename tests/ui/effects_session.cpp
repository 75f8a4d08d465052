#include "tests/ui/command_effects.h"

namespace attnscope::gui {
namespace {

using Act = std::function<void(Trial&)>;

// The command moves the cursor from one place to another.
Act moves(const std::string& command, const std::string& from, Place to) {
  return [=](Trial& t) {
    t.run("cursor.goto=" + from);
    t.run(command);
    EXPECT_EQ(t.cursor(), to);
    EXPECT_NE(t.bench().op(), nullptr) << "and its trace is there to see";
  };
}

// The session starts over and runs to its end.
Act runs_to_the_end(const std::string& command) {
  return [=](Trial& t) {
    t.run("session.restart");
    EXPECT_FALSE(t.bench().snapshot()->finished);
    t.run(command);
    EXPECT_TRUE(t.bench().snapshot()->finished);
    EXPECT_EQ(t.bench().snapshot()->steps.size(), 8u);
  };
}

}  // namespace

Effects session_effects() {
  Effects e;
  e["op.forward"] = moves("op.forward", "7/3/wo_a", {7, 3, AS_OP_WO_B});
  e["op.back"] = moves("op.back", "7/3/wo_b", {7, 3, AS_OP_WO_A});
  e["layer.forward"] =
      moves("layer.forward", "7/1/sparse_attention", {7, 2, AS_OP_SPARSE_ATTENTION});
  e["layer.back"] = moves("layer.back", "7/2/sparse_attention", {7, 1, AS_OP_SPARSE_ATTENTION});
  e["step.forward"] = moves("step.forward", "5/3/wo_b", {6, 3, AS_OP_WO_B});
  e["step.back"] = moves("step.back", "5/3/wo_b", {4, 3, AS_OP_WO_B});
  e["cursor.first"] = moves("cursor.first", "5/3/wo_b", {0, 3, AS_OP_WO_B});
  e["cursor.last"] = moves("cursor.last", "5/3/wo_b", {7, 3, AS_OP_WO_B});
  e["cursor.goto"] = moves("cursor.goto=2/-/block_tables", "5/3/wo_b", {2, -1, AS_OP_BLOCK_TABLES});
  e["cursor.first_failure"] = [](Trial& t) {
    const Place before = t.cursor();
    t.run("cursor.first_failure");
    EXPECT_EQ(t.cursor(), before);
    EXPECT_TRUE(t.app.said("No tap that was compared so far is wrong."));
    RunSetup setup;
    setup.scenario = small_scenario(20, 2);
    setup.references = References::kSim;
    t.bench().open(std::move(setup), true);
    t.user.settle();
    t.bench().plant("sink_scaled");
    t.user.settle();
    t.run("cursor.goto=0/1/q_b_proj");
    t.run("cursor.first_failure");
    EXPECT_EQ(t.cursor().op, AS_OP_SPARSE_ATTENTION);
    EXPECT_EQ(t.bench().op()->worst, Verdict::kWrong);
    // The difference is shown, at the element.
    t.user.show("tensor");
    t.user.wait(4);
    EXPECT_TRUE(t.shows("beyond rounding")) << "a control of the difference";
    EXPECT_EQ(t.selection().element, t.bench().op()->result("o")->worst->index);
    // Wrong rows of a cache are shown as bytes, and what comes behind as a tensor again.
    t.bench().plant("scale_rounded_down");
    t.user.settle();
    t.run("cursor.first_failure");
    t.user.wait(4);
    EXPECT_EQ(t.selection().tap, "cache");
    EXPECT_TRUE(t.in_front("bytes"));
    EXPECT_FALSE(t.in_front("tensor")) << "it lies behind";
    t.bench().plant("sink_scaled");
    t.user.settle();
    t.run("cursor.first_failure");
    t.user.wait(4);
    EXPECT_TRUE(t.in_front("tensor"));
    t.user.show("tensor");
  };
  e["run.back_until"] = [](Trial& t) {
    t.run("cursor.goto=7/3/wo_b");
    t.run("run.back_until=prefill");
    EXPECT_LT(t.cursor().step, 7);
    EXPECT_FALSE(t.bench().summary()->decode_only);
    EXPECT_EQ(t.cursor().op, AS_OP_WO_B);
    const Place before = t.cursor();
    t.run("run.back_until=eviction");
    EXPECT_EQ(t.cursor(), before) << "there was none";
    EXPECT_TRUE(t.app.said("No step before this one"));
    EXPECT_FALSE(t.app->commands().run("run.back_until=tomorrow"));
  };
  e["stop.add"] = [](Trial& t) {
    t.run("stop.add=budget > 0.5 of wo_b");
    ASSERT_FALSE(t.bench().stops().empty());
    EXPECT_EQ(t.bench().stops().back().condition.text(), "budget > 0.5 of wo_b");
    const std::size_t count = t.bench().stops().size();
    t.run("stop.add=budget > 0.5 of wo_b");
    EXPECT_EQ(t.bench().stops().size(), count) << "it was there";
    EXPECT_FALSE(t.app->commands().run("stop.add=budget of wo_b"));
  };
  e["stop.switch"] = [](Trial& t) {
    t.run("stop.add=nan");
    t.run("stop.switch=nan");
    EXPECT_FALSE(t.bench().stops().back().on);
    t.run(fmt::format("stop.switch={}", t.bench().stops().size()));
    EXPECT_TRUE(t.bench().stops().back().on);
    EXPECT_FALSE(t.app->commands().run("stop.switch=0"));
  };
  e["stop.remove"] = [](Trial& t) {
    t.run("stop.add=preempt");
    const std::size_t count = t.bench().stops().size();
    t.run("stop.remove=preempt");
    EXPECT_EQ(t.bench().stops().size(), count - 1);
    EXPECT_FALSE(t.app->commands().run("stop.remove=preempt"));
  };
  e["run.to_stop"] = [](Trial& t) {
    while (!t.bench().stops().empty()) t.bench().remove_stop(0);
    EXPECT_FALSE(t.app->commands().run("run.to_stop")) << "there is none";
    t.run("session.restart");
    t.run("stop.add=finish request 0");
    t.run("run.to_stop");
    EXPECT_TRUE(t.app.said("finish, request 0"));
    ASSERT_NE(t.bench().summary(), nullptr);
    EXPECT_TRUE(t.bench().stop_hit(*t.bench().summary()));
    EXPECT_FALSE(t.bench().busy());
    t.run("stop.switch=finish request 0");
    EXPECT_FALSE(t.app->commands().run("run.to_stop")) << "every one is off";
  };
  e["run.back_to_stop"] = [](Trial& t) {
    while (!t.bench().stops().empty()) t.bench().remove_stop(0);
    t.run("cursor.goto=7/3/wo_b");
    t.run("stop.add=admit request 0");
    t.run("run.back_to_stop");
    EXPECT_EQ(t.cursor().step, 0);
    EXPECT_EQ(t.cursor().op, AS_OP_WO_B) << "blocks are looked at from any op";
    t.run("stop.remove=1");
    t.run("stop.add=null_read");
    t.run("cursor.goto=7/3/wo_b");
    t.run("run.back_to_stop");
    EXPECT_EQ(t.cursor().step, 7);
    EXPECT_TRUE(t.app.said("No stop holds of a step before this one"));
  };
  e["run.until"] = runs_to_the_end("run.until");  // eight steps are all there are
  e["run.until_end"] = runs_to_the_end("run.until_end");
  e["run.until_wrong"] = runs_to_the_end("run.until_wrong");
  e["run.until_selective"] = runs_to_the_end("run.until_selective");  // too short to choose
  e["run.step"] = [](Trial& t) {
    t.run("session.restart");
    t.run("run.step=3");
    EXPECT_EQ(t.bench().snapshot()->cursor.step, 4);
    EXPECT_EQ(t.bench().cursor().step, 3);
  };
  e["run.until_decode"] = [](Trial& t) {
    t.run("session.restart");
    EXPECT_FALSE(t.bench().snapshot()->decoding);
    t.run("run.until_decode");
    EXPECT_TRUE(t.bench().snapshot()->decoding);
    EXPECT_FALSE(t.bench().snapshot()->finished);
  };
  e["run.cancel"] = [](Trial& t) {
    t.run("references.set=sim");  // slow enough to be stopped
    t.run("session.restart");
    EXPECT_FALSE(t.app->commands().run("run.cancel")) << "nothing is running";
    ASSERT_TRUE(t.app->commands().run("run.until_end"));
    ASSERT_TRUE(t.app->commands().run("run.cancel"));
    t.user.settle();
    EXPECT_FALSE(t.bench().busy());
    EXPECT_FALSE(t.bench().snapshot()->finished);
  };
  e["session.restart"] = [](Trial& t) {
    t.run("session.restart");
    EXPECT_EQ(t.bench().snapshot()->cursor.step, 0);
    EXPECT_EQ(t.bench().snapshot()->steps.size(), 0u);
    EXPECT_EQ(t.bench().setup().scenario.name, "small");
  };
  e["lane.set"] = [](Trial& t) {
    t.run("lane.set=wo_a=cpu");
    EXPECT_EQ(t.bench().setup().lanes, (std::vector<std::string>{"cpu", "wo_a=cpu"}));
    EXPECT_FALSE(t.app->commands().run("lane.set=gpu of my neighbour"));
    EXPECT_EQ(t.bench().setup().lanes.size(), 2u);
    t.run("lane.set=wo_b=cpu");
    EXPECT_EQ(t.bench().setup().lanes, (std::vector<std::string>{"cpu", "wo_a=cpu", "wo_b=cpu"}));
    EXPECT_FALSE(t.app->commands().run("lane.set=no_op=cpu"));
    t.run("lane.set=cpu");
    EXPECT_EQ(t.bench().setup().lanes, (std::vector<std::string>{"cpu"}));
  };
  e["references.set"] = [](Trial& t) {
    t.run("references.set=none");
    EXPECT_EQ(t.bench().setup().references, References::kNone);
    EXPECT_EQ(t.bench().op()->worst, Verdict::kNotCompared);
    t.run("references.set=sim");
    EXPECT_EQ(t.bench().setup().references, References::kSim);
    EXPECT_NE(t.bench().op()->worst, Verdict::kNotCompared);
  };
  e["select.token"] = [](Trial& t) {
    t.run("select.token=1/7");
    EXPECT_EQ(t.selection().request, 1);
    EXPECT_EQ(t.selection().position, 7);
    EXPECT_FALSE(t.app->commands().run("select.token=1"));
    EXPECT_FALSE(t.app->commands().run("select.token=7/7"));
    EXPECT_FALSE(t.app->commands().run("select.token=1/99999"));
    EXPECT_EQ(t.selection().position, 7);
  };
  e["select.request"] = [](Trial& t) {
    t.run("select.request=2");
    EXPECT_EQ(t.selection().request, 2);
    EXPECT_EQ(t.selection().position, -1);
    EXPECT_FALSE(t.app->commands().run("select.request=3"));
  };
  e["select.element"] = [](Trial& t) {
    t.run("tensor.tap=o");
    const std::int64_t row = t.bench().step()->kept.back();
    t.run(fmt::format("select.element={}/2/17", row));
    EXPECT_EQ(t.selection().tap, "o");
    EXPECT_EQ(t.selection().element, (std::vector<std::int64_t>{row, 2, 17}));
    for (const char* wrong : {"select.element=0", "select.element=0/2/17/1",
                              "select.element=0/4/17", "select.element=0/2/", "select.element"}) {
      EXPECT_FALSE(t.app->commands().run(wrong)) << wrong;
    }
  };
  e["cursor.computed"] = [](Trial& t) {
    t.run("cursor.computed=0/5");
    EXPECT_EQ(t.cursor(), (Place{0, 3, AS_OP_SPARSE_ATTENTION})) << "the first step of its prompt";
    EXPECT_EQ(t.selection().position, 5);
    EXPECT_FALSE(t.app->commands().run("cursor.computed=0/99999"));
    EXPECT_FALSE(t.app->commands().run("cursor.computed=9/0"));
  };
  e["place.back"] = [](Trial& t) {
    t.run("select.token=1/7");
    t.run("cursor.goto=2/1/q_b_proj");
    t.run("op.forward");  // no jump
    t.run("place.back");
    EXPECT_EQ(t.cursor(), (Place{7, 3, AS_OP_SPARSE_ATTENTION}));
    EXPECT_EQ(t.selection().position, 7);
  };
  e["place.forward"] = [](Trial& t) {
    t.run("cursor.goto=2/1/q_b_proj");
    t.run("cursor.goto=3/1/q_b_proj");
    t.run("place.back");
    t.run("place.forward");
    EXPECT_EQ(t.cursor(), (Place{3, 1, AS_OP_Q_B_PROJ}));
    EXPECT_FALSE(t.app->commands().run("place.forward")) << "it is the newest";
  };
  e["note.add"] = [](Trial& t) {
    t.run("note.add=the sink is large here");
    ASSERT_FALSE(t.bench().notes().empty());
    EXPECT_EQ(t.bench().notes().back().text, "the sink is large here");
    EXPECT_EQ(t.bench().notes().back().place, t.cursor());
    t.run("panel.notes");
    t.user.settle();
    t.user.wait(4);
    EXPECT_TRUE(t.shows("1 note on 1 step"));
    EXPECT_FALSE(t.app->commands().run("note.add"));
    EXPECT_FALSE(t.app->commands().run("note.add=" + std::string(3000, 'x')));
  };
  e["note.bookmark"] = [](Trial& t) {
    t.run("note.bookmark");
    const std::size_t count = t.bench().notes().size();
    EXPECT_EQ(t.bench().notes().back().text, "");
    t.run("note.bookmark");
    EXPECT_EQ(t.bench().notes().size(), count) << "it is marked";
  };
  e["note.goto"] = [](Trial& t) {
    t.run("select.token=1/7");
    t.run("note.add=here");
    t.run("cursor.goto=0/1/q_b_proj");
    t.run("select.token=0/1");
    t.run(fmt::format("note.goto={}", t.bench().notes().size()));
    EXPECT_EQ(t.cursor(), (Place{7, 3, AS_OP_SPARSE_ATTENTION}));
    EXPECT_EQ(t.selection().request, 1);
    EXPECT_EQ(t.selection().position, 7);
    EXPECT_FALSE(t.app->commands().run("note.goto=0"));
  };
  e["note.remove"] = [](Trial& t) {
    t.run("note.add=not for long");
    const std::size_t count = t.bench().notes().size();
    t.run(fmt::format("note.remove={}", count));
    EXPECT_EQ(t.bench().notes().size(), count - 1);
    EXPECT_FALSE(t.app->commands().run("note.remove=99"));
  };
  e["select.next_token"] = [](Trial& t) {
    t.run("select.token=0/100");
    t.run("select.next_token");
    EXPECT_EQ(t.selection().position, 101);
  };
  e["select.previous_token"] = [](Trial& t) {
    t.run("select.token=0/0");
    t.run("select.previous_token");
    EXPECT_EQ(t.selection().position, 0) << "there is none before the first";
    t.run("select.token=0/100");
    t.run("select.previous_token");
    EXPECT_EQ(t.selection().position, 99);
  };
  e["select.newest_token"] = [](Trial& t) {
    t.run("select.token=0/100");
    t.run("select.newest_token");
    EXPECT_EQ(t.selection().position, -1);
    EXPECT_EQ(t.bench().selected_position(), 154);
  };
  e["select.next_request"] = [](Trial& t) {
    for (const std::int32_t request : {1, 2, 0}) {
      t.run("select.next_request");
      EXPECT_EQ(t.selection().request, request);
    }
  };
  e["select.next_head"] = [](Trial& t) {
    t.run("select.head=3");
    t.run("select.next_head");
    EXPECT_EQ(t.selection().head, 0) << "after the last comes the first";
  };
  e["select.previous_head"] = [](Trial& t) {
    t.run("select.previous_head");
    EXPECT_EQ(t.selection().head, 3);
  };
  e["select.head"] = [](Trial& t) {
    t.run("select.head=2");
    EXPECT_EQ(t.selection().head, 2);
    EXPECT_TRUE(t.shows("head 2"));
    EXPECT_FALSE(t.app->commands().run("select.head=8"));
  };
  e["select.block"] = [](Trial& t) {
    t.run("select.block=4");
    EXPECT_EQ(t.selection().block, 4);
    EXPECT_EQ(t.selection().row, -1);
    EXPECT_FALSE(t.app->commands().run("select.block=400"));
  };
  e["select.entry"] = [](Trial& t) {
    t.run("select.entry=7");
    EXPECT_EQ(t.selection().entry, 7);
    EXPECT_TRUE(t.shows("entry 7: tokens"));
    EXPECT_FALSE(t.app->commands().run("select.entry=7/5")) << "no layer has such entries";
  };
  e["select.none"] = [](Trial& t) {
    t.run("select.token=1/7");
    t.run("select.block=4");
    t.run("select.entry=7");
    t.run("select.none");
    Selection cleared;
    cleared.request = 1;
    EXPECT_EQ(t.selection(), cleared);
  };
  return e;
}

}  // namespace attnscope::gui
