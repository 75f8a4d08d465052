// Everything that the command line prints as JSON says in which format it is, and in which version
// of it: every command with --json, each way in which it answers.
#include <nlohmann/json.hpp>
#include <set>

#include "tests/unit/app/cli_fixture.h"

namespace attnscope {
namespace json_formats_test {

using nlohmann::json;
using Words = std::vector<std::string>;

class JsonFormats : public CliTest {
 protected:
  // With --json in their options, by what --help says of each.
  void add_commands(const Words& command, std::set<std::string>& found) {
    Words words = command;
    words.emplace_back("--help");
    std::istringstream help(run(words).out);
    bool below = false;
    for (std::string line; std::getline(help, line);) {
      if (line.starts_with("  --json")) {
        std::string name;
        for (const std::string& word : command) name += (name.empty() ? "" : " ") + word;
        found.insert(name);
      }
      if (line == "Subcommands:") {
        below = true;
      } else if (below && line.starts_with("  ") && line.size() > 2 && line[2] != ' ') {
        Words deeper = command;
        deeper.push_back(line.substr(2, line.find(' ', 2) - 2));
        add_commands(deeper, found);
      } else if (!line.starts_with(" ")) {
        below = false;
      }
    }
  }
  void expect_format(Words words, const std::string& format) {
    words.emplace_back("--json");
    SCOPED_TRACE(testing::PrintToString(words));
    const Outcome done = run(words);
    EXPECT_LE(done.code, 1) << done.err;
    const json out = json::parse(done.out, nullptr, false);
    ASSERT_TRUE(out.is_object()) << done.out.substr(0, 400);
    EXPECT_EQ(out.value("format", ""), "attnscope-" + format);
    EXPECT_TRUE(out.contains("version") && out["version"].is_number_integer()) << format;
    for (const std::string& command : {words[0] + " " + words[1], words[0]}) {
      if (commands_.contains(command)) {
        left_.erase(command);
        break;
      }
    }
  }

  std::set<std::string> commands_, left_;
};

TEST_F(JsonFormats, EveryCommandNamesTheFormatOfItsJson) {
  add_commands({}, commands_);
  EXPECT_TRUE(commands_.contains("model describe") && commands_.contains("run")) << "no help read";
  left_ = commands_;
  const std::string q = write("q.json", R"({"version": 1, "name": "q", "decode_steps": 1,
      "model": {"preset": "tiny", "layers": [0, 1], "seed": 3}, "pool_blocks": 300,
      "requests": [{"name": "q", "text_file": "prompts.md", "tokens": 40, "max_new_tokens": 2}]})");
  const std::string at = "0/1/sparse_attention", a = path("a.acap"), kept = path("kept.json");
  expect_format({"run", q, "--references", "none"}, "report");
  expect_format({"record", q, "--level", "full", "--weights", "-o", a}, "record");
  expect_format({"show", a}, "show");
  expect_format({"diff", a, a}, "diff");
  expect_format({"case", "save", a, "--at", at, "-o", kept}, "case-save");
  expect_format({"case", "show", kept}, "case-show");
  expect_format({"case", "run", kept}, "case-run");
  expect_format({"case", "run", kept, "--lane", "cpu", "--lane", "ref.sim"}, "case-runs");
  expect_format({"case", "explain", kept}, "case-explain");
  expect_format({"why", q, at}, "why");
  expect_format({"why", q, at, "--slot", "1", "--cache", "swa"}, "why-slot");
  expect_format({"why", q, at, "--entry", "2"}, "why-entry");
  expect_format({"why", q, "0/1/indexer_logits", "--entry", "2"}, "why-score");
  expect_format({"why", q, "--request", "q", "--position", "3"}, "guilty-token");
  expect_format({"what-if", q, at}, "what-if");
  expect_format({"what-if", q, "--request", "q", "--position", "3"}, "guilty-token");
  expect_format({"plan", "attention_plan", "3/1/sparse_attention"}, "plan");
  expect_format({"sweep", q, "--vary", "prompt=8..9", "--decode-steps", "0"}, "sweep");
  expect_format({"profiles", q}, "profiles");
  expect_format({"ops"}, "ops");
  expect_format({"lanes"}, "lanes");
  expect_format({"doctor"}, "doctor");
  expect_format({"model", "describe", "tiny"}, "model-describe");
  expect_format({"model", "export", q, "-o", path("model")}, "model-export");
  expect_format({"model", "tensors", path("model")}, "model-tensors");
  expect_format({"blocks", "layout", "tiny"}, "storage");
  expect_format({"blocks", "simulate", "g1"}, "blocks-simulate");
  expect_format({"blocks", "events", write("events.json", "[0.0, []]")}, "cache-events");
  expect_format({"backends", "list"}, "backend-list");
  expect_format({"backends", "explain", "tiny-mha"}, "backends");
  expect_format({"backends", "workspace"}, "workspace");
  expect_format({"backends", "occupancy", "--threads", "256"}, "occupancy");
  expect_format({"backends", "compare", "tiny-mha"}, "backend-runs");
  expect_format({"mask", "show", "tiny-gemma"}, "masks");
  expect_format({"study", "cache-dtype", "tiny-llama", "--lengths", "64"}, "cache-study");
  expect_format({"ess", "simulate", "generate", "--context", "300", "--top-k", "20"}, "ess");
  expect_format({"ess", "claims"}, "ess-claims");
  const std::string goldens = std::string(ATTNSCOPE_SOURCE_DIR) + "/tests/fixtures/83b8554/golden";
  expect_format({"golden", "list", "--goldens", goldens}, "golden-list");
  expect_format({"golden", "run", "--ci", "--goldens", goldens}, "golden-report");
  expect_format({"bench", "scale", "--lane", "cpu", "--max-context", "4096"}, "scale");
  const std::string plugin = std::string(ATTNSCOPE_TEST_PLUGINS) + "/libplugin_example.so";
  expect_format({"plugin", "check", plugin, "--op", "residual"}, "plugin-check");
  EXPECT_EQ(left_, std::set<std::string>()) << "commands with --json that nothing above runs";
}

}  // namespace json_formats_test
}  // namespace attnscope
