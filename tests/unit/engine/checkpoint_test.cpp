// Checkpoint folders: names, dtypes, what an export holds and how it is read back, and broken ones.
#include "engine/checkpoint/checkpoint.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>

#include "engine/checkpoint/export_checkpoint.h"
#include "engine/checkpoint/hidden_states.h"
#include "engine/checkpoint/second_reading.h"
#include "engine/checkpoint/tensor_names.h"
#include "engine/checkpoint/weight_slots.h"
#include "engine/family/deepseek_v4/deepseek_v4.h"
#include "engine/family/model_weights.h"
#include "engine/family/models.h"
#include "engine/io/json_file.h"
#include "engine/model/fp8_blocks.h"
#include "engine/tensorfile/tensor_writer.h"
#include "kernels/cpu/codec.h"

namespace attnscope {
namespace checkpoint_test {

namespace fs = std::filesystem;
using nlohmann::json;

TEST(TensorNames, BothSpellingsAndMixturesLeadToThePublishedName) {
  const std::vector<std::pair<const char*, const char*>> pairs = {
      {"layers.2.attn.wq_a.weight", "layers.2.attn.wq_a.weight"},
      {"model.layers.2.self_attn.q_a_proj.weight", "layers.2.attn.wq_a.weight"},
      {"model.layers.2.self_attn.q_a_proj.weight_scale_inv", "layers.2.attn.wq_a.scale"},
      {"layers.11.attn.wq_a.scale", "layers.11.attn.wq_a.scale"},
      {"model.layers.2.self_attn.q_a_norm.weight", "layers.2.attn.q_norm.weight"},
      {"layers.2.attn.norm.weight", "layers.2.attn.kv_norm.weight"},
      {"model.layers.2.self_attn.kv_norm.weight", "layers.2.attn.kv_norm.weight"},
      {"model.layers.2.self_attn.sinks", "layers.2.attn.attn_sink"},
      {"model.layers.2.self_attn.o_b_proj.weight", "layers.2.attn.wo_b.weight"},
      {"model.layers.2.input_layernorm.weight", "layers.2.attn_norm.weight"},
      {"layers.2.attn.compressor.ape", "layers.2.attn.compressor.ape"},
      {"model.layers.2.self_attn.compressor.position_bias", "layers.2.attn.compressor.ape"},
      {"model.layers.2.self_attn.compressor.kv_norm.weight",
       "layers.2.attn.compressor.norm.weight"},
      {"model.layers.2.self_attn.compressor.indexer.gate_proj.weight",
       "layers.2.attn.indexer.compressor.wgate.weight"},
      {"model.layers.2.self_attn.compressor.indexer.scorer.weights_proj.weight",
       "layers.2.attn.indexer.weights_proj.weight"},
      {"model.layers.2.self_attn.compressor.indexer.weights_proj.weight",
       "layers.2.attn.indexer.weights_proj.weight"},
      {"layers.2.attn.indexer.compressor.norm.weight",
       "layers.2.attn.indexer.compressor.norm.weight"},
      {"model.layers.2.self_attn.compressor.indexer.q_b_proj.weight",
       "layers.2.attn.indexer.wq_b.weight"},
      {"model.embed_tokens.weight", "embed.weight"},
      {"model.norm.weight", "norm.weight"},
      {"lm_head.weight", "head.weight"},
      {"layers.2.ffn.gate.weight", "layers.2.ffn.gate.weight"},
      {"model.layers.2.mlp.gate.weight", "model.layers.2.mlp.gate.weight"},
      {"mtp.0.attn.wq_a.weight", "mtp.0.attn.wq_a.weight"},
      {"model.mtp.0.self_attn.q_a_proj.weight", "mtp.0.attn.wq_a.weight"},
      {"model.mtp.0.e_proj.weight_scale_inv", "mtp.0.e_proj.scale"},
      {"mtp.0.enorm.weight", "mtp.0.enorm.weight"},
      {"mtp.0.norm.weight", "mtp.0.norm.weight"},
      {"mtp.0.input_layernorm.weight", "mtp.0.attn_norm.weight"},
      {"mtp.0.ffn.gate.weight", "mtp.0.ffn.gate.weight"},
      {"layers.2.attn.wq_a.weight.extra", "layers.2.attn.wq_a.weight.extra"},
      {"layers..attn", "layers..attn"},
      {"", ""},
  };
  for (const auto& [name, expected] : pairs) EXPECT_EQ(deepseek_v4_published_name(name), expected);
  EXPECT_EQ(scale_name("layers.0.attn.wq_a.weight"), "layers.0.attn.wq_a.scale");
}

bf16_t bf16(float x) { return {cpu::float_to_bf16(x)}; }

TEST(Fp8Blocks, CodesAndScalesAreThoseOfTheDefinition) {
  // 130 x 129: four blocks, three of them smaller.
  const std::int64_t rows = 130, columns = 129;
  std::vector<bf16_t> values(static_cast<std::size_t>(rows * columns), bf16(0));
  values[0] = bf16(448);    // block 0: scale 1
  values[1] = bf16(-17);    // between 16 and 18: a tie, to even
  values[128] = bf16(450);  // block 1: scale 2
  values[static_cast<std::size_t>(129 * columns)] = bf16(0.875f);  // block 2: scale 2^-9
  const Fp8Blocks blocks = encode_fp8_blocks(values.data(), rows, columns, nullptr);
  ASSERT_EQ(blocks.scales.size(), 4u);
  EXPECT_EQ(blocks.scales[0], 127);
  EXPECT_EQ(blocks.scales[1], 128);
  EXPECT_EQ(blocks.scales[2], 118);
  EXPECT_EQ(blocks.scales[3], 127);  // zeros
  EXPECT_EQ(blocks.codes[0], 0x7E);
  EXPECT_EQ(blocks.codes[1], 0xD8);
  EXPECT_EQ(blocks.codes[static_cast<std::size_t>(129 * columns)], 0x7E);
  EXPECT_EQ(blocks.changed, 2);  // -17, and 450 / 2 = 225

  std::vector<double> scales;
  for (const std::uint8_t s : blocks.scales) scales.push_back(std::ldexp(1.0, s - 127));
  std::vector<bf16_t> back(values.size());
  EXPECT_EQ(decode_fp8_blocks(blocks.codes.data(), scales, rows, columns, back.data(), nullptr), 0);
  EXPECT_EQ(back[0].bits, bf16(448).bits);
  EXPECT_EQ(back[1].bits, bf16(-16).bits);
  EXPECT_EQ(back[128].bits, bf16(448).bits);
  // Once more: what came from blocks keeps its values.
  const Fp8Blocks again = encode_fp8_blocks(back.data(), rows, columns, nullptr);
  EXPECT_EQ(again.changed, 0);
}

TEST(Fp8Blocks, OtherScalesRoundOnce) {
  const std::uint8_t codes[2] = {0x38, 0x39};  // 1, 1.125
  std::vector<bf16_t> out(2);
  const double scale = 1.0f + 0x1p-9f;
  EXPECT_EQ(decode_fp8_blocks(codes, {scale}, 1, 2, out.data(), nullptr), 2);
  EXPECT_EQ(cpu::bf16_to_float(out[0].bits), 1.0f);
  EXPECT_EQ(cpu::bf16_to_float(out[1].bits), 1.125f);
}

class CheckpointTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = (fs::temp_directory_path() / "attnscope-checkpoint-XXXXXX").string();
    ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
    config_ = *preset("tiny", {0, 1, 2});
    weights_ = synthetic_weights(config_, 7, nullptr);
  }
  void TearDown() override { fs::remove_all(folder_); }

