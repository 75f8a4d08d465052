// What a patch says of itself is read as it is meant, or refused.
#include "tests/bugs/bug_list.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

namespace attnscope {
namespace {

const std::string kHead =
    "Name: one\n"
    "Bug: Something is wrong.\n"
    "Run: attnscope run early\n"
    "Exit: 1\n"
    "Says: wrong .*keys\n"
    "Workloads: g1 g2\n"
    "Invariants: none\n"
    "Decisions: keys\n";
const std::string kDiff = "\n--- a/x.cpp\n+++ b/x.cpp\n@@ -1 +1,2 @@\n int x;\n";
const std::string kCode = "+if (bug_chosen(\"one\")) ++x;\n";

class BugList : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = std::filesystem::path(testing::TempDir()) /
              testing::UnitTest::GetInstance()->current_test_info()->name();
    std::filesystem::create_directory(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  // The only patch of a folder.
  Result<std::vector<Bug>> read(const std::string& text, BugsOf part = BugsOf::kManager) {
    std::ofstream(folder_ / "one.patch") << text;
    return read_bugs(folder_.string(), part);
  }
  // Why it is refused.
  std::string refused(const std::string& text) {
    const auto bugs = read(text);
    return bugs ? "it is not" : bugs.error().message;
  }

 private:
  std::filesystem::path folder_;
};

std::string without(std::string text, const std::string& part) {
  return text.erase(text.find(part), part.size());
}

TEST_F(BugList, ReadsWhatStandsBeforeTheDiff) {
  const auto bugs = read(kHead + kDiff + kCode);
  ASSERT_TRUE(bugs) << bugs.error().text();
  ASSERT_EQ(bugs->size(), 1u);
  EXPECT_EQ(bugs->front().name, "one");
  EXPECT_EQ(bugs->front().sentence, "Something is wrong.");
  EXPECT_EQ(bugs->front().workloads, (std::vector<std::string>{"g1", "g2"}));
  EXPECT_EQ(bugs->front().run, "attnscope run early");
  EXPECT_EQ(bugs->front().exit, 1);
  EXPECT_EQ(bugs->front().says, "wrong .*keys");
  EXPECT_TRUE(bugs->front().invariants.empty());
  EXPECT_EQ(bugs->front().decisions, (std::vector<std::string>{"keys"}));
}

TEST_F(BugList, RefusesWhatExpectsNothing) {
  EXPECT_EQ(refused(without(kHead, "Workloads: g1 g2\n") + kDiff + kCode),
            "one.patch: no \"Workloads:\"");
  EXPECT_EQ(refused(without(kHead, "Invariants: none\n") + kDiff + kCode),
            "one.patch: no \"Invariants:\"");
}

TEST_F(BugList, OfTheProgramNeedsNoWorkload) {
  const std::string head = kHead.substr(0, kHead.find("Workloads"));
  const auto bugs = read(head + kDiff + kCode, BugsOf::kProgram);
  ASSERT_TRUE(bugs) << bugs.error().text();
  EXPECT_TRUE(bugs->front().workloads.empty());
  EXPECT_FALSE(read(kHead + kDiff + kCode, BugsOf::kProgram));
}

TEST_F(BugList, RefusesAnExitThatIsNoCode) {
  std::string head = kHead;
  head.replace(head.find("Exit: 1"), 7, "Exit: no");
  EXPECT_EQ(refused(head + kDiff + kCode), "one.patch: \"Exit: no\" is no exit code");
}

TEST_F(BugList, RefusesALineThatNobodyReads) {
  EXPECT_EQ(refused("Invariant: I1\n" + kHead + kDiff + kCode),
            "one.patch: \"Invariant: I1\" says nothing that is known");
}

TEST_F(BugList, RefusesAnotherName) {
  EXPECT_EQ(refused("Name: two\n" + without(kHead, "Name: one\n") + kDiff + kCode),
            "one.patch: is named \"two\" inside");
}

TEST_F(BugList, RefusesCodeThatIsAlwaysOrNeverIn) {
  EXPECT_EQ(refused(kHead + kDiff + "+++x;\n"),
            "one.patch: its code does not ask whether it is chosen");
  EXPECT_EQ(refused(kHead + kDiff + kCode + "+if (bug_chosen(\"tow\")) --x;\n"),
            "one.patch: asks for \"tow\", which no patch is named");
}

}  // namespace
}  // namespace attnscope
