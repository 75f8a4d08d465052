#include "app/text/folder_list.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>

#include "engine/io/json_file.h"

namespace attnscope {
namespace folder_list_test {

namespace fs = std::filesystem;

class FolderLists : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::temp_directory_path() / fmt::format("attnscope-folder-{}", ::getpid());
    fs::remove_all(folder_);
    fs::create_directories(folder_ / "zoo");
    fs::create_directories(folder_ / ".hidden");
    for (const char* name : {"b.json", "A.json", ".c.json", "d.txt", "e\n\xff.json"}) {
      ASSERT_TRUE(write_text_file((folder_ / name).string(), "{}\n"));
    }
    fs::create_symlink("nowhere", folder_ / "lost.json");
  }
  void TearDown() override { fs::remove_all(folder_); }
  fs::path folder_;
};

TEST_F(FolderLists, FoldersFirstThenFilesByName) {
  const auto list = list_folder(folder_.string() + "/", ".json");
  ASSERT_TRUE(list) << list.error().text();
  EXPECT_EQ(list->path, folder_.string());
  std::vector<std::string> names;
  for (const FolderItem& item : list->items) names.push_back(item.name);
  EXPECT_EQ(names,
            (std::vector<std::string>{"zoo", "A.json", "b.json", "e\n\xff.json", "lost.json"}));
  EXPECT_TRUE(list->items[0].folder);
  EXPECT_EQ(list->items[1].bytes, 3);
  EXPECT_EQ(list->items[4].bytes, 0) << "a link to nothing";
  EXPECT_EQ(list->left_out, 1);
  EXPECT_FALSE(list->cut);
}

TEST_F(FolderLists, WhatIsNoFolderIsSaid) {
  for (const std::string& path :
       {(folder_ / "A.json").string(), (folder_ / "none").string(), std::string(100000, 'x')}) {
    const auto list = list_folder(path, ".json");
    ASSERT_FALSE(list);
    EXPECT_FALSE(list.error().hint.empty());
    EXPECT_LT(list.error().text().size(), 500u);
  }
}

TEST_F(FolderLists, NamesAreTypedInAFolder) {
  EXPECT_EQ(typed_path("/a/b", "c.json"), "/a/b/c.json");
  EXPECT_EQ(typed_path("/a/b", " ../c.json "), "/a/c.json");
  EXPECT_EQ(typed_path("/a/b", "/c.json"), "/c.json");
  ::setenv("HOME", "/home/me", 1);
  EXPECT_EQ(typed_path("/a/b", "~/c.json"), "/home/me/c.json");
  EXPECT_EQ(typed_path("/a/b", "~c.json"), "/a/b/~c.json");
}

}  // namespace folder_list_test
}  // namespace attnscope