  std::string path(const std::string& name) const { return (folder_ / name).string(); }
  std::string exported(const std::string& name, ExportDtype dtype = ExportDtype::kBf16) {
    auto totals = export_checkpoint(weights_, config_, path(name), dtype, nullptr);
    EXPECT_TRUE(totals) << totals.error().text();
    return path(name);
  }
  static Result<LoadedWeights> load(const std::string& folder, const ModelConfig& config) {
    auto checkpoint = Checkpoint::open(folder, config);
    if (!checkpoint) return checkpoint.error();
    return load_weights(**checkpoint, config, nullptr);
  }
  static json read_json(const std::string& file) { return json::parse(*read_text_file(file)); }
  static std::string shard_of(const std::string& folder, const std::string& tensor) {
    return read_json(folder + "/model.safetensors.index.json")["weight_map"][tensor];
  }
  // Writes the shard of `tensor` again; `edit` is asked for every tensor of it and may add it.
  template <class F>
  void rewrite(const std::string& folder, const std::string& tensor, const F& edit) {
    const std::string shard = folder + "/" + shard_of(folder, tensor);
    auto file = TensorFile::open(shard);
    ASSERT_TRUE(file);
    TensorWriter writer;
    for (const TensorEntry& entry : file->tensors()) {
      if (!edit(entry, writer)) {
        writer.add(entry.name, entry.type, entry.shape, entry.data, entry.bytes);
      }
    }
    ASSERT_TRUE(writer.write(shard));
  }
  void expect_load_error(const std::string& folder, const std::vector<std::string>& parts) {
    const auto loaded = load(folder, config_);
    ASSERT_FALSE(loaded) << "accepted; should name " << parts[0];
    EXPECT_EQ(loaded.error().code, AS_BAD_INPUT);
    const std::string text = loaded.error().text();
    EXPECT_EQ(text.find('\n'), std::string::npos);
    for (const std::string& part : parts) {
      EXPECT_NE(text.find(part), std::string::npos) << "\"" << part << "\" missing in: " << text;
    }
  }

