// Reading and writing JSON files: positions in messages, duplicate keys, checked getters.
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>

#include "engine/io/json_file.h"
#include "engine/io/json_object.h"

namespace attnscope {
namespace config_json_test {

namespace fs = std::filesystem;
using nlohmann::json;

class Folder : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = (fs::temp_directory_path() / "attnscope-json-XXXXXX").string();
    ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
  }
  void TearDown() override { fs::remove_all(folder_); }
  std::string file(const std::string& name) const { return (folder_ / name).string(); }
  std::size_t entries() const {
    return static_cast<std::size_t>(std::distance(fs::directory_iterator(folder_), {}));
  }
  fs::path folder_;
};

void expect_all(const std::string& text, const std::vector<std::string>& parts) {
  for (const std::string& part : parts) {
    EXPECT_NE(text.find(part), std::string::npos) << "\"" << part << "\" missing in: " << text;
  }
}

std::string parse_error(const std::string& text) {
  const Result<json> r = parse_json(text, "a.json");
  EXPECT_FALSE(r);
  if (r) return "";
  EXPECT_EQ(r.error().code, AS_BAD_INPUT);
  return r.error().text();
}

TEST(ParseJson, CommentsAreAllowed) {
  const Result<json> r =
      parse_json("// first\n{\"a\": 1, /* in\nside */ \"b\": [2]} // end", "a.json");
  ASSERT_TRUE(r);
  EXPECT_EQ((*r)["a"], 1);
  EXPECT_EQ((*r)["b"][0], 2);
}

TEST(ParseJson, ErrorsNameFileLineAndColumn) {
  expect_all(parse_error("{\n  \"a\": 1,\n  \"b\": x\n}"),
             {"a.json: line 3, column 8", "invalid literal", "comments are allowed"});
  expect_all(parse_error("{\"a\": 1,}"), {"line 1, column 9"});
  expect_all(parse_error(""), {"a.json: line 1, column 1"});
  expect_all(parse_error("{\"a\": 1} extra"), {"line 1, column 10"});
  expect_all(parse_error("{\"a\": 1e999}"), {"a.json: line 1", "1e999"});
  expect_all(parse_error("{\"a\": \"\xff\"}"), {"a.json: line 1", "UTF-8"});
  expect_all(parse_error("{\"a\": /* never closed"), {"a.json: line 1", "comment"});
}

TEST(ParseJson, DuplicateKeysAreRefusedWithTheirPlace) {
  expect_all(parse_error("{\n  \"a\": 1,\n  \"a\": 2\n}"),
             {"a.json: line 3, column 3", "duplicate key \"a\""});
  expect_all(parse_error("{\"x\": [{\"b\": 1}, {\"c\": 1, \"c\": {}}]}"), {"duplicate key \"c\""});
  // The same key in different objects is fine.
  EXPECT_TRUE(parse_json("{\"a\": {\"a\": 1}, \"b\": [{\"a\": 1}, {\"a\": 2}]}", "a.json"));
}

TEST(ParseJson, DeepNestingIsRefused) {
  const auto nested = [](int levels) {
    return std::string(static_cast<std::size_t>(levels), '[') +
           std::string(static_cast<std::size_t>(levels), ']');
  };
  EXPECT_TRUE(parse_json(nested(kDeepestJson), "deep.json"));
  expect_all(parse_error(nested(kDeepestJson + 1)),
             {"a.json: line 1, column 101", "deeper than 100"});
  expect_all(parse_error("{\"a\":\n" + nested(200000) + "}"), {"a.json: line 2, column 100"});
  expect_all(parse_error(std::string(200000, '[')), {"deeper than 100"});
}

