// Formats of keys and values as a model's choice: names, files, rules, bytes, backends, scales.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "engine/backend/attention_request.h"
#include "engine/backend/attention_selector.h"
#include "engine/config/scenario.h"
#include "engine/family/dense/dense.h"
#include "engine/family/model_weights.h"
#include "engine/family/models.h"
#include "engine/family/tensor_parallel.h"
#include "engine/model/numbers.h"
#include "kernels/params/row_format.h"
#include "tests/unit/engine/config_fixture.h"

namespace attnscope {
namespace cache_formats_test {

using nlohmann::json;

class CacheFormats : public ConfigTest {};

ModelConfig in_format(const char* name, const char* model = "tiny-llama") {
  ModelConfig c = *preset(model);
  EXPECT_TRUE(set_cache_dtype(c, name)) << name;
  return c;
}

TEST_F(CacheFormats, EachIsWrittenReadAndKept) {
  for (const std::int32_t record : dense_cache_records()) {
    const std::string name = as_row_format_of(record)->name;
    SCOPED_TRACE(name);
    const ModelConfig c = in_format(name.c_str());
    EXPECT_EQ(c.dense.cache_record, record);
    EXPECT_EQ(must(json(dense_write_config(c, false))).dense.cache_record, record);
    for (const CacheSpec& spec : dense_caches(c)) EXPECT_EQ(spec.record, record);
  }
  EXPECT_EQ(preset("tiny-llama-fp8")->dense.cache_record, AS_RECORD_FP8_TENSOR);
  EXPECT_EQ(preset("tiny-llama-int8")->dense.cache_record, AS_RECORD_INT8_TOKEN_HEAD);
}

TEST_F(CacheFormats, PagesLieEitherWay) {
  for (const char* model : {"tiny-llama", "tiny-t5"}) {
    ModelConfig c = *preset(model);
    ASSERT_TRUE(set_cache_layout(c, "HND"));
    EXPECT_EQ(c.dense.cache_record, AS_RECORD_BF16 | AS_RECORD_HND);
    EXPECT_EQ(std::string(dense_page_layout(c)), "HND");
    EXPECT_EQ(must(json(dense_write_config(c, false))).dense.cache_record, c.dense.cache_record);
    EXPECT_EQ(attention_request(c).cache_dtype, "auto");
    ASSERT_TRUE(set_cache_layout(c, "NHD"));
    EXPECT_EQ(c.dense.cache_record, AS_RECORD_BF16);
  }
  // The format and the layout are two choices.
  ModelConfig c = in_format("fp8_head");
  ASSERT_TRUE(set_cache_layout(c, "HND"));
  EXPECT_EQ(dense_scales_beside(c), c.kv_heads);
  ASSERT_TRUE(set_cache_dtype(c, "int8_token_head"));
  EXPECT_EQ(c.dense.cache_record, AS_RECORD_INT8_TOKEN_HEAD | AS_RECORD_HND);
  EXPECT_EQ(attention_request(c).cache_dtype, "int8_per_token_head");
  const auto why = [](const char* model, const char* name) {
    ModelConfig other = *preset(model);
    const Result<void> set = set_cache_layout(other, name);
    return set ? std::string() : set.error().text();
  };
  EXPECT_NE(why("tiny-llama", "hnd").find("allowed: NHD"), std::string::npos);
  EXPECT_NE(why("tiny-bert", "HND").find("an encoder keeps no rows"), std::string::npos);
  EXPECT_NE(why("tiny", "HND").find("a layout of their own"), std::string::npos);
}

TEST_F(CacheFormats, RefusesWhatIsNone) {
  const auto why = [](const char* model, const char* name) {
    ModelConfig c = *preset(model);
    const Result<void> set = set_cache_dtype(c, name);
    EXPECT_EQ(c.dense.cache_record != preset(model)->dense.cache_record, static_cast<bool>(set));
    return set ? std::string() : set.error().message + "; " + set.error().hint;
  };
  EXPECT_NE(why("tiny-llama", "fp9").find("allowed: bf16, f16, fp8_tensor"), std::string::npos);
  EXPECT_NE(why("tiny-llama", "latent").find("no format of rows of K and V"), std::string::npos);
  EXPECT_NE(why("tiny-llama", "fp8_token").find("no format of rows"), std::string::npos);
  EXPECT_NE(why("tiny-bert", "f16").find("an encoder keeps no rows"), std::string::npos);
  EXPECT_NE(why("tiny-t5", "int8_token_head").find("encoder-decoder"), std::string::npos);
  EXPECT_NE(why("tiny-kvshare", "fp8_head").find("of the layer that has it"), std::string::npos);
  EXPECT_EQ(why("tiny-kvshare", "fp8_token_head"), "");
  EXPECT_NE(why("tiny", "f16").find("a format of their own"), std::string::npos);
}

// 4 layers, keys and values, 2 heads of 32.
TEST_F(CacheFormats, BytesOfATokenAreThoseOfTheirRows) {
  const std::pair<const char*, std::int64_t> kBytes[] = {
      {"bf16", 1024},           {"f16", 1024},           {"fp8_tensor", 512},
      {"fp8_head", 512},        {"fp8_token_head", 576}, {"e5m2_tensor", 512},
      {"e5m2_token_head", 576}, {"int8_token_head", 640}};
  for (const auto& [name, bytes] : kBytes) {
    std::int64_t all = 0;
    for (const CacheSpec& spec : build_cache_layout(in_format(name)).specs) {
      all += as_row_layout_of(spec.record, spec.width, spec.num_kv_heads, 1).row;
    }
    EXPECT_EQ(all, bytes) << name;
  }
}

TEST_F(CacheFormats, ScalesBesideTheCacheAreWeights) {
  EXPECT_FALSE(has_weight(in_format("int8_token_head"), "k_scale"));
  const Weights one = synthetic_weights(in_format("fp8_tensor"), 3, nullptr);
  const Weights heads = synthetic_weights(in_format("e5m2_head"), 3, nullptr);
  for (const char* name : {"k_scale", "v_scale"}) {
    EXPECT_EQ(one.find(1, name).f32.size(), 1) << name;
    ASSERT_EQ(heads.find(1, name).f32.size(), 2) << name;
    EXPECT_NE(heads.find(1, name).f32.data()[0], heads.find(1, name).f32.data()[1]);
    EXPECT_GT(one.find(0, name).f32.data()[0], 0);
  }
  for (const char* file :
       {"model.layers.2.self_attn.k_scale", "model.layers.2.self_attn.attn.k_scale",
        "layers.2.self_attn.k_proj.k_scale", "language_model.model.layers.2.self_attn.k_scale"}) {
    EXPECT_EQ(dense_published_name(file), "model.layers.2.self_attn.k_scale") << file;
  }
  EXPECT_EQ(dense_published_name("model.layers.2.self_attn.v_proj.v_scale"),
            "model.layers.2.self_attn.v_scale");
  const auto ranks = check_parallel(in_format("fp8_head"), {2, 0});
  ASSERT_FALSE(ranks);
  EXPECT_NE(ranks.error().message.find("a scale a KV head"), std::string::npos);
  EXPECT_TRUE(check_parallel(in_format("fp8_tensor"), {2, 0}));
}

// A backend says by which rule it does not take them.
TEST_F(CacheFormats, BackendsTakeOrRefuseThem) {
  const AttentionRegistry registry;
  const auto refused = [&](const char* format, const char* backend) {
    const auto selection = explain_backends(registry, attention_request(in_format(format)));
    EXPECT_TRUE(selection) << format;
    for (const BackendVerdict& v : selection->verdicts) {
      if (v.backend->name != std::string(backend)) continue;
      for (const auto& broken : v.broken) {
        if (broken.rule == "cache dtype" || broken.rule == "head scales") {
          return broken.rule;
        }
      }
      return std::string("taken");
    }
    return std::string("no such backend");
  };
  EXPECT_EQ(refused("bf16", "TRITON_ATTN"), "taken");
  EXPECT_EQ(refused("int8_token_head", "TRITON_ATTN"), "taken");
  EXPECT_EQ(refused("int8_token_head", "FLASH_ATTN"), "cache dtype");
  EXPECT_EQ(refused("fp8_token_head", "FLASHINFER"), "cache dtype");
  EXPECT_EQ(refused("fp8_tensor", "FLASHINFER"), "taken");
  EXPECT_EQ(refused("fp8_tensor", "FLEX_ATTENTION"), "cache dtype");
  EXPECT_EQ(refused("fp8_head", "TRITON_ATTN"), "head scales");
  EXPECT_EQ(refused("e5m2_token_head", "TRITON_ATTN"), "cache dtype");
}

}  // namespace cache_formats_test
}  // namespace attnscope