  void reads_back_in_fp8(const std::string& name);

  fs::path folder_;
  ModelConfig config_;
  Weights weights_;
};

void expect_same(const ModelConfig& config, const Weights& a, const Weights& b) {
  const auto x = weight_slots(config, a), y = weight_slots(config, b);
  ASSERT_EQ(x.size(), y.size());
  for (std::size_t i = 0; i < x.size(); ++i) {
    SCOPED_TRACE(x[i].name);
    const auto n = static_cast<std::size_t>(x[i].size());
    if (x[i].f32 != nullptr) {
      EXPECT_EQ(std::memcmp(x[i].f32, y[i].f32, n * sizeof(float)), 0);
    } else {
      EXPECT_EQ(std::memcmp(x[i].bf16, y[i].bf16, n * sizeof(bf16_t)), 0);
    }
  }
}

TEST_F(CheckpointTest, SlotsCoverAllBytesOfTheWeights) {
  std::int64_t bytes = 0;
  for (const WeightSlot& slot : weight_slots(config_, weights_)) {
    bytes += slot.size() * (slot.f32 != nullptr ? 4 : 2);
  }
  EXPECT_EQ(bytes, weights_.bytes());
  EXPECT_EQ(allocate_weights(config_).bytes(), weights_.bytes());
}

TEST_F(CheckpointTest, Bf16ExportReadsBackBitForBit) {
  const std::string folder = exported("m");
  auto config = read_hf_config(folder);
  ASSERT_TRUE(config) << config.error().text();
  EXPECT_EQ(config->layers, config_.layers);  // a part of the model, said in the file
  EXPECT_EQ(config->compress_ratios, config_.compress_ratios);
  EXPECT_EQ(config->rms_eps, config_.rms_eps);
  auto loaded = load(folder, *config);
  ASSERT_TRUE(loaded) << loaded.error().text();
  expect_same(config_, weights_, loaded->weights);
  EXPECT_EQ(loaded->unused, 1);  // head.weight
  EXPECT_EQ(loaded->used.size(), weight_slots(config_, weights_).size());
  for (const TensorUse& use : loaded->used) EXPECT_EQ(use.rounded, 0) << use.name;
}

// What FP8 leaves of a matrix: e4m3 has 3 bits of mantissa, so that a value is off by half of 1/8
// of its power of two at most; values far below the block's largest by no more than that one is.
void expect_quantised(const WeightSlot& was, const WeightSlot& now) {
  const std::int64_t rows = was.shape[0], columns = was.size() / rows;
  const auto value = [&](const WeightSlot& slot, std::int64_t r, std::int64_t c) {
    return cpu::bf16_to_float(slot.bf16[r * columns + c].bits);
  };
  std::int64_t changed = 0;
  for (std::int64_t r0 = 0; r0 < rows; r0 += 128) {
    for (std::int64_t c0 = 0; c0 < columns; c0 += 128) {
      float largest = 0, off = 0;
      for (std::int64_t r = r0; r < std::min(rows, r0 + 128); ++r) {
        for (std::int64_t c = c0; c < std::min(columns, c0 + 128); ++c) {
          const float a = value(was, r, c), b = value(now, r, c);
          largest = std::max(largest, std::fabs(a));
          off = std::max(off, std::fabs(a - b));
          changed += a != b;
        }
      }
      ASSERT_LE(off, largest / 16) << was.name << " block " << r0 << ", " << c0;
    }
  }
  EXPECT_GT(changed, 0) << was.name << " was not quantised";
}

