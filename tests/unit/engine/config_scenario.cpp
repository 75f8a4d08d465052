// Scenarios: the shipped ones, and every kind of mistake with its message.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "engine/cache/cache_layout.h"
#include "engine/config/scenario.h"
#include "engine/family/models.h"
#include "engine/io/assets_folder.h"
#include "engine/io/json_file.h"

namespace attnscope {
namespace config_scenario_test {

namespace fs = std::filesystem;
using nlohmann::json;

class Scenarios : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = (fs::temp_directory_path() / "attnscope-scenario-XXXXXX").string();
    ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
    ASSERT_TRUE(write_text_file((folder_ / "prompt.txt").string(), text_));
    good_ = json::parse(R"({
      "version": 1, "name": "test", "model": {"preset": "tiny", "layers": [0, 1], "seed": 7},
      "profile": "deepseek", "pool_blocks": 600, "token_budget": 64, "max_requests": 3,
      "decode_steps": 5,
      "requests": [
        {"name": "file", "text_file": "prompt.txt", "offset": 10, "tokens": 300,
         "max_new_tokens": 9},
        {"name": "inline", "text": "Hello", "max_new_tokens": 2}
      ]})");
  }
  void TearDown() override {
    fs::remove_all(folder_);
    ::unsetenv("ATTNSCOPE_ASSETS");
  }

  std::string write(const std::string& text) {
    std::string path = (folder_ / "s.json").string();
    EXPECT_TRUE(write_text_file(path, text));
    return path;
  }

  // Loading must fail, name the file, and say all `parts`.
  void expect_error(const json& scenario, const std::vector<std::string>& parts) {
    expect_text_error(scenario.dump(1), parts);
  }
  void expect_text_error(const std::string& text, const std::vector<std::string>& parts) {
    const std::string path = write(text);
    const Result<Scenario> r = load_scenario(path);
    ASSERT_FALSE(r) << "accepted: " << text;
    EXPECT_EQ(r.error().code, AS_BAD_INPUT);
    const std::string message = r.error().text();
    EXPECT_NE(message.find(path), std::string::npos) << message;
    for (const std::string& part : parts) {
      EXPECT_NE(message.find(part), std::string::npos)
          << "\"" << part << "\" missing in: " << message;
    }
  }

  fs::path folder_;
  std::string text_ = std::string(400, 'a') + std::string(600, 'b');
  json good_;
};

TEST_F(Scenarios, StopsAreTextsThatMayBeOff) {
  good_["stops"] = json::parse(R"([{"when": "wrong"}, {"when": "evict block 3", "on": false}])");
  const Result<Scenario> s = load_scenario(write(good_.dump()));
  ASSERT_TRUE(s) << s.error().text();
  const std::vector<ScenarioStop> stops = {{"wrong", true}, {"evict block 3", false}};
  EXPECT_EQ(s->stops, stops);
  good_["stops"][1]["when"] = "";
  const Result<Scenario> empty = load_scenario(write(good_.dump()));
  ASSERT_FALSE(empty);
  EXPECT_NE(empty.error().text().find("stops[1].when: is empty"), std::string::npos)
      << empty.error().text();
  good_["stops"] = std::vector<json>(65, json{{"when", "wrong"}});
  EXPECT_FALSE(load_scenario(write(good_.dump())));
}

TEST_F(Scenarios, ReadsEverything) {
  const std::string path = write("// comment\n" + good_.dump());
  const Result<Scenario> s = load_scenario(path);
  ASSERT_TRUE(s) << s.error().text();
  EXPECT_EQ(s->name, "test");
  EXPECT_EQ(s->path, path);
  EXPECT_EQ(s->text.substr(0, 10), "// comment");
  EXPECT_EQ(s->model.name, "tiny");
  EXPECT_EQ(s->model.layers, (std::vector<int>{0, 1}));
  EXPECT_EQ(s->model.switches.profile, "deepseek");
  EXPECT_TRUE(s->model.switches.hadamard);
  EXPECT_EQ(s->seed, 7u);
  EXPECT_EQ(s->pool_blocks, 600);
  EXPECT_EQ(s->limits.token_budget, 64);
  EXPECT_EQ(s->limits.max_requests, 3);
  EXPECT_EQ(s->decode_steps, 5);
  ASSERT_EQ(s->requests.size(), 2u);
  EXPECT_EQ(s->requests[0].name, "file");
  ASSERT_EQ(s->requests[0].tokens.size(), 300u);
  EXPECT_EQ(s->requests[0].tokens[0], 'a');
  EXPECT_EQ(s->requests[0].max_new_tokens, 9);
  EXPECT_EQ(s->requests[1].tokens, (std::vector<std::int32_t>{'H', 'e', 'l', 'l', 'o'}));
}

