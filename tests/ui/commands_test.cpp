// Every command there is has a test of what it does; nonsense and wrong moments are refused.
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <set>

#include "tests/ui/command_effects.h"

namespace attnscope::gui {

void Trial::run(const std::string& id_and_value) {
  const auto ok = app->commands().run(id_and_value);
  EXPECT_TRUE(ok) << id_and_value << ": " << (ok ? "" : ok.error().text());
  user.settle();
}

bool Trial::in_front(const char* panel) {
  const ImGuiWindow* window = user.ctx->GetWindowByRef(("//" + user.window(panel)).c_str());
  return window != nullptr && window->Active && !window->Hidden;
}

std::uint64_t Trial::picture(const char* panel) {
  user.wait(2);
  const std::string name = user.window(panel);
  std::uint64_t hash = 14695981039346656037u;
  for (const ImGuiWindow* window : ImGui::GetCurrentContext()->Windows) {
    if (!window->Active || !std::string_view(window->Name).starts_with(name)) continue;
    for (const ImDrawVert& v : window->DrawList->VtxBuffer) {
      for (const float x : {v.pos.x, v.pos.y, static_cast<float>(v.col >> 8)}) {
        hash = (hash ^ std::hash<float>{}(x)) * 1099511628211u;
      }
    }
  }
  return hash;
}

bool Trial::popup_open() const {
  return ImGui::IsPopupOpen("", ImGuiPopupFlags_AnyPopupId | ImGuiPopupFlags_AnyPopupLevel);
}

std::string Trial::clipboard() const {
  const char* text = ImGui::GetClipboardText();
  return text != nullptr ? text : "";
}

namespace commands_test {

namespace fs = std::filesystem;

// The session that effects expect: at its end, or opened anew where the effect before changed it.
void start_anew(Trial& t, References references) {
  t.app->settings() = Settings{};
  t.app->settings().tour_seen = true;
  const RunSetup& now = t.bench().setup();
  const Scenario small = small_scenario();
  const bool same = now.scenario.name == small.name &&
                    now.scenario.model.layers == small.model.layers &&
                    now.scenario.requests.size() == small.requests.size() &&
                    now.scenario.requests[0].tokens == small.requests[0].tokens &&
                    now.references == references && now.lanes == RunSetup{}.lanes &&
                    t.bench().planted().empty() && t.bench().snapshot()->finished;
  if (!same) {
    RunSetup setup;
    setup.scenario = small;
    setup.references = references;
    t.bench().open(std::move(setup), true);
    t.user.settle();
  }
  t.run("select.none");
  t.run("select.token=0/0");
  t.run("select.newest_token");
  t.run("cursor.goto=7/3/sparse_attention");
  t.run("layout.step");
  t.run("layout.reset");
  t.run("timeline.fit");
  t.user.wait(4);
}

class Folder {
 public:
  Folder() : path(fs::temp_directory_path() / ("attnscope-commands-" + std::to_string(getpid()))) {
    fs::create_directories(path);
  }
  ~Folder() {
    std::error_code error;
    fs::remove_all(path, error);
  }
  const fs::path path;
};

Effects all_effects() {
  Effects all = session_effects();
  for (Effects part : {shell_effects(), panel_effects(), overlay_effects()}) all.merge(part);
  return all;
}

// Fails for a command that has no effect in the tables of command_effects.h, and for an effect
// whose command is gone.
TEST(Commands, EachOneHasATestOfItsEffect) {
  HeadlessApp app(References::kNone);
  const Effects effects = all_effects();
  std::set<std::string> ids;
  for (const Command& command : app->commands().all()) {
    ids.insert(command.id);
    EXPECT_TRUE(effects.contains(command.id))
        << "the command " << command.id << " has no test: add its effect to tests/ui/effects_*.cpp";
  }
  for (const auto& [id, effect] : effects) {
    EXPECT_TRUE(ids.contains(id)) << "the effect of " << id
                                  << " is tested, but there is no such command";
  }
  EXPECT_GT(ids.size(), 90u);
}

void run_effects(const Effects& effects, References references) {
  const Folder folder;
  DrivenApp app(references);
  std::set<void (*)(Trial&)> ran;
  for (const auto& [id, effect] : effects) {
    SCOPED_TRACE(id);
    // A function that stands for several commands tests all of them in one go.
    const auto* const in_one_go = effect.target<void (*)(Trial&)>();
    if (in_one_go != nullptr && !ran.insert(*in_one_go).second) continue;
    app.drive([&](User& user) {
      Trial t{app, user, folder.path.string()};
      start_anew(t, references);
      effect(t);
    });
    EXPECT_NE(app.bench().snapshot(), nullptr);
  }
}

TEST(Commands, OfTheSessionDoWhatTheySay) { run_effects(session_effects(), References::kNone); }
TEST(Commands, OfTheShellDoWhatTheySay) { run_effects(shell_effects(), References::kNone); }
TEST(Commands, OfThePanelsDoWhatTheySay) { run_effects(panel_effects(), References::kSim); }
TEST(Commands, OfDialogsAndFilesDoWhatTheySay) {
  run_effects(overlay_effects(), References::kNone);
}

// A command that does not fit now says why and changes nothing.
TEST(Commands, WithoutASessionTheyAreRefusedOrDoNoHarm) {
  App::Options options;
  options.keep_settings = false;
  App app(options, {make_panels});
  ImGuiIO& io = ImGui::GetIO();
  io.BackendFlags |= ImGuiBackendFlags_RendererHasTextures;
  io.DisplaySize = ImVec2(1600, 1000);
  std::vector<std::string> ids;
  for (const Command& command : app.commands().all()) ids.push_back(command.id);
  for (const std::string& id : ids) {
    const Command* command = app.commands().find(id);
    const bool enabled = !command->enabled || command->enabled();
    const auto ok = app.commands().run(id);
    if (!enabled) {
      ASSERT_FALSE(ok) << id;
      EXPECT_NE(ok.error().text().find(command->why_disabled), std::string::npos) << id;
    }
  }
  EXPECT_EQ(app.bench().snapshot(), nullptr);
}

TEST(Commands, UnknownOnesAreRefusedWithTheNearest) {
  HeadlessApp app(References::kNone);
  const auto wrong = app->commands().run("step.forwrd");
  ASSERT_FALSE(wrong);
  EXPECT_EQ(wrong.error().code, AS_USAGE);
  EXPECT_NE(wrong.error().text().find("step.forward"), std::string::npos);
  EXPECT_FALSE(app->commands().run("cursor.goto=1/2"));
  EXPECT_FALSE(app->commands().run("select.head=99999"));
  EXPECT_FALSE(app->commands().run("settings.scale=nan"));
  EXPECT_FALSE(app->commands().run("settings.theme=/no/such/theme.json"));
}

}  // namespace commands_test
}  // namespace attnscope::gui
