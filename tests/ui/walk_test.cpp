// A random walk over the app: clicks, drags, wheels, keys and commands, in any order. What it must
// not find: an assertion, a crash, a finding of a sanitizer.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <random>

#include "tests/ui/headless_app.h"

namespace attnscope::gui {
namespace {

// ATTNSCOPE_WALK_ACTIONS and ATTNSCOPE_WALK_SEED change what is walked.
std::uint64_t setting(const char* name, std::uint64_t fallback) {
  const char* value = std::getenv(name);
  return value != nullptr ? std::strtoull(value, nullptr, 10) : fallback;
}

#ifdef __SANITIZE_ADDRESS__
constexpr std::uint64_t kActions = 20000;
#else
constexpr std::uint64_t kActions = 1000;
#endif

// An assets folder whose only scenario is a small one: a walker opens whatever there is.
class SmallAssets {
 public:
  SmallAssets() {
    namespace fs = std::filesystem;
    const fs::path from = fs::path(ATTNSCOPE_SOURCE_DIR) / "assets";
    folder_ = fs::temp_directory_path() / ("attnscope-walk-" + std::to_string(getpid()));
    fs::create_directories(folder_ / "scenarios");
    fs::copy(from / "themes", folder_ / "themes", fs::copy_options::recursive);
    for (const char* file : {"tolerances.json", "manual.md", "scenarios/early.json"}) {
      fs::copy_file(from / file, folder_ / file, fs::copy_options::overwrite_existing);
    }
    setenv("ATTNSCOPE_ASSETS", folder_.c_str(), 1);
  }
  ~SmallAssets() {
    unsetenv("ATTNSCOPE_ASSETS");
    std::error_code error;
    std::filesystem::remove_all(folder_, error);
  }

 private:
  std::filesystem::path folder_;
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
  const auto pick = [&](std::uint64_t n) { return static_cast<int>(random() % n); };
  // What ends the walk, or writes where the walker has no business.
  const auto left_out = [](const std::string& id) {
    return id == "app.quit" || id == "app.screenshot" || id.rfind("scenario.save", 0) == 0 ||
           id == "run.until_end";
  };
  ImGuiIO& io = ImGui::GetIO();
  for (std::uint64_t i = 0; i < actions; ++i) {
    switch (pick(8)) {
      case 0:
      case 1:
      case 2: {
        io.AddMousePosEvent(static_cast<float>(pick(1600)), static_cast<float>(pick(1000)));
        app.frame();
        io.AddMouseButtonEvent(0, true);
        app.frame();
        if (pick(4) == 0) {
          io.AddMousePosEvent(static_cast<float>(pick(1600)), static_cast<float>(pick(1000)));
          app.frame();
        }
        io.AddMouseButtonEvent(0, false);
        break;
      }
      case 3:
        io.AddMouseWheelEvent(0, static_cast<float>(pick(7) - 3));
        break;
      case 4: {
        const auto key = static_cast<ImGuiKey>(ImGuiKey_Tab + pick(ImGuiKey_F12 - ImGuiKey_Tab));
        io.AddKeyEvent(key, true);
        app.frame();
        io.AddKeyEvent(key, false);
        break;
      }
      case 5:
        io.AddInputCharacter(static_cast<unsigned>(32 + pick(95)));
        break;
      default: {
        const auto& all = app->commands().all();
        const std::string id = all[static_cast<std::size_t>(pick(all.size()))].id;
        if (!left_out(id)) (void)app->commands().run(id);
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
}

}  // namespace
}  // namespace attnscope::gui
