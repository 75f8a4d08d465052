#include "engine/capture/notes.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>

#include "app/workbench/workbench.h"
#include "engine/capture/capture_pack.h"
#include "engine/io/json_file.h"
#include "tests/unit/app/small_scenario.h"

namespace attnscope {
namespace notes_test {

class Notes : public testing::Test {
 protected:
  void SetUp() override {
    folder_ =
        std::filesystem::temp_directory_path() / ("attnscope-notes-" + std::to_string(getpid()));
    std::filesystem::create_directories(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  std::string path(const std::string& name) const { return (folder_ / name).string(); }

 private:
  std::filesystem::path folder_;
};

std::vector<Note> two_notes() {
  Note first;
  first.place = {3, 2, AS_OP_SPARSE_ATTENTION};
  first.request = 1;
  first.position = 77;
  first.head = 2;
  first.block = 5;
  first.tap = "o";
  first.element = {4, 2, 17};
  first.text = "large \"sink\"\nhere";
  Note second;
  second.place = {9, -1, AS_OP_SAMPLE};
  return {first, second};
}

TEST_F(Notes, ComeBackAsTheyWereWritten) {
  const std::string file = path("notes.json");
  const auto none = read_notes(file);
  ASSERT_TRUE(none);
  EXPECT_TRUE(none->empty()) << "there is no file yet";
  ASSERT_TRUE(write_notes(file, two_notes()));
  const auto back = read_notes(file);
  ASSERT_TRUE(back) << back.error().text();
  EXPECT_EQ(*back, two_notes());
  ASSERT_TRUE(write_notes(file, {}));
  EXPECT_FALSE(std::filesystem::exists(file)) << "without notes it goes";
  EXPECT_FALSE(write_notes(path("no folder/notes.json"), two_notes()));
}

TEST_F(Notes, DamagedFilesAreNamed) {
  const std::string file = path("notes.json");
  const auto refused = [&](const std::string& text, const std::string& why) {
    ASSERT_TRUE(write_text_file(file, text));
    const auto notes = read_notes(file);
    ASSERT_FALSE(notes) << text;
    EXPECT_EQ(notes.error().code, AS_BAD_INPUT);
    EXPECT_NE(notes.error().text().find(why), std::string::npos) << notes.error().text();
    EXPECT_NE(notes.error().text().find(file), std::string::npos) << notes.error().text();
  };
  refused("", "notes.json");
  refused("[]", "notes.json");
  refused(R"({"version": 1})", "notes");
  refused(R"({"version": 2, "notes": []})", "newer");
  refused(R"({"version": 1, "notes": [{"step": 1, "op": "no_op"}]})", "no_op");
  refused(R"({"version": 1, "notes": [{"step": -1, "op": "wo_a"}]})", "step");
  refused(R"({"version": 1, "notes": [{"step": 1, "op": "wo_a", "element": [-1]}]})", "element");
  refused(R"({"version": 1, "notes": [{"step": 1, "op": "wo_a", "colour": "red"}]})", "colour");
  refused(R"({"version": 1, "notes": [{"step": 1, "op": "wo_a", "text": ")" +
              std::string(kLongestNote + 1, 'x') + "\"}]}",
          "at most");
}

TEST_F(Notes, OfASessionGoIntoItsCapturesAndStay) {
  Workbench::Options options;
  options.cache_folder = path("kept");
  RunSetup setup;
  setup.scenario = small_scenario(30, 2);
  setup.references = References::kNone;
  {
    Workbench bench(options);
    bench.open(setup, false);
    bench.run_until("to the end", [](const Session&) { return false; });
    bench.wait_idle();
    EXPECT_TRUE(bench.notes().empty());
    ASSERT_TRUE(bench.add_note("  the last step "));
    bench.first_step();
    bench.wait_idle();
    ASSERT_TRUE(bench.add_note(""));
    ASSERT_EQ(bench.notes().size(), 2u);
    EXPECT_EQ(bench.notes()[0].place.step, 0) << "by step";
    EXPECT_EQ(bench.notes()[1].text, "the last step");
    ASSERT_TRUE(bench.save_capture(path("run.acap")));
    bench.wait_idle();
    ASSERT_TRUE(bench.remove_note(0));
  }
  Workbench bench(options);
  bench.open(setup, false);
  bench.wait_idle();
  ASSERT_EQ(bench.notes().size(), 1u);
  EXPECT_EQ(bench.notes()[0].text, "the last step");
  // The capture has those of when it was saved, and its own from then on.
  ASSERT_TRUE(bench.open_capture(path("run.acap")));
  ASSERT_EQ(bench.notes().size(), 2u);
  bench.go_to_note(0);
  EXPECT_EQ(bench.cursor().step, 0);
  ASSERT_TRUE(bench.add_note("seen again"));
  EXPECT_EQ(read_notes(path("run.acap/notes.json"))->size(), 3u);
  // They travel with it, and its digests hold.
  if (!packing_libraries().empty()) {
    ASSERT_TRUE(pack_capture(path("run.acap"), path("run.tar.zst"), 1));
    const auto back = unpack_capture(path("run.tar.zst"), path("back.acap"));
    ASSERT_TRUE(back) << back.error().text();
    EXPECT_EQ(read_notes(path("back.acap/notes.json"))->size(), 3u);
    const auto capture = Capture::open(path("back.acap"));
    ASSERT_TRUE(capture);
    EXPECT_TRUE((*capture)->verify());
  }
  // A damaged file is not written over.
  ASSERT_TRUE(write_text_file(path("run.acap/notes.json"), "{"));
  ASSERT_TRUE(bench.open_capture(path("run.acap")));
  EXPECT_TRUE(bench.notes().empty());
  EXPECT_FALSE(bench.add_note("lost?"));
  EXPECT_EQ(bench.notes().size(), 1u) << "it is there as long as the app runs";
  EXPECT_EQ(*read_text_file(path("run.acap/notes.json")), "{");
}

}  // namespace notes_test
}  // namespace attnscope