// A text that stands for a file: named by it, other files are found beside it, it need not exist.
TEST_F(Scenarios, IsReadFromTextToo) {
  const std::string path = (folder_ / "not_there.json").string();
  const Result<Scenario> s = parse_scenario(good_.dump(), path);
  ASSERT_TRUE(s) << s.error().text();
  EXPECT_EQ(s->path, path);
  EXPECT_EQ(s->text, good_.dump());
  EXPECT_EQ(s->requests[0].tokens.size(), 300u) << "prompt.txt lies beside it";
  EXPECT_EQ(*find_scenario_file("prompt.txt", path), (folder_ / "prompt.txt").string());
  EXPECT_EQ(*find_scenario_file("/any/where", path), "/any/where");
  EXPECT_FALSE(find_scenario_file("gone.txt", path));
  const Result<Scenario> bad = parse_scenario("{", path);
  ASSERT_FALSE(bad);
  EXPECT_NE(bad.error().message.find(path + ": line 1"), std::string::npos) << bad.error().message;
}

TEST_F(Scenarios, MaySelectFewerEntriesThanTheModel) {
  json s = good_;
  s["model"] = {{"preset", "tiny"}, {"layers", {0, 1}}, {"index_topk", 64}};
  const Result<Scenario> r = load_scenario(write(s.dump()));
  ASSERT_TRUE(r) << r.error().text();
  EXPECT_EQ(r->model.index_topk, 64);
  s["model"]["index_topk"] = 65;
  expect_error(s, {"model.index_topk", "multiples of 64"});
  s["model"]["index_topk"] = 0;
  expect_error(s, {"model.index_topk", "found 0"});
  s["model"]["index_topk"] = 64;
  s["model"]["layers"] = {0};
  expect_error(s, {"model.index_topk", "no layer that runs selects"});
  s["model"].erase("index_topk");
  EXPECT_EQ(load_scenario(write(s.dump()))->model.index_topk, 512);
}

TEST_F(Scenarios, MaySayWhereIdsBeginAndHowListsAre) {
  EXPECT_EQ(load_scenario(write(good_.dump()))->first_block, 1);
  EXPECT_FALSE(load_scenario(write(good_.dump()))->adversarial_lists);
  json s = good_;
  s["first_block"] = 120000;
  s["lists"] = "adversarial";
  s["model"]["logit_gain"] = 256;
  s["model"]["twin_tokens"] = true;
  const Result<Scenario> r = load_scenario(write(s.dump()));
  ASSERT_TRUE(r) << r.error().text();
  EXPECT_EQ(r->first_block, 120000);
  EXPECT_TRUE(r->adversarial_lists);
  EXPECT_EQ(r->model.logit_gain, 256);
  EXPECT_TRUE(r->model.twin_tokens);
  s["first_block"] = 0;
  expect_error(s, {"first_block", "found 0"});
  s["first_block"] = (1 << 20) + 1;
  expect_error(s, {"first_block", "1048576"});
  s["first_block"] = 1;
  s["lists"] = "odd";
  expect_error(s, {"lists", "plain", "adversarial"});
}

TEST_F(Scenarios, DefaultsAndBytesAbove127) {
  const Result<Scenario> s = load_scenario(write(R"({"version": 1, "model": {"preset": "tiny"},
      "pool_blocks": 400, "requests": [{"text": "\u00e4", "max_new_tokens": 1},
      {"text_file": "prompt.txt", "offset": 999, "max_new_tokens": 1}]})"));
  ASSERT_TRUE(s) << s.error().text();
  EXPECT_EQ(s->name, "s");
  EXPECT_EQ(s->model.num_layers(), 4);
  EXPECT_EQ(s->model.switches.profile, "vllm");
  EXPECT_EQ(s->seed, 1u);
  EXPECT_EQ(s->limits.token_budget, 512);
  EXPECT_EQ(s->limits.max_requests, 8);
  EXPECT_EQ(s->decode_steps, 20);
  EXPECT_EQ(s->requests[0].name, "request0");
  EXPECT_EQ(s->requests[0].tokens, (std::vector<std::int32_t>{0xc3, 0xa4}));
  EXPECT_EQ(s->requests[1].tokens, (std::vector<std::int32_t>{'b'}));
}

