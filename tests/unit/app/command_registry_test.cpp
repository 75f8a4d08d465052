#include "app/workbench/command_registry.h"

#include <gtest/gtest.h>

#include <stdexcept>

#include "app/workbench/shortcut_keys.h"
#include "engine/io/nearest.h"

namespace attnscope {
namespace command_registry_test {

class Commands : public ::testing::Test {
 protected:
  void SetUp() override {
    add("step.forward", "Next step", "Ctrl+Right");
    add("step.back", "Previous step", "ctrl + left");
    add("op.forward", "Next op", "Right");
    add("theme.toggle", "Dark or light theme", "Ctrl+L");
    add("cursor.goto", "Go to ..", "", "STEP/LAYER/OP");
    add("help.tour", "Tour", "");
  }
  void add(const char* id, const char* title, const char* shortcut, const char* argument = "") {
    Command command;
    command.id = id;
    command.title = title;
    command.shortcut = shortcut;
    command.argument = argument;
    command.run = [this, name = std::string(id)](std::string_view value) -> Result<void> {
      ran_.push_back(name + "(" + std::string(value) + ")");
      return {};
    };
    registry_.add(std::move(command));
  }
  std::vector<std::string> found(std::string_view query) const {
    std::vector<std::string> ids;
    for (const Command* c : registry_.search(query)) ids.push_back(c->id);
    return ids;
  }

  CommandRegistry registry_;
  std::vector<std::string> ran_;
};

TEST_F(Commands, RunsByIdWithAndWithoutValue) {
  std::vector<std::string> told;
  registry_.on_run = [&](const std::string& id) { told.push_back(id); };
  EXPECT_TRUE(registry_.run("step.forward"));
  EXPECT_TRUE(registry_.run(" cursor.goto = 7/2/indexer_topk "));
  EXPECT_TRUE(registry_.run("cursor.goto=a=b"));
  EXPECT_EQ(ran_, (std::vector<std::string>{"step.forward()", "cursor.goto(7/2/indexer_topk)",
                                            "cursor.goto(a=b)"}));
  EXPECT_EQ(told, (std::vector<std::string>{"step.forward", "cursor.goto", "cursor.goto"}));
}

TEST_F(Commands, UnknownIdsNameTheNearest) {
  const auto unknown = registry_.run("step.foward");
  ASSERT_FALSE(unknown);
  EXPECT_EQ(unknown.error().code, AS_USAGE);
  EXPECT_NE(unknown.error().hint.find("step.forward"), std::string::npos);
  EXPECT_NE(registry_.run("step").error().hint.find("step.back"), std::string::npos);
  const auto nothing = registry_.run("qqqqqqqqqqqq");
  EXPECT_NE(nothing.error().hint.find("palette"), std::string::npos);
  EXPECT_EQ(registry_.run("").error().code, AS_USAGE);
  EXPECT_LT(registry_.run(std::string(1 << 20, 'x')).error().text().size(), 500u);
  EXPECT_TRUE(ran_.empty());
}

TEST_F(Commands, AValueThatIsNotTakenIsAnError) {
  const auto result = registry_.run("step.forward=3");
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().code, AS_USAGE);
  EXPECT_TRUE(ran_.empty());
}

TEST_F(Commands, DisabledOnesSayWhyAndDoNotRun) {
  bool on = false;
  int told = 0;
  Command command;
  command.id = "run.cancel";
  command.title = "Cancel";
  command.run = [&](std::string_view) -> Result<void> {
    ran_.emplace_back("cancel");
    return usage_error("no");
  };
  command.enabled = [&] { return on; };
  command.why_disabled = "nothing is running";
  registry_.add(std::move(command));
  registry_.on_run = [&](const std::string&) { ++told; };
  EXPECT_NE(registry_.run("run.cancel").error().message.find("nothing is running"),
            std::string::npos);
  EXPECT_TRUE(ran_.empty());
  on = true;
  EXPECT_EQ(registry_.run("run.cancel").error().message, "no");
  EXPECT_EQ(ran_.size(), 1u);
  EXPECT_EQ(told, 0) << "only what succeeded is told";
}

TEST_F(Commands, ExceptionsBecomeErrors) {
  Command command;
  command.id = "bad";
  command.title = "Bad";
  command.run = [](std::string_view) -> Result<void> { throw std::runtime_error("boom"); };
  registry_.add(std::move(command));
  const auto result = registry_.run("bad");
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().code, AS_INTERNAL);
  EXPECT_NE(result.error().message.find("boom"), std::string::npos);
}

