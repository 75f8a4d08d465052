#include <filesystem>

#include "app/workbench/lessons.h"
#include "tests/ui/command_effects.h"
#include "tests/ui/scenario_panel.h"

namespace attnscope::gui {
namespace {

// Opens a dialog that says this; Escape closes it.
std::function<void(Trial&)> opens(const std::string& command, const std::string& words) {
  return [=](Trial& t) {
    EXPECT_FALSE(t.popup_open());
    t.run(command);
    EXPECT_TRUE(t.popup_open());
    EXPECT_TRUE(t.shows(words)) << words;
    t.user.keys(ImGuiKey_Escape);
    t.user.wait(3);
    EXPECT_FALSE(t.popup_open());
  };
}

constexpr const char* kEdited = "an edited name";

void edit(Trial& t) {
  open_early(t.app, t.user);
  t.user.ctx->ItemInputValue("**/##requests[0].name", kEdited);
  wait_for_draft(t.user);
  EXPECT_TRUE(t.shows("Changed, not applied"));
}

// In a short session of one layer, longer than its window.
void plant(Trial& t) {
  RunSetup setup;
  setup.scenario = small_scenario(140, 2);
  setup.scenario.model.layers = {0};
  setup.references = References::kSim;
  t.bench().open(std::move(setup), true);
  t.user.settle();
  t.run("lesson.plant=window_off_by_one");
}

void take_out(Trial& t) { t.run("lesson.remove"); }

}  // namespace

Effects overlay_effects() {
  Effects e;
  e["scenario.open"] = [](Trial& t) {
    t.run("references.set=none");
    t.run("scenario.open=early");
    EXPECT_EQ(t.bench().setup().scenario.name, "early");
    EXPECT_EQ(t.bench().snapshot()->info->request_names.size(), 4u);
    opens("scenario.open", "shipped")(t);
  };
  e["scenario.new"] = [](Trial& t) {
    t.run("scenario.new");
    wait_for_draft(t.user);
    EXPECT_TRUE(t.in_front("scenario"));
    EXPECT_TRUE(t.shows("Changed, not applied")) << "nothing of it is wrong";
    EXPECT_NE(t.bench().setup().scenario.name, "untitled") << "the session runs on";
    t.run("scenario.apply");
    EXPECT_EQ(t.bench().setup().scenario.name, "untitled");
    EXPECT_EQ(t.bench().setup().scenario.path, "");
  };
  e["scenario.apply"] = [](Trial& t) {
    EXPECT_FALSE(t.app->commands().run("scenario.apply")) << "nothing was changed";
    edit(t);
    t.run("scenario.apply");
    EXPECT_EQ(t.bench().setup().scenario.requests[0].name, kEdited);
  };
  e["scenario.batch"] = [](Trial& t) {
    t.run("panel.scenario");
    const std::string order = "A request decodes with up to 1 token in a step";
    EXPECT_FALSE(t.shows(order));
    t.run("scenario.batch");
    t.user.wait_for("scenario");
    EXPECT_TRUE(t.shows(order));
    t.run("scenario.batch");
    t.user.wait_for("scenario");
    EXPECT_FALSE(t.shows(order));
  };
  e["scenario.revert"] = [](Trial& t) {
    edit(t);
    t.run("scenario.revert");
    wait_for_draft(t.user);
    EXPECT_FALSE(t.shows("Changed, not applied"));
  };
  e["scenario.undo"] = [](Trial& t) {
    edit(t);
    t.run("scenario.undo");
    wait_for_draft(t.user);
    EXPECT_FALSE(t.shows("Changed, not applied"));
  };
  e["scenario.redo"] = [](Trial& t) {
    edit(t);
    t.run("scenario.undo");
    t.run("scenario.redo");
    wait_for_draft(t.user);
    EXPECT_TRUE(t.shows("Changed, not applied"));
    t.run("scenario.apply");
    EXPECT_EQ(t.bench().setup().scenario.requests[0].name, kEdited);
  };
  // One that was saved is opened, walked, and left for a scenario.
  const auto keeps = [](Trial& t) {
    const std::string path = t.folder + "/kept.acap";
    std::filesystem::remove_all(path);
    const std::size_t traces = t.bench().snapshot()->traces.size();
    t.run("file.save_capture=" + path);
    t.user.settle();
    for (const char* again : {"file.save_capture=", "capture.record="}) {
      EXPECT_FALSE(t.app->commands().run(again + path)) << "it is there already";
    }
    EXPECT_EQ(t.bench().capture(), nullptr);
    t.run("file.open_capture=" + path);
    ASSERT_NE(t.bench().capture(), nullptr);
    EXPECT_EQ(t.bench().snapshot()->steps.size(), traces);
    t.run("cursor.goto=6/2/wo_b");
    EXPECT_EQ(t.cursor(), (Place{6, 2, AS_OP_WO_B}));
    ASSERT_NE(t.bench().op(), nullptr);
    EXPECT_NE(t.bench().op()->tap("y"), nullptr);
    t.run("run.until_end");
    EXPECT_TRUE(t.app.said("A capture shows what was recorded"));
    EXPECT_FALSE(t.app->commands().run("file.save_capture=" + path));
    EXPECT_FALSE(t.app->commands().run("file.open_capture=/no/such.acap"));
    ASSERT_NE(t.bench().capture(), nullptr) << "an error leaves what is open";
    t.run("scenario.open=early");
    EXPECT_EQ(t.bench().capture(), nullptr);
  };
  e["file.save_capture"] = keeps;
  e["file.open_capture"] = keeps;
  e["capture.record"] = [](Trial& t) {
    const std::string path = t.folder + "/recorded.acap";
    std::filesystem::remove_all(path);
    // Without a folder it asks, and says how large it will be.
    t.run("capture.record");
    EXPECT_TRUE(t.popup_open());
    for (int i = 0; i < 500 && !t.shows("About "); ++i) t.user.wait(2);
    EXPECT_TRUE(t.shows("About 8 steps, ")) << t.user.screen();
    EXPECT_TRUE(t.shows("are free there"));
    t.user.ctx->ItemClick("**/Cancel##record");
    t.user.wait(3);
    EXPECT_FALSE(t.popup_open());
    t.run("capture.record=full:" + path);
    t.user.settle();
    EXPECT_TRUE(t.app.said("steps recorded in " + path));
    EXPECT_FALSE(t.bench().recording());
    EXPECT_EQ(t.bench().capture(), nullptr) << "the session is still shown";
    t.run("file.open_capture=" + path);
    ASSERT_NE(t.bench().capture(), nullptr);
    EXPECT_EQ(t.bench().capture()->index().level, CaptureLevel::kFull);
    EXPECT_TRUE(t.bench().capture()->complete());
    EXPECT_FALSE(t.app->commands().run("capture.record=" + path)) << "it is what is shown";
    EXPECT_FALSE(t.app->commands().run("capture.record=full:"));
    t.run("scenario.open=early");
  };
  e["capture.record_all"] = [](Trial& t) {
    const auto before = std::filesystem::current_path();
    std::filesystem::current_path(t.folder);
    const std::string stem = t.bench().setup().scenario.name;
    for (const char* end : {".acap", "-2.acap"}) {
      t.run("capture.record_all");
      t.user.settle();
      EXPECT_TRUE(std::filesystem::exists(t.folder + "/" + stem + end + "/index.json"));
    }
    std::filesystem::current_path(before);
  };
  e["scenario.save"] = [](Trial& t) {
    const std::string file = t.folder + "/saved.json";
    edit(t);
    t.run("scenario.save=" + file);
    auto saved = load_scenario(file);
    ASSERT_TRUE(saved);
    EXPECT_EQ(saved->requests[0].name, kEdited);
    EXPECT_FALSE(t.app->commands().run("scenario.save=/no/such/folder/saved.json"));
  };
  e["scenario.save_as"] = [](Trial& t) {
    const std::string file = t.folder + "/another.json";
    edit(t);
    t.run("scenario.save_as=" + file);
    EXPECT_TRUE(load_scenario(file));
    EXPECT_EQ(t.settings().recent.front(), file);
    opens("scenario.save_as", "Save")(t);
  };
  e["settings.open"] = opens("settings.open", "Looks and memory");
  e["help.keys"] = opens("help.keys", "Next step");
  e["help.about"] = opens("help.about", "Dear ImGui");
  e["palette.open"] = opens("palette.open", "a command, token 1500, block 211");
  e["lesson.open"] = opens("lesson.open", "Any of them");
  e["help.tour"] = [](Trial& t) {
    EXPECT_FALSE(t.shows("1 of 5"));
    t.run("help.tour");
    EXPECT_TRUE(t.shows("1 of 5"));
    t.user.keys(ImGuiKey_Escape);
    t.user.wait(3);
    EXPECT_FALSE(t.shows("1 of 5"));
    EXPECT_TRUE(t.settings().tour_seen);
  };
  e["lesson.plant"] = [](Trial& t) {
    plant(t);
    EXPECT_EQ(t.bench().planted(), "window_off_by_one");
    EXPECT_EQ(t.cursor().op, AS_OP_SWA_INDEX);
    EXPECT_EQ(t.bench().op()->worst, Verdict::kWrong);
    EXPECT_TRUE(t.shows("lane cpu, swa_index=mutant:window_off_by_one")) << "the status bar";
    EXPECT_FALSE(t.app->commands().run("lesson.plant=no bug"));
    take_out(t);
    EXPECT_FALSE(t.shows("swa_index=mutant:window_off_by_one"));
  };
  e["lesson.random"] = [](Trial& t) {
    t.run("lesson.random");
    EXPECT_NE(find_lesson(t.bench().planted()), nullptr) << t.bench().planted();
    take_out(t);
    EXPECT_TRUE(t.bench().planted().empty());
  };
  e["lesson.remove"] = [](Trial& t) {
    EXPECT_FALSE(t.app->commands().run("lesson.remove")) << "none is planted";
    plant(t);
    take_out(t);
    EXPECT_TRUE(t.bench().planted().empty());
    for (const auto& step : t.bench().snapshot()->steps) {
      for (const TapResult& r : step->results) EXPECT_NE(r.verdict, Verdict::kWrong) << r.tap;
    }
  };
  e["lesson.next"] = [](Trial& t) {
    plant(t);
    EXPECT_TRUE(t.shows("1 of 4"));
    t.run("lesson.next");
    EXPECT_TRUE(t.shows("2 of 4"));
    take_out(t);
    EXPECT_FALSE(t.shows("2 of 4"));
  };
  e["lesson.back"] = [](Trial& t) {
    plant(t);
    t.run("lesson.next");
    t.run("lesson.next");
    EXPECT_TRUE(t.shows("3 of 4"));
    t.run("lesson.back");
    EXPECT_TRUE(t.shows("2 of 4"));
    take_out(t);
  };
  return e;
}

}  // namespace attnscope::gui
