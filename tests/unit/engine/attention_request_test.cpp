// What a model asks of an attention backend: ours, and config.json files of others.
#include "engine/backend/attention_request.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "engine/backend/attention_selector.h"
#include "engine/family/models.h"

namespace attnscope {
namespace attention_request_test {

class AttentionRequests : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = std::filesystem::temp_directory_path() /
              ("attnscope-request-" + std::to_string(::getpid()));
    std::filesystem::create_directories(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::string path() const { return (folder_ / "config.json").string(); }
  Result<ReadRequest> read(const std::string& text) const {
    std::ofstream(path()) << text;
    return read_attention_request(path());
  }
  AttentionRequest good(const std::string& text) const {
    auto request = read(text);
    EXPECT_TRUE(request) << request.error().text();
    return request ? request->request : AttentionRequest();
  }
  // "MESSAGE; HINT" without the folder.
  std::string error(const std::string& text) const {
    const auto request = read(text);
    if (request) return "read";
    EXPECT_EQ(request.error().code, AS_BAD_INPUT);
    std::string out = request.error().text();
    const std::size_t at = out.find(folder_.string());
    return at == std::string::npos ? out : out.erase(at, folder_.string().size() + 1);
  }

  std::filesystem::path folder_;
};

constexpr const char* kLlama = R"({"architectures": ["LlamaForCausalLM"], "model_type": "llama",
  "hidden_size": 4096, "num_attention_heads": 32, "num_key_value_heads": 8,
  "num_hidden_layers": 32, "max_position_embeddings": 8192, "rms_norm_eps": 1e-5,
  "rope_theta": 500000.0, "vocab_size": 128256, "torch_dtype": "bfloat16" ROPE})";

std::string llama(const std::string& rope) {
  std::string text = kLlama;
  return text.replace(text.find(" ROPE"), 5, rope);
}

TEST_F(AttentionRequests, OfOurModels) {
  AttentionRequest r = attention_request(*preset("tiny-gemma"));
  EXPECT_EQ(r.heads, 4);
  EXPECT_EQ(r.kv_heads, 2);
  EXPECT_EQ(r.head_size, 64);
  EXPECT_EQ(r.value_size, 64);
  EXPECT_EQ(r.window, 32);
  EXPECT_EQ(r.windowed, 5);
  EXPECT_EQ(r.layers, 6);
  EXPECT_FALSE(r.mla || r.sparse || r.sinks);
  r = attention_request(*preset("tiny-mqa"));
  EXPECT_EQ(r.soft_cap, 20);
  EXPECT_TRUE(r.sinks);
  EXPECT_FALSE(r.alibi);
  EXPECT_EQ(r.type, AttentionType::kDecoder);
  EXPECT_EQ(attention_request(*preset("tiny-bert")).type, AttentionType::kEncoderOnly);
  EXPECT_TRUE(attention_request(*preset("tiny-alibi")).alibi);
  r = attention_request(*preset("tiny-llama"));
  EXPECT_EQ(r.window, 0);
  EXPECT_EQ(r.cache_dtype, "auto");
  r = attention_request(*preset("v4-flash"));
  EXPECT_TRUE(r.mla && r.sparse && r.sinks);
  EXPECT_EQ(r.head_size, 512);
  EXPECT_EQ(r.heads, preset("v4-flash")->heads);
  EXPECT_EQ(r.cache_dtype, "fp8_ds_mla");
  EXPECT_EQ(r.model_type, "deepseek_v4");
}

// What no family here knows has the keys of the published format all the same.
TEST_F(AttentionRequests, OfLatentRowsByTheirOwnKeys) {
  const std::string base = R"({"architectures": ["SomeLatentForCausalLM"],
    "model_type": "some_latent", "num_hidden_layers": 4, "num_attention_heads": 16,
    "kv_lora_rank": 512, "qk_rope_head_dim": 64, "qk_nope_head_dim": 192, "v_head_dim": 256)";
  AttentionRequest r = good(base + "}");
  EXPECT_TRUE(r.mla);
  EXPECT_FALSE(r.sparse);
  EXPECT_EQ(r.head_size, 576);
  EXPECT_EQ(r.value_size, 512);
  EXPECT_EQ(r.nope_dim, 192);
  EXPECT_EQ(r.model_type, "some_latent");
  EXPECT_EQ(r.model, path());
  r = good(base + R"(, "index_topk": 2048})");
  EXPECT_TRUE(r.sparse);
}

TEST_F(AttentionRequests, OfLlamaByTheFamilyOrByItsKeys) {
  auto request = read(llama(""));
  ASSERT_TRUE(request) << request.error().text();
  EXPECT_EQ(request->note, "");
  EXPECT_EQ(request->request.head_size, 128);
  EXPECT_EQ(request->request.kv_heads, 8);
  EXPECT_EQ(request->request.layers, 32);
  // Positions that are scaled: not computed here, and no matter to a backend.
  request = read(llama(R"(, "rope_scaling": {"rope_type": "llama3", "factor": 8.0})"));
  ASSERT_TRUE(request) << request.error().text();
  EXPECT_NE(request->note.find("Read by its own keys: it does not run here"), std::string::npos);
  EXPECT_NE(request->note.find("llama3"), std::string::npos);
  EXPECT_EQ(request->request.head_size, 128);
  EXPECT_EQ(request->request.kv_heads, 8);
  // The folder of a checkpoint.
  request = read_attention_request(folder_.string());
  ASSERT_TRUE(request);
  EXPECT_EQ(request->request.heads, 32);
}

