// Menus, tool bar, palette, keys, layouts, themes and settings, as a user reaches them.
#include <fmt/format.h>

#include "app/gui/icons.h"
#include "app/gui/layouts.h"
#include "app/gui/theme.h"
#include "tests/ui/driven_app.h"

namespace attnscope::gui {
namespace driven_bars_test {

constexpr const char* kMenuBar = "//##MainMenuBar";

bool popup_open() {
  return ImGui::IsPopupOpen("", ImGuiPopupFlags_AnyPopupId | ImGuiPopupFlags_AnyPopupLevel);
}

TEST(Driven, EveryMenuShowsItsCommandsWithTheirTitles) {
  DrivenApp app(References::kNone);
  app.drive([&](User& user) {
    int shown = 0;
    for (const char* menu : {"File", "Session", "Selection", "View", "Layout", "Help"}) {
      user.ctx->SetRef(kMenuBar);
      user.ctx->MenuClick(menu);
      user.ctx->SetRef("//$FOCUSED");
      for (const Command& command : app->commands().all()) {
        if (command.group != menu || !command.in_menu) continue;
        const std::string item = command.title + "##" + command.id;
        EXPECT_TRUE(user.ctx->ItemExists(item.c_str())) << menu << ": " << item;
        ++shown;
      }
      user.ctx->PopupCloseAll();
    }
    EXPECT_GT(shown, 50);
  });
}

TEST(Driven, AMenuItemRunsItsCommand) {
  DrivenApp app(References::kNone);
  const Place start = app.bench().cursor();
  app.drive([&](User& user) {
    user.ctx->SetRef(kMenuBar);
    user.ctx->MenuClick("Session/Previous step##step.back");
    user.settle();
    EXPECT_EQ(app.bench().cursor(), (Place{start.step - 1, start.layer, start.op}));
    user.ctx->SetRef(kMenuBar);
    user.ctx->MenuClick("View/Bytes##panel.bytes");
    user.wait(3);
    EXPECT_FALSE(user.ctx->GetWindowByRef(("//" + user.window("bytes")).c_str())->Hidden);
    user.ctx->SetRef(kMenuBar);
    user.ctx->MenuClick("Layout/Cache##layout.cache");
    user.wait(3);
    EXPECT_EQ(app->shell().layout(), "cache");
  });
}

TEST(Driven, ToolBarButtonsMoveTheCursorAndListsChooseTheReferences) {
  DrivenApp app(References::kNone);
  const Place start = app.bench().cursor();
  app.drive([&](User& user) {
    const auto press = [&](const char* icon, const char* command) {
      user.ctx->SetRef(kMenuBar);
      user.ctx->ItemClick(fmt::format("##MenuBar/{}##{}", icon, command).c_str());
      user.settle();
    };
    press(icon::kBackwardStep, "step.back");
    EXPECT_EQ(app.bench().cursor().step, start.step - 1);
    press(icon::kAngleLeft, "op.back");
    EXPECT_NE(app.bench().cursor().op, start.op);
    press(icon::kFastBackward, "cursor.first");
    EXPECT_EQ(app.bench().cursor().step, 0);
    EXPECT_NE(app.bench().op(), nullptr) << "the step was replayed and is there to see";
    user.ctx->SetRef(kMenuBar);
    user.ctx->ItemClick("##MenuBar/##references");
    user.ctx->SetRef("//$FOCUSED");
    user.ctx->ItemClick("ref.sim");
    user.settle();
    EXPECT_EQ(app.bench().setup().references, References::kSim);
    ASSERT_NE(app.bench().op(), nullptr);
    EXPECT_NE(app.bench().op()->worst, Verdict::kNotCompared) << "the op is compared now";
  });
}

TEST(Driven, TheStatusBarCountsDecisionsBesideTaps) {
  DrivenApp app(References::kSim);
  app.drive([&](User& user) {
    const StepSummary* step = app.bench().summary();
    ASSERT_NE(step, nullptr);
    ASSERT_GT(step->decisions, 0);
    const std::string shown = fmt::format("taps as the reference, {} decisions", step->decisions);
    EXPECT_NE(user.screen().find(shown), std::string::npos);
  });
}

TEST(Driven, ThePaletteFindsRunsAsksAndRefuses) {
  DrivenApp app(References::kNone);
  app.drive([&](User& user) {
    const auto type = [&](const char* text) {
      user.keys(ImGuiMod_Ctrl | ImGuiKey_P);
      EXPECT_TRUE(popup_open());
      user.ctx->KeyChars(text);
      user.wait();
    };
    const auto enter = [&] {
      user.keys(ImGuiKey_Enter);
      user.settle();
    };
    EXPECT_TRUE(theme().dark);
    type("lgtordrk");  // some letters of "Light or dark", in order
    EXPECT_NE(user.screen().find("Switches between light and dark."), std::string::npos);
    enter();
    EXPECT_FALSE(popup_open());
    EXPECT_EQ(app->settings().theme, "light");
    EXPECT_FALSE(theme().dark);

    type("5/1/indexer_topk");
    enter();
    EXPECT_EQ(app.bench().cursor(), (Place{5, 1, AS_OP_INDEXER_TOPK}));

    type("select.head=3");
    enter();
    EXPECT_EQ(app.selection().head, 3);

    type("Head ..");  // asks for its value
    enter();
    EXPECT_TRUE(popup_open());
    user.ctx->KeyChars("2");
    user.wait();
    enter();
    EXPECT_EQ(app.selection().head, 2);

    type("select.head=99");
    enter();
    EXPECT_TRUE(popup_open()) << "what is wrong stays to be mended";
    EXPECT_NE(user.screen().find("'99' is not a whole number from 0 to 3"), std::string::npos);
    EXPECT_EQ(app.selection().head, 2);
    user.keys(ImGuiKey_Escape);
    EXPECT_FALSE(popup_open());

    type("no such command at all");
    enter();
    user.keys(ImGuiKey_Escape);
    EXPECT_FALSE(popup_open());
    EXPECT_EQ(app.selection().head, 2);
  });
}

TEST(Driven, KeysMoveCursorAndSelection) {
  DrivenApp app(References::kNone);
  app.drive([&](User& user) {
    const Place start = app.bench().cursor();
    const auto press = [&](ImGuiKeyChord chord) {
      user.keys(chord);
      user.settle();
    };
    press(ImGuiKey_LeftArrow);
    EXPECT_NE(app.bench().cursor().op, start.op);
    EXPECT_EQ(app.bench().cursor().step, start.step);
    press(ImGuiKey_RightArrow);
    EXPECT_EQ(app.bench().cursor(), start);
    press(ImGuiKey_UpArrow);
    EXPECT_EQ(app.bench().cursor(), (Place{start.step, start.layer - 1, start.op}));
    press(ImGuiKey_DownArrow);
    EXPECT_EQ(app.bench().cursor(), start);
    press(ImGuiMod_Ctrl | ImGuiKey_LeftArrow);
    EXPECT_EQ(app.bench().cursor(), (Place{start.step - 1, start.layer, start.op}));
    press(ImGuiKey_Home);
    EXPECT_EQ(app.bench().cursor().step, 0);
    press(ImGuiKey_End);
    EXPECT_EQ(app.bench().cursor().step, start.step);
    press(ImGuiKey_H);
    EXPECT_EQ(app.selection().head, 1);
    press(ImGuiMod_Shift | ImGuiKey_H);
    EXPECT_EQ(app.selection().head, 0);
    press(ImGuiKey_R);
    EXPECT_EQ(app.selection().request, 1);
    const std::int64_t newest = app.bench().selected_position();
    press(ImGuiKey_LeftBracket);
    EXPECT_EQ(app.selection().position, newest - 1);
    press(ImGuiKey_N);
    EXPECT_EQ(app.selection().position, -1);
    press(ImGuiKey_B);
    EXPECT_GT(app.selection().block, 0);
  });
}

TEST(Driven, FunctionKeysSwitchLayoutsAndEachShowsItsPanels) {
  DrivenApp app(References::kNone);
  app.drive([&](User& user) {
    struct Expected {
      ImGuiKey key;
      const char* layout;
      std::vector<const char*> front;  // panels that are to be seen at once
      const char* closed;
    };
    const Expected all[] = {
        {ImGuiKey_F2, "cache", {"timeline", "block_tables", "pool", "window", "bytes"}, "top_k"},
        {ImGuiKey_F3, "selection", {"timeline", "top_k", "window", "sink"}, "pool"},
        {ImGuiKey_F4, "error", {"timeline", "pipeline", "error", "tensor", "selection"}, "pool"},
        {ImGuiKey_F5, "review", {"review"}, "pool"},
        {ImGuiKey_F1,
         "step",
         {"timeline", "pipeline", "block_tables", "pool", "tensor", "top_k", "sink", "error",
          "selection"},
         nullptr},
    };
    const auto seen = [&](const char* panel) {
      const ImGuiWindow* window = user.ctx->GetWindowByRef(("//" + user.window(panel)).c_str());
      return window != nullptr && window->Active && !window->Hidden;
    };
    const Place cursor = app.bench().cursor();
    for (const Expected& expected : all) {
      SCOPED_TRACE(expected.layout);
      user.keys(expected.key);
      user.wait(4);
      EXPECT_EQ(app->shell().layout(), expected.layout);
      for (const char* panel : expected.front) EXPECT_TRUE(seen(panel)) << panel;
      if (expected.closed != nullptr) {
        EXPECT_FALSE(app->shell().panel(expected.closed)->open);
        EXPECT_FALSE(seen(expected.closed));
      }
      EXPECT_TRUE(app.checked(std::string("layout.") + expected.layout));
    }
    EXPECT_EQ(app.bench().cursor(), cursor) << "a layout shows the same place";
  });
}

TEST(Driven, SettingsChangeInTheirDialogAndAreUndone) {
  DrivenApp app(References::kNone);
  const Settings before = app->settings();
  app.drive([&](User& user) {
    user.keys(ImGuiMod_Ctrl | ImGuiKey_Comma);
    user.wait(3);
    const auto press = [&](const char* item) {
      user.ctx->SetRef("//Settings");
      user.ctx->ItemClick(item);
      user.wait(3);
    };
    press("**/light");
    EXPECT_EQ(app->settings().theme, "light");
    EXPECT_EQ(theme().name, "light");
    press("**/150 %##scale 150");
    EXPECT_FLOAT_EQ(app->settings().scale, 1.5f);
    EXPECT_FLOAT_EQ(px(10), 15);
    press("**/##animations");
    EXPECT_NE(app->settings().animations, before.animations);
    press("**/##whole_sentences");
    EXPECT_NE(app->settings().whole_sentences, before.whole_sentences);
    press("**/grey");
    EXPECT_EQ(app->settings().colour_map, "grey");
    user.ctx->ItemInputValue("**/##settings.trace_budget", "7");  // less than the least
    user.wait(3);
    EXPECT_EQ(app->settings().trace_budget_mb, before.trace_budget_mb);
    EXPECT_NE(user.screen().find("not a whole number from 16"), std::string::npos);
    user.ctx->ItemInputValue("**/##settings.trace_budget", "96");
    user.wait(3);
    EXPECT_EQ(app->settings().trace_budget_mb, 96);
    for (int i = 0; i < 6; ++i) press("Undo##settings.undo");
    EXPECT_EQ(app->settings(), before);
    EXPECT_TRUE(theme().dark);
    EXPECT_FLOAT_EQ(px(10), 10);
    press("Redo##settings.redo");
    EXPECT_EQ(app->settings().theme, "light");
    press("Reset all##settings.reset");
    EXPECT_EQ(app->settings().theme, "dark");
    user.keys(ImGuiKey_Escape);
    EXPECT_FALSE(popup_open());
  });
}

TEST(Driven, AShortcutIsGivenByPressingIt) {
  DrivenApp app(References::kNone);
  app.drive([&](User& user) {
    user.keys(ImGuiMod_Ctrl | ImGuiKey_Comma);
    user.wait(3);
    user.ctx->SetRef("//Settings");
    user.ctx->ItemClick("**/Shortcuts");
    user.ctx->ItemInputValue("##filter", "step.forward");
    user.wait(2);
    user.ctx->ItemClick("**/step.forward/###keys");
    user.keys(ImGuiMod_Ctrl | ImGuiKey_J);
    user.wait(2);
    EXPECT_EQ(app->commands().shortcut("step.forward"), "Ctrl+J");
    user.keys(ImGuiKey_Escape);
    ASSERT_TRUE(app->commands().run("step.back"));
    user.settle();
    const std::int64_t step = app.bench().cursor().step;
    user.keys(ImGuiMod_Ctrl | ImGuiKey_J);
    user.settle();
    EXPECT_EQ(app.bench().cursor().step, step + 1) << "the new key works";
    ASSERT_TRUE(app->commands().run("settings.undo"));
    user.wait(2);
    EXPECT_EQ(app->commands().shortcut("step.forward"), "Ctrl+Right");
  });
}

}  // namespace driven_bars_test
}  // namespace attnscope::gui
