// Presets against the published values, rules, profiles.
#include "engine/model/model_config.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "engine/family/deepseek_v4/deepseek_v4.h"
#include "engine/family/model_weights.h"
#include "engine/family/models.h"
#include "engine/model/profile_switches.h"

namespace attnscope {
namespace model_config_test {

std::int64_t count(const ModelConfig& c, LayerType type) {
  std::int64_t n = 0;
  for (int i = 0; i < c.num_layers(); ++i) n += type_of_layer(c, i) == type;
  return n;
}

TEST(ModelConfig, FlashIsAsPublished) {
  const ModelConfig c = *preset("v4-flash");
  EXPECT_EQ(c.hidden, 4096);
  EXPECT_EQ(c.heads, 64);
  EXPECT_EQ(c.head_dim, 512);
  EXPECT_EQ(c.q_lora, 1024);
  EXPECT_EQ(c.o_lora, 1024);
  EXPECT_EQ(c.o_groups, 8);
  EXPECT_EQ(c.heads_per_group(), 8);
  EXPECT_EQ(c.window, 128);
  EXPECT_EQ(c.index_heads, 64);
  EXPECT_EQ(c.index_dim, 128);
  EXPECT_EQ(c.index_topk, 512);
  EXPECT_EQ(c.max_position, 1048576);
  EXPECT_EQ(c.num_layers(), 43);
  EXPECT_EQ(count(c, LayerType::kSwa), 2);
  EXPECT_EQ(count(c, LayerType::kC4A), 21);
  EXPECT_EQ(count(c, LayerType::kC128A), 20);
  EXPECT_EQ((std::vector<int>(c.compress_ratios.begin(), c.compress_ratios.begin() + 6)),
            (std::vector<int>{0, 0, 4, 128, 4, 128}));
  EXPECT_EQ(c.compress_ratios.back(), 4);
}

TEST(ModelConfig, ProIsAsPublished) {
  const ModelConfig c = *preset("v4-pro");
  EXPECT_EQ(c.hidden, 7168);
  EXPECT_EQ(c.heads, 128);
  EXPECT_EQ(c.q_lora, 1536);
  EXPECT_EQ(c.o_lora, 1024);
  EXPECT_EQ(c.o_groups, 16);
  EXPECT_EQ(c.heads_per_group(), 8);
  EXPECT_EQ(c.index_topk, 1024);
  EXPECT_EQ(c.num_layers(), 61);
  EXPECT_EQ(count(c, LayerType::kSwa), 0);
  EXPECT_EQ(count(c, LayerType::kC4A), 30);
  EXPECT_EQ(count(c, LayerType::kC128A), 31);
  EXPECT_EQ(c.compress_ratios[0], 128);
  EXPECT_EQ(c.compress_ratios[1], 128);
  EXPECT_EQ(c.compress_ratios[2], 4);
}

TEST(ModelConfig, TinyHasEveryLayerType) {
  const ModelConfig c = *preset("tiny");
  EXPECT_EQ(c.compress_ratios, (std::vector<int>{0, 4, 128, 4}));
  EXPECT_EQ(c.hidden, 512);
  EXPECT_EQ(c.heads, 8);
  EXPECT_EQ(c.head_dim, 512);
  EXPECT_EQ(c.q_lora, 128);
  EXPECT_EQ(c.o_lora, 64);
  EXPECT_EQ(c.o_groups, 2);
  EXPECT_EQ(c.index_heads, 8);
  EXPECT_EQ(c.index_topk, 512);
  EXPECT_EQ(c.window, 128);
}

TEST(ModelConfig, RopeByLayerType) {
  ModelConfig c = *preset("tiny");
  EXPECT_EQ(layer_rope(c, 0).base, 10000.0);
  EXPECT_EQ(layer_rope(c, 0).factor, 1.0);
  for (int i : {1, 2, 3}) {
    EXPECT_EQ(layer_rope(c, i).base, 160000.0);
    EXPECT_EQ(layer_rope(c, i).factor, 16.0);
    EXPECT_EQ(layer_rope(c, i).original_max_pos, 65536.0);
    EXPECT_EQ(layer_rope(c, i).beta_fast, 32.0);
    EXPECT_EQ(layer_rope(c, i).beta_slow, 1.0);
  }
  EXPECT_EQ(layer_rope(c, 1).table.data, nullptr);
  c.switches.ratio0_yarn = true;
  EXPECT_EQ(layer_rope(c, 0).base, 10000.0);
  EXPECT_EQ(layer_rope(c, 0).factor, 16.0);
}

TEST(ModelConfig, LayerSubsets) {
  const ModelConfig c = *preset("v4-flash", {0, 2, 3, 4});
  EXPECT_EQ(c.num_layers(), 4);
  EXPECT_EQ(type_of_layer(c, 0), LayerType::kSwa);
  EXPECT_EQ(type_of_layer(c, 1), LayerType::kC4A);
  EXPECT_EQ(type_of_layer(c, 2), LayerType::kC128A);
  EXPECT_EQ(c.ratio(3), 4);
  EXPECT_EQ(preset("v4-flash", {4, 0})->layers, (std::vector<int>{0, 4}));  // a set
  const Result<ModelConfig> beyond = preset("v4-flash", {43});
  ASSERT_FALSE(beyond);
  EXPECT_EQ(beyond.error().code, AS_BAD_INPUT);
  EXPECT_NE(beyond.error().text().find("no layer 43"), std::string::npos);
  EXPECT_NE(beyond.error().text().find("0 to 42"), std::string::npos);
  EXPECT_NE(preset("tiny", {1, 1}).error().text().find("listed twice"), std::string::npos);
  EXPECT_FALSE(preset("tiny", {-1}));
}

TEST(ModelConfig, UnknownNames) {
  EXPECT_NE(preset("v4").error().text().find("tiny, v4-flash, v4-pro"), std::string::npos);
  EXPECT_NE(profile_switches("x").error().text().find("vllm, deepseek"), std::string::npos);
}

TEST(ModelConfig, Profiles) {
  const ProfileSwitches vllm = *profile_switches("vllm");
  EXPECT_EQ(vllm.index_format, AS_RECORD_INDEX_FP8);
  EXPECT_FALSE(vllm.hadamard || vllm.ratio0_yarn || vllm.round_pooled);
  const ProfileSwitches deepseek = *profile_switches("deepseek");
  EXPECT_EQ(deepseek.index_format, AS_RECORD_INDEX_MXFP4);
  EXPECT_TRUE(deepseek.hadamard && deepseek.round_pooled);
  EXPECT_FALSE(deepseek.ratio0_yarn);
  EXPECT_EQ(deepseek.profile, "deepseek");
  EXPECT_EQ(deepseek.q_norm, AS_Q_NORM_BF16);
  EXPECT_TRUE(deepseek.round_rotated);
  EXPECT_FALSE(vllm.round_rotated);
  for (const ProfileSwitches& s : {vllm, deepseek, ProfileSwitches{}}) {
    EXPECT_EQ(s.rope_frequencies, AS_ROPE_FP32);
    EXPECT_EQ(s.index_scores, AS_SCORES_FP32);
  }
  ModelConfig c = *preset("tiny");
  EXPECT_EQ(layer_rope(c, 1).table.reserved, AS_ROPE_FP32);
  c.switches = *profile_switches("vllm,rope_frequencies=fp64");
  EXPECT_EQ(layer_rope(c, 1).table.reserved, AS_ROPE_FP64);
}

TEST(ModelConfig, SwitchesThatAFamilyHasNotAreRefusedByName) {
  ModelConfig dense = *preset("tiny-llama"), v4 = *preset("tiny");
  EXPECT_TRUE(set_profile(dense, "vllm"));
  const auto refused = set_profile(dense, "deepseek,projections=fp8");
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().text(),
            "profile \"deepseek,projections=fp8\": model tiny-llama of family dense has no switch "
            "hadamard, round_rotated, index_format, round_pooled, q_norm, projections; switches of "
            "this family: attention_form (one_pass, merged, cascade)");
  EXPECT_EQ(dense.switches.profile, "vllm");
  ASSERT_TRUE(set_profile(v4, "deepseek,projections=fp8"));
  EXPECT_EQ(v4.switches.profile, "deepseek,projections=fp8");
  // Its own are those of the table, but that of dense attention, which has it alone.
  EXPECT_EQ(switch_list(), switches_of_model(v4) + ", " + switches_of_model(dense));
  ASSERT_TRUE(set_profile(dense, "vllm,attention_form=cascade"));
  EXPECT_EQ(dense.switches.attention_form, AS_PAGED_CASCADE);
  EXPECT_FALSE(set_profile(v4, "vllm,attention_form=cascade"));
}

// What a file of before meant by the name of a profile, as the text of today.
TEST(ModelConfig, ProfilesOfBefore) {
  const auto then = [](const char* text) {
    return switches_of_version(*profile_switches(text), 1);
  };
  EXPECT_EQ(then("vllm").profile, "vllm,rope_frequencies=fp64");
  EXPECT_EQ(then("vllm").rope_frequencies, AS_ROPE_FP64);
  EXPECT_EQ(then("deepseek").profile, "deepseek,rope_frequencies=fp64,round_rotated=off");
  EXPECT_FALSE(then("deepseek").round_rotated);
  EXPECT_EQ(switches_of_version(*profile_switches("deepseek"), kProfilesVersion).profile,
            "deepseek");
  // Before version 3 the first projection of attention's output was in bf16 either way.
  const ProfileSwitches second = switches_of_version(*profile_switches("vllm,projections=fp8"), 2);
  EXPECT_EQ(second.profile, "vllm,projections=fp8_but_wo_a");
  EXPECT_TRUE(second.fp8_projections && second.bf16_wo_a);
  EXPECT_FALSE(
      switches_of_version(*profile_switches("vllm,projections=fp8"), kProfilesVersion).bf16_wo_a);
}

TEST(ModelConfig, SwitchesBehindAProfile) {
  const ProfileSwitches s = *profile_switches("deepseek,q_norm=fp32,scale_floor=1e-8");
  EXPECT_EQ(s.q_norm, AS_Q_NORM_FP32);
  EXPECT_EQ(s.scale_floor, AS_SCALE_FLOOR_1E8);
  EXPECT_TRUE(s.hadamard);
  EXPECT_EQ(s.profile, "deepseek,q_norm=fp32,scale_floor=1e-8");
  // The text keeps what differs from the profile, the last word only.
  EXPECT_EQ(profile_switches("vllm,hadamard=on,hadamard=off")->profile, "vllm");
  EXPECT_EQ(profile_switches("vllm,q_norm=bf16,fp4_rule=down,q_norm=bf16_factor")->profile,
            "vllm,fp4_rule=down,q_norm=bf16_factor");
  const std::vector<std::pair<std::string, std::string>> bad = {
      {"vllm,", "sets nothing"},
      {"vllm,hadamard", "sets nothing"},
      {"vllm,hadamrd=on", "no switch is called \"hadamrd\""},
      {"vllm,hadamard=yes", "allowed: off, on"},
      {"vllm,q_norm=", "allowed: fp32, bf16, bf16_factor"},
      {"hadamard=on", "unknown profile"},
      {"vllm,prefill=gathered,attention_plan=own", "attention_plan cannot be own here"},
      {"vllm,attention_plan=flashmla,prefill=gathered", "prefill cannot be gathered here"},
      {"", "unknown profile"}};
  for (const auto& [text, said] : bad) {
    const auto refused = profile_switches(text);
    ASSERT_FALSE(refused) << text;
    EXPECT_NE(refused.error().text().find(said), std::string::npos) << refused.error().text();
  }
  // Every switch has an effect on the struct for every value, and reads back.
  for (const SwitchInfo& info : all_switches()) {
    for (std::size_t v = 0; v < info.values.size(); ++v) {
      ProfileSwitches t;
      ASSERT_TRUE(set_switch(t, info.name, info.values[v]));
      EXPECT_EQ(info.get(t), static_cast<int>(v)) << info.name;
    }
  }
}

// By hand, for tiny: embedding and norm 256*512 + 512; every layer 512 + (128+512)*512 + 128 + 512
// + 4096*128 + 8 + 4096*64 + 512*128; C4A adds 2048*512 + 4*1024 + 512 and, for the indexer,
// 512*512 + 4*256 + 128 + 1024*128 + 8*512; C128A adds 1024*512 + 128*512 + 512.
TEST(ModelConfig, ParameterCountOfTiny) {
  const std::int64_t common = 512 + 640 * 512 + 640 + 4096 * 128 + 8 + 4096 * 64 + 512 * 128;
  const std::int64_t c4 =
      2048 * 512 + 4 * 1024 + 512 + 512 * 512 + 4 * 256 + 128 + 1024 * 128 + 8 * 512;
  const std::int64_t c128 = 1024 * 512 + 128 * 512 + 512;
  EXPECT_EQ(parameter_count(*preset("tiny")), 256 * 512 + 512 + 4 * common + 2 * c4 + c128);
}

TEST(ModelConfig, ValidateAcceptsPresets) {
  for (const std::string& name : preset_names()) {
    const Result<void> r = validate(*preset(name));
    EXPECT_TRUE(r) << r.error().text();
  }
}

TEST(ModelConfig, ValidateNamesKeyAndAllowedValues) {
  struct Case {
    void (*change)(ModelConfig&);
    const char* key;
    const char* allowed;
  };
  const std::vector<Case> cases = {
      {[](ModelConfig& c) { c.head_dim = 256; }, "head_dim: 256", "allowed: 512"},
      {[](ModelConfig& c) { c.index_dim = 64; }, "index_head_dim: 64", "allowed: 128"},
      {[](ModelConfig& c) { c.hidden = 0; }, "hidden_size: 0", "multiples of 64"},
      {[](ModelConfig& c) { c.hidden = 500; }, "hidden_size: 500", "multiples of 64"},
      {[](ModelConfig& c) { c.q_lora = -64; }, "q_lora_rank: -64", "multiples of 64"},
      {[](ModelConfig& c) { c.o_lora = 1; }, "o_lora_rank: 1", "multiples of 64"},
      {[](ModelConfig& c) { c.heads = 0; }, "num_attention_heads: 0", "1 to 128"},
      {[](ModelConfig& c) { c.heads = 129; }, "num_attention_heads: 129", "1 to 128"},
      {[](ModelConfig& c) { c.o_groups = 3; }, "o_groups: 3",
       "divisors of num_attention_heads (8)"},
      {[](ModelConfig& c) { c.o_groups = 0; }, "o_groups: 0", "1 to 128"},
      {[](ModelConfig& c) { c.window = 100; }, "sliding_window: 100", "multiples of 128"},
      {[](ModelConfig& c) { c.window = 0; }, "sliding_window: 0", "multiples of 128"},
      {[](ModelConfig& c) { c.index_topk = 0; }, "index_topk: 0", "multiples of 64"},
      {[](ModelConfig& c) { c.index_topk = 500; }, "index_topk: 500", "multiples of 64"},
      {[](ModelConfig& c) { c.index_heads = 0; }, "index_n_heads: 0", "1 to 128"},
      {[](ModelConfig& c) { c.compress_ratios[1] = 8; }, "compress_ratios[1]: 8", "4, 128"},
      {[](ModelConfig& c) { c.rms_eps = std::nan(""); }, "rms_norm_eps", "allowed"},
      {[](ModelConfig& c) { c.rope_theta = 1.0; }, "rope_theta", "allowed"},
      {[](ModelConfig& c) { c.yarn_factor = 0.5; }, "rope_scaling.factor", "1 to"},
      {[](ModelConfig& c) { c.max_position = 0; }, "max_position_embeddings: 0", "16777216"},
      {[](ModelConfig& c) { c.layers = {}; }, "layers", "at least one"},
      {[](ModelConfig& c) {
         c.layers = {2, 1};
       },
       "layers: 1", "ascending"},
      {[](ModelConfig& c) { c.layers = {4}; }, "layers: 4", "from 0 to 3"},
      {[](ModelConfig& c) { c.switches.index_format = 9; }, "index_format: 9", "FP8 or MXFP4"},
  };
  for (const Case& one : cases) {
    ModelConfig c = *preset("tiny");
    one.change(c);
    const Result<void> r = validate(c);
    ASSERT_FALSE(r) << one.key;
    EXPECT_EQ(r.error().code, AS_BAD_INPUT);
    EXPECT_NE(r.error().text().find(one.key), std::string::npos) << r.error().text();
    EXPECT_NE(r.error().text().find(one.allowed), std::string::npos) << r.error().text();
  }
}

}  // namespace model_config_test
}  // namespace attnscope