TEST_F(Scenarios, ShippedOnesLoadAndSayWhatTheyPromise) {
  const auto names = scenario_names();
  for (const char* name : {"default", "early", "flash"}) {
    EXPECT_TRUE(std::count(names.begin(), names.end(), name)) << name;
  }
  for (const std::string& name : names) {
    const Result<Scenario> s = load_scenario(name);
    ASSERT_TRUE(s) << s.error().text();
    EXPECT_EQ(s->name, name);
    EXPECT_TRUE(validate(s->model));
  }
  const Result<Scenario> s = load_scenario("default");
  EXPECT_EQ(s->model.name, "tiny");
  EXPECT_GE(s->requests.size(), 3u);
  EXPECT_EQ(s->requests[0].tokens.size(), 2104u);
  EXPECT_EQ(s->decode_steps, 20);
  std::int64_t demand = 0;
  const CacheLayout layout = build_cache_layout(s->model);
  for (const ScenarioRequest& r : s->requests) {
    EXPECT_GT(r.max_new_tokens, s->decode_steps);
    demand += layout.demand(static_cast<std::int64_t>(r.tokens.size()) + r.max_new_tokens,
                            s->limits.token_budget);
  }
  EXPECT_LT(demand, s->pool_blocks);  // all of them run at once
  const Result<Scenario> flash = load_scenario("flash");
  EXPECT_EQ(flash->model.layers, (std::vector<int>{0, 2, 3, 4}));
  EXPECT_EQ(flash->requests[0].tokens.size(), 2100u);
}

TEST_F(Scenarios, UnknownNameListsTheKnownOnes) {
  const Result<Scenario> r = load_scenario("defualt");
  ASSERT_FALSE(r);
  EXPECT_EQ(r.error().code, AS_BAD_INPUT);
  EXPECT_NE(r.error().text().find("unknown scenario \"defualt\""), std::string::npos);
  EXPECT_NE(r.error().text().find("default, early, ess, flash"), std::string::npos);
  const Result<Scenario> missing = load_scenario("no/such/file.json");
  ASSERT_FALSE(missing);
  EXPECT_NE(missing.error().text().find("no/such/file.json"), std::string::npos);
  EXPECT_FALSE(load_scenario(""));
  EXPECT_FALSE(load_scenario(folder_.string()));
}

TEST_F(Scenarios, AssetsFolderFollowsTheEnvironment) {
  ::setenv("ATTNSCOPE_ASSETS", folder_.c_str(), 1);
  EXPECT_EQ(*assets_folder(), folder_.string());
  EXPECT_TRUE(scenario_names().empty());
  fs::create_directory(folder_ / "scenarios");
  good_["name"] = "mine";
  ASSERT_TRUE(write_text_file((folder_ / "scenarios" / "mine.json").string(), good_.dump()));
  EXPECT_EQ(scenario_names(), (std::vector<std::string>{"mine"}));
  const Result<Scenario> s = load_scenario("mine");  // prompt.txt lies in the assets folder
  ASSERT_TRUE(s) << s.error().text();
  ::setenv("ATTNSCOPE_ASSETS", "/no/such/folder", 1);
  const Result<std::string> r = assets_folder();
  ASSERT_FALSE(r);
  EXPECT_EQ(r.error().code, AS_NO_ENVIRONMENT);
  EXPECT_NE(r.error().text().find("ATTNSCOPE_ASSETS"), std::string::npos);
}

TEST_F(Scenarios, MalformedFiles) {
  expect_text_error("{\n \"version\": 1,\n}", {"line 3, column 1"});
  expect_text_error("{\"version\": 1, \"version\": 1}", {"duplicate key \"version\""});
  expect_text_error("[]", {"expected an object"});
  expect_text_error("{}", {"version", "required key is missing"});
}

TEST_F(Scenarios, UnknownKeysAnywhere) {
  json s = good_;
  s["token_buget"] = 3;
  expect_error(s, {"token_buget", "unknown key", "token_budget"});
  s = good_;
  s["model"]["layer"] = 3;
  expect_error(s, {"model.layer", "unknown key", "layers"});
  s = good_;
  s["requests"][1]["tokns"] = 3;
  expect_error(s, {"requests[1].tokns", "unknown key", "max_new_tokens"});
}

