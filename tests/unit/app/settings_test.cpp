#include "app/workbench/settings.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "app/text/state_folder.h"

namespace attnscope {
namespace settings_test {

namespace fs = std::filesystem;

class SettingsFile : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::temp_directory_path() / fmt::format("attnscope-settings-{}", ::getpid());
    fs::remove_all(folder_);
    fs::create_directories(folder_);
    path_ = (folder_ / "settings.json").string();
  }
  void TearDown() override { fs::remove_all(folder_); }

  LoadedSettings load(const std::string& text) {
    std::ofstream(path_) << text;
    return load_settings(path_);
  }
  // One problem, naming file and key; the value is the built-in one.
  void expect_refused(const std::string& key, const std::string& value) {
    const LoadedSettings loaded = load(fmt::format("{{\"{}\": {}}}", key, value));
    EXPECT_EQ(loaded.settings, Settings()) << key << ": " << value;
    ASSERT_EQ(loaded.problems.size(), 1u) << key << ": " << value;
    EXPECT_NE(loaded.problems[0].find(path_ + ": " + key), std::string::npos) << loaded.problems[0];
    EXPECT_LT(loaded.problems[0].size(), 600u);
  }

  fs::path folder_;
  std::string path_;
};

Settings changed() {
  Settings s;
  s.theme = "themes/my \"own\" µ.json";
  s.scenario = "/tmp/a scenario.json";
  s.scale = 1.1f;
  s.layout = "cache";
  s.animations = false;
  s.whole_sentences = true;
  s.colour_map = "grey";
  s.free_list_order = true;
  s.tour_seen = true;
  s.trace_budget_mb = 1024;
  s.rewind_budget_mb = 512;
  s.kept_events = 5000;
  s.recent = {"b.json", "a.json"};
  s.invariants = Invariants::kCall;
  s.shortcuts = {{"step.forward", "Ctrl+Right"}, {"step.back", ""}};
  s.window_width = 800;
  s.window_height = 600;
  s.window_at = {-1200, 40};
  return s;
}

TEST_F(SettingsFile, WhatIsSavedIsReadBack) {
  ASSERT_TRUE(save_settings(changed(), path_));
  const LoadedSettings loaded = load_settings(path_);
  EXPECT_EQ(loaded.settings, changed());
  EXPECT_TRUE(loaded.problems.empty()) << loaded.problems[0];
}

// Undo goes from changed() back to the settings at first.
TEST_F(SettingsFile, WhatIsRememberedIsNoSetting) {
  const Settings now = changed();
  Settings back;
  keep_state(now, back);
  EXPECT_EQ(back.recent, now.recent);
  EXPECT_EQ(back.scenario, now.scenario);
  EXPECT_EQ(back.layout, now.layout);
  EXPECT_TRUE(back.tour_seen);
  EXPECT_EQ(back.window_at, now.window_at);
  EXPECT_EQ(back.theme, Settings().theme);
  EXPECT_EQ(back.scale, Settings().scale);
  EXPECT_EQ(back.shortcuts, Settings().shortcuts);
  EXPECT_EQ(back.free_list_order, Settings().free_list_order);
}

TEST_F(SettingsFile, NoFileIsNoProblem) {
  const LoadedSettings loaded = load_settings((folder_ / "none.json").string());
  EXPECT_EQ(loaded.settings, Settings());
  EXPECT_TRUE(loaded.problems.empty());
}

TEST_F(SettingsFile, CommentsAndMissingKeysAreFine) {
  const LoadedSettings loaded = load("// mine\n{ /* large */ \"scale\": 2 }");
  EXPECT_EQ(loaded.settings.scale, 2);
  EXPECT_EQ(loaded.settings.theme, "dark");
  EXPECT_TRUE(loaded.problems.empty());
}

TEST_F(SettingsFile, ABadValueCostsThatValueAlone) {
  const LoadedSettings loaded =
      load(R"({"scale": "big", "theme": "light", "animations": 0, "window_width": 700})");
  Settings expected;
  expected.theme = "light";
  expected.window_width = 700;
  EXPECT_EQ(loaded.settings, expected);
  EXPECT_EQ(loaded.problems.size(), 2u);
}

