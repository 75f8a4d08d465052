#include <fmt/format.h>

#include <chrono>

#include "app/views/number_history.h"
#include "tests/ui/command_effects.h"

namespace attnscope::gui {
namespace {

// Its words stand on the panel, with a value in the step under the cursor.
void follows(Trial& t, const std::string& kind, const std::string& words) {
  t.run("history." + kind);
  EXPECT_TRUE(t.in_front("history"));
  EXPECT_TRUE(t.shows(words)) << words;
  EXPECT_TRUE(t.shows("in step 7")) << kind;
}

}  // namespace

Effects history_effects() {
  Effects e;
  e["history.element"] = [](Trial& t) {
    t.run("tensor.tap=o");
    t.run("select.head=2");
    Selection selection = t.selection();
    selection.dim = 17;
    t.bench().select(selection);
    follows(t, "element", "o of sparse_attention, layer 3, ");
    EXPECT_TRUE(t.shows("head 2, dim 17"));
  };
  e["history.sink"] = [](Trial& t) {
    t.run("select.head=1");
    follows(t, "sink", "sink mass of head 1, layer 3, of ");
  };
  e["history.lse"] = [](Trial& t) {
    t.run("select.head=1");
    follows(t, "lse", "LSE of head 1, layer 3, of ");
  };
  // The small session sees fewer entries than may be selected: there is neither.
  for (const char* kind : {"margin", "threshold"}) {
    e[fmt::format("history.{}", kind)] = [kind](Trial& t) {
      t.run(fmt::format("history.{}", kind));
      EXPECT_TRUE(t.in_front("history"));
      EXPECT_TRUE(t.shows(fmt::format("{}, layer 3, of ", kind)));
    };
  }
  e["history.slot"] = [](Trial& t) {
    EXPECT_FALSE(t.app->commands().run("history.slot")) << "no row is selected";
    t.run("select.block=3");
    Selection selection = t.selection();
    selection.row = 0;
    t.bench().select(selection);
    follows(t, "slot", "reads and writes of row 0 of block 3");
    t.run("select.none");
  };
  e["history.owner"] = [](Trial& t) {
    EXPECT_FALSE(t.app->commands().run("history.owner")) << "no block is selected";
    t.run("select.block=3");
    follows(t, "owner", "owner of block 3");
    t.run("select.none");
  };
  e["history.time"] = [](Trial& t) {
    follows(t, "time", "time (\xc2\xb5s) of sparse_attention, layer 3");
  };
  e["history.budget"] = [](Trial& t) {
    follows(t, "budget", "budget used of sparse_attention, layer 3");
  };
  e["history.error"] = [](Trial& t) {
    follows(t, "error", "largest difference of sparse_attention, layer 3");
  };
  e["history.show"] = [](Trial& t) {
    t.run("history.time");
    const std::uint64_t before = t.picture("history");
    t.run("history.budget");
    EXPECT_NE(t.picture("history"), before);
    EXPECT_FALSE(t.app->commands().run("history.show=0"));
    EXPECT_FALSE(t.app->commands().run("history.show=99"));
    t.run("history.show=1");
    EXPECT_TRUE(t.in_front("history"));
  };
  e["history.remove"] = [](Trial& t) {
    t.run("history.time");
    while (t.app->commands().run("history.remove=1")) t.user.wait(1);
    t.user.wait(2);
    EXPECT_TRUE(t.shows("No number is followed"));
    EXPECT_FALSE(t.app->commands().run("history.show=1"));
  };
  e["history.run_again"] = [](Trial& t) {
    t.run("history.time");
    EXPECT_FALSE(t.app->commands().run("history.run_again")) << "every step is known";
  };
  e["history.stop"] = [](Trial& t) {
    // With tensors of two steps alone.
    t.bench().set_trace_budget(0);
    t.bench().open(RunSetup(t.bench().setup()), false);
    t.user.settle();
    t.run("run.until_end");
    t.run("cursor.goto=7/3/sparse_attention");
    EXPECT_FALSE(t.app->commands().run("history.stop")) << "nothing runs again";
    t.run("history.lse");
    ASSERT_TRUE(t.app->commands().run("history.run_again"));
    ASSERT_TRUE(t.app->commands().run("history.stop"));
    t.user.wait_for("history");
    EXPECT_TRUE(t.shows("can be run again")) << "it was stopped on its way";
    t.bench().set_trace_budget(256);
  };
  return e;
}

}  // namespace attnscope::gui