TEST_F(Scenarios, VersionAndLimits) {
  json s = good_;
  s["version"] = 2;
  expect_error(s, {"version", "2 is newer", "allowed: 1"});
  s = good_;
  s["version"] = "1";
  expect_error(s, {"version", "an integer"});
  const std::vector<std::pair<const char*, std::string>> lowest = {{"pool_blocks", "from 2 to"},
                                                                   {"token_budget", "from 1 to"},
                                                                   {"max_requests", "from 1 to"},
                                                                   {"decode_steps", "from 0 to"}};
  for (const auto& [key, allowed] : lowest) {
    s = good_;
    s[key] = -4;
    expect_error(s, {key, allowed, "found -4"});
    s[key] = 1e30;
    expect_error(s, {key, allowed});
    s[key] = std::int64_t{1} << 40;
    expect_error(s, {key, allowed});
  }
  s = good_;
  s.erase("pool_blocks");
  expect_error(s, {"pool_blocks", "required key is missing"});
  s = good_;
  s["profile"] = "sglang";
  expect_error(s, {"profile", "vllm, deepseek", "sglang"});
  s["profile"] = "vllm,q_norm=fp16";
  expect_error(s, {"profile", "q_norm", "fp32, bf16, bf16_factor"});
  s["profile"] = 3;
  expect_error(s, {"profile", "a text in quotes"});
}

TEST_F(Scenarios, Models) {
  json s = good_;
  s["model"]["preset"] = "v5";
  expect_error(s, {"model.preset", "unknown preset \"v5\"", "tiny, v4-flash, v4-pro"});
  s = good_;
  s["model"]["layers"] = {0, 4};
  expect_error(s, {"model.layers", "no layer 4", "0 to 3"});
  s["model"]["layers"] = {-1};
  expect_error(s, {"model.layers[0]", "found -1"});
  s["model"]["layers"] = {1, 1};
  expect_error(s, {"model.layers", "layer 1 is listed twice"});
  s["model"]["layers"] = json::array();
  expect_error(s, {"model.layers", "empty list"});
  s["model"]["layers"] = "all";
  expect_error(s, {"model.layers", "a list"});
  s = good_;
  s["model"]["sink_shift"] = 1e5;
  expect_error(s, {"model.sink_shift", "10000"});
  s["model"].erase("sink_shift");
  for (const auto& [sinks, said] :
       {std::pair(json{{"8", 1}}, "there is no head 8"), std::pair(json{{"x", 1}}, "is no head"),
        std::pair(json{{"-1", 1}}, "is no head"), std::pair(json{{"1", "infinite"}}, "\"-inf\""),
        std::pair(json{{"1", 2e4}}, "10000"), std::pair(json::array({1}), "model.sinks")}) {
    s["model"]["sinks"] = sinks;
    expect_error(s, {"model.sinks", said});
  }
  s["model"].erase("sinks");
  s["model"] = {{"preset", "tiny-llama"}, {"sinks", {{"0", "inf"}}}};
  expect_error(s, {"profile", "model tiny-llama of family dense has no switch"});
  s["profile"] = "vllm";
  expect_error(s, {"model.sinks", "has no sinks"});
  s["model"] = {{"preset", "tiny-llama"}, {"sink_shift", 1}};
  expect_error(s, {"model.sink_shift", "has no sinks"});
  s = good_;
  s["model"]["logit_gain"] = 0;
  expect_error(s, {"model.logit_gain", "1024"});
  s["model"].erase("logit_gain");
  s["model"]["twin_tokens"] = 1;
  expect_error(s, {"model.twin_tokens"});
  s["model"].erase("twin_tokens");
  s["model"]["seed"] = -1;
  expect_error(s, {"model.seed", "found -1"});
  s = good_;
  s["model"] = json::object();
  expect_error(s, {"model.preset", "no model is named", "tiny, v4-flash, v4-pro"});
  s["model"] = {{"preset", "tiny"}, {"config", "c.json"}};
  expect_error(s, {"exclude each other"});
  s["model"] = {{"config", "c.json"}};
  expect_error(s, {"model.config", "no file \"c.json\"", "looked for"});
  ASSERT_TRUE(write_text_file((folder_ / "c.json").string(), "{\"hidden_size\": \"wide\"}"));
  expect_error(s, {"model.config", "c.json", "hidden_size", "an integer"});
  s = good_;
  s.erase("model");
  expect_error(s, {"model", "required key is missing"});
}