// Blocks are what a product of codes and scales is, the rest as it was; written again, the same
// bits.
void CheckpointTest::reads_back_in_fp8(const std::string& name) {
  const std::string first = exported(name + "a", ExportDtype::kFp8);
  auto loaded = load(first, config_);
  ASSERT_TRUE(loaded) << loaded.error().text();
  const auto was = weight_slots(config_, weights_), now = weight_slots(config_, loaded->weights);
  ASSERT_EQ(was.size(), now.size());
  for (std::size_t i = 0; i < was.size(); ++i) {
    if (was[i].in_blocks) {
      expect_quantised(was[i], now[i]);
      continue;
    }
    const bool wide = was[i].f32 != nullptr;
    const void* a = wide ? static_cast<void*>(was[i].f32) : was[i].bf16;
    const void* b = wide ? static_cast<void*>(now[i].f32) : now[i].bf16;
    EXPECT_EQ(std::memcmp(a, b, static_cast<std::size_t>(was[i].size()) * (wide ? 4 : 2)), 0)
        << was[i].name;
  }
  // The model that was read, written and read again: the same bits.
  weights_ = std::move(loaded->weights);
  const std::string second = exported(name + "b", ExportDtype::kFp8);
  auto again = load(second, config_);
  ASSERT_TRUE(again) << again.error().text();
  expect_same(config_, weights_, again->weights);
  // And in bf16: it holds every FP8 value.
  auto wide = load(exported(name + "c"), config_);
  ASSERT_TRUE(wide);
  expect_same(config_, weights_, wide->weights);
}

TEST_F(CheckpointTest, Fp8ExportReadsBackBitForBit) {
  for (const char* model : {"tiny", "tiny-v3", "tiny-v3.2"}) {
    SCOPED_TRACE(model);
    config_ = *preset(model);
    weights_ = synthetic_weights(config_, 7, nullptr);
    reads_back_in_fp8(model);
  }
}

// What was written is held against the weights, by values as by codes and scales.
TEST_F(CheckpointTest, AnExportThatHoldsSomethingElseIsNamed) {
  const auto says = [&](const std::string& folder, const std::string& name, std::size_t byte) {
    rewrite(folder, name, [&](const TensorEntry& e, TensorWriter& w) {
      if (e.name != name) return false;
      std::vector<std::uint8_t> bytes(e.data, e.data + e.bytes);
      bytes[byte] ^= 1;
      w.add_owned(e.name, e.type, e.shape, std::move(bytes));
      return true;
    });
    const auto checked = check_exported(folder, config_, weights_);
    return checked ? std::string("nothing") : checked.error().message;
  };
  const auto of = [&](const std::string& folder) {
    const auto checked = check_exported(folder, config_, weights_);
    EXPECT_TRUE(checked) << checked.error().text();
    return folder;
  };
  int n = 0;
  for (const char* name : {"layers.1.attn_norm.weight", "layers.2.attn.wo_b.weight",
                           "layers.1.attn.compressor.ape", "head.weight"}) {
    const std::string text = says(of(exported(fmt::format("m{}", ++n))), name, 0);
    EXPECT_NE(text.find(std::string(name) + " is not what"), std::string::npos) << text;
  }
  for (const char* name : {"layers.1.attn.wq_b.weight", "layers.1.attn.wq_b.scale"}) {
    const std::string text =
        says(of(exported(fmt::format("m{}", ++n), ExportDtype::kFp8)), name, 1);
    EXPECT_NE(text.find("layers.1.attn.wq_b.weight is not what"), std::string::npos) << text;
    EXPECT_NE(text.find(" with scale "), std::string::npos) << text;
  }
  // Weights that are held as codes, written as such and as values.
  const std::string coded = exported("coded", ExportDtype::kFp8);
  config_.switches = *profile_switches("vllm,projections=fp8");
  auto loaded = load(coded, config_);
  ASSERT_TRUE(loaded) << loaded.error().text();
  weights_ = std::move(loaded->weights);
  for (const ExportDtype dtype : {ExportDtype::kFp8, ExportDtype::kBf16}) {
    const std::string text =
        says(of(exported(fmt::format("m{}", ++n), dtype)), "layers.1.attn.wq_b.weight", 1);
    EXPECT_NE(text.find("layers.1.attn.wq_b.weight is not what"), std::string::npos) << text;
  }
}

TEST_F(CheckpointTest, DtypesAndNamesAreThePublishedOnes) {
  const std::string folder = exported("m", ExportDtype::kFp8);
  const json map = read_json(folder + "/model.safetensors.index.json")["weight_map"];
  const auto dtype = [&](const std::string& name) -> std::string {
    if (!map.contains(name)) return "missing";
    auto file = TensorFile::open(folder + "/" + map[name].get<std::string>());
    return element_name(file->find(name)->type);
  };
  for (const char* name : {"wq_a", "wq_b", "wkv", "wo_a", "wo_b", "indexer.wq_b"}) {
    const std::string tensor = std::string("layers.1.attn.") + name;
    EXPECT_EQ(dtype(tensor + ".weight"), "F8_E4M3") << name;
    EXPECT_EQ(dtype(tensor + ".scale"), "F8_E8M0") << name;
  }
  for (const char* name : {"compressor.wkv.weight", "compressor.wgate.weight", "q_norm.weight",
                           "indexer.weights_proj.weight", "indexer.compressor.norm.weight"}) {
    EXPECT_EQ(dtype(std::string("layers.1.attn.") + name), "BF16") << name;
  }
  EXPECT_EQ(dtype("layers.1.attn.attn_sink"), "F32");
  EXPECT_EQ(dtype("layers.1.attn.compressor.ape"), "F32");
  EXPECT_EQ(dtype("layers.1.attn_norm.weight"), "BF16");
  EXPECT_EQ(dtype("head.weight"), "BF16");
  // No tensor but the model's: other loaders take all there are.
  std::size_t tensors = 0;
  for (const auto& entry : fs::directory_iterator(folder)) {
    if (entry.path().extension() != ".safetensors") continue;
    auto file = TensorFile::open(entry.path().string());
    ASSERT_TRUE(file);
    EXPECT_FALSE(file->metadata().contains(kPaddingKey));
    for (const TensorEntry& t : file->tensors()) EXPECT_TRUE(t.aligned()) << t.name;
    tensors += file->tensors().size();
  }
  EXPECT_EQ(tensors, map.size());
}

