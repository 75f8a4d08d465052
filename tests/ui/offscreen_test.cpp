// Pictures without a display: drawn by a real OpenGL, and what is said where there is none.
#include <gtest/gtest.h>
#include <imgui.h>
#include <unistd.h>

#include <array>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "app/gui/gl_frame.h"
#include "app/gui/gui.h"
#include "app/panels/panels.h"
#include "tests/unit/app/small_scenario.h"

namespace attnscope::gui {
namespace offscreen_test {

namespace fs = std::filesystem;

class OffScreen : public testing::Test {
 protected:
  OffScreen()
      : folder_(fs::temp_directory_path() / ("attnscope-offscreen-" + std::to_string(getpid()))) {
    fs::create_directories(folder_);
    set("XDG_STATE_HOME", folder_.c_str());
    set("LIBGL_ALWAYS_SOFTWARE", "1");
    options_.scenario = "early";
    options_.references = References::kNone;
    options_.width = 640;
    options_.height = 400;
    options_.screenshot = (folder_ / "picture.png").string();
  }
  ~OffScreen() override {
    for (const auto& [name, value] : before_) {
      if (value) {
        setenv(name, value->c_str(), 1);
      } else {
        unsetenv(name);
      }
    }
    std::error_code error;
    fs::remove_all(folder_, error);
  }
  void set(const char* name, const char* value) {
    const char* now = std::getenv(name);
    before_.emplace_back(name, now != nullptr ? std::optional<std::string>(now) : std::nullopt);
    setenv(name, value, 1);
  }
  Result<as_status> run() const { return run_gui(options_, {make_panels}); }

