// Panels docked elsewhere, torn off, closed and put back; the screen made small and large.

#include <unistd.h>

#include <filesystem>
#include <map>
#include <ostream>
#include <string>

#include "app/gui/data_table.h"
#include "tests/ui/driven_app.h"

namespace attnscope::gui {
namespace driven_windows_test {

struct Rect {
  float x, y, width, height;
  friend bool operator==(const Rect&, const Rect&) = default;
  friend std::ostream& operator<<(std::ostream& out, const Rect& r) {
    return out << r.width << " x " << r.height << " at " << r.x << ", " << r.y;
  }
};

ImGuiWindow* window_of(User& user, const char* panel) {
  return user.ctx->GetWindowByRef(("//" + user.window(panel)).c_str());
}

std::map<std::string, Rect> places(User& user) {
  std::map<std::string, Rect> all;
  for (const char* panel : {"timeline", "pipeline", "block_tables", "pool", "tensor", "top_k",
                            "sink", "error", "events"}) {
    const ImGuiWindow* window = window_of(user, panel);
    EXPECT_NE(window, nullptr) << panel;
    if (window != nullptr) {
      all[panel] = {window->Pos.x, window->Pos.y, window->Size.x, window->Size.y};
    }
  }
  return all;
}

TEST(Driven, PanelsAreTornOffDockedElsewhereClosedAndPutBack) {
  DrivenApp app(References::kNone);
  app.drive([&](User& user) {
    user.wait(5);
    const auto before = places(user);
    const std::string sink = user.window("sink"), error = user.window("error");

    user.ctx->UndockWindow(sink.c_str());
    user.wait(3);
    EXPECT_TRUE(user.ctx->WindowIsUndockedOrStandalone(window_of(user, "sink")));
    user.ctx->WindowMove(("//" + sink).c_str(), ImVec2(300, 300));
    user.ctx->WindowResize(("//" + sink).c_str(), ImVec2(500, 400));
    EXPECT_FLOAT_EQ(window_of(user, "sink")->Pos.x, 300);
    EXPECT_FLOAT_EQ(window_of(user, "sink")->Size.y, 400);

    user.ctx->DockInto(("//" + sink).c_str(), ("//" + error).c_str());
    user.wait(3);
    EXPECT_EQ(window_of(user, "sink")->DockNode, window_of(user, "error")->DockNode);
    EXPECT_NE(window_of(user, "sink")->DockNode, nullptr);

    user.ctx->DockInto(("//" + user.window("pool")).c_str(), ("//" + error).c_str(), ImGuiDir_Down);
    user.wait(3);
    EXPECT_GT(window_of(user, "pool")->Pos.y, window_of(user, "error")->Pos.y);
    EXPECT_FLOAT_EQ(window_of(user, "pool")->Pos.x, window_of(user, "error")->Pos.x);

    ASSERT_TRUE(app->commands().run("panel.close=tensor"));
    user.wait(3);
    EXPECT_FALSE(window_of(user, "tensor")->Active);
    EXPECT_NE(places(user), before);

    ASSERT_TRUE(app->commands().run("layout.reset"));
    user.wait(6);
    EXPECT_EQ(places(user), before);
    EXPECT_TRUE(window_of(user, "tensor")->Active);
    EXPECT_TRUE(app->shell().panel("tensor")->open);
  });
}

TEST(Driven, TheCrossOfATabClosesItsPanelAndTheMenuBringsItBack) {
  DrivenApp app(References::kNone);
  app.drive([&](User& user) {
    user.wait(5);
    user.ctx->WindowClose(("//" + user.window("pool")).c_str());
    user.wait(3);
    EXPECT_FALSE(app->shell().panel("pool")->open);
    EXPECT_FALSE(app.checked("panel.pool"));
    user.ctx->SetRef("//##MainMenuBar");
    user.ctx->MenuClick("View/Pool map##panel.pool");
    user.wait(3);
    EXPECT_TRUE(app->shell().panel("pool")->open);
    EXPECT_TRUE(window_of(user, "pool")->Active);
  });
}

// Instead of covering others. What the user has torn off since comes back where it was.
TEST(Driven, APanelThatALayoutHasNoPlaceForJoinsItsTabs) {
  DrivenApp app(References::kNone);
  app.drive([&](User& user) {
    for (const ImVec2 size : {ImVec2(1000, 600), ImVec2(1600, 1000)}) {
      SCOPED_TRACE(size.x);
      ImGui::GetIO().DisplaySize = size;
      user.settle();
      for (const char* layout : {"step", "error", "review"}) {
        ASSERT_TRUE(app->commands().run(std::string("layout.") + layout));
        user.wait(4);
        user.show("cache");
        user.wait(4);
        ASSERT_NE(window_of(user, "cache"), nullptr) << layout;
        EXPECT_NE(window_of(user, "cache")->DockNode, nullptr) << layout;
        EXPECT_TRUE(window_of(user, "cache")->DockTabIsVisible) << layout;
      }
    }
    user.ctx->UndockWindow(("//" + user.window("cache")).c_str());
    user.wait(3);
    ASSERT_TRUE(app->commands().run("panel.close=cache"));
    user.wait(3);
    user.show("cache");
    user.wait(4);
    EXPECT_TRUE(user.ctx->WindowIsUndockedOrStandalone(window_of(user, "cache")));
  });
}

TEST(Driven, SmallAndLargeScreensShowTheSameState) {
  DrivenApp app;
  app.drive([&](User& user) {
    user.wait(5);
    ASSERT_TRUE(app->commands().run("select.block=2"));
    user.settle();
    const auto before = places(user);
    const Place cursor = app.bench().cursor();
    const Selection selection = app.selection();
    // Narrow windows leave out the rest of the line.
    const std::string sentence = "step " + std::to_string(cursor.step);
    const auto resize = [&](float width, float height) {
      SCOPED_TRACE(testing::Message() << width << " x " << height);
      ImGui::GetIO().DisplaySize = ImVec2(width, height);
      user.settle();
      user.wait(4);
      EXPECT_EQ(app.bench().cursor(), cursor);
      EXPECT_EQ(app.selection(), selection);
      EXPECT_NE(user.screen().find(sentence), std::string::npos);
      for (const auto& [panel, rect] : places(user)) {
        EXPECT_LE(rect.x + rect.width, width + 1) << panel;
        EXPECT_GE(rect.x, 0) << panel;
      }
      // Keys still act.
      user.keys(ImGuiKey_LeftArrow);
      user.settle();
      EXPECT_NE(app.bench().cursor(), cursor);
      user.keys(ImGuiKey_RightArrow);
      user.settle();
    };
    resize(300, 200);
    for (const char* layout : {"layout.cache", "layout.selection", "layout.error", "layout.step"}) {
      ASSERT_TRUE(app->commands().run(layout));
      user.wait(4);
    }
    resize(2560, 1440);
    resize(300, 200);
    resize(1600, 1000);
    ASSERT_TRUE(app->commands().run("layout.reset"));
    user.wait(6);
    EXPECT_EQ(places(user), before);
  });
}

// Commands of one frame, as --do gives them: each panel comes to the front of its tabs.
TEST(Driven, PanelsThatAreAskedForTogetherAllComeToTheFront) {
  DrivenApp app;
  app.drive([&](User& user) {
    user.wait(3);
    ASSERT_TRUE(app->commands().run("layout.step"));
    user.wait(4);
    ASSERT_TRUE(app->commands().run("panel.window"));
    ASSERT_TRUE(app->commands().run("panel.bytes"));
    user.wait(4);
    EXPECT_TRUE(app->shell().panel("window")->drawn);
    EXPECT_TRUE(app->shell().panel("bytes")->drawn);
  });
}

// The window of which the name holds `part`; null: there is none.
const ImGuiWindow* window_named(const std::string& part) {
  for (const ImGuiWindow* window : ImGui::GetCurrentContext()->Windows) {
    if (window->WasActive && std::string(window->Name).find(part) != std::string::npos) {
      return window;
    }
  }
  return nullptr;
}

// A small session with a planted bug, run to its end; there a panel, in the layout it begins with.
void show_after_run(DrivenApp& app, User& user, int new_tokens, const char* lane, const char* go,
                    const char* panel) {
  RunSetup setup;
  setup.scenario = small_scenario(90, new_tokens);
  setup.lanes = {"cpu", lane};
  setup.references = References::kSim;
  app.bench().open(std::move(setup), false);
  user.settle();
  app.bench().run_until("to the end", [](const Session&) { return false; });
  user.settle();
  for (const char* command : {"layout.step", "layout.reset", go}) {
    ASSERT_TRUE(app->commands().run(command)) << command;
  }
  user.settle();
  user.show(panel);
  user.wait(4);
}

// A legend that grows by what was swapped goes on in the next line.
TEST(Driven, TheLegendOfASelectionStaysInItsPanel) {
  DrivenApp app;
  app.drive([&](User& user) {
    show_after_run(app, user, 6, "indexer_topk=mutant:topk_one_short", "cursor.first_failure",
                   "top_k");
    ASSERT_NE(user.screen().find("ours / reference's alone"), std::string::npos) << user.screen();
    const ImGuiWindow* panel = window_named("###top_k");
    ASSERT_NE(panel, nullptr);
    EXPECT_LE(panel->ContentSize.x, panel->InnerRect.GetWidth());
  });
}

// The same of the Error panel's, where letters are large.
TEST(Driven, TheLegendOfErrorsStaysInItsPanel) {
  DrivenApp app;
  app.drive([&](User& user) {
    show_after_run(app, user, 3, "cpu", "cursor.goto=0/1/sparse_attention", "error");
    ImGui::GetIO().DisplaySize = ImVec2(1280, 720);
    for (const char* command : {"settings.scale=2", "layout.error"}) {
      ASSERT_TRUE(app->commands().run(command)) << command;
    }
    user.settle();
    user.show("error");
    user.wait(4);
    ASSERT_NE(user.screen().find("budget used"), std::string::npos) << user.screen();
    const ImGuiWindow* panel = window_named("###error");
    ASSERT_NE(panel, nullptr);
    EXPECT_LE(panel->ContentSize.x, panel->InnerRect.GetWidth());
  });
}

// What is wrong takes more words than what is right: the cards stay where they are seen.
TEST(Driven, ALongSentenceLeavesThePipelineItsRoom) {
  DrivenApp app;
  app.drive([&](User& user) {
    show_after_run(app, user, 3, "schedule=mutant:rotary_table_shifted",
                   "cursor.goto=0/1/sparse_attention", "pipeline");
    EXPECT_NE(user.screen().find("cos and sin of the rotary table"), std::string::npos);
    const ImGuiWindow* chart = window_named("##chart");
    ASSERT_NE(chart, nullptr);
    EXPECT_EQ(chart->ScrollMax.y, 0) << "its lowest cards are out of sight";
  });
}

// Each size of screen has an arrangement of its own: the large one is as it was afterwards.
TEST(Driven, ASmallWindowLeavesTheLargeArrangementAsItWas) {
  const auto folder = std::filesystem::temp_directory_path() /
                      ("attnscope-small-window-" + std::to_string(getpid()));
  std::filesystem::create_directories(folder);
  {
    HeadlessApp app(References::kNone, folder.string());
    const auto show = [&](ImVec2 size) {
      ImGui::GetIO().DisplaySize = size;
      for (int i = 0; i < 6; ++i) app.frame();
      app->shell().save();
    };
    show({1600, 1000});
    ASSERT_TRUE(app->commands().run("panel.close=pool"));  // not what a reset gives
    show({1600, 1000});
    EXPECT_FALSE(app->shell().panel("pool")->open);
    show({400, 300});
    EXPECT_TRUE(app->shell().panel("pool")->open) << "a tab of the small one";
    show({1600, 1000});
    EXPECT_FALSE(app->shell().panel("pool")->open);
  }
  std::filesystem::remove_all(folder);
}

// On a laptop's screen a bar has more tabs than room: the one in front is in sight all the same.
TEST(Driven, TheTabInFrontIsInSight) {
  DrivenApp app(References::kNone);
  app.drive([&](User& user) {
    ImGui::GetIO().DisplaySize = ImVec2(1280, 720);
    user.settle();
    user.wait(4);
    for (const char* panel :
         {"error", "backends", "notes", "history", "events", "coverage", "sink", "plan",
          "index_keys", "row_error", "why", "bytes", "training", "tensor"}) {
      user.show(panel);
      user.wait(3);
      const ImGuiWindow* window = window_of(user, panel);
      ASSERT_NE(window, nullptr) << panel;
      ASSERT_NE(window->DockNode, nullptr) << panel;
      const ImGuiTabBar* bar = window->DockNode->TabBar;
      ASSERT_NE(bar, nullptr) << panel;
      EXPECT_GE(window->DC.DockTabItemRect.Min.x, bar->ScrollingRectMinX - 1) << panel;
      EXPECT_LE(window->DC.DockTabItemRect.Max.x, bar->ScrollingRectMaxX + 1) << panel;
    }
    ImGui::GetIO().DisplaySize = ImVec2(1600, 1000);
    user.settle();
  });
}

TEST(Driven, TitlesOfTablesAreWholeInEveryPanel) {
  DrivenApp app(References::kNone);
  app.drive([&](User& user) {
    int tables = 0;
    for (const ImVec2 size : {ImVec2(1000, 600), ImVec2(1600, 1000)}) {
      SCOPED_TRACE(size.x);
      ImGui::GetIO().DisplaySize = size;
      user.settle();
      for (const char* layout : {"step", "cache", "selection", "error"}) {
        ASSERT_TRUE(app->commands().run(std::string("layout.") + layout));
        user.wait(4);
        for (const char* panel : {"error", "events", "coverage", "sink", "row_error", "why",
                                  "bytes", "cache", "window", "top_k", "scenario", "backends"}) {
          user.show(panel);
          const DataTable* table = drawn_table(user.window(panel).c_str());
          if (table == nullptr) continue;
          ++tables;
          EXPECT_EQ(table->cut_titles(), std::vector<std::string>{}) << layout << ", " << panel;
        }
      }
    }
    EXPECT_GT(tables, 40);
  });
}

TEST(Driven, ATabBarHasOneCross) {
  DrivenApp app(References::kNone);
  app.drive([&](User& user) {
    user.wait(5);
    for (const char* panel : {"timeline", "pipeline", "block_tables", "tensor", "error"}) {
      const ImGuiWindow* window = window_of(user, panel);
      ASSERT_NE(window, nullptr) << panel;
      ASSERT_NE(window->DockNode, nullptr) << panel;
      EXPECT_FALSE(window->DockNode->HasCloseButton) << panel;
      EXPECT_TRUE(window->HasCloseButton) << panel << ": that of its tab";
    }
  });
}

// The note about a planted bug and the tour, on every stop of it.
TEST(Driven, TwoGuidesNeverLieOnTopOfEachOther) {
  DrivenApp app;
  app.drive([&](User& user) {
    ASSERT_TRUE(app->commands().run("lesson.plant=sink_scaled"));
    user.settle();
    ASSERT_TRUE(app->commands().run("help.tour"));
    int seen = 0;
    for (int stop = 0; stop < 4; ++stop) {
      user.wait(6);
      const ImGuiWindow *lesson = window_named("##lesson"), *tour = window_named("##tour");
      ASSERT_NE(lesson, nullptr);
      ASSERT_NE(tour, nullptr);
      EXPECT_FALSE(lesson->Rect().Overlaps(tour->Rect())) << stop;
      seen += lesson->Active && tour->Active ? 1 : 0;
      user.ctx->SetRef("//##tour");
      user.ctx->ItemClick("###next");
    }
    EXPECT_EQ(seen, 4);
  });
}

}  // namespace driven_windows_test
}  // namespace attnscope::gui