TEST_F(CheckpointTest, OtherSpellingsAndWiderTypesLoad) {
  const std::string folder = exported("m");
  // One file, no index, Hugging Face names, fp32 matrices, a larger vocabulary.
  TensorWriter writer;
  std::vector<std::vector<float>> wide;
  wide.reserve(64);
  for (const WeightSlot& slot : weight_slots(config_, weights_)) {
    std::string name = "model." + slot.name;
    const auto swap = [&](const std::string& from, const std::string& to) {
      if (const auto at = name.find(from); at != std::string::npos) {
        name.replace(at, from.size(), to);
      }
    };
    swap("embed.", "embed_tokens.");
    swap(".attn_norm.", ".input_layernorm.");
    swap(".attn.indexer.compressor.", ".self_attn.compressor.indexer.");
    swap(".attn.indexer.wq_b", ".self_attn.compressor.indexer.q_b_proj");
    swap(".attn.indexer.weights_proj", ".self_attn.compressor.indexer.scorer.weights_proj");
    swap(".attn.", ".self_attn.");
    for (const auto& [from, to] : std::vector<std::pair<std::string, std::string>>{
             {".wkv.", ".kv_proj."},
             {".wgate.", ".gate_proj."},
             {".ape", ".position_bias"},
             {".wq_a.", ".q_a_proj."},
             {".wq_b.", ".q_b_proj."},
             {".wo_a.", ".o_a_proj."},
             {".wo_b.", ".o_b_proj."},
             {".attn_sink", ".sinks"},
             {".self_attn.q_norm.", ".self_attn.q_a_norm."}}) {
      swap(from, to);
    }
    const auto n = static_cast<std::size_t>(slot.size());
    auto shape = slot.shape;
    auto& values = wide.emplace_back(n);
    for (std::size_t i = 0; i < n; ++i) {
      values[i] = slot.f32 != nullptr ? slot.f32[i] : cpu::bf16_to_float(slot.bf16[i].bits);
    }
    if (slot.name == "embed.weight") {
      shape[0] += 3;
      values.resize(n + 3 * static_cast<std::size_t>(shape[1]), 5.0f);
    }
    writer.add(name, ElementType::kF32, shape, values);
  }
  fs::create_directory(folder_ / "hf");
  ASSERT_TRUE(writer.write(path("hf/model.safetensors")));
  auto loaded = load(path("hf"), config_);
  ASSERT_TRUE(loaded) << loaded.error().text();
  expect_same(config_, weights_, loaded->weights);
  EXPECT_EQ(loaded->unused, 0);
}

TEST_F(CheckpointTest, Fp32ScalesAndValuesThatBf16DoesNotHold) {
  const std::string folder = exported("m", ExportDtype::kFp8);
  const std::string scales = "layers.0.attn.wq_a.scale";
  rewrite(folder, scales, [&](const TensorEntry& e, TensorWriter& w) {
    if (e.name != scales) return false;
    std::vector<std::uint8_t> bytes(e.bytes * sizeof(float));
    for (std::size_t i = 0; i < e.bytes; ++i) {
      const float value = std::ldexp(1.0f, e.data[i] - 127) * (i == 0 ? 1.3f : 1.0f);
      std::memcpy(&bytes[i * sizeof(float)], &value, sizeof(float));
    }
    w.add_owned(e.name, ElementType::kF32, e.shape, std::move(bytes));
    return true;
  });
  auto loaded = load(folder, config_);
  ASSERT_TRUE(loaded) << loaded.error().text();
  for (const TensorUse& use : loaded->used) {
    const bool scaled = use.role == "layers.0.attn.wq_a.weight";
    EXPECT_EQ(use.rounded > 0, scaled) << use.role;
    if (scaled) {
      EXPECT_EQ(use.scales, "F32");
    }
  }
}