TEST_F(SettingsFile, EveryKeyRefusesWhatIsNotAllowed) {
  for (const char* value : {"0.7", "3.01", "-1", "\"NaN\"", "null", "[1]", "{}", "true"}) {
    expect_refused("scale", value);
  }
  for (const char* value : {"\"\"", "1", "null", "[]"}) expect_refused("theme", value);
  expect_refused("theme", '"' + std::string(5000, 'x') + '"');
  for (const char* value : {"\"../../x\"", "\"Step\"", "\"\"", "7"})
    expect_refused("layout", value);
  for (const char* value : {"1", "\"yes\"", "null"}) expect_refused("tour_seen", value);
  for (const char* value : {"\"jet\"", "0"}) expect_refused("colour_map", value);
  for (const char* value : {"15", "1.5", "-3", "18446744073709551615", "1e3", "\"256\""}) {
    expect_refused("trace_budget_mb", value);
    expect_refused("checkpoint_budget_mb", value);
  }
  for (const char* value : {"999", "16777217", "-1", "\"many\""}) {
    expect_refused("kept_events", value);
  }
  expect_refused("window_width", "299");
  expect_refused("window_height", "100000");
  expect_refused("window_height", "4294968296");  // 1000 after wrapping
  expect_refused("recent", "\"a\"");
  expect_refused("recent", "{}");
  expect_refused("invariants", "\"always\"");
  expect_refused("shortcuts", "[]");
  expect_refused("version", "2");
}

TEST_F(SettingsFile, UnknownKeysAreNamedWithTheNearest) {
  const LoadedSettings loaded = load(R"({"them": "light"})");
  EXPECT_EQ(loaded.settings, Settings());
  ASSERT_EQ(loaded.problems.size(), 1u);
  EXPECT_NE(loaded.problems[0].find("did you mean theme?"), std::string::npos);
}

TEST_F(SettingsFile, LongListsAreCut) {
  std::string list = "[\"0\"";
  for (int i = 1; i < 50000; ++i) list += fmt::format(",\"{}\"", i);
  const LoadedSettings loaded = load("{\"recent\": " + list + "]}");
  EXPECT_EQ(loaded.settings.recent.size(), 10u);
  EXPECT_EQ(loaded.settings.recent.front(), "0");
  ASSERT_EQ(loaded.problems.size(), 1u);
  EXPECT_NE(loaded.problems[0].find("49990 of 50000"), std::string::npos) << loaded.problems[0];
  EXPECT_EQ(load(R"({"recent": ["a", 1, "", "a", "b"]})").settings.recent,
            (std::vector<std::string>{"a", "b"}));
}

TEST_F(SettingsFile, ShortcutsAreCheckedOneByOne) {
  const LoadedSettings loaded =
      load(R"({"shortcuts": {"a": "ctrl+a", "b": "Ctrl+Foo", "c": 3, "d": "Ctrl+A", "e": ""}})");
  EXPECT_EQ(loaded.settings.shortcuts,
            (std::map<std::string, std::string>{{"a", "Ctrl+A"}, {"e", ""}}));
  EXPECT_EQ(loaded.problems.size(), 3u);
}

TEST_F(SettingsFile, AFileThatIsNoJsonIsKeptAside) {
  for (const char* text : {"{\"scale\": ", "", "\xff\xfe", "[1, 2]", "{\"scale\": 1e999}",
                           "{\"scale\": NaN}", "{\"scale\": 1, \"scale\": 2}"}) {
    fs::remove(path_ + ".bad");
    const LoadedSettings loaded = load(text);
    EXPECT_EQ(loaded.settings, Settings());
    ASSERT_EQ(loaded.problems.size(), 1u) << text;
    EXPECT_NE(loaded.problems[0].find(path_ + ".bad"), std::string::npos) << loaded.problems[0];
    EXPECT_FALSE(fs::exists(path_));
    EXPECT_TRUE(fs::exists(path_ + ".bad"));
  }
}

TEST_F(SettingsFile, DeepAndHugeFilesAreRefused) {
  EXPECT_EQ(load(std::string(200000, '[')).problems.size(), 1u);
  const LoadedSettings huge = load("{\"theme\": \"" + std::string(2 << 20, 'x') + "\"}");
  ASSERT_EQ(huge.problems.size(), 1u);
  EXPECT_TRUE(fs::exists(path_)) << "a file that was not read stays where it is";
}