TEST_F(Commands, ACommandMayAddOthersWhileItRuns) {
  Command command;
  command.id = "more";
  command.title = "More";
  command.run = [this](std::string_view) -> Result<void> {
    for (int i = 0; i < 200; ++i) add(("more." + std::to_string(i)).c_str(), "More", "");
    ran_.emplace_back("more");  // the captured pointer must still be there
    return {};
  };
  registry_.add(std::move(command));
  EXPECT_TRUE(registry_.run("more"));
  EXPECT_TRUE(registry_.run("more.199"));
}

TEST_F(Commands, IdsAndShortcutsOfTheProgrammerAreChecked) {
  EXPECT_DEATH(add("step.forward", "Again", ""), "step.forward.*twice");
  EXPECT_DEATH(add("new", "New", "Ctrl+Foo"), "new.*Foo");
}

TEST_F(Commands, SearchFindsSubsequencesBestFirst) {
  EXPECT_EQ(found("").size(), registry_.all().size());
  EXPECT_EQ(found("step.back"), (std::vector<std::string>{"step.back"}));
  EXPECT_EQ(found("ns").front(), "step.forward") << "word starts of Next step";
  EXPECT_EQ(found("next"), (std::vector<std::string>{"step.forward", "op.forward"}));
  EXPECT_EQ(found("NEXT OP").front(), "op.forward");
  EXPECT_EQ(found("theme dark"), (std::vector<std::string>{"theme.toggle"})) << "in any order";
  EXPECT_EQ(found("tour").front(), "help.tour");
  EXPECT_TRUE(found("zzz").empty());
  EXPECT_TRUE(found(std::string(100000, 'a')).empty());
  EXPECT_EQ(found("help.tour").front(), "help.tour") << "the exact id comes first";
}

TEST_F(Commands, ShortcutsAreTheDefaultsUntilChanged) {
  EXPECT_EQ(registry_.shortcut("step.back"), "Ctrl+Left");
  EXPECT_EQ(registry_.shortcut("help.tour"), "");
  EXPECT_EQ(registry_.shortcut("unknown"), "");
  EXPECT_TRUE(registry_.set_shortcut("help.tour", "shift+ctrl+t"));
  EXPECT_EQ(registry_.shortcut("help.tour"), "Ctrl+Shift+T");
  EXPECT_TRUE(registry_.set_shortcut("help.tour", ""));
  EXPECT_TRUE(registry_.user_shortcuts().empty());
  EXPECT_TRUE(registry_.set_shortcut("step.back", ""));
  EXPECT_EQ(registry_.shortcut("step.back"), "");
  EXPECT_TRUE(registry_.set_shortcut("help.tour", "Ctrl+Left")) << "free since then";
  EXPECT_TRUE(registry_.set_shortcut("step.back", "Alt+B"));
  registry_.reset_shortcuts();
  EXPECT_EQ(registry_.shortcut("step.back"), "Ctrl+Left");
}

TEST_F(Commands, ATakenShortcutNamesItsCommand) {
  const auto taken = registry_.set_shortcut("help.tour", "Ctrl+Right");
  ASSERT_FALSE(taken);
  EXPECT_EQ(taken.error().code, AS_BAD_INPUT);
  EXPECT_NE(taken.error().message.find("step.forward"), std::string::npos);
  EXPECT_EQ(registry_.shortcut("help.tour"), "");
  EXPECT_TRUE(registry_.set_shortcut("step.forward", "Ctrl+Right")) << "its own";
  EXPECT_EQ(registry_.set_shortcut("nobody", "Ctrl+9").error().code, AS_BAD_INPUT);
}

