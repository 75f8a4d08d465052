// config.json of published checkpoints, in both spellings, and what is wrong with broken ones.
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "engine/family/deepseek_v4/second_config.h"
#include "engine/family/model_weights.h"
#include "engine/family/models.h"
#include "engine/io/json_file.h"

namespace attnscope {
namespace model_hf_config_test {

namespace fs = std::filesystem;
using nlohmann::json;

// V4-Flash in Hugging Face spelling, with the keys that are read and some that are not.
json hugging_face() {
  json c = json::parse(R"({
    "architectures": ["DeepseekV4ForCausalLM"], "model_type": "deepseek_v4",
    "hidden_size": 4096, "num_hidden_layers": 43, "num_attention_heads": 64,
    "num_key_value_heads": 1, "head_dim": 512, "qk_rope_head_dim": 64, "q_lora_rank": 1024,
    "o_lora_rank": 1024, "o_groups": 8, "sliding_window": 128, "index_n_heads": 64,
    "index_head_dim": 128, "index_topk": 512, "rope_theta": 10000, "compress_rope_theta": 160000,
    "rope_scaling": {"type": "yarn", "factor": 16, "original_max_position_embeddings": 65536,
                     "beta_fast": 32, "beta_slow": 1},
    "max_position_embeddings": 1048576, "rms_norm_eps": 1e-6, "vocab_size": 129280,
    "n_routed_experts": 256, "hc_mult": 4, "num_nextn_predict_layers": 1})");
  c["compress_ratios"] = {0, 0};
  for (int i = 2; i < 43; ++i) c["compress_ratios"].push_back(i % 2 == 0 ? 4 : 128);
  c["compress_ratios"].push_back(0);  // MTP
  return c;
}

json deepseek() {
  const json hf = hugging_face();
  json c = json::parse(R"({
    "dim": 4096, "n_layers": 43, "n_heads": 64, "head_dim": 512, "rope_head_dim": 64,
    "q_lora_rank": 1024, "o_lora_rank": 1024, "o_groups": 8, "window_size": 128,
    "index_n_heads": 64, "index_head_dim": 128, "index_topk": 512, "rope_theta": 10000.0,
    "compress_rope_theta": 160000.0, "original_seq_len": 65536, "rope_factor": 16, "beta_fast": 32,
    "beta_slow": 1, "norm_eps": 1e-6, "n_mtp_layers": 1, "scale_fmt": "ue8m0"})");
  c["compress_ratios"] = hf["compress_ratios"];
  return c;
}

class HfConfig : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = (fs::temp_directory_path() / "attnscope-config-XXXXXX").string();
    ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
    path_ = (folder_ / "config.json").string();
  }
  void TearDown() override { fs::remove_all(folder_); }

  Result<ModelConfig> read(const json& config, const std::vector<int>& layers = {}) {
    EXPECT_TRUE(write_text_file(path_, config.dump(2)));
    return read_hf_config(path_, layers);
  }

  void expect_error(const json& config, const std::vector<std::string>& parts) {
    const Result<ModelConfig> r = read(config);
    ASSERT_FALSE(r) << "accepted; should name " << parts[0];
    EXPECT_EQ(r.error().code, AS_BAD_INPUT);
    const std::string text = r.error().text();
    EXPECT_NE(text.find(path_), std::string::npos) << text;
    for (const std::string& part : parts) {
      EXPECT_NE(text.find(part), std::string::npos) << "\"" << part << "\" missing in: " << text;
    }
  }

  fs::path folder_;
  std::string path_;
};

void expect_flash(const Result<ModelConfig>& r) {
  ASSERT_TRUE(r) << r.error().text();
  const ModelConfig flash = *preset("v4-flash");
  EXPECT_EQ(r->hidden, flash.hidden);
  EXPECT_EQ(r->heads, flash.heads);
  EXPECT_EQ(r->q_lora, flash.q_lora);
  EXPECT_EQ(r->o_lora, flash.o_lora);
  EXPECT_EQ(r->o_groups, flash.o_groups);
  EXPECT_EQ(r->window, flash.window);
  EXPECT_EQ(r->index_heads, flash.index_heads);
  EXPECT_EQ(r->index_topk, flash.index_topk);
  EXPECT_EQ(r->compress_ratios, flash.compress_ratios);  // the MTP entry is not a layer
  EXPECT_EQ(r->layers, flash.layers);
  EXPECT_EQ(r->rms_eps, flash.rms_eps);
  EXPECT_EQ(r->rope_theta, flash.rope_theta);
  EXPECT_EQ(r->compress_rope_theta, flash.compress_rope_theta);
  EXPECT_EQ(r->yarn_factor, flash.yarn_factor);
  EXPECT_EQ(r->yarn_original_max, flash.yarn_original_max);
  EXPECT_EQ(r->yarn_beta_fast, flash.yarn_beta_fast);
  EXPECT_EQ(r->yarn_beta_slow, flash.yarn_beta_slow);
  EXPECT_EQ(r->max_position, flash.max_position);
  EXPECT_EQ(parameter_count(*r), parameter_count(flash));
}