TEST(JsonLines, GiveEveryValueWithItsLine) {
  std::vector<std::string> seen;
  const auto take = [&](const json& value, int line, const std::string& place) -> Result<void> {
    seen.push_back(std::to_string(line) + ":" + value.dump() + ":" + place);
    if (value == 7) return bad_input("seven");
    return {};
  };
  EXPECT_TRUE(for_each_json_line("1\n\n// words\r\n {\"a\": 2}\r\n", "a.jsonl", take));
  EXPECT_EQ(seen, (std::vector<std::string>{"1:1:a.jsonl: line 1", "4:{\"a\":2}:a.jsonl: line 4"}));
  seen.clear();
  const auto stopped = for_each_json_line("1\n7\n3", "a.jsonl", take);
  ASSERT_FALSE(stopped);
  EXPECT_EQ(stopped.error().message, "seven");
  EXPECT_EQ(seen.size(), 2u);
  const auto broken = for_each_json_line("1\n2\n [1, x]", "a.jsonl", take);
  ASSERT_FALSE(broken);
  expect_all(broken.error().text(),
             {"a.jsonl: line 3, column 6", "every line of the file is a JSON value by itself"});
  const auto whole = for_each_json_line("{\n  \"a\": 2\n}", "a.json", take);
  ASSERT_FALSE(whole);
  expect_all(whole.error().text(), {"a.json: line 1, column", "every line of the file"});
}

TEST_F(Folder, WriteReplacesWholeFilesAndLeavesNothingBehind) {
  const std::string path = file("a.json");
  ASSERT_TRUE(write_text_file(path, "one"));
  ASSERT_EQ(::chmod(path.c_str(), 0640), 0);
  ASSERT_TRUE(write_text_file(path, "two, longer"));
  EXPECT_EQ(fs::status(path).permissions(), fs::perms(0640));
  EXPECT_EQ(*read_text_file(path), "two, longer");
  EXPECT_EQ(entries(), 1u);
  ASSERT_TRUE(write_text_file(path, ""));
  EXPECT_EQ(*read_text_file(path), "");
}

TEST_F(Folder, WriteKeepsLinksAndDevices) {
  ASSERT_TRUE(write_text_file(file("real.json"), "old"));
  fs::create_symlink("real.json", file("link.json"));
  ASSERT_TRUE(write_text_file(file("link.json"), "new"));
  EXPECT_TRUE(fs::is_symlink(file("link.json")));
  EXPECT_EQ(*read_text_file(file("real.json")), "new");
  EXPECT_TRUE(write_text_file("/dev/null", "gone"));
  EXPECT_TRUE(fs::is_character_file("/dev/null"));
}

TEST_F(Folder, FailedWriteLeavesTheOldFile) {
  Result<void> r = write_text_file(file("missing/a.json"), "x");
  ASSERT_FALSE(r);
  EXPECT_EQ(r.error().code, AS_BAD_INPUT);
  expect_all(r.error().text(), {"missing/a.json", "No such file", "must exist and be writable"});
  r = write_text_file(folder_.string(), "x");
  ASSERT_FALSE(r);
  expect_all(r.error().text(), {"is a folder"});
  if (::geteuid() != 0) {  // root may write anywhere
    ASSERT_TRUE(write_text_file(file("a.json"), "kept"));
    ASSERT_EQ(::chmod(folder_.c_str(), 0500), 0);
    r = write_text_file(file("a.json"), "lost");
    ASSERT_EQ(::chmod(folder_.c_str(), 0700), 0);
    ASSERT_FALSE(r);
    EXPECT_EQ(*read_text_file(file("a.json")), "kept");
  }
}

TEST_F(Folder, ReadRefusesWhatIsNoReadableFile) {
  Result<std::string> r = read_text_file(file("none.json"));
  ASSERT_FALSE(r);
  EXPECT_EQ(r.error().code, AS_BAD_INPUT);
  expect_all(r.error().text(), {"none.json", "No such file"});
  r = read_text_file(folder_.string());
  ASSERT_FALSE(r);
  expect_all(r.error().text(), {"is a folder"});
  ASSERT_TRUE(write_text_file(file("big.json"), std::string(101, 'x')));
  r = read_text_file(file("big.json"), 100);
  ASSERT_FALSE(r);
  expect_all(r.error().text(), {"big.json", "larger than 100 bytes"});
  EXPECT_TRUE(read_text_file(file("big.json"), 101));
}

// The message that reading `text` with `read` gives, "" when it succeeds.
template <class Read>
std::string object_error(const std::string& text, Read read) {
  const json value = *parse_json(text, "a.json");
  JsonReader reader("a.json");
  JsonObject root(reader, value);
  read(root);
  return reader.ok() ? "" : reader.error().text();
}