TEST_F(CheckpointTest, Float64AndFloat16AreRoundedOnce) {
  const std::string norm = "layers.0.attn.kv_norm.weight", sinks = "layers.0.attn.attn_sink";
  const auto loaded_as = [&](const std::string& folder, ElementType type, const auto& values) {
    for (const std::string& name : {norm, sinks}) {
      rewrite(folder, name, [&](const TensorEntry& e, TensorWriter& w) {
        if (e.name != name) return false;
        std::vector<std::uint8_t> bytes(static_cast<std::size_t>(e.elements) * sizeof(values[0]));
        std::memcpy(bytes.data(), values.data(), std::min(bytes.size(), sizeof(values)));
        w.add_owned(e.name, type, e.shape, std::move(bytes));
        return true;
      });
    }
    auto loaded = load(folder, config_);
    EXPECT_TRUE(loaded) << loaded.error().text();
    for (const TensorUse& use : loaded->used) {
      const bool one = use.role == norm || use.role == sinks;
      const std::string stored = std::string("stored as ") + element_name(type);
      EXPECT_EQ(use.warning.starts_with(stored), one) << use.role << ": " << use.warning;
      const bool wide = type == ElementType::kF64;
      const std::int64_t rounded = use.role == norm ? wide ? 4 : 2 : wide && one ? 2 : 0;
      EXPECT_EQ(use.rounded, rounded) << use.role;
    }
    return std::move(*loaded);
  };
  // Between 1 and the next bf16: on the tie, and above it by less than fp32 holds.
  const std::array<double, 6> wide = {1 + 0x1p-8, 1 + 0x1p-8 + 0x1p-40, -0.1, 0.25, 0x1p-140, -0.0};
  const LoadedWeights a = loaded_as(exported("f64"), ElementType::kF64, wide);
  const WeightList& from_f64 = a.weights.layers[0];
  const float in_bf16[] = {1, 1 + 0x1p-7f, -0x1.9ap-4f, 0.25f, 0, -0.0f};
  for (std::size_t i = 0; i < wide.size(); ++i) {
    EXPECT_EQ(from_f64["kv_norm"].bf16.data()[i].bits, bf16(in_bf16[i]).bits) << i;
    EXPECT_EQ(from_f64["sinks"].f32.data()[i], static_cast<float>(wide[i])) << i;
  }
  // 1 + 2^-8 and 1 + 2^-8 + 2^-10, the smallest, the largest, -2.
  const std::array<std::uint16_t, 5> narrow = {0x3c04, 0x3c05, 0x0001, 0x7800, 0xc000};
  const LoadedWeights b = loaded_as(exported("f16"), ElementType::kF16, narrow);
  const WeightList& from_f16 = b.weights.layers[0];
  const float of_f16[] = {1 + 0x1p-8f, 1 + 0x1.4p-8f, 0x1p-24f, 0x1p15f, -2};
  const float rounded[] = {1, 1 + 0x1p-7f, 0x1p-24f, 0x1p15f, -2};
  for (std::size_t i = 0; i < narrow.size(); ++i) {
    EXPECT_EQ(from_f16["sinks"].f32.data()[i], of_f16[i]) << i;
    EXPECT_EQ(from_f16["kv_norm"].bf16.data()[i].bits, bf16(rounded[i]).bits) << i;
  }
}

TEST_F(CheckpointTest, OnlyShardsOfRunningLayersAreOpened) {
  const std::string folder = exported("m");
  fs::remove(folder + "/" + shard_of(folder, "layers.1.attn.wq_a.weight"));
  auto part = read_hf_config(folder, {0, 2});
  ASSERT_TRUE(part);
  EXPECT_TRUE(load(folder, *part));
  expect_load_error(folder, {"model-00003-of-00004.safetensors", "shard is missing",
                             "layers.1.attn_norm.weight", "model.safetensors.index.json"});
}