TEST_F(HfConfig, BothSpellingsGiveThePreset) {
  expect_flash(read(hugging_face()));
  expect_flash(read(deepseek()));
}

TEST_F(HfConfig, ThreeDraftEntriesAndOnesForZero) {
  json c = hugging_face();
  c["compress_ratios"].push_back(0);
  c["compress_ratios"].push_back(7);  // entries beyond the layers are not looked at
  c["compress_ratios"][0] = 1;
  c["compress_ratios"][1] = 1;
  expect_flash(read(c));
}

TEST_F(HfConfig, DraftLayersAreThoseThatTheFileCountsOrLists) {
  const auto ratios = [&](const json& c) {
    const auto r = read(c);
    EXPECT_TRUE(r) << r.error().text();
    return r ? r->draft_ratios : std::vector<int>{-1};
  };
  EXPECT_EQ(ratios(hugging_face()), std::vector{0});
  EXPECT_EQ(ratios(deepseek()), std::vector{0});
  for (json c : {hugging_face(), deepseek()}) {
    const char* key = c.contains("dim") ? "n_mtp_layers" : "num_nextn_predict_layers";
    c[key] = 0;
    EXPECT_EQ(ratios(c), std::vector<int>{});
    c[key] = 2;  // one without an entry
    EXPECT_EQ(ratios(c), (std::vector{0, 0}));
    c.erase(key);
    EXPECT_EQ(ratios(c), std::vector{0});  // the entry behind those of the layers
    c["compress_ratios"].back() = 128;
    EXPECT_EQ(ratios(c), std::vector{128});
    c["compress_ratios"].erase(43);
    EXPECT_EQ(ratios(c), std::vector<int>{});
    c[key] = -1;
    expect_error(c, {key, "-1"});
  }
  json dspark = hugging_face();
  dspark["dspark_block_size"] = 5;
  EXPECT_EQ(ratios(dspark), std::vector<int>{});
}

TEST_F(HfConfig, LayerTypesAndRopeParameters) {
  json c = hugging_face();
  const json ratios = c["compress_ratios"];
  c.erase("compress_ratios");
  c["compress_rates"] = {{"compressed_sparse_attention", 4}, {"heavily_compressed_attention", 128}};
  for (int i = 0; i < 43; ++i) {
    const int r = ratios[static_cast<std::size_t>(i)];
    c["layer_types"].push_back(r == 0   ? "sliding_attention"
                               : r == 4 ? "compressed_sparse_attention"
                                        : "heavily_compressed_attention");
  }
  c["rope_parameters"] = {{"main", {{"rope_type", "default"}, {"rope_theta", 10000.0}}},
                          {"compress", c["rope_scaling"]}};
  c["rope_parameters"]["compress"]["rope_theta"] = 160000.0;
  for (const char* key : {"rope_theta", "compress_rope_theta", "rope_scaling"}) c.erase(key);
  expect_flash(read(c));
  c["layer_types"][3] = "full_attention";
  expect_error(c, {"layer_types[3]", "full_attention", "sliding_attention"});
  c["layer_types"] = {"sliding_attention"};
  expect_error(c, {"layer_types", "1 entries for 43 layers"});
}

TEST_F(HfConfig, LayerSubset) {
  const Result<ModelConfig> r = read(hugging_face(), {0, 2, 3});
  ASSERT_TRUE(r);
  EXPECT_EQ(r->layers, (std::vector<int>{0, 2, 3}));
  const Result<ModelConfig> beyond = read_hf_config(path_, {43});
  ASSERT_FALSE(beyond);
  EXPECT_NE(beyond.error().text().find("no layer 43"), std::string::npos);
}

TEST_F(HfConfig, MissingAndMalformedKeys) {
  for (const char* key :
       {"hidden_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads",
        "head_dim", "qk_rope_head_dim", "q_lora_rank", "o_lora_rank", "o_groups", "sliding_window",
        "compress_ratios", "index_n_heads", "index_head_dim", "index_topk", "rope_theta",
        "compress_rope_theta", "rope_scaling"}) {
    json c = hugging_face();
    c.erase(key);
    if (std::string(key) == "num_key_value_heads") {
      EXPECT_TRUE(read(c));  // 1 is implied
    } else {
      expect_error(c, {key, "required key is missing"});
    }
    c[key] = "many";
    expect_error(c, {key, "many"});
  }
  for (const char* key : {"dim", "window_size", "original_seq_len", "rope_factor", "n_layers"}) {
    json c = deepseek();
    c.erase(key);
    if (std::string(key) == "dim") {
      expect_error(c, {"hidden_size", "required key is missing"});
    } else {
      expect_error(c, {key, "required key is missing"});
    }
  }
}

