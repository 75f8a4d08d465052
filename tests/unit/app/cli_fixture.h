// Tests of the command line: runs it in this process, in a folder of its own that goes afterwards.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "app/cli/cli.h"

namespace attnscope {

struct Outcome {
  int code;
  std::string out, err;
};

class CliTest : public testing::Test {
 protected:
  void SetUp() override {
    folder_ =
        std::filesystem::temp_directory_path() / ("attnscope-cli-" + std::to_string(getpid()));
    std::filesystem::create_directories(folder_);
    setenv("ATTNSCOPE_ASSETS", ATTNSCOPE_SOURCE_DIR "/assets", 1);
  }
  void TearDown() override {
    std::filesystem::permissions(folder_, std::filesystem::perms::owner_all);
    std::filesystem::remove_all(folder_);
  }

  // As a shell would call it, without the program's own name.
  static Outcome run(std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), "attnscope");
    testing::internal::CaptureStdout();
    testing::internal::CaptureStderr();
    const int code = run_cli(arguments);
    std::fflush(stdout);
    return {code, testing::internal::GetCapturedStdout(), testing::internal::GetCapturedStderr()};
  }
  std::string write(const std::string& name, const std::string& text) const {
    std::ofstream(folder_ / name) << text;
    return path(name);
  }
  std::string path(const std::string& name) const { return (folder_ / name).string(); }
  static std::string read(const std::string& file) {
    std::ostringstream text;
    text << std::ifstream(file).rdbuf();
    return text.str();
  }

  std::filesystem::path folder_;
};

}  // namespace attnscope
