// A random walk over the app: clicks, drags, wheels, keys and commands, in any order. What it must
// not find: an assertion, a crash, a finding of a sanitizer.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <random>
#include <string>
#include <vector>

#include "tests/ui/headless_app.h"

namespace attnscope::gui {
namespace walk_test {

// ATTNSCOPE_WALK_ACTIONS and ATTNSCOPE_WALK_SEED change what is walked.
std::uint64_t setting(const char* name, std::uint64_t fallback) {
  const char* value = std::getenv(name);
  return value != nullptr ? std::strtoull(value, nullptr, 10) : fallback;
}

constexpr std::uint64_t kActions = 1000;

// An assets folder whose only scenario is a small one, since a walker opens whatever there is; and
// a home and working folder of its own.
class SmallAssets {
 public:
  SmallAssets() {
    namespace fs = std::filesystem;
    const fs::path from = fs::path(ATTNSCOPE_SOURCE_DIR) / "assets";
    folder_ = fs::temp_directory_path() / ("attnscope-walk-" + std::to_string(getpid()));
    fs::create_directories(folder_ / "scenarios");
    fs::copy(from / "themes", folder_ / "themes", fs::copy_options::recursive);
    for (const char* file :
         {"tolerances.json", "manual.md", "prompts.md", "scenarios/early.json"}) {
      fs::copy_file(from / file, folder_ / file, fs::copy_options::overwrite_existing);
    }
    setenv("ATTNSCOPE_ASSETS", folder_.c_str(), 1);
    // Where dialogs begin, and where a walker that types a name and saves leaves its files.
    before_ = fs::current_path();
    home_ = std::getenv("HOME") != nullptr ? std::getenv("HOME") : "";
    fs::create_directories(folder_ / "home" / "work");
    fs::current_path(folder_ / "home" / "work");
    setenv("HOME", (folder_ / "home").c_str(), 1);
  }
  ~SmallAssets() {
    unsetenv("ATTNSCOPE_ASSETS");
    setenv("HOME", home_.c_str(), 1);
    std::error_code error;
    std::filesystem::current_path(before_, error);
    std::filesystem::remove_all(folder_, error);
  }

 private:
  std::filesystem::path folder_, before_;
  std::string home_;
};

TEST(Walk, RandomActionsDoNoHarm) {
  const SmallAssets assets;
  const std::uint64_t actions = setting("ATTNSCOPE_WALK_ACTIONS", kActions);
  const std::uint64_t seed = setting("ATTNSCOPE_WALK_SEED", 1);
  std::printf("seed %llu, %llu actions\n", static_cast<unsigned long long>(seed),
              static_cast<unsigned long long>(actions));
  std::fflush(stdout);
  HeadlessApp app(References::kNone);
  std::mt19937_64 random(seed);
  std::uint64_t commands = 0;  // that succeeded
  const auto pick = [&](std::uint64_t n) { return static_cast<int>(random() % n); };
  // What ends the walk, or writes where the walker has no business.
  const auto left_out = [](const std::string& id) {
    return id == "app.quit" || id == "app.screenshot" || id.rfind("scenario.save", 0) == 0 ||
           id == "run.until_end";
  };
  // Values for commands that take one: good for some, nonsense for others.
  const std::vector<std::string> values = {"0",
                                           "1",
                                           "3",
                                           "7",
                                           "63",
                                           "0/1",
                                           "1/36",
                                           "2/0",
                                           "-1",
                                           "1e9",
                                           "",
                                           "1.5",
                                           "3",
                                           "0.75",
                                           "light",
                                           "dark",
                                           "grey",
                                           "viridis",
                                           "none",
                                           "sim",
                                           "cpu",
                                           "value",
                                           "numbers",
                                           "heat",
                                           "histogram",
                                           "history",
                                           "before",
                                           "difference",
                                           "block",
                                           "op",
                                           "values",
                                           "codes",
                                           "step",
                                           "run",
                                           "rel",
                                           "rank",
                                           "events",
                                           "log",
                                           "allocate",
                                           "pool",
                                           "o",
                                           "cache",
                                           "early",
                                           "small",
                                           "\xff\xfe",
                                           "1/2/wo_a",
                                           "0/-/schedule",
                                           "3/3/indexer_topk",
                                           "wo_a=cpu",
                                           "window_off_by_one",
                                           "op.back:Ctrl+K",
                                           std::string(300, 'x')};
  ImGuiIO& io = ImGui::GetIO();
  for (std::uint64_t i = 0; i < actions; ++i) {
    switch (pick(8)) {
      case 0:
      case 1:
      case 2: {
        io.AddMousePosEvent(static_cast<float>(pick(1600)), static_cast<float>(pick(1000)));
        app.frame();
        const int button = pick(8) == 0 ? 1 : 0, clicks = pick(8) == 0 ? 2 : 1;
        for (int click = 1; click < clicks; ++click) {
          io.AddMouseButtonEvent(button, true);
          app.frame();
          io.AddMouseButtonEvent(button, false);
          app.frame();
        }
        io.AddMouseButtonEvent(button, true);
        app.frame();
        if (pick(4) == 0) {
          io.AddMousePosEvent(static_cast<float>(pick(1600)), static_cast<float>(pick(1000)));
          app.frame();
        }
        io.AddMouseButtonEvent(button, false);
        break;
      }
      case 3:
        io.AddMouseWheelEvent(0, static_cast<float>(pick(7) - 3));
        break;
      case 4: {
        const auto key = static_cast<ImGuiKey>(ImGuiKey_Tab + pick(ImGuiKey_F12 - ImGuiKey_Tab));
        constexpr ImGuiKey kModifiers[] = {ImGuiMod_None, ImGuiMod_None, ImGuiMod_Ctrl,
                                           ImGuiMod_Shift, ImGuiMod_Alt};
        const ImGuiKey modifier = kModifiers[pick(5)];
        if (key == ImGuiKey_Q && modifier == ImGuiMod_Ctrl) break;
        if (modifier != ImGuiMod_None) io.AddKeyEvent(modifier, true);
        io.AddKeyEvent(key, true);
        app.frame();
        io.AddKeyEvent(key, false);
        if (modifier != ImGuiMod_None) io.AddKeyEvent(modifier, false);
        break;
      }
      case 5:
        io.AddInputCharacter(static_cast<unsigned>(32 + pick(95)));
        break;
      default: {
        const auto& all = app->commands().all();
        const Command& command = all[static_cast<std::size_t>(pick(all.size()))];
        if (left_out(command.id)) break;
        std::string text = command.id;
        if (!command.argument.empty() && pick(4) != 0) {
          text += "=" + values[static_cast<std::size_t>(pick(values.size()))];
        }
        if (app->commands().run(text)) ++commands;
      }
    }
    if (pick(200) == 0) {
      io.DisplaySize =
          ImVec2(static_cast<float>(300 + pick(1700)), static_cast<float>(200 + pick(900)));
    }
    app.frame();
    if (pick(16) == 0) {
      io.AddKeyEvent(ImGuiKey_Escape, true);
      app.frame();
      io.AddKeyEvent(ImGuiKey_Escape, false);
    }
  }
  app.settle();
  EXPECT_GT(ImGui::GetFrameCount(), static_cast<int>(actions));
  EXPECT_GT(commands, actions / 20) << "the walker got about";
}

}  // namespace walk_test
}  // namespace attnscope::gui