TEST_F(CheckpointTest, WrongShapesAndTypesNameTensorFileAndExpectation) {
  const std::string folder = exported("m", ExportDtype::kFp8);
  const std::string file = folder + "/" + shard_of(folder, "layers.1.attn.wkv.weight");
  const std::string original = *read_text_file(file, 1u << 30);
  const auto replaced = [&](const std::string& name, ElementType type,
                            std::vector<std::int64_t> shape, std::size_t bytes,
                            std::uint8_t value) {
    std::ofstream(file, std::ios::binary) << original;
    rewrite(folder, "layers.1.attn.wkv.weight", [&](const TensorEntry& e, TensorWriter& w) {
      if (e.name != name) return false;
      w.add_owned(name, type, shape, std::vector<std::uint8_t>(bytes, value));
      return true;
    });
  };
  replaced("layers.1.attn.wkv.weight", ElementType::kF8E4m3, {512, 511}, 512 * 511, 0);
  expect_load_error(folder, {file, "\"layers.1.attn.wkv.weight\"", "[512, 511]", "[512, 512]"});
  replaced("layers.1.attn.wkv.scale", ElementType::kF8E8m0, {4, 3}, 12, 127);
  expect_load_error(folder, {file, "\"layers.1.attn.wkv.scale\"", "[4, 3]", "[4, 4]", "128 x 128"});
  replaced("layers.1.attn.wkv.scale", ElementType::kF8E8m0, {4, 4}, 16, 255);
  expect_load_error(folder, {"layers.1.attn.wkv.scale", "[0, 0]", "not finite"});
  replaced("layers.1.attn.wkv.scale", ElementType::kF16, {4, 4}, 32, 0);
  expect_load_error(folder, {"layers.1.attn.wkv.scale", "F16", "F8_E8M0 or F32"});
  replaced("layers.1.attn.wkv.weight", ElementType::kI8, {512, 512}, 512 * 512, 0);
  expect_load_error(folder, {"layers.1.attn.wkv.weight", "I8", "F8_E4M3"});
  replaced("layers.1.attn.q_norm.weight", ElementType::kI16, {128}, 256, 0);
  expect_load_error(folder, {"layers.1.attn.q_norm.weight", "I16", "BF16, F32, F16 or F64"});
  replaced("layers.1.attn.attn_sink", ElementType::kI32, {8}, 32, 0);
  expect_load_error(folder, {"layers.1.attn.attn_sink", "I32", "BF16, F32, F16 or F64"});
}

TEST_F(CheckpointTest, BrokenIndexes) {
  const std::string folder = exported("m");
  const std::string index = folder + "/model.safetensors.index.json";
  const json good = read_json(index);
  const auto with = [&](const json& j) { ASSERT_TRUE(write_text_file(index, j.dump())); };
  const std::string name = "layers.1.attn.wq_b.weight";
  json bad = good;
  bad["weight_map"][name] = good["weight_map"]["embed.weight"];
  with(bad);
  expect_load_error(folder, {"model-00001-of-00004.safetensors", name, "index.json says so"});
  bad = good;
  bad["weight_map"].erase(name);
  with(bad);
  expect_load_error(folder, {index, "has no tensor " + name});
  for (const char* file : {"../x.safetensors", "/etc/passwd", "", "..", "a/b"}) {
    bad = good;
    bad["weight_map"][name] = file;
    with(bad);
    expect_load_error(folder, {index, name, "no file of this folder"});
  }
  bad = good;
  bad["weight_map"][name] = 7;
  with(bad);
  expect_load_error(folder, {index, name, "expected the name of a file"});
  bad = good;
  bad["weight_map"]["model.layers.1.self_attn.q_b_proj.weight"] =
      "model-00001-of-00004.safetensors";
  with(bad);
  expect_load_error(folder, {index, "q_b_proj", "are both", name});
  with({{"weight_map", {1, 2}}});
  expect_load_error(folder, {index, "weight_map", "expected an object"});
  ASSERT_TRUE(write_text_file(index, "{\"weight_map\": {\"a\": \"b\", \"a\": \"c\"}}"));
  expect_load_error(folder, {index, "\"a\""});
  ASSERT_TRUE(write_text_file(index, "{"));
  expect_load_error(folder, {index, "line 1"});
  fs::remove(index);
  expect_load_error(folder, {folder, "has neither"});
}

TEST_F(CheckpointTest, ExportRefusesWhatIsThere) {
  const std::string folder = exported("m");
  for (const std::string& name : {folder, path("absent/m"), std::string("..")}) {
    auto totals = export_checkpoint(weights_, config_, name, ExportDtype::kBf16, nullptr);
    ASSERT_FALSE(totals) << name;
    EXPECT_EQ(totals.error().code, AS_BAD_INPUT);
  }
  EXPECT_TRUE(load(folder, config_));  // as it was
  fs::create_directory(folder_ / "empty");
  EXPECT_TRUE(
      export_checkpoint(weights_, config_, path("empty") + "/", ExportDtype::kBf16, nullptr));
  for (const auto& entry : fs::directory_iterator(folder_)) {
    EXPECT_EQ(entry.path().string().find(".new-"), std::string::npos) << entry.path();
  }
}

