// Text of others as it is shown on a terminal and written to JSON.
#include "engine/io/printable.h"

#include <gtest/gtest.h>

namespace attnscope {
namespace printable_test {

TEST(Printable, ControlCharactersAreShown) {
  EXPECT_EQ(printable("plain, \"quoted\" \\ text"), "plain, \"quoted\" \\ text");
  EXPECT_EQ(printable("a\033[31mb\a\r\n\t\x7f"), "a\\x1b[31mb\\x07\\x0d\\n\\t\\x7f");
  EXPECT_EQ(printable(std::string_view("a\0b", 3)), "a\\x00b");
  EXPECT_EQ(printable("\xc2\x9b"
                      "31m"),
            "\\x9b31m")
      << "ESC [ in one character";
  EXPECT_EQ(printable("\xe2\x80\xae"
                      "gpj"),
            "\\u202egpj")
      << "turns the direction of writing";
  EXPECT_EQ(printable("\xe2\x80\xa8"), "\\u2028");
  EXPECT_EQ(printable_lines("a\nb\r"), "a\nb\\x0d");
}

TEST(Printable, LettersOfAllLanguagesStay) {
  const std::string text = "größe · 東京 · 🙂 · \xc2\xa0";
  EXPECT_EQ(printable(text), text);
  EXPECT_TRUE(is_utf8(text));
}

TEST(Printable, BytesThatAreNoUtf8AreShown) {
  for (const auto& [bytes, shown] : std::vector<std::pair<std::string, std::string>>{
           {"a\xff", "a\\xff"},
           {"\xc3", "\\xc3"},                                // cut off
           {"\xc3(", "\\xc3("},                              // followed by a letter
           {"\xc0\xaf", "\\xc0\\xaf"},                       // a longer form of /
           {"\xe0\x80\xaf", "\\xe0\\x80\\xaf"},              // likewise
           {"\xed\xa0\x80", "\\xed\\xa0\\x80"},              // half of a pair
           {"\xf4\x90\x80\x80", "\\xf4\\x90\\x80\\x80"}}) {  // beyond the last one
    EXPECT_EQ(printable(bytes), shown);
    EXPECT_FALSE(is_utf8(bytes)) << shown;
  }
}

TEST(Printable, JsonOfAnythingIsWrittenAndRead) {
  const nlohmann::json bad = {{"name", "a\xff\033\xc2\x9b\x7f"}, {"na\xfe", 1}};
  EXPECT_THROW((void)bad.dump(), nlohmann::json::exception);
  const std::string text = json_text(bad);
  EXPECT_EQ(text.find_first_of("\033\x7f\xff\xfe"), std::string::npos) << text;
  EXPECT_EQ(text.find("\xc2\x9b"), std::string::npos);
  const nlohmann::json read = nlohmann::json::parse(text);
  EXPECT_EQ(read["name"], "a\xef\xbf\xbd\033\xc2\x9b\x7f");
  EXPECT_EQ(json_text(read), text) << "writing it again changes nothing";
  EXPECT_EQ(nlohmann::json::parse(json_text(nlohmann::ordered_json{{"b", 1}, {"a", 2}}, 1)),
            (nlohmann::json{{"b", 1}, {"a", 2}}));
}

TEST(Printable, AllTextsOfAJsonValue) {
  const nlohmann::json shown = printable_json({{"a\n", {"b\033", 1, nullptr, {{"c", "\xff"}}}}});
  EXPECT_EQ(shown, (nlohmann::json{{"a\\n", {"b\\x1b", 1, nullptr, {{"c", "\\xff"}}}}}));
}

}  // namespace printable_test
}  // namespace attnscope