// A settings file written by hand may give one combination to two commands.
TEST_F(Commands, TheUsersShortcutWinsOverAnothersDefault) {
  registry_.set_user_shortcuts({{"help.tour", "Ctrl+Right"}, {"gone", "Ctrl+L"}});
  EXPECT_EQ(registry_.shortcut("help.tour"), "Ctrl+Right");
  EXPECT_EQ(registry_.shortcut("step.forward"), "");
  EXPECT_EQ(registry_.shortcut("theme.toggle"), "Ctrl+L") << "the other one is no command";
}

TEST(Shortcuts, AreWrittenInOneWay) {
  EXPECT_EQ(*normalise_shortcut("ctrl + right"), "Ctrl+Right");
  EXPECT_EQ(*normalise_shortcut("SHIFT+alt+Control+p"), "Ctrl+Alt+Shift+P");
  EXPECT_EQ(*normalise_shortcut("f24"), "F24");
  EXPECT_EQ(*normalise_shortcut("Esc"), "Escape");
  EXPECT_EQ(*normalise_shortcut("ctrl+ -"), "Ctrl+Minus");
  EXPECT_EQ(*normalise_shortcut("Ctrl+="), "Ctrl+Equal");
  EXPECT_EQ(*normalise_shortcut(" page up "), "PageUp");
}

TEST(Shortcuts, EveryKeyIsReadBack) {
  EXPECT_GE(shortcut_keys().size(), 26u + 10 + 24 + 4 + 22);
  for (const std::string& key : shortcut_keys()) {
    EXPECT_EQ(*normalise_shortcut(key), key);
    EXPECT_EQ(*normalise_shortcut("shift+" + key), "Shift+" + key);
  }
}

TEST(Shortcuts, WhatIsNoneIsSaid) {
  for (const char* text : {"", " ", "+", "Ctrl", "Ctrl+", "+A", "A+B", "Ctrl+Ctrl+A", "F25", "F0",
                           "Ctrl+Rigth", "\xff\xfe", "Ctrl++"}) {
    const auto result = normalise_shortcut(text);
    ASSERT_FALSE(result) << text;
    EXPECT_EQ(result.error().code, AS_BAD_INPUT);
    EXPECT_FALSE(result.error().hint.empty());
  }
  EXPECT_NE(normalise_shortcut("Ctrl+Rigth").error().hint.find("Right"), std::string::npos);
  EXPECT_LT(normalise_shortcut(std::string(1 << 20, 'A')).error().text().size(), 300u);
}

TEST(Nearest, DistanceCountsEditsAndSwaps) {
  EXPECT_EQ(edit_distance("", ""), 0);
  EXPECT_EQ(edit_distance("abc", ""), 3);
  EXPECT_EQ(edit_distance("abc", "ABC"), 0);
  EXPECT_EQ(edit_distance("abc", "axc"), 1);
  EXPECT_EQ(edit_distance("abc", "acb"), 1);
  EXPECT_EQ(edit_distance("kitten", "sitting"), 3);
}

TEST(Nearest, LeavesOutWhatHasNothingToDoWithIt) {
  const std::vector<std::string> names = {"accent", "accent_soft", "border", "owners"};
  EXPECT_EQ(nearest_names("acent", names, 1), (std::vector<std::string>{"accent"}));
  EXPECT_EQ(nearest_names("soft", names, 1), (std::vector<std::string>{"accent_soft"}));
  EXPECT_TRUE(nearest_names("zzzzzz", names).empty());
  EXPECT_TRUE(nearest_names("", names).empty());
}

}  // namespace command_registry_test
}  // namespace attnscope
