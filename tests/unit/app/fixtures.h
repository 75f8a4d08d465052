// Tests on what an earlier program wrote (tests/fixtures): copies of it, so that they can be
// damaged.
#pragma once

#include <nlohmann/json.hpp>

#include "tests/unit/app/cli_fixture.h"

namespace attnscope {

class FixturesTest : public CliTest {
 protected:
  using json = nlohmann::json;

  void SetUp() override {
    CliTest::SetUp();
    const std::string from = ATTNSCOPE_SOURCE_DIR "/tests/fixtures/83b8554";
    std::filesystem::copy(from, folder_, std::filesystem::copy_options::recursive);
    for (const auto& entry : std::filesystem::recursive_directory_iterator(folder_)) {
      std::filesystem::permissions(entry.path(), std::filesystem::perms::owner_all,
                                   std::filesystem::perm_options::add);
    }
    facts_ = json::parse(read(path("facts.json")));
  }

  // Of the capture `name`, which may be packed: its path once it can be read.
  std::string capture(const std::string& name) const {
    std::string open = path(name + ".acap");
    const std::string packed = open + ".tar.zst";
    if (!std::filesystem::exists(open)) {
      const Outcome out = run({"unpack", packed, "-o", open});
      EXPECT_EQ(out.code, 0) << out.err;
    }
    return open;
  }
  // Puts `to` in the place of the only `from` in a file, or of all.
  void replace(const std::string& name, const std::string& from, const std::string& to,
               bool all = false) const {
    std::string text = read(path(name));
    std::size_t at = text.find(from), count = 0;
    for (; at != std::string::npos; at = text.find(from, at + to.size()), ++count) {
      text.replace(at, from.size(), to);
    }
    ASSERT_TRUE(all ? count > 0 : count == 1) << name << " has " << count << " of " << from;
    write(name, text);
  }
  void flip(const std::string& name, std::size_t from_end) const {
    std::string bytes = read(path(name));
    ASSERT_GT(bytes.size(), from_end);
    char& byte = bytes[bytes.size() - 1 - from_end];
    byte = static_cast<char>(byte ^ 0x10);
    write(name, bytes);
  }
  static void expect(const Outcome& out, int code, const std::string& says) {
    EXPECT_EQ(out.code, code) << out.out << out.err;
    EXPECT_NE((out.out + out.err).find(says), std::string::npos) << out.out << out.err;
  }
  static json parsed(const Outcome& out) {
    json value = json::parse(out.out, nullptr, false);
    EXPECT_FALSE(value.is_discarded()) << out.out << out.err;
    return value;
  }

  json facts_;  // of what was recorded, by the program that did
};

}  // namespace attnscope
