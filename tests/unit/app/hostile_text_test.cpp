// Names that somebody else made: control characters never reach the terminal, bytes that are no
// UTF-8 neither end a command nor its JSON; results that cannot be written are an error.
#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "app/text/say.h"
#include "tests/unit/app/program.h"

namespace attnscope {
namespace hostile_text_test {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr const char* kEvil = "evil\033[31m\033]0;owned\a\r\x7f";

class HostileText : public ProgramTest {
 protected:
  static void expect_plain(const std::string& text, const std::string& what) {
    const auto control = std::ranges::find_if(text, [](char c) {
      return (static_cast<unsigned char>(c) < 0x20 && c != '\n') || c == 0x7f;
    });
    EXPECT_EQ(control, text.end()) << what << ":\n" << printable_lines(text);
    EXPECT_EQ(text.find("\xc2\x9b"), std::string::npos) << what;
  }
  // Whatever it answers, its terminal is left alone and it is no error of ours.
  static Outcome answer(const std::vector<std::string>& arguments) {
    Outcome outcome = run(arguments);
    const std::string what = arguments.empty() ? "nothing" : json_text(json(arguments));
    expect_plain(outcome.out, what);
    expect_plain(outcome.err, what);
    EXPECT_NE(outcome.code, AS_INTERNAL) << what << ": " << outcome.err;
    EXPECT_EQ(std::ranges::count(outcome.err, '\n') > 1 && outcome.code > 1, false) << outcome.err;
    return outcome;
  }
  // A scenario whose names are evil, in a file whose name is.
  std::string scenario(const std::string& name) {
    const json names = {"req\033[2J\nverdict: ok", std::string("s\xc2\x9b") + "1m\u202e"};
    return write(name, json{{"version", 1},
                            {"name", names[1]},
                            {"model", {{"preset", "tiny"}, {"layers", {0, 1}}}},
                            {"pool_blocks", 60},
                            {"requests",
                             {{{"name", names[0]}, {"text", "Hello there"}, {"max_new_tokens", 2}},
                              {{"name", "two"}, {"text", "Hello"}, {"max_new_tokens", 2}}}}}
                           .dump());
  }
};

TEST_F(HostileText, NamesOnTheCommandLine) {
  const std::string evil = kEvil, file = path(evil), latin = path("caf\xe9");
  write(evil + ".json", "{");
  write("caf\xe9.json", "{");
  fs::create_directory(file);
  for (const std::string& name : {evil, file, file + ".json", latin + ".json", latin}) {
    for (const std::vector<std::string>& words : std::vector<std::vector<std::string>>{
             {name},
             {"run", name},
             {"run", "early", "--" + name},
             {"run", "early", "--lane", name},
             {"run", "early", "--profile", name},
             {"run", "early", "--model", name},
             {"run", "early", "--hidden-states", name},
             {"run", "early", "--steps", name},
             {"run", "early", "--steps", "0", "--report", name + "/x/y"},
             {"run", "early", "--steps", "0", "--tolerances", name},
             {"run", "early", "--plugin", name},
             {"record", "early", "-o", name + "/x/y", "--request", name},
             {"record", "early", "-o", name + "/x/y", "--op", name},
             {"show", name},
             {"diff", name, name},
             {"pack", name},
             {"unpack", name + ".tar.zst"},
             {"case", "show", name},
             {"case", "run", name},
             {"case", "import", name, name, "-o", name},
             {"golden", "run", name, "--goldens", folder_.string()},
             {"golden", "accept", name, "--reason", name, "--goldens", folder_.string()},
             {"blocks", "simulate", name},
             {"blocks", "replay", name},
             {"blocks", "events", name},
             {"blocks", "layout", name},
             {"model", "describe", name},
             {"model", "export", name, "-o", name + "/x/y"},
             {"why", "early", name},
             {"what-if", "early", "0/0/attn_norm", "--with", name},
             {"sweep", "early", "--vary", name},
             {"sweep", "early", "--vary", "prompt=1", "--metric", name},
             {"profiles", name},
             {"tap-export", "early", "--taps", name, "-o", name}}) {
      const Outcome outcome = answer(words);
      EXPECT_NE(outcome.code, 0) << json_text(json(words));
    }
    answer({"golden", "list", "--goldens", name});
  }
}

TEST_F(HostileText, NamesInFiles) {
  const std::string file = scenario(std::string("s") + kEvil + ".json");
  const std::string capture = path("a.acap");
  Outcome outcome = answer({"run", file, "--references", "none", "--report", path("r.json")});
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_NE(outcome.out.find("verdict: not_compared"), std::string::npos);
  EXPECT_EQ(outcome.out.find("verdict: ok"), std::string::npos) << "a line made of a name";
  outcome = answer({"run", file, "--references", "none", "--json"});
  EXPECT_EQ(json::parse(outcome.out)["scenario"]["requests"][0]["name"], "req\033[2J\nverdict: ok");
  EXPECT_EQ(answer({"record", file, "--references", "none", "-o", capture}).code, 0);
  EXPECT_EQ(answer({"show", capture, "--step", "1"}).code, 0);
  EXPECT_EQ(answer({"diff", capture, capture}).code, 0);
  EXPECT_EQ(
      answer({"record", file, "--references", "none", "-o", capture, "--request", "x", "--force"})
          .code,
      2);
  EXPECT_EQ(answer({"case", "save", file, "--at", "0/0/attn_norm", "-o", path("c.json")}).code, 0);
  EXPECT_EQ(answer({"case", "show", path("c.json")}).code, 0);
  EXPECT_EQ(answer({"case", "run", path("c.json")}).code, 0);
  EXPECT_EQ(answer({"tap-export", file, "--taps", "attn_norm.y", "-o", path("t.safetensors")}).code,
            0);
  answer({"why", file, "0/0/sparse_attention"});
  // Goldens of an evil name and text.
  write("g" + std::string(kEvil) + ".golden.json",
        json{{"format", "attnscope-golden"},
             {"version", 1},
             {"about", std::string("about") + kEvil},
             {"op", "attn_norm"},
             {"cases",
              json::array({{{"name", std::string("one") + kEvil}, {"lengths", json::array({4})}}})}}
            .dump());
  answer({"golden", "run", "--goldens", folder_.string()});
  answer({"golden", "list", "--goldens", folder_.string()});
  answer({"golden", "review", "--goldens", folder_.string()});
  // Keys and values of other formats.
  for (const char* command : {"simulate", "replay", "events", "layout"}) {
    answer({"blocks", command, write("w.json", json{{kEvil, kEvil}}.dump())});
    answer({"blocks", command, write("w.json", json{{"name", kEvil}, {"format", kEvil}}.dump())});
  }
}

TEST_F(HostileText, NamesThatAreNoUtf8) {
  const std::string file = scenario("caf\xe9.json");
  const auto good = [&](const std::vector<std::string>& words) {
    const Outcome outcome = answer(words);
    EXPECT_EQ(outcome.code, 0) << json_text(json(words)) << ": " << outcome.err;
    return outcome.out;
  };
  good({"run", file, "--references", "none", "--report", path("r\xff.json")});
  EXPECT_EQ(json::parse(read(path("r\xff.json")))["scenario"]["path"],
            path("caf\xef\xbf\xbd.json"));
  EXPECT_TRUE(json::accept(good({"run", file, "--references", "none", "--json"})));
  EXPECT_TRUE(json::accept(
      good({"record", file, "--references", "none", "-o", path("a\xff.acap"), "--json"})));
  good({"show", path("a\xff.acap"), "--verify"});
  EXPECT_TRUE(json::accept(good({"show", path("a\xff.acap"), "--json"})));
  EXPECT_TRUE(json::accept(good({"diff", path("a\xff.acap"), path("a\xff.acap"), "--json"})));
  // A case keeps the name of its tensors.
  const Outcome kept =
      answer({"case", "save", file, "--at", "0/0/attn_norm", "-o", path("c\xff.json")});
  EXPECT_EQ(kept.code, 2);
  EXPECT_NE(kept.err.find("its name is no UTF-8"), std::string::npos) << kept.err;
  EXPECT_TRUE(json::accept(
      good({"case", "save", file, "--at", "0/0/attn_norm", "-o", path("c.json"), "--json"})));
  good({"tap-export", file, "--taps", "attn_norm.y", "-o", path("t\xff.safetensors")});
  EXPECT_TRUE(json::accept(good({"model", "export", "tiny", "-o", path("m\xff"), "--json"})));
  EXPECT_TRUE(json::accept(good({"model", "describe", path("m\xff"), "--json"})));
  fs::create_directory(path("g\xff"));
  const Outcome empty = answer({"golden", "list", "--goldens", path("g\xff"), "--json"});
  EXPECT_TRUE(json::accept(empty.out)) << empty.err;
  const Outcome model = answer({"run", file, "--model", path("m\xff")});
  EXPECT_EQ(model.code, 3);
  EXPECT_NE(model.err.find("its name is no UTF-8"), std::string::npos) << model.err;
}

// ---- what cannot be written

TEST_F(HostileText, AFullStandardOutputIsAnError) {
  for (const std::vector<std::string>& words :
       {std::vector<std::string>{"ops"}, {"lanes", "--json"}, {"run", "early", "--steps", "0"}}) {
    start(words, "/dev/full");
    EXPECT_EQ(finish(), 3);
    EXPECT_NE(err().find("standard output: cannot write: No space left on device"),
              std::string::npos)
        << err();
  }
}

TEST_F(HostileText, ALimitOfAFilesSizeIsAnError) {
  const auto limited = [](rlim_t bytes) {
    return [bytes] {
      const rlimit limit{bytes, bytes};
      ::setrlimit(RLIMIT_FSIZE, &limit);
    };
  };
  const std::vector<std::string> base = {"early", "--steps", "1"};
  const auto fails = [&](std::vector<std::string> words) {
    words.insert(words.begin() + 1, base.begin(), base.end());
    start(words, "/dev/null", limited(20000));
    EXPECT_EQ(finish(), 3) << err();
    EXPECT_NE(err().find("File too large"), std::string::npos) << err();
    EXPECT_NE(err().find("ulimit -f"), std::string::npos) << err();
  };
  fails({"run", "--references", "none", "--report", path("r.json")});
  EXPECT_FALSE(fs::exists(path("r.json")));
  fails({"record", "--references", "none", "-o", path("a.acap")});
  fails({"tap-export", "--taps", "attn_norm.y", "-o", path("t.safetensors")});
  EXPECT_FALSE(fs::exists(path("t.safetensors")));
  for (const auto& entry : fs::directory_iterator(folder_)) {
    EXPECT_NE(entry.path().extension(), ".tmp") << entry.path();
  }
}

// ---- prompts of elsewhere

TEST_F(HostileText, PromptsLieBesideTheirScenarioUnlessAllowed) {
  fs::create_directories(path("in/below"));
  write("secret.txt", "the secret");
  write("in/below/own.txt", "own text");
  fs::create_symlink(path("secret.txt"), path("in/link.txt"));
  const auto with = [&](const std::string& file) {
    write("in/s.json",
          json{{"version", 1},
               {"model", {{"preset", "tiny"}, {"layers", json::array({0})}}},
               {"pool_blocks", 60},
               {"requests", json::array({{{"text_file", file}, {"max_new_tokens", 1}}})}}
              .dump());
    return path("in/s.json");
  };
  const std::vector<std::string> quick = {"--references", "none", "--steps", "1"};
  const auto run_with = [&](const std::string& file, std::vector<std::string> more) {
    std::vector<std::string> words = {"run", with(file)};
    words.insert(words.end(), quick.begin(), quick.end());
    words.insert(words.end(), more.begin(), more.end());
    return answer(words);
  };
  for (const std::string& near : {std::string("below/own.txt"), path("in/below/own.txt"),
                                  std::string("below/../below/own.txt"), std::string("prompts.md"),
                                  std::string(ATTNSCOPE_SOURCE_DIR "/assets/prompts.md")}) {
    EXPECT_EQ(run_with(near, {}).code, 0) << near;
  }
  for (const std::string& far : {std::string("../secret.txt"), path("secret.txt"),
                                 std::string("link.txt"), std::string("below/../../secret.txt")}) {
    const Outcome refused = run_with(far, {});
    EXPECT_EQ(refused.code, 3) << far;
    EXPECT_NE(refused.err.find("lies outside of the scenario's folder"), std::string::npos);
    EXPECT_NE(refused.err.find("--any-text-file"), std::string::npos) << refused.err;
    EXPECT_EQ(run_with(far, {"--any-text-file"}).code, 0) << far;
    // It holds for the command that it stands in.
    EXPECT_EQ(run_with(far, {}).code, 3);
  }
}

// ---- how it is said

TEST(Say, EscapesWhatItIsGiven) {
  testing::internal::CaptureStdout();
  say("{}|{:>6}|{}|{}\n", kEvil, std::string("a\n"), 7,
      Lines{"two\nlines " + painted("31;1", "red") + "\033[2J\r"});
  std::fflush(stdout);
  EXPECT_EQ(testing::internal::GetCapturedStdout(),
            "evil\\x1b[31m\\x1b]0;owned\\x07\\x0d\\x7f|   a\\n|7|two\nlines \033[31;1mred\033[0m"
            "\\x1b[2J\\x0d\n");
}

}  // namespace hostile_text_test
}  // namespace attnscope