TEST_F(HfConfig, UnsupportedValues) {
  const std::vector<std::tuple<const char*, json, std::vector<std::string>>> cases = {
      {"head_dim", 256, {"head_dim", "512", "256"}},
      {"qk_rope_head_dim", 32, {"qk_rope_head_dim", "64", "32"}},
      {"index_head_dim", 64, {"index_head_dim", "128", "64"}},
      {"num_key_value_heads", 8, {"num_key_value_heads", "expected 1", "8"}},
      {"sliding_window", 96, {"sliding_window: 96", "multiples of 128"}},
      {"index_topk", 100, {"index_topk: 100", "multiples of 64"}},
      {"o_groups", 5, {"o_groups: 5", "divisors of num_attention_heads (64)"}},
      {"num_hidden_layers", 50, {"compress_ratios", "44 entries for 50 layers"}},
      {"num_hidden_layers", 0, {"num_hidden_layers", "found 0"}},
      {"hidden_size", -1, {"hidden_size", "found -1"}},
      {"hidden_size", 4.5, {"hidden_size", "an integer", "4.5"}},
      {"architectures", {"DeepseekV2ForCausalLM"}, {"architectures", "DeepseekV4ForCausalLM"}},
      {"model_type", "deepseek_v2", {"model_type", "deepseek_v2", "allowed: deepseek_v4"}},
      {"rope_scaling",
       {{"type", "linear"}, {"factor", 2}},
       {"rope_scaling.type", "linear", "yarn"}},
      {"max_position_embeddings", std::int64_t{1} << 30, {"max_position_embeddings", "16777216"}},
  };
  for (const auto& [key, value, parts] : cases) {
    json c = hugging_face();
    c[key] = value;
    expect_error(c, parts);
  }
  json c = hugging_face();
  c["rope_scaling"].erase("factor");
  expect_error(c, {"rope_scaling.factor", "required key is missing"});
  c = hugging_face();
  c["compress_ratios"][5] = 8;
  expect_error(c, {"compress_ratios[5]: 8", "4, 128"});
  c = deepseek();
  c["window_size"] = 96;
  expect_error(c, {"window_size: 96", "multiples of 128"});  // the name the file uses
}

TEST_F(HfConfig, V41IsRefusedByName) {
  json c = hugging_face();
  c["compress_ratios"][2] = 2;
  expect_error(c, {"compress_ratios[2]", "V4.1", "not supported"});
}

TEST_F(HfConfig, UnreadableFiles) {
  EXPECT_NE(read_hf_config((folder_ / "none.json").string()).error().text().find("No such file"),
            std::string::npos);
  ASSERT_TRUE(write_text_file(path_, "{\"hidden_size\": 1"));
  EXPECT_NE(read_hf_config(path_).error().text().find("line 1"), std::string::npos);
  ASSERT_TRUE(write_text_file(path_, "7"));
  EXPECT_NE(read_hf_config(path_).error().text().find("expected an object"), std::string::npos);
}

// Numbers that everything runs on, read a second time.
TEST_F(HfConfig, ANumberReadOtherwiseIsNamed) {
  for (const json& file : {hugging_face(), deepseek()}) {
    const auto config = read(file);
    ASSERT_TRUE(config) << config.error().text();
    EXPECT_TRUE(check_read_config("config.json", file, *config));
    const auto named = [&](const ModelConfig& other, const std::string& name) {
      const auto checked = check_read_config("config.json", file, other);
      ASSERT_FALSE(checked) << name;
      EXPECT_EQ(checked.error().code, AS_INTERNAL);
      EXPECT_NE(checked.error().message.find(name), std::string::npos) << checked.error().message;
    };
    ModelConfig other = *config;
    std::swap(other.rope_theta, other.compress_rope_theta);
    named(other, "rope_theta is 10000 there and was read as 160000");
    other = *config;
    other.rms_eps = 1e-5;
    named(other, "norm_eps");
    other = *config;
    other.index_heads = 32;
    named(other, "index_n_heads");
    other = *config;
    other.yarn_beta_slow = 2;
    named(other, "beta_slow");
    other = *config;
    other.compress_ratios[3] = 4;
    named(other, "compress_ratios[3] is 128 there and was read as 4");
  }
}

}  // namespace model_hf_config_test
}  // namespace attnscope