TEST_F(Scenarios, Prompts) {
  json s = good_;
  json& r = s["requests"][0];
  r["tokens"] = 0;
  expect_error(s, {"requests[0].tokens", "at least 1", "found 0"});
  r["tokens"] = -5;
  expect_error(s, {"requests[0].tokens", "found -5"});
  r["tokens"] = 991;
  expect_error(s, {"requests[0].tokens", "991", "prompt.txt", "allowed: 1 to 990"});
  r["tokens"] = 10;
  r["offset"] = 1000;
  expect_error(s, {"requests[0].offset", "1000", "prompt.txt", "allowed: 0 to 999"});
  r["offset"] = -1;
  expect_error(s, {"requests[0].offset", "found -1"});
  r["offset"] = 0;
  r["max_new_tokens"] = 0;
  expect_error(s, {"requests[0].max_new_tokens", "found 0"});
  r["max_new_tokens"] = -2;
  expect_error(s, {"requests[0].max_new_tokens", "found -2"});
  r.erase("max_new_tokens");
  expect_error(s, {"requests[0].max_new_tokens", "required key is missing"});
  r["max_new_tokens"] = 4;
  r["text_file"] = "nothing.txt";
  expect_error(s, {"requests[0].text_file", "no file \"nothing.txt\"", "looked for"});
  fs::create_directory(folder_ / "below");
  r["text_file"] = "below";
  expect_error(s, {"requests[0].text_file", "is a folder"});
  for (const char* far : {"..", ".", "/", "/etc/passwd", "../../../../../../../../etc/passwd"}) {
    r["text_file"] = far;
    expect_error(
        s, {"requests[0].text_file", "lies outside of the scenario's folder", "--any-text-file"});
  }
  allow_text_files_anywhere(true);
  r["text_file"] = "..";
  expect_error(s, {"requests[0].text_file", "is a folder"});
  allow_text_files_anywhere(false);
  ASSERT_TRUE(write_text_file((folder_ / "empty.txt").string(), ""));
  r["text_file"] = "empty.txt";
  expect_error(s, {"requests[0].text_file", "empty.txt", "is empty"});
  r["text"] = "too";
  expect_error(s, {"requests[0].text", "exclude each other"});
  r.erase("text_file");
  r["text"] = "";
  expect_error(s, {"requests[0].text", "is empty"});
  r.erase("text");
  expect_error(s, {"requests[0].text", "no prompt is given", "text_file"});
}

TEST_F(Scenarios, Requests) {
  json s = good_;
  s["requests"][1]["name"] = "file";
  expect_error(s, {"requests[1].name", "\"file\" is already the name"});
  s["requests"][1]["name"] = "";
  expect_error(s, {"requests[1].name", "is empty"});
  s["requests"] = json::array();
  expect_error(s, {"requests", "no request"});
  s["requests"] = {{"name", "x"}};
  expect_error(s, {"requests", "a list"});
  s.erase("requests");
  expect_error(s, {"requests", "required key is missing"});
}

TEST_F(Scenarios, Drafts) {
  json s = good_;
  s["serving"] = {{"draft_tokens", 3}, {"draft_accept", {3, 0}}};
  const Result<Scenario> read = load_scenario(write(s.dump()));
  ASSERT_TRUE(read) << read.error().text();
  EXPECT_EQ(read->serving.drafts.tokens, 3);
  EXPECT_EQ(read->serving.drafts.accept, (std::vector<std::int64_t>{3, 0}));
  s["serving"]["draft_accept"] = {3, 4};
  expect_error(s, {"serving.draft_accept[1]", "4", "0 to 3"});
  s["serving"]["draft_accept"] = json::array();
  expect_error(s, {"serving.draft_accept", "empty list"});
  s["serving"]["draft_accept"] = {3, 0};
  s["serving"].erase("draft_tokens");
  expect_error(s, {"serving.draft_accept", "no drafts to accept", "draft_tokens"});
  s["serving"] = {{"draft_tokens", 16}};
  expect_error(s, {"serving.draft_tokens", "16", "0 to 15"});
  s["serving"] = {{"draft_tokens", 2}};
  s["hidden_states"] = "prompt.txt";
  expect_error(s, {"serving.draft_tokens", "recorded inputs", "leave out"});
}

TEST_F(Scenarios, PromptBeyondThePoolOrThePositions) {
  json s = good_;
  // Layers 0 and 1 of tiny: full 256, one SWA group per layer, C4 state; 309 tokens, 64 a step:
  // 2 + min(5, 4) + min(5, 4) + min(78, 19) = 29.
  s["pool_blocks"] = 30;
  EXPECT_TRUE(load_scenario(write(s.dump())));
  s["pool_blocks"] = 29;
  expect_error(s, {"requests[0].tokens", "request \"file\"", "may need 29 blocks", "has 28",
                   "raise pool_blocks to at least 30", "token_budget"});
  s = good_;
  s["requests"][1]["max_new_tokens"] = 1048575;
  expect_error(s, {"requests[1].max_new_tokens", "request \"inline\"", "1048580", "1048576"});
}

}  // namespace config_scenario_test
}  // namespace attnscope
