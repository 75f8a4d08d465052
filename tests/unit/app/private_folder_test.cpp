// Folders for temporary files.
#include "app/text/private_folder.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>

namespace attnscope {
namespace private_folder_test {

namespace fs = std::filesystem;

TEST(PrivateFolder, IsTheUsersAloneUnderANameThatNobodyForesees) {
  const auto a = make_private_folder(), b = make_private_folder();
  ASSERT_TRUE(a && b);
  EXPECT_NE(*a, *b);
  EXPECT_EQ(a->find(std::to_string(::getpid())), std::string::npos);
  for (const auto& folder : {*a, *b}) {
    EXPECT_EQ(fs::status(folder).permissions(), fs::perms::owner_all);
    fs::remove(folder);
  }
}

TEST(PrivateFolder, SaysWhereNoneCanBeMade) {
  const char* old = std::getenv("TMPDIR");
  const std::string before = old != nullptr ? old : "";
  ::setenv("TMPDIR", "/dev/null", 1);
  const auto refused = make_private_folder();
  if (old != nullptr) {
    ::setenv("TMPDIR", before.c_str(), 1);
  } else {
    ::unsetenv("TMPDIR");
  }
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, AS_NO_ENVIRONMENT);
  EXPECT_NE(refused.error().hint.find("TMPDIR"), std::string::npos);
}

}  // namespace private_folder_test
}  // namespace attnscope
