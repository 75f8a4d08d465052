// What is typed and dropped: the scenario form, files, and everything in them that is wrong.
#include <imgui_internal.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "tests/ui/scenario_panel.h"

namespace attnscope::gui {
namespace driven_forms_test {

namespace fs = std::filesystem;

// A folder of its own that ends with the test.
class Folder {
 public:
  Folder() : path_(fs::temp_directory_path() / ("attnscope-forms-" + std::to_string(getpid()))) {
    fs::create_directories(path_);
  }
  ~Folder() {
    std::error_code error;
    fs::remove_all(path_, error);
  }
  std::string file(const char* name) const { return (path_ / name).string(); }
  std::string write(const char* name, const std::string& text) const {
    std::ofstream(path_ / name) << text;
    return file(name);
  }

 private:
  fs::path path_;
};

// Items that are scrolled out of sight cannot be found by a part of their name.
void scroll_form(User& user, float part) {
  for (ImGuiWindow* window : ImGui::GetCurrentContext()->Windows) {
    if (std::string_view(window->Name).find("##form") == std::string_view::npos) continue;
    ImGui::SetScrollY(window, part * window->ScrollMax.y);
  }
  user.wait(3);
}

TEST(Forms, AScenarioIsEditedAppliedAndSaved) {
  const Folder folder;
  DrivenApp app(References::kNone);
  app.drive([&](User& user) {
    open_early(app, user);
    const auto requests = app.bench().setup().scenario.requests.size();
    user.ctx->ItemInputValue("**/##requests[0].name", "first one");
    wait_for_draft(user);
    user.ctx->ItemInputValue("**/##requests[0].priority", "-2");
    wait_for_draft(user);
    EXPECT_NE(user.screen().find("Changed, not applied"), std::string::npos);
    EXPECT_EQ(app.bench().setup().scenario.requests[0].name, "one") << "not applied yet";
    user.ctx->ItemClick("**/Add");
    wait_for_draft(user);
    user.keys(ImGuiMod_Ctrl | ImGuiMod_Alt | ImGuiKey_Z);  // without the added request again
    wait_for_draft(user);
    scroll_form(user, 1);
    user.ctx->ItemClick("**/Serving");
    scroll_form(user, 1);
    user.ctx->ItemClick("**/off");  // prefix caching
    user.ctx->ItemClick("**/by priority");
    wait_for_draft(user);
    user.ctx->ItemClick("**/Apply##scenario.apply");
    user.settle();
    const Scenario& scenario = app.bench().setup().scenario;
    EXPECT_FALSE(scenario.serving.kv.caching);
    EXPECT_EQ(scenario.serving.policy, SchedulePolicy::kPriority);
    EXPECT_EQ(scenario.requests[0].priority, -2);
    EXPECT_EQ(scenario.requests[0].name, "first one");
    EXPECT_EQ(scenario.requests.size(), requests);
    EXPECT_EQ(app.bench().snapshot()->info->request_names[0], "first one");
    EXPECT_NE(user.screen().find("request 0 \"first one\""), std::string::npos);

    const std::string path = folder.file("mine.json");
    ASSERT_TRUE(app->commands().run("scenario.save_as=" + path));
    user.wait(4);
    EXPECT_TRUE(fs::exists(path));
    ASSERT_TRUE(app->commands().run("scenario.open=early"));
    user.settle();
    EXPECT_EQ(app.bench().setup().scenario.requests[0].name, "one");
    ASSERT_TRUE(app->commands().run("scenario.open=" + path));
    user.settle();
    EXPECT_EQ(app.bench().setup().scenario.requests[0].name, "first one");
    EXPECT_EQ(app->settings().recent.front(), path);
  });
}

TEST(Forms, AWrongFieldIsNamedAndTheSessionStays) {
  DrivenApp app(References::kNone);
  app.drive([&](User& user) {
    open_early(app, user);
    const auto info = app.bench().snapshot()->info;
    const Place cursor = app.bench().cursor();
    user.ctx->ItemInputValue("**/##requests[0].max_new_tokens", "many");
    wait_for_draft(user);
    EXPECT_NE(user.screen().find("One field is wrong below; the session still runs early."),
              std::string::npos);
    user.ctx->ItemClick("**/Apply##scenario.apply");
    user.settle();
    EXPECT_TRUE(app.said("requests[0].max_new_tokens"));
    EXPECT_EQ(app.bench().snapshot()->info, info) << "the session is the same one";
    EXPECT_EQ(app.bench().cursor(), cursor);
    user.ctx->ItemClick("**/Revert##scenario.revert");
    wait_for_draft(user);
    EXPECT_EQ(user.screen().find("One field is wrong"), std::string::npos);
    EXPECT_FALSE(app->commands().find("scenario.apply")->enabled());
  });
}

TEST(Forms, AnErrorOfAnotherRequestIsToldAtTheTop) {
  DrivenApp app(References::kNone);
  app.drive([&](User& user) {
    open_early(app, user);
    const std::string place =
        "requests[" + std::to_string(app.bench().setup().scenario.requests.size()) + "].tokens";
    user.ctx->ItemClick("**/Add");  // selected from now on
    wait_for_draft(user);
    user.ctx->ItemInputValue(("**/##" + place).c_str(), "few");
    wait_for_draft(user);
    EXPECT_NE(user.screen().find("\"few\" is not a whole number"), std::string::npos);
    EXPECT_EQ(user.screen().find(place), std::string::npos) << "it stands at its field";
    user.ctx->ItemClick("**/##row");  // of the first request
    user.wait(3);
    EXPECT_NE(user.screen().find(place + ": \"few\" is not a whole number"), std::string::npos);
    user.ctx->ItemInputValue("**/##model.layers", "0, -1");
    user.keys(ImGuiMod_Ctrl | ImGuiMod_Alt | ImGuiKey_Z);
    user.keys(ImGuiMod_Ctrl | ImGuiMod_Alt | ImGuiKey_Z);
    wait_for_draft(user);
    user.ctx->ItemInputValue("**/##model.layers", "0, -1");
    wait_for_draft(user);
    EXPECT_NE(user.screen().find("One field is wrong"), std::string::npos);
    EXPECT_EQ(user.screen().find("model.layers"), std::string::npos) << "it stands at its field";
    EXPECT_NE(user.screen().find("at place 1"), std::string::npos);
  });
}

TEST(Forms, WhatIsRememberedIsWrittenAndNotUndone) {
  const Folder folder;
  {
    HeadlessApp app(References::kNone, folder.file("state"));
    std::filesystem::create_directories(folder.file("state"));
    ASSERT_TRUE(app->commands().run("settings.scale=1.25"));
    ASSERT_TRUE(app->commands().run("scenario.open=early"));
    app.settle();
    ASSERT_TRUE(app->commands().run("settings.undo"));
    EXPECT_EQ(app->settings().scale, 1.0f);
    EXPECT_EQ(app->settings().scenario, "early");
    ASSERT_TRUE(app->commands().run("settings.redo"));
    EXPECT_EQ(app->settings().scenario, "early");
    for (int i = 0; i < 150; ++i) app.frame();  // without a save at the end, as after a crash
  }
  const LoadedSettings kept = load_settings(folder.file("state") + "/settings.json");
  EXPECT_EQ(kept.settings.scenario, "early");
  EXPECT_EQ(kept.settings.scale, 1.25f);
}

TEST(Forms, DroppedFilesThatAreNoScenariosAreRefusedWithAReason) {
  const Folder folder;
  DrivenApp app;
  const std::string files[] = {
      folder.write("cut.json", "{\"model\": {\"pres"),
      folder.write("empty.json", ""),
      folder.write("list.json", "[1, 2, 3]"),
      folder.write("other.json", "{\"hello\": \"world\"}"),
      folder.write("binary.json", std::string("\x89PNG\r\n\0\xff\xfe", 9)),
      folder.write("deep.json", std::string(20000, '[')),
      folder.file("not there.json"),
      folder.file("."),
  };
  app.drive([&](User& user) {
    const auto info = app.bench().snapshot()->info;
    const Place cursor = app.bench().cursor();
    for (const std::string& file : files) {
      SCOPED_TRACE(file);
      const std::size_t messages = app.bench().messages().size();
      app->shell().ui().run("scenario.open=" + file);  // what a drop on the window does
      user.settle();
      ASSERT_GT(app.bench().messages().size(), messages);
      const Message& message = app.bench().messages().back();
      EXPECT_EQ(message.kind, Message::Kind::kError);
      EXPECT_NE(user.screen().find(message.text.substr(0, message.text.find('\n')).substr(0, 60)),
                std::string::npos)
          << message.text;
      EXPECT_EQ(app.bench().snapshot()->info, info);
      EXPECT_EQ(app.bench().cursor(), cursor);
    }
    user.keys(ImGuiMod_Ctrl | ImGuiKey_LeftArrow);
    user.settle();
    EXPECT_EQ(app.bench().cursor().step, cursor.step - 1) << "the session goes on";
  });
}

TEST(Forms, TheFileDialogOpensWhatIsTypedAndSaysWhatIsWrong) {
  const Folder folder;
  const std::string broken = folder.write("broken.json", "{");
  DrivenApp app(References::kNone);
  app.drive([&](User& user) {
    user.keys(ImGuiMod_Ctrl | ImGuiKey_O);
    user.wait(4);
    user.ctx->SetRef("//Open scenario###file dialog");
    user.ctx->ItemInputValue("**/##path", broken.c_str());
    user.wait(2);
    user.ctx->ItemClick("**/Open");
    user.wait(4);
    EXPECT_EQ(app.bench().setup().scenario.name, "small");
    EXPECT_NE(user.screen().find("broken.json"), std::string::npos);
    user.ctx->ItemClick("**/early");  // one of the shipped
    user.settle();
    EXPECT_EQ(app.bench().setup().scenario.name, "early");
    EXPECT_FALSE(
        ImGui::IsPopupOpen("", ImGuiPopupFlags_AnyPopupId | ImGuiPopupFlags_AnyPopupLevel));
  });
}

TEST(Forms, NoTextHarmsAField) {
  DrivenApp app(References::kNone);
  app.drive([&](User& user) {
    open_early(app, user);
    const std::string texts[] = {"",
                                 " ",
                                 "\xff\xfe",
                                 "-1",
                                 "1e999",
                                 "nan",
                                 "0x10",
                                 "%s%n%d",
                                 "##",
                                 "a/b\\c",
                                 "\"",
                                 std::string(5000, '9'),
                                 "\xe2\x82\xac"};
    const auto info = app.bench().snapshot()->info;
    for (const char* field : {"##requests[0].name", "##requests[0].offset", "##requests[0].tokens",
                              "##requests[0].max_new_tokens"}) {
      for (const std::string& text : texts) {
        user.ctx->ItemInputValue((std::string("**/") + field).c_str(), text.c_str());
        wait_for_draft(user);  // an error below the field moves the others
      }
    }
    wait_for_draft(user);
    EXPECT_EQ(app.bench().snapshot()->info, info) << "nothing was applied";
    ASSERT_TRUE(app->commands().run("scenario.revert"));
    wait_for_draft(user);
    EXPECT_FALSE(app->commands().find("scenario.apply")->enabled());
    user.show("events");
    for (const std::string& text : texts) {
      user.ctx->ItemInputValue("**/##filter", text.c_str());
      user.wait(1);
    }
    user.keys(ImGuiMod_Ctrl | ImGuiKey_P);
    for (const std::string& text : texts) {
      user.ctx->KeyCharsReplace(text.c_str());
      user.wait(1);
    }
    user.keys(ImGuiKey_Escape);
    EXPECT_EQ(app.bench().snapshot()->info, info);
  });
}

}  // namespace driven_forms_test
}  // namespace attnscope::gui