TEST_F(CheckpointTest, HiddenStates) {
  const auto hidden = static_cast<std::size_t>(config_.hidden);
  const auto write = [&](std::int64_t rows, std::int64_t width, ElementType type,
                         std::size_t element, const std::string& skip = "") {
    TensorWriter writer;
    for (const int layer : config_.layers) {
      const std::string name = HiddenStates::tensor_name(layer);
      if (name == skip) continue;
      writer.add_owned(name, type, {rows, width},
                       std::vector<std::uint8_t>(static_cast<std::size_t>(rows * width) * element));
    }
    EXPECT_TRUE(writer.write(path("x.safetensors")));
    return HiddenStates::open(path("x.safetensors"), config_, {{"one", 5}});
  };
  const auto expect = [&](const Result<std::shared_ptr<const HiddenStates>>& r,
                          const std::vector<std::string>& parts) {
    ASSERT_FALSE(r);
    for (const std::string& part : parts) {
      EXPECT_NE(r.error().text().find(part), std::string::npos) << part << ": " << r.error().text();
    }
  };
  EXPECT_TRUE(write(5, config_.hidden, ElementType::kF32, 4));
  expect(write(4, config_.hidden, ElementType::kF32, 4),
         {"x.safetensors", "layers.0.attn_norm.y", "[4, 512]", "has 5 tokens"});
  expect(write(5, 64, ElementType::kF32, 4), {"layers.0.attn_norm.y", "[5, 64]", "hidden_size"});
  EXPECT_TRUE(write(5, config_.hidden, ElementType::kF16, 2));
  expect(write(5, config_.hidden, ElementType::kI16, 2), {"I16", "BF16, F16, F32 or F64"});
  expect(write(5, config_.hidden, ElementType::kBf16, 2, "layers.2.attn_norm.y"),
         {"has neither", "one/layers.2.attn_norm.y"});

  // Values: fp32 as it is for ref.exact, rounded for the others; the request's own tensor first.
  TensorWriter writer;
  std::vector<float> values(2 * hidden, 1.0f + 0x1p-10f), own(3 * hidden, 2.0f);
  own[hidden + 1] = 3.0f;
  for (const int layer : config_.layers) {
    writer.add(HiddenStates::tensor_name(layer), ElementType::kF32, {1, 2, config_.hidden}, values);
  }
  writer.add("b/" + HiddenStates::tensor_name(1), ElementType::kF32, {3, config_.hidden}, own);
  ASSERT_TRUE(writer.write(path("y.safetensors")));
  auto states = HiddenStates::open(path("y.safetensors"), config_, {{"a", 2}, {"b", 2}});
  ASSERT_TRUE(states) << states.error().text();
  std::vector<double> row(hidden);
  std::vector<bf16_t> narrow(hidden);
  (*states)->row(0, 1, 1, row.data());
  EXPECT_EQ(row[3], 1.0 + 0x1p-10);
  (*states)->row(0, 1, 1, narrow.data());
  EXPECT_EQ(narrow[3].bits, bf16(1).bits);
  (*states)->row(1, 1, 1, narrow.data());
  EXPECT_EQ(narrow[1].bits, bf16(3).bits);
  (*states)->row(1, 0, 1, narrow.data());
  EXPECT_EQ(narrow[1].bits, bf16(1).bits);

  TensorWriter halves;
  const std::vector<std::uint16_t> ones(2 * hidden, 0x3c01);  // 1 + 2^-10
  for (const int layer : config_.layers) {
    halves.add(HiddenStates::tensor_name(layer), ElementType::kF16, {2, config_.hidden},
               reinterpret_cast<const std::uint8_t*>(ones.data()), 4 * hidden);
  }
  ASSERT_TRUE(halves.write(path("z.safetensors")));
  states = HiddenStates::open(path("z.safetensors"), config_, {{"a", 2}});
  ASSERT_TRUE(states) << states.error().text();
  (*states)->row(2, 0, 1, row.data());
  EXPECT_EQ(row[3], 1.0 + 0x1p-10);

  // Rows that nobody computed; behind the prompt they may stand.
  TensorWriter gaps;
  values[hidden + 5] = std::numeric_limits<float>::quiet_NaN();
  for (const int layer : config_.layers) {
    gaps.add(HiddenStates::tensor_name(layer), ElementType::kF32, {2, config_.hidden}, values);
  }
  ASSERT_TRUE(gaps.write(path("z.safetensors")));
  EXPECT_TRUE(HiddenStates::open(path("z.safetensors"), config_, {{"a", 1}}));
  expect(HiddenStates::open(path("z.safetensors"), config_, {{"a", 2}}),
         {"layers.0.attn_norm.y", "row 1", "nan at column 5", "record every position"});
}

}  // namespace checkpoint_test
}  // namespace attnscope
