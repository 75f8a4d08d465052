// A folder for memory that rests in a file. /var/tmp, where the program puts it, is memory itself
// on some systems, and nothing rests there.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <string>
#include <vector>

#include "engine/io/resting_memory.h"

namespace attnscope {

// TMPDIR is another one as long as it lives.
class OtherFolder {
 public:
  explicit OtherFolder(const std::string& folder) {
    if (const char* set = std::getenv("TMPDIR")) before_ = set;
    ::setenv("TMPDIR", folder.c_str(), 1);
  }
  ~OtherFolder() {
    before_.empty() ? ::unsetenv("TMPDIR") : ::setenv("TMPDIR", before_.c_str(), 1);
  }
  OtherFolder(const OtherFolder&) = delete;
  OtherFolder& operator=(const OtherFolder&) = delete;

 private:
  std::string before_;
};

inline bool can_rest_in(const std::string& folder) {
  const OtherFolder other(folder);
  RestingMemory some(1 << 16);
  some.data()[0] = 1;
  return some.rest(0, some.bytes());
}

// The first of these folders in which memory can rest; empty where there is none. What the program
// takes by itself comes first.
inline std::string resting_folder() {
  std::vector<std::string> folders;
  if (const char* set = std::getenv("TMPDIR"); set != nullptr && *set != '\0') folders = {set};
  char here[4096];
  folders.insert(folders.end(), {"/var/tmp", "/tmp"});
  if (::getcwd(here, sizeof here) != nullptr) folders.emplace_back(here);
  folders.emplace_back(ATTNSCOPE_SOURCE_DIR);
  for (const std::string& folder : folders) {
    if (can_rest_in(folder)) return folder;
  }
  return "";
}

inline constexpr const char* kNoRestingFolder =
    "nothing can rest on this machine: $TMPDIR, /var/tmp, /tmp, the working folder and that of the "
    "sources are memory themselves (tmpfs), cannot be written, or cannot give room back; set "
    "TMPDIR "
    "to a folder on a disk";

// Tests whose memory rests: in the place of /var/tmp in a folder where it can, or not at all, with
// the reason.
class RestingTest : public testing::Test {
 protected:
  void SetUp() override {
    if (folder().empty()) GTEST_SKIP() << kNoRestingFolder;
  }
  static const std::string& folder() {
    static const std::string found = resting_folder();
    return found;
  }

 private:
  const OtherFolder other_{folder()};
};

}  // namespace attnscope
