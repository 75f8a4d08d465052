// Tests of the command line: runs it in this process, in a folder of its own that goes afterwards.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>
#include <utility>

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
  // NAME.json: a case of scenario `early`. The run that gives it is made once a process.
  std::string early_case(const std::string& place, const std::string& name) const {
    static std::map<std::string, std::pair<std::string, std::string>> kept;  // numbers, tensors
    const std::string file = path(name + ".json"), tensors = path(name + ".safetensors");
    auto& [numbers, bytes] = kept[place + " " + name];
    if (numbers.empty()) {
      std::filesystem::remove(file);  // beside another case the tensors would get another name
      std::filesystem::remove(tensors);
      const Outcome done = run({"case", "save", "early", "--at", place, "-o", file});
      EXPECT_EQ(done.code, 0) << done.err;
      numbers = read(file);
      bytes = read(tensors);
      EXPECT_FALSE(bytes.empty()) << tensors;
    }
    write(name + ".safetensors", bytes);
    return write(name + ".json", numbers);
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
