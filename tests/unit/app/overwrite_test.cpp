// What a user has stays: commands that write to a name refuse one that is taken, unless they are
// told to replace it.
#include <map>

#include "engine/capture/capture.h"
#include "engine/opcase/case_file.h"
#include "engine/tensorfile/tensor_writer.h"
#include "tests/unit/app/cli_fixture.h"

namespace attnscope {
namespace overwrite_test {

class Overwrite : public CliTest {
 protected:
  // All files below the folder, with what they hold.
  std::map<std::string, std::string> files() const {
    std::map<std::string, std::string> all;
    for (const auto& f : std::filesystem::recursive_directory_iterator(folder_)) {
      if (f.is_regular_file()) all[f.path().string()] = read(f.path().string());
    }
    return all;
  }
  // Refused without --force, and then nothing is another; with it done.
  void keeps(const std::vector<std::string>& command) {
    SCOPED_TRACE(command[0] + " " + command[1]);
    const auto before = files();
    const Outcome refused = run(command);
    EXPECT_EQ(refused.code, 3) << refused.out;
    EXPECT_NE(refused.err.find("--force"), std::string::npos) << refused.err;
    EXPECT_EQ(files(), before);
    std::vector<std::string> forced = command;
    forced.emplace_back("--force");
    const Outcome done = run(forced);
    EXPECT_EQ(done.code, 0) << done.err;
    EXPECT_NE(files(), before) << "it is made anew";
  }
  void must(const std::vector<std::string>& command) {
    const Outcome done = run(command);
    ASSERT_EQ(done.code, 0) << done.err;
  }
  // A dump of the op `residual`, and the map of it.
  std::vector<std::string> dump(const std::string& name) {
    const std::vector<float> h(512, 1), y(512, 2), out(512, 3);
    TensorWriter writer;
    writer.add("h", ElementType::kF32, {1, 512}, h);
    writer.add("y", ElementType::kF32, {1, 512}, y);
    writer.add("out", ElementType::kF32, {1, 512}, out);
    EXPECT_TRUE(writer.write(path(name)));
    return {"case", "import", write("map.json", R"({"format": "attnscope-import-map", "version": 1,
      "engine": "other", "ops": {"residual": {"tensors": {"h": {"name": "h"}, "y": {"name": "y"},
      "out": {"name": "out"}}}}})"),
            path(name)};
  }
};

TEST_F(Overwrite, CapturesStay) {
  const std::vector<std::string> record = {"record",  "early", "-o",           path("run.acap"),
                                           "--steps", "1",     "--references", "none"};
  must(record);
  keeps(record);
  must({"pack", path("run.acap")});
  write("run.acap.tar.zst", "somebody's");
  keeps({"pack", path("run.acap")});
  write("run.acap/note", "mine");
  keeps({"unpack", path("run.acap.tar.zst"), "-o", path("run.acap")});
  // Nothing but a capture is replaced, whatever is said.
  std::filesystem::create_directory(path("folder"));
  write("folder/file", "x");
  EXPECT_EQ(run({"record", "early", "-o", path("folder"), "--force"}).code, 3);
  std::vector<std::string> whole = dump("dump.safetensors");
  whole.insert(whole.end(), {"-o", path("run.acap"), "--model", "tiny"});
  keeps(whole);
}

TEST_F(Overwrite, CasesAndDumpsBesideThemStay) {
  std::vector<std::string> import = dump("mine.safetensors");
  import.insert(import.end(), {"-o", path("mine.json")});
  const std::string tensors = read(path("mine.safetensors"));
  must(import);
  EXPECT_EQ(read(path("mine.safetensors")), tensors) << "the dump that it was made of";
  EXPECT_EQ(run({"case", "run", path("mine.json")}).code, 0);
  write("mine.json", "{}");
  keeps(import);
  EXPECT_EQ(read(path("mine.safetensors")), tensors);
  // Both names that its tensors could have are somebody's.
  write("two.safetensors", "a");
  write("two.json.safetensors", "b");
  import[5] = path("two.json");
  const Outcome neither = run(import);
  EXPECT_EQ(neither.code, 3);
  EXPECT_EQ(read(path("two.safetensors")), "a");
  EXPECT_EQ(read(path("two.json.safetensors")), "b");
  // A case makes room for another one of `save`, and for nothing else.
  const std::vector<std::string> save = {"case",         "save", "early",           "--at",
                                         "1/1/residual", "-o",   path("saved.json")};
  must(save);
  must(save);
  // What somebody edited or imported is no copy of a call that runs again.
  must({"case", "edit", path("saved.json"), "--set", "h=" + path("saved.json.safetensors"), "-o",
        path("edited.json")});
  import[5] = path("third.json");
  must(import);
  std::vector<std::string> over = save;
  for (const char* name : {"edited.json", "third.json"}) {
    over.back() = path(name);
    keeps(over);
  }
  write("saved.json", "{\"name\": \"package\"}");
  const Outcome refused = run(save);
  EXPECT_EQ(refused.code, 3);
  EXPECT_EQ(read(path("saved.json")), "{\"name\": \"package\"}");
}

TEST_F(Overwrite, ExportsStay) {
  must({"case", "save", "early", "--at", "1/1/residual", "-o", path("c.json")});
  write("c.py", "print('mine')\n");
  keeps({"case", "export", "--python", path("c.json")});
  const std::vector<std::string> taps = {
      "tap-export", "early",   "--taps", "wo_b.y", "--steps",
      "1",          "--layer", "0",      "-o",     path("t.safetensors")};
  write("t.safetensors", "mine");
  keeps(taps);
  write("m", "mine");
  EXPECT_EQ(run({"model", "export", "tiny", "-o", path("m")}).code, 3);
  EXPECT_EQ(read(path("m")), "mine");
}

// Taps are safetensors: a name that says something else would be believed.
TEST_F(Overwrite, TapsAreWrittenUnderANameThatSaysWhatTheyAre) {
  const Outcome torch = run({"tap-export", "early", "--taps", "wo_b.y", "-o", path("t.pt")});
  EXPECT_EQ(torch.code, 2);
  EXPECT_NE(torch.err.find(".safetensors"), std::string::npos) << torch.err;
  EXPECT_FALSE(std::filesystem::exists(path("t.pt")));
}

TEST_F(Overwrite, AcceptedGoldensStay) {
  write("norm.golden.json", R"({"format": "attnscope-golden", "version": 1, "about": "a norm",
    "op": "attn_norm", "cases": [{"name": "one", "lengths": [4]}]})");
  const auto golden = [&](std::vector<std::string> words) {
    words.insert(words.begin(), "golden");
    words.insert(words.end(), {"--goldens", folder_.string()});
    return words;
  };
  EXPECT_EQ(run(golden({"run"})).code, 1);
  must(golden({"accept", "norm", "--reason", "first"}));
  // Other values than the accepted ones are pending.
  std::string text = read(path("norm.accepted.json"));
  const std::size_t at = text.find("\"values\":[") + 10;
  text.replace(at, text.find(',', at) - at, "123.5");
  write("norm.accepted.json", text);
  EXPECT_EQ(run(golden({"run"})).code, 1);
  keeps(golden({"accept", "norm", "--reason", "again"}));
  EXPECT_EQ(run(golden({"run"})).code, 0);
}

}  // namespace overwrite_test
}  // namespace attnscope