  fs::path folder_;
  std::vector<std::pair<const char*, std::optional<std::string>>> before_;
  GuiOptions options_;
};

TEST_F(OffScreen, APictureHasItsSizeAndContent) {
  options_.report = (folder_ / "report.json").string();
  const auto ran = run();
  ASSERT_TRUE(ran) << ran.error().text();
  EXPECT_EQ(*ran, AS_OK);
  EXPECT_TRUE(fs::exists(options_.report));
  std::ifstream file(options_.screenshot, std::ios::binary);
  const std::string png{std::istreambuf_iterator<char>(file), {}};
  ASSERT_GT(png.size(), 24u);
  EXPECT_EQ(png.substr(1, 3), "PNG");
  const auto number = [&](std::size_t at) {  // 32 bits, most significant first
    std::uint32_t value = 0;
    for (std::size_t i = 0; i < 4; ++i) {
      value = value << 8 | static_cast<std::uint8_t>(png[at + i]);
    }
    return value;
  };
  EXPECT_EQ(number(16), 640u);
  EXPECT_EQ(number(20), 400u);
}

// As in a window, frames are drawn between commands.
TEST_F(OffScreen, CommandsFindWhatIsOnTheScreen) {
  const std::string picture = (folder_ / "error.png").string();
  const std::string table = (folder_ / "error.csv").string();
  options_.commands = {"panel.error", "panel.picture=error:" + picture,
                       "panel.table=error:" + table};
  const auto ran = run();
  ASSERT_TRUE(ran) << ran.error().text();
  ASSERT_TRUE(fs::exists(picture));
  EXPECT_GT(fs::file_size(picture), 1000u);
  ASSERT_TRUE(fs::exists(table));
  EXPECT_GT(fs::file_size(table), 10u);
}

// A picture is of what a panel has computed, however long that took.
TEST_F(OffScreen, CommandsWaitForWhatAPanelComputes) {
  const std::string table = (folder_ / "sweep.csv").string();
  options_.commands = {"row_sweep.generate=batch=4,context=4096,top-k=256,steps=32",
                       "panel.table=row_sweep:" + table};
  const auto ran = run();
  ASSERT_TRUE(ran) << ran.error().text();
  ASSERT_TRUE(fs::exists(table));
  EXPECT_GT(fs::file_size(table), 200u) << "a line a pool";
}

TEST_F(OffScreen, TheLaneIsThatAskedFor) {
  options_.report = (folder_ / "report.json").string();
  options_.references = References::kSim;
  options_.lanes = {"residual=mutant:residual_missing"};
  const auto ran = run();
  ASSERT_TRUE(ran) << ran.error().text();
  std::ifstream file(options_.report);
  const std::string report{std::istreambuf_iterator<char>(file), {}};
  EXPECT_NE(report.find("\"lanes\": \"cpu, residual=mutant:residual_missing\""), std::string::npos);
  EXPECT_NE(report.find("\"verdict\": \"wrong\""), std::string::npos);
  options_.lanes = {"nobody"};
  const auto refused = run();
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, AS_USAGE);
  EXPECT_NE(refused.error().message.find("nobody"), std::string::npos) << refused.error().text();
}

// As `attnscope run` refuses it: the picture would be of another lane, and not say so.
TEST_F(OffScreen, ALaneOfAnOpThatTheModelDoesNotRunIsRefused) {
  const struct {
    const char *lane, *why;
  } cases[] = {{"paged_attention=cpu",
                "--lane paged_attention=cpu: this model runs no op paged_attention; its ops: "
                "schedule, "},
               {"mutant:scale_missing",
                "--lane mutant:scale_missing: this model runs no op of it; its ops: "
                "paged_attention"}};
  for (const auto& c : cases) {
    for (const bool command : {false, true}) {
      options_.lanes = {command ? "cpu" : c.lane};
      options_.commands.clear();
      if (command) options_.commands = {std::string("lane.set=") + c.lane};
      const auto refused = run();
      ASSERT_FALSE(refused) << c.lane << command;
      EXPECT_EQ(refused.error().code, AS_BAD_INPUT);
      EXPECT_NE(refused.error().text().find(c.why), std::string::npos) << refused.error().text();
    }
  }
}

// A picture of another place would be taken for it. 3 whatever is bad about a place.
TEST_F(OffScreen, APlaceThatIsNotThereEndsWithOneCode) {
  for (const char* place : {"9999/0/wo_b", "5/99/wo_b", "0/0/nosuch", "here", "0/-/swap_out"}) {
    options_.commands = {std::string("cursor.goto=") + place};
    fs::remove(options_.screenshot);
    const auto ran = run();
    ASSERT_FALSE(ran) << place;
    EXPECT_EQ(ran.error().code, AS_BAD_INPUT) << ran.error().text();
    EXPECT_FALSE(fs::exists(options_.screenshot)) << place;
  }
}

// What a panel computes beside the session is no result where it failed, whatever the picture says.
TEST_F(OffScreen, AComparisonThatCameToNothingEndsWithItsError) {
  const std::string right = ATTNSCOPE_SOURCE_DIR "/tests/fixtures/83b8554/short.acap";
  const fs::path damaged = folder_ / "damaged.acap";
  fs::copy(right, damaged, fs::copy_options::recursive);
  for (const auto& file : fs::directory_iterator(damaged / "payload")) {
    std::fstream bytes(file.path(), std::ios::in | std::ios::out | std::ios::binary);
    bytes.seekp(static_cast<std::streamoff>(fs::file_size(file.path())) / 2);
    bytes << std::string(4096, 'x');
  }
  const auto compare = [&](const std::string& with, const std::string& why) {
    SCOPED_TRACE(with);
    options_.commands = {"compare.open=" + with};
    fs::remove(options_.screenshot);
    const auto ran = run();
    ASSERT_EQ(!ran, !why.empty());
    EXPECT_EQ(fs::exists(options_.screenshot), why.empty());
    if (ran) return;
    EXPECT_EQ(ran.error().code, AS_BAD_INPUT);
    EXPECT_TRUE(ran.error().text().starts_with("Compare: ")) << ran.error().text();
    EXPECT_NE(ran.error().text().find(why), std::string::npos) << ran.error().text();
  };
  compare(right, "other dimensions or layers");
  options_.scenario = right;
  compare(right, "");
  compare(damaged.string(), damaged.string());
}

// Before a scenario is opened, let alone run.
TEST_F(OffScreen, ACommandThatIsNotThereIsSaidFirst) {
  options_.scenario = "no-such-scenario";
  options_.commands = {"step.forward", "step.forwards=2"};
  const auto ran = run();
  ASSERT_FALSE(ran);
  EXPECT_EQ(ran.error().code, AS_USAGE);
  EXPECT_NE(ran.error().text().find("there is no command \"step.forwards\"; did you mean"),
            std::string::npos)
      << ran.error().text();
}

// Nor is a window opened before: of a display that is not there nothing is said.
TEST_F(OffScreen, AWindowSaysAWrongWordFirstToo) {
  set("DISPLAY", ":no-such-display");
  options_.screenshot.clear();
  for (const bool layout : {false, true}) {
    options_.commands = {layout ? "step.forward" : "step.forwards=2"};
    options_.layout = layout ? "steps" : "";
    const auto ran = run();
    ASSERT_FALSE(ran);
    EXPECT_EQ(ran.error().code, AS_USAGE) << ran.error().text();
    EXPECT_NE(ran.error().text().find(layout ? "--layout steps: unknown"
                                             : "there is no command \"step.forwards\""),
              std::string::npos)
        << ran.error().text();
  }
}

TEST_F(OffScreen, PixelsComeFromTheRenderer) {
  App app(App::Options(), {make_panels});
  auto platform = make_offscreen(320, 240);
  ASSERT_TRUE(platform) << platform.error().text();
  EXPECT_FALSE((*platform)->description().empty());
  const auto picture = settled_picture(app, **platform);
  ASSERT_TRUE(picture) << picture.error().text();
  EXPECT_EQ(picture->width, 320);
  EXPECT_EQ(picture->height, 240);
  std::set<std::array<std::uint8_t, 3>> colours;
  for (std::size_t i = 0; i + 2 < picture->rgb.size(); i += 3) {
    colours.insert({picture->rgb[i], picture->rgb[i + 1], picture->rgb[i + 2]});
  }
  EXPECT_GT(colours.size(), 20u) << "text on panels has many shades";
}

// What looks the same is not drawn again, and what looks otherwise is.
TEST_F(OffScreen, AFrameThatLooksTheSameIsKnown) {
  App app(App::Options(), {make_panels});
  auto platform = make_offscreen(320, 240);
  ASSERT_TRUE(platform) << platform.error().text();
  ASSERT_TRUE(settled_picture(app, **platform));
  DrawnFrame drawn;
  const auto shows = [&](int width, int height) { return drawn.changed(width, height).empty(); };
  EXPECT_FALSE(shows(320, 240)) << "nothing is on the screen yet";
  EXPECT_TRUE(shows(320, 240));
  EXPECT_FALSE(shows(400, 240)) << "it has another size";
  EXPECT_TRUE(shows(400, 240));
  drawn.forget();
  EXPECT_FALSE(shows(400, 240));
  const auto before = (*platform)->read_pixels();
  ASSERT_TRUE(app.commands().run("settings.theme_toggle"));
  ASSERT_TRUE(settled_picture(app, **platform));
  EXPECT_FALSE(shows(400, 240)) << "the theme is another one";
  EXPECT_NE((*platform)->read_pixels().rgb, before.rgb);
}

// The mouse crosses the screen: what is drawn anew, a part of it, makes the picture that drawing
// all of it makes.
TEST_F(OffScreen, PartsThatAreDrawnAnewMakeTheWholePicture) {
  constexpr int kWidth = 1200, kHeight = 800;
  App app(App::Options(), {make_panels});
  app.settings().tour_seen = true;
  app.bench().open({small_scenario(), {"cpu"}, References::kSim}, true);
  auto platform = make_offscreen(kWidth, kHeight);
  ASSERT_TRUE(platform) << platform.error().text();
  ASSERT_TRUE(settled_picture(app, **platform));
  DrawnFrame drawn;
  int parts = 0, frames = 0;
  for (int at = 0; at < 30; ++at) {
    ImGui::GetIO().AddMousePosEvent(static_cast<float>(20 + at * 39),
                                    static_cast<float>(10 + at * 26));
    if (at % 10 == 9) {
      ASSERT_TRUE(app.commands().run("op.back"));
    }
    for (int i = 0; i < 4; ++i, ++frames) {
      ASSERT_TRUE((*platform)->begin_frame(0));
      app.frame();
      const PixelArea part = drawn.changed(kWidth, kHeight);
      const bool some = !part.empty() &&
                        (part.right - part.left) * (part.bottom - part.top) < kWidth * kHeight / 2;
      parts += some ? 1 : 0;
      ASSERT_TRUE((*platform)->render());
    }
    const Image shown = (*platform)->read_pixels();
    draw_imgui(kWidth, kHeight);
    const Image whole = (*platform)->read_pixels();
    ASSERT_TRUE(shown.rgb == whole.rgb) << "at place " << at;
  }
  EXPECT_GT(parts, 10) << "of " << frames;
}

TEST_F(OffScreen, APlaceThatCannotBeWrittenIsNamed) {
  options_.screenshot = (folder_ / "no such folder" / "picture.png").string();
  const auto ran = run();
  ASSERT_FALSE(ran);
  EXPECT_NE(ran.error().text().find(options_.screenshot), std::string::npos) << ran.error().text();
}

// Mesa claims an older OpenGL in a process of its own.
TEST_F(OffScreen, AnOpenGLThatIsTooOldIsNamed) {
  {
    App app(App::Options(), {make_panels});
    auto platform = make_offscreen(32, 32);
    ASSERT_TRUE(platform) << platform.error().text();
    const std::string driver = (*platform)->description();
    if (driver.find("llvmpipe") == std::string::npos) {
      GTEST_SKIP() << "MESA_GL_VERSION_OVERRIDE means nothing to " << driver;
    }
  }
  testing::GTEST_FLAG(death_test_style) = "threadsafe";
  const auto old = [&] {
    setenv("MESA_GL_VERSION_OVERRIDE", "2.1", 1);
    const auto ran = run();
    if (ran) std::exit(0);
    const std::string text = ran.error().text() + "\n";
    if (write(STDERR_FILENO, text.data(), text.size()) < 0) std::exit(1);
    std::exit(ran.error().code);
  };
  EXPECT_EXIT(old(), testing::ExitedWithCode(AS_NO_ENVIRONMENT),
              "OpenGL 3.3.*LIBGL_ALWAYS_SOFTWARE");
}

}  // namespace offscreen_test
}  // namespace attnscope::gui