TEST_F(AttentionRequests, FeaturesByTheirKeys) {
  AttentionRequest r = good(R"({"model_type": "gpt_oss", "num_hidden_layers": 4,
    "num_attention_heads": 64, "num_key_value_heads": 8, "head_dim": 64, "hidden_size": 2880,
    "sliding_window": 128, "dtype": "float16", "layer_types": ["sliding_attention",
    "full_attention", "sliding_attention", "full_attention"]})");
  EXPECT_TRUE(r.sinks);
  EXPECT_EQ(r.window, 128);
  EXPECT_EQ(r.windowed, 2);
  EXPECT_EQ(r.dtype, "float16");
  r = good(R"({"model_type": "gemma2", "num_hidden_layers": 2, "num_attention_heads": 8,
    "head_dim": 256, "attn_logit_softcapping": 50.0, "sliding_window": 4096})");
  EXPECT_EQ(r.soft_cap, 50);
  EXPECT_EQ(r.kv_heads, 8);
  EXPECT_EQ(r.windowed, 2);
  r = good(R"({"model_type": "bloom", "n_head": 16, "n_embd": 1024, "num_hidden_layers": 2})");
  EXPECT_TRUE(r.alibi);
  EXPECT_EQ(r.head_size, 64);
  r = good(R"({"model_type": "bert", "num_attention_heads": 12, "hidden_size": 768})");
  EXPECT_EQ(r.type, AttentionType::kEncoderOnly);
  r = good(R"({"model_type": "t5", "num_heads": 8, "d_kv": 64, "is_encoder_decoder": true})");
  EXPECT_EQ(r.type, AttentionType::kEncoderDecoder);
  EXPECT_EQ(r.head_size, 64);
  r = good(R"({"model_type": "other", "num_attention_heads": 4, "head_dim": 192,
    "v_head_dim": 128, "sliding_window": 8, "use_sliding_window": false})");
  EXPECT_EQ(r.value_size, 128);
  EXPECT_EQ(r.window, 0);
  r = good(R"({"model_type": "some_vl", "text_config": {"model_type": "inner",
    "num_attention_heads": 2, "head_dim": 80}})");
  EXPECT_EQ(r.head_size, 80);
  r = good(R"({"model_type": "mamba2", "num_hidden_layers": 2})");
  EXPECT_EQ(r.kind, AttentionLayerKind::kMamba2);
}

TEST_F(AttentionRequests, SaysThatFloat32IsRunInAnother) {
  const auto request = read(R"({"model_type": "x", "num_attention_heads": 4, "head_dim": 64,
    "torch_dtype": "float32"})");
  ASSERT_TRUE(request);
  EXPECT_EQ(request->request.dtype, "bfloat16");
  EXPECT_NE(request->note.find("bfloat16"), std::string::npos);
}

TEST_F(AttentionRequests, BrokenFilesSayWhatAndWhere) {
  EXPECT_NE(error("{").find("config.json"), std::string::npos);
  EXPECT_NE(error(R"({"model_type": "x"})").find("num_attention_heads"), std::string::npos);
  EXPECT_NE(error(R"({"model_type": "x", "num_attention_heads": "many"})")
                .find("config.json: num_attention_heads"),
            std::string::npos);
  EXPECT_NE(error(R"({"model_type": "x", "num_attention_heads": 3, "hidden_size": 64})")
                .find("hidden_size: 64 is no multiple of 3 heads; give head_dim"),
            std::string::npos);
  EXPECT_NE(error(R"({"model_type": "x", "num_attention_heads": 4, "head_dim": 64,
              "torch_dtype": "float8"})")
                .find("torch_dtype"),
            std::string::npos);
  EXPECT_NE(error(R"({"model_type": "x", "num_attention_heads": 4, "head_dim": 64,
              "sliding_window": 0})")
                .find("sliding_window"),
            std::string::npos);
  EXPECT_NE(error(R"({"model_type": "x", "num_attention_heads": 4, "kv_lora_rank": -1})")
                .find("kv_lora_rank"),
            std::string::npos);
  EXPECT_NE(error("[1, 2]").find("config.json"), std::string::npos);
  const auto missing = read_attention_request((folder_ / "no.json").string());
  ASSERT_FALSE(missing);
  EXPECT_NE(missing.error().message.find("no.json"), std::string::npos);
  // A selection that the family refuses is not guessed from other keys.
  EXPECT_NE(error(R"({"architectures": ["DeepseekV4ForCausalLM"], "index_topk": 512,
              "num_attention_heads": 64, "head_dim": 512})"),
            "read");
}

}  // namespace attention_request_test
}  // namespace attnscope