TEST(JsonObject, GettersNamePlaceAndAllowedValues) {
  const auto integer = [](JsonObject& o) { o.integer("n", 1, 8); };
  EXPECT_EQ(object_error("{\"n\": 8}", integer), "");
  expect_all(object_error("{\"n\": 0}", integer), {"a.json: n:", "integer from 1 to 8", "found 0"});
  expect_all(object_error("{\"n\": 9}", integer), {"found 9"});
  expect_all(object_error("{\"n\": 2.5}", integer), {"an integer", "found 2.5"});
  expect_all(object_error("{\"n\": \"2\"}", integer), {"an integer", "found \"2\""});
  expect_all(object_error("{\"n\": 18446744073709551615}", integer), {"18446744073709551615"});
  expect_all(object_error("{}", integer), {"a.json: n:", "required key is missing"});
  expect_all(object_error("{\"n\": null}", integer), {"required key is missing"});
  const auto needs = [](JsonObject& o) { o.integer("pool_blocks", 1, 9); };
  expect_all(object_error("{\"pool_bloks\": 4}", needs),
             {"pool_blocks: required key is missing",
              "there is \"pool_bloks\": did you mean pool_blocks?"});
  EXPECT_EQ(object_error("{\"pool\": 4}", needs).find("did you mean"), std::string::npos);
  expect_all(object_error("[1]", integer), {"a.json: expected an object", "a list of 1"});

  const auto number = [](JsonObject& o) { o.number("x", 0.5, 2.0, 1.0); };
  EXPECT_EQ(object_error("{\"x\": 2}", number), "");
  EXPECT_EQ(object_error("{}", number), "");
  expect_all(object_error("{\"x\": true}", number), {"a number from 0.5 to 2", "found true"});

  const auto choice = [](JsonObject& o) { o.choice("p", {"vllm", "deepseek"}, "vllm"); };
  expect_all(object_error("{\"p\": \"sglang\"}", choice), {"one of vllm, deepseek", "\"sglang\""});

  const auto list = [](JsonObject& o) { o.integers("l", 0, 4); };
  expect_all(object_error("{\"l\": [0, 5]}", list), {"a.json: l[1]:", "0 to 4", "found 5"});
  expect_all(object_error("{\"l\": 3}", list), {"a list", "found 3"});

  const auto seed = [](JsonObject& o) {
    EXPECT_EQ(o.unsigned_integer("s", 0), std::numeric_limits<std::uint64_t>::max());
  };
  EXPECT_EQ(object_error("{\"s\": 18446744073709551615}", seed), "");
  const auto bad_seed = [](JsonObject& o) { o.unsigned_integer("s", 0); };
  expect_all(object_error("{\"s\": -1}", bad_seed), {"from 0 to 18446744073709551615", "found -1"});
}

TEST(JsonObject, NestedPlacesAndUnknownKeys) {
  const auto read = [](JsonObject& root) {
    for (JsonObject& item : root.objects("requests")) {
      item.integer("tokens", 1, 100);
      item.finish();
    }
    root.finish();
  };
  EXPECT_EQ(object_error("{\"requests\": [{\"tokens\": 3}]}", read), "");
  expect_all(object_error("{\"requests\": [{\"tokens\": 3}, {\"tokens\": -3}]}", read),
             {"requests[1].tokens", "found -3"});
  expect_all(
      object_error("{\"requests\": [{\"tokens\": 3, \"tokns\": 4}]}", read),
      {"requests[0].tokns", "unknown key", "did you mean tokens?", "allowed keys here: tokens"});
  expect_all(object_error("{\"requests\": [7]}", read), {"requests[0]", "an object"});
  expect_all(object_error("{\"requests\": [], \"x\": 1}", read), {"a.json: x: unknown key"});
  expect_all(object_error("{\"requests\": [], \"x\\ny\": 1}", read),
             {"a.json: \"x\\ny\": unknown key"});
}

TEST(JsonObject, TheFirstErrorIsKept) {
  const std::string text = object_error("{\"a\": -1, \"b\": -1}", [](JsonObject& o) {
    o.integer("a", 0, 9);
    o.integer("b", 0, 9);
  });
  expect_all(text, {"a.json: a:"});
  EXPECT_EQ(text.find("b:"), std::string::npos);
}

}  // namespace config_json_test
}  // namespace attnscope