TEST_F(SettingsFile, AFolderInItsPlaceIsSaid) {
  fs::create_directories(path_);
  const LoadedSettings loaded = load_settings(path_);
  EXPECT_EQ(loaded.settings, Settings());
  ASSERT_EQ(loaded.problems.size(), 1u);
  EXPECT_NE(loaded.problems[0].find("folder"), std::string::npos);
  const auto saved = save_settings(Settings(), path_);
  ASSERT_FALSE(saved);
  EXPECT_NE(saved.error().message.find(path_), std::string::npos);
}

TEST_F(SettingsFile, AnUnreadableFileOrFolderIsSaid) {
  if (::geteuid() == 0) GTEST_SKIP() << "everything can be read and written by root";
  std::ofstream(path_) << "{}";
  ::chmod(path_.c_str(), 0);
  EXPECT_EQ(load_settings(path_).problems.size(), 1u);
  fs::remove(path_);
  ::chmod(folder_.c_str(), 0500);
  EXPECT_FALSE(save_settings(Settings(), path_));
  ::chmod(folder_.c_str(), 0700);
}

TEST_F(SettingsFile, AMissingFolderIsSaid) {
  const auto saved = save_settings(Settings(), (folder_ / "none" / "settings.json").string());
  ASSERT_FALSE(saved);
  EXPECT_NE(saved.error().text().find("folder"), std::string::npos);
}

TEST_F(SettingsFile, PathsThatAreNoUtf8CanBeSaved) {
  Settings s;
  s.recent = {"caf\xe9.json"};
  ASSERT_TRUE(save_settings(s, path_));
  EXPECT_TRUE(load_settings(path_).problems.empty());
}

// Sets a variable of the environment, or unsets it, until the end of the scope.
class Variable {
 public:
  Variable(const char* name, const char* value) : name_(name) {
    if (const char* old = std::getenv(name)) old_ = old, had_ = true;
    set(value);
  }
  ~Variable() { set(had_ ? old_.c_str() : nullptr); }
  Variable(const Variable&) = delete;
  Variable& operator=(const Variable&) = delete;

 private:
  void set(const char* value) { value != nullptr ? ::setenv(name_, value, 1) : ::unsetenv(name_); }
  const char* name_;
  std::string old_;
  bool had_ = false;
};

TEST_F(SettingsFile, TheStateFolderIsMade) {
  const std::string state = (folder_ / "state").string();
  {
    const Variable xdg("XDG_STATE_HOME", state.c_str());
    const auto folder = state_folder();
    ASSERT_TRUE(folder);
    EXPECT_EQ(*folder, state + "/attnscope");
    EXPECT_TRUE(fs::is_directory(*folder));
  }
  const Variable home("HOME", folder_.c_str());
  {
    const Variable relative("XDG_STATE_HOME", "state");
    EXPECT_EQ(*state_folder(), folder_.string() + "/.local/state/attnscope");
  }
  const Variable none("XDG_STATE_HOME", nullptr);
  const Variable homeless("HOME", nullptr);
  EXPECT_EQ(state_folder().error().code, AS_NO_ENVIRONMENT);
}

TEST_F(SettingsFile, AFileInPlaceOfTheStateFolderIsSaid) {
  std::ofstream(folder_ / "attnscope") << "x";
  const Variable xdg("XDG_STATE_HOME", folder_.c_str());
  const auto folder = state_folder();
  ASSERT_FALSE(folder);
  EXPECT_NE(folder.error().message.find((folder_ / "attnscope").string()), std::string::npos);
}

TEST(Undo, GoesBackAndForth) {
  UndoStack<int> stack;
  EXPECT_FALSE(stack.can_undo());
  int now = 0;
  for (int i = 1; i <= 3; ++i) stack.push(std::exchange(now, i));
  now = stack.undo(now);
  now = stack.undo(now);
  EXPECT_EQ(now, 1);
  now = stack.redo(now);
  EXPECT_EQ(now, 2);
  stack.push(std::exchange(now, 9));
  EXPECT_FALSE(stack.can_redo());
  EXPECT_EQ(stack.undo(now), 2);
}

TEST(Undo, ForgetsTheOldestOf200) {
  UndoStack<int> stack;
  for (int i = 0; i < 300; ++i) stack.push(i);
  int last = 300, steps = 0;
  for (; stack.can_undo(); ++steps) last = stack.undo(last);
  EXPECT_EQ(steps, 200);
  EXPECT_EQ(last, 100);
}

}  // namespace settings_test
}  // namespace attnscope
