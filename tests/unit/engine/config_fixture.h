// A folder with a config.json, for tests of what is read from one and what is refused.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "engine/family/models.h"
#include "engine/io/json_file.h"

namespace attnscope {

class ConfigTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern =
        (std::filesystem::temp_directory_path() / "attnscope-config-XXXXXX").string();
    ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
    path_ = (std::filesystem::path(pattern) / "config.json").string();
  }
  void TearDown() override {
    std::filesystem::remove_all(std::filesystem::path(path_).parent_path());
  }

  Result<ModelConfig> read(const nlohmann::json& config) {
    EXPECT_TRUE(write_text_file(path_, config.dump(2)));
    return read_hf_config(path_);
  }
  ModelConfig must(const nlohmann::json& config) {
    auto found = read(config);
    EXPECT_TRUE(found) << found.error().text();
    return found ? *found : ModelConfig();
  }
  void refused(const nlohmann::json& config, const std::vector<std::string>& parts) {
    const auto found = read(config);
    ASSERT_FALSE(found) << config.dump();
    for (const std::string& part : parts) {
      EXPECT_NE(found.error().text().find(part), std::string::npos) << found.error().text();
    }
  }

  std::string path_;
};

}  // namespace attnscope
