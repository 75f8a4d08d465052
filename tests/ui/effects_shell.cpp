#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "app/gui/layouts.h"
#include "app/gui/theme.h"
#include "engine/io/json_file.h"
#include "tests/ui/command_effects.h"

namespace attnscope::gui {

namespace {

// Until the screen says so; a sweep runs on a thread of its own.
void wait_for(Trial& t, std::string_view text) {
  for (int i = 0; i < 2000 && !t.shows(text); ++i) t.user.wait(1);
  EXPECT_TRUE(t.shows(text)) << text;
}

}  // namespace

Effects shell_effects() {
  Effects e;
  for (const char* panel :
       {"timeline", "pipeline", "block_tables", "pool",       "cache",      "window",
        "top_k",    "sink",     "tensor",       "bytes",      "error",      "selection",
        "notes",    "events",   "scenario",     "review",     "coverage",   "why",
        "compare",  "time",     "plan",         "index_keys", "backends",   "row_pool",
        "history",  "training", "row_sweep",    "row_error",  "cache_study"}) {
    e[std::string("panel.") + panel] = [panel](Trial& t) {
      t.run(std::string("panel.close=") + panel);
      EXPECT_FALSE(t.in_front(panel));
      EXPECT_FALSE(t.app.checked(std::string("panel.") + panel));
      t.run(std::string("panel.") + panel);
      EXPECT_TRUE(t.in_front(panel));
      EXPECT_TRUE(t.app.checked(std::string("panel.") + panel));
    };
  }
  e["training.show"] = [](Trial& t) {
    const std::string folder = t.folder + "/attnscope/trained/tiny-v3.2";
    std::filesystem::create_directories(folder);
    std::ofstream(folder + "/model.csv")
        << "step,stage,rate,loss,kl,held_loss,held_sparse,layer,layer_kl,recall,mass,overlap,"
           "changed\n30,model,0.001,2.5,0.5,2.75,3,0,0.25,0.5,0.5,0.125,1\n";
    setenv("XDG_DATA_HOME", t.folder.c_str(), 1);
    EXPECT_FALSE(t.app->commands().run("training.show=tiny-v3.2 indexer")) << "there is none";
    t.run("training.show=tiny-v3.2 model");
    EXPECT_TRUE(t.in_front("training"));
    EXPECT_TRUE(t.shows("30 steps, stage model"));
    unsetenv("XDG_DATA_HOME");
  };
  e["row_sweep.own"] = [](Trial& t) {
    t.run("row_sweep.own");
    EXPECT_TRUE(t.in_front("row_sweep"));
    wait_for(t, "of this session of ");
    EXPECT_TRUE(t.shows("of the rows in the pool"));
  };
  e["row_sweep.generate"] = [](Trial& t) {
    EXPECT_FALSE(t.app->commands().run("row_sweep.generate=overlap"));
    EXPECT_FALSE(t.app->commands().run("row_sweep.generate=layers=2"));
    t.run("row_sweep.generate=overlap=0.5+batch=2,context=600+top-k=64+steps=4");
    EXPECT_TRUE(t.in_front("row_sweep"));
    wait_for(t, "of generated: context 600, batch 2, top-k 64, overlap 0.5");
  };
  e["row_sweep.stop"] = [](Trial& t) {
    t.run("row_sweep.generate=batch=64,steps=4096");
    EXPECT_FALSE(t.app->commands().run("row_sweep.own")) << "one is running";
    t.run("row_sweep.stop");
    EXPECT_FALSE(t.app->commands().run("row_sweep.stop")) << "nothing runs";
  };
  // The trial's session is of DeepSeek-V4, whose rows have a format of their own.
  e["cache_study.run"] = [](Trial& t) {
    EXPECT_FALSE(t.app->commands().run("cache_study.run=128,x"));
    const auto refused = t.app->commands().run("cache_study.run=128+512");
    ASSERT_FALSE(refused);
    EXPECT_NE(refused.error().text().find("studied of dense decoders"), std::string::npos);
    EXPECT_FALSE(t.app->commands().run("cache_study.stop")) << "nothing runs";
  };
  e["cache_study.stop"] = e["cache_study.run"];
  e["backends.compare"] = [](Trial& t) {
    const auto refused = t.app->commands().run("backends.compare");
    ASSERT_FALSE(refused) << "the model attends over what it selects";
    EXPECT_NE(refused.error().text().find("dense attention over paged rows"), std::string::npos);
    EXPECT_FALSE(t.app->commands().run("backends.compare_stop")) << "nothing runs";
  };
  e["backends.compare_stop"] = e["backends.compare"];
  e["messages.dismiss"] = [](Trial& t) {
    t.bench().say(Message::Kind::kInfo, "said in a test");
    t.user.settle();
    EXPECT_TRUE(t.app->shell().message_shown());
    t.run("messages.dismiss");
    t.user.settle();
    EXPECT_FALSE(t.app->shell().message_shown());
    EXPECT_EQ(t.bench().messages().back().text, "said in a test");
    // A note goes to the log alone.
    t.bench().say(Message::Kind::kNote, "noted in a test");
    t.user.settle();
    EXPECT_FALSE(t.app->shell().message_shown());
    EXPECT_EQ(t.bench().messages().back().text, "noted in a test");
  };
  e["panel.close"] = [](Trial& t) {
    t.run("panel.close=events");
    EXPECT_FALSE(t.app->shell().panel("events")->open);
    EXPECT_FALSE(t.in_front("events"));
    EXPECT_FALSE(t.app->commands().run("panel.close=evnets"));
  };
  for (const Layout& layout : layouts()) {
    const std::string id = layout.id;
    e["layout." + id] = [id](Trial& t) {
      t.run(id == "cache" ? "layout.error" : "layout.cache");
      EXPECT_NE(t.app->shell().layout(), id);
      t.run("layout." + id);
      EXPECT_EQ(t.app->shell().layout(), id);
      EXPECT_EQ(t.settings().layout, id);
      EXPECT_EQ(t.in_front("pipeline"), id == "step" || id == "error" || id == "compare");
    };
  }
  e["layout.reset"] = [](Trial& t) {
    t.run("panel.close=pool");
    t.run("layout.reset");
    EXPECT_TRUE(t.in_front("pool"));
    EXPECT_EQ(t.app->shell().layout(), "step");
  };
  e["app.screenshot"] = [](Trial& t) {
    t.run("app.screenshot=/nowhere/picture.png");
    const auto [file, panel] = t.app->shell().take_screenshot();
    EXPECT_EQ(file, "/nowhere/picture.png");
    EXPECT_EQ(panel, "");
    EXPECT_FALSE(t.app->commands().run("app.screenshot"));
  };
  e["panel.picture"] = [](Trial& t) {
    t.run("panel.picture=error:" + t.folder + "/error.png");
    const auto [file, panel] = t.app->shell().take_screenshot();
    EXPECT_EQ(file, t.folder + "/error.png");
    EXPECT_EQ(panel, "error");
    const auto part = t.app->shell().rectangle_of(panel);
    ASSERT_TRUE(part);
    EXPECT_GT(part->z, part->x);
    EXPECT_GT(part->w, part->y);
    t.run("panel.close=error");
    EXPECT_FALSE(t.app->commands().run("panel.picture=error:x.png")) << "it is not on the screen";
    EXPECT_FALSE(t.app->shell().rectangle_of("error"));
  };
  e["panel.table"] = [](Trial& t) {
    t.run("panel.events");
    t.run("panel.table=events:" + t.folder + "/events.csv");
    const auto text = read_text_file(t.folder + "/events.csv");
    ASSERT_TRUE(text) << text.error().text();
    EXPECT_TRUE(text->starts_with("step")) << *text;
    EXPECT_GT(std::ranges::count(*text, '\n'), 3);
    EXPECT_TRUE(t.app.said("rows written to"));
    EXPECT_FALSE(t.app->commands().run("panel.table=pool:pool.csv")) << "it has no table";
    EXPECT_FALSE(t.app->commands().run("panel.table=events:/nowhere/events.csv"));
  };
  e["copy.place"] = [](Trial& t) {
    t.run("select.token=1/7");
    t.run("copy.place");
    EXPECT_NE(t.clipboard().find("step 7"), std::string::npos) << t.clipboard();
    EXPECT_NE(t.clipboard().find("token 7"), std::string::npos) << t.clipboard();
  };
  e["copy.value"] = [](Trial& t) {
    t.run("tensor.tap=o");
    EXPECT_FALSE(t.app->commands().run("copy.value")) << "no element is picked";
    const std::int64_t row = t.bench().step()->kept.back();
    t.run(fmt::format("select.element={}/2/17", row));
    t.run("copy.value");
    EXPECT_TRUE(t.clipboard().starts_with("o: token")) << t.clipboard();
    EXPECT_NE(t.clipboard().find("head 2, dim 17"), std::string::npos) << t.clipboard();
    const bool compared = t.bench().selected_tap()->reference.data != nullptr;
    EXPECT_EQ(t.clipboard().find(", reference ") != std::string::npos, compared) << t.clipboard();
  };
  e["copy.command"] = [](Trial& t) {
    t.run("select.token=1/7");
    t.run("select.head=2");
    t.run("copy.command");
    const std::string line = t.clipboard();
    EXPECT_TRUE(line.starts_with("attnscope gui small ")) << line;
    EXPECT_NE(line.find("cursor.goto=7/3/sparse_attention"), std::string::npos) << line;
    // Its commands lead there again.
    const auto at = line.find("layout.");
    ASSERT_NE(at, std::string::npos) << line;
    t.run("cursor.goto=0/1/q_b_proj");
    t.run("select.none");
    std::string rest = line.substr(at, line.find_last_not_of("'\"") + 1 - at);
    for (std::size_t from = 0; from <= rest.size();) {
      const std::size_t end = std::min(rest.find(',', from), rest.size());
      t.run(rest.substr(from, end - from));
      from = end + 1;
    }
    EXPECT_EQ(t.cursor(), (Place{7, 3, AS_OP_SPARSE_ATTENTION}));
    EXPECT_EQ(t.selection().position, 7);
    EXPECT_EQ(t.selection().head, 2);
  };
  e["app.reset_graphics"] = [](Trial& t) {
    EXPECT_FALSE(t.app->shell().take_reset_graphics());
    t.run("app.reset_graphics");
    EXPECT_TRUE(t.app->shell().take_reset_graphics());
  };
  e["file.close"] = [](Trial& t) {
    t.run("file.close");
    EXPECT_EQ(t.bench().snapshot(), nullptr);
    EXPECT_LT(t.bench().cursor().step, 0);
    // Every panel says so.
    for (const auto* panel : {"error", "tensor", "events", "scenario", "notes", "pool"}) {
      t.run(std::string("panel.") + panel);
    }
    EXPECT_TRUE(t.shows("No session"));
    EXPECT_FALSE(t.app->commands().run("file.close")) << "nothing is open";
    EXPECT_FALSE(t.app->commands().run("op.forward"));
    t.run("scenario.open=tiny-llama");
    EXPECT_NE(t.bench().snapshot(), nullptr);
  };
  e["app.quit"] = [](Trial& t) {
    EXPECT_FALSE(t.app->shell().wants_close());
    // An edit that no file has is asked about.
    t.run("scenario.new");
    t.run("app.quit");
    EXPECT_FALSE(t.app->shell().wants_close());
    EXPECT_TRUE(t.popup_open());
    EXPECT_TRUE(t.shows("no file has"));
    t.user.ctx->ItemClick("**/Stay##quit");
    t.user.wait(3);
    EXPECT_FALSE(t.popup_open());
    EXPECT_FALSE(t.app->shell().wants_close());
    t.run("scenario.revert");
    t.run("app.quit");
    EXPECT_TRUE(t.app->shell().wants_close());
  };
  e["settings.theme_toggle"] = [](Trial& t) {
    t.run("settings.theme_toggle");
    EXPECT_FALSE(theme().dark);
    t.run("settings.theme_toggle");
    EXPECT_TRUE(theme().dark);
  };
  e["settings.theme"] = [](Trial& t) {
    t.run("settings.theme=high_contrast");
    EXPECT_EQ(theme().name, "high_contrast");
    EXPECT_FALSE(t.app->commands().run("settings.theme=no such theme"));
    EXPECT_EQ(t.settings().theme, "high_contrast");
  };
  e["settings.scale_up"] = [](Trial& t) {
    t.run("settings.scale_up");
    EXPECT_FLOAT_EQ(px(8), 9);
  };
  e["settings.scale_down"] = [](Trial& t) {
    t.run("settings.scale_down");
    EXPECT_FLOAT_EQ(px(8), 7);
  };
  e["settings.scale"] = [](Trial& t) {
    t.run("settings.scale=2");
    EXPECT_FLOAT_EQ(px(8), 16);
    EXPECT_FALSE(t.app->commands().run("settings.scale=0.1"));
    EXPECT_FALSE(t.app->commands().run("settings.scale=nan"));
    EXPECT_FLOAT_EQ(t.settings().scale, 2);
  };
  e["settings.animations"] = [](Trial& t) {
    const bool before = t.settings().animations;
    t.run("settings.animations");
    EXPECT_NE(t.settings().animations, before);
    EXPECT_EQ(t.app.checked("settings.animations"), !before);
  };
  e["settings.whole_sentences"] = [](Trial& t) {
    const bool before = t.settings().whole_sentences;
    t.run("settings.whole_sentences");
    EXPECT_NE(t.settings().whole_sentences, before);
    EXPECT_EQ(t.app.checked("settings.whole_sentences"), !before);
  };
  e["settings.colour_map"] = [](Trial& t) {
    const ImU32 before = magnitude_colour(0.7f);
    t.run("settings.colour_map=grey");
    EXPECT_NE(magnitude_colour(0.7f), before);
    EXPECT_FALSE(t.app->commands().run("settings.colour_map=rainbow"));
  };
  e["settings.trace_budget"] = [](Trial& t) {
    t.run("settings.trace_budget=64");
    EXPECT_EQ(t.settings().trace_budget_mb, 64);
    EXPECT_FALSE(t.app->commands().run("settings.trace_budget=1"));
  };
  e["settings.kept_events"] = [](Trial& t) {
    t.run("settings.kept_events=5000");
    EXPECT_EQ(t.settings().kept_events, 5000);
    EXPECT_FALSE(t.app->commands().run("settings.kept_events=1"));
  };
  e["settings.checkpoint_budget"] = [](Trial& t) {
    t.run("settings.checkpoint_budget=16");
    t.user.settle();
    EXPECT_EQ(t.settings().rewind_budget_mb, 16);
    EXPECT_EQ(t.bench().snapshot()->rewind.budget, std::int64_t{16} << 20);
    EXPECT_TRUE(t.shows("of 16 MiB"));
    EXPECT_FALSE(t.app->commands().run("settings.checkpoint_budget=1"));
    t.run("settings.undo");
  };
  e["settings.invariants"] = [](Trial& t) {
    const Invariants before = t.settings().invariants;
    const Invariants other = before == Invariants::kOff ? Invariants::kStep : Invariants::kOff;
    t.run(std::string("settings.invariants=") + invariants_name(other));
    t.user.settle();
    EXPECT_EQ(t.bench().snapshot()->invariants, other);
    EXPECT_FALSE(t.app->commands().run("settings.invariants=sometimes"));
    t.run("settings.undo");
    t.user.settle();
    EXPECT_EQ(t.bench().snapshot()->invariants, before);
  };
  e["settings.undo"] = [](Trial& t) {
    const Settings before = t.settings();
    t.run("settings.theme=light");
    t.run("settings.undo");
    EXPECT_EQ(t.settings(), before);
    EXPECT_TRUE(theme().dark);
  };
  e["settings.redo"] = [](Trial& t) {
    t.run("settings.theme=light");
    t.run("settings.undo");
    t.run("settings.redo");
    EXPECT_EQ(t.settings().theme, "light");
    EXPECT_FALSE(theme().dark);
    EXPECT_FALSE(t.app->commands().run("settings.redo")) << "nothing is left to redo";
  };
  e["settings.reset"] = [](Trial& t) {
    t.run("settings.theme=light");
    t.run("settings.scale=1.5");
    t.run("settings.reset");
    EXPECT_EQ(t.settings().theme, Settings{}.theme);
    EXPECT_EQ(t.settings().scale, Settings{}.scale);
    EXPECT_TRUE(theme().dark);
  };
  e["shortcut.set"] = [](Trial& t) {
    t.run("shortcut.set=op.forward:Ctrl+Shift+K");
    EXPECT_EQ(t.app->commands().shortcut("op.forward"), "Ctrl+Shift+K");
    const Place before = t.cursor();
    t.run("op.back");
    t.user.keys(ImGuiMod_Ctrl | ImGuiMod_Shift | ImGuiKey_K);
    t.user.settle();
    EXPECT_EQ(t.cursor(), before);
    EXPECT_FALSE(t.app->commands().run("shortcut.set=op.back:Ctrl+Shift+K")) << "it is taken";
    EXPECT_FALSE(t.app->commands().run("shortcut.set=op.back:Hyper+Q"));
    EXPECT_FALSE(t.app->commands().run("shortcut.set=op.back"));
  };
  e["shortcut.reset"] = [](Trial& t) {
    t.run("shortcut.set=op.forward:Ctrl+Shift+K");
    t.run("shortcut.reset");
    EXPECT_EQ(t.app->commands().shortcut("op.forward"), "Right");
    EXPECT_TRUE(t.settings().shortcuts.empty());
  };
  e["tour.seen"] = [](Trial& t) {
    t.app->settings().tour_seen = false;
    t.run("tour.seen");
    EXPECT_TRUE(t.settings().tour_seen);
  };
  return e;
}

}  // namespace attnscope::gui
