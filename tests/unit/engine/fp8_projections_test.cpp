// Projections in FP8: what the switch changes in weights, in checkpoints and on the ranks of a
// model that is dealt out.
#include "engine/model/fp8_projections.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>

#include "engine/checkpoint/checkpoint.h"
#include "engine/checkpoint/export_checkpoint.h"
#include "engine/checkpoint/tensor_names.h"
#include "engine/checkpoint/weight_slots.h"
#include "engine/family/model_weights.h"
#include "engine/family/models.h"
#include "engine/family/tensor_parallel.h"
#include "engine/model/profile_switches.h"
#include "engine/tensorfile/tensor_writer.h"
#include "kernels/cpu/codec.h"

namespace attnscope {
namespace fp8_projections_test {

namespace fs = std::filesystem;

ModelConfig tiny(const char* profile = "vllm,projections=fp8") {
  ModelConfig c = *preset("tiny", {0, 1, 2});
  c.switches = *profile_switches(profile);
  return c;
}

template <class T>
bool same(const Buffer<T>& a, const Buffer<T>& b) {
  return a.shape() == b.shape() &&
         std::memcmp(a.data(), b.data(), static_cast<std::size_t>(a.size()) * sizeof(T)) == 0;
}

bool same(const Fp8Matrix& a, const Fp8Matrix& b) {
  return same(a.codes, b.codes) && same(a.scales, b.scales);
}

void expect_same(const WeightList& a, const WeightList& b) {
  for (const char* name : {"wq_kv_a", "wq_b", "wo_a", "wo_b"}) {
    EXPECT_TRUE(same(a[name].fp8, b[name].fp8)) << name;
  }
  if (a["indexer.wq_b"].fp8.codes.size() > 0) {
    EXPECT_TRUE(same(a["indexer.wq_b"].fp8, b["indexer.wq_b"].fp8));
  }
}

TEST(Fp8Projections, AreOffUnlessAskedFor) {
  EXPECT_FALSE(profile_switches("vllm")->fp8_projections);
  EXPECT_FALSE(profile_switches("deepseek")->fp8_projections);
  const ProfileSwitches on = *profile_switches("deepseek,projections=fp8");
  EXPECT_TRUE(on.fp8_projections);
  EXPECT_EQ(on.profile, "deepseek,projections=fp8");
  const auto wrong = profile_switches("vllm,projections=fp4");
  ASSERT_FALSE(wrong);
  EXPECT_NE(wrong.error().text().find("allowed: bf16, fp8, fp8_but_wo_a"), std::string::npos);
  const Weights plain = synthetic_weights(tiny("vllm"), 5, nullptr);
  EXPECT_EQ(plain.layers[0]["wq_b"].fp8.codes.size(), 0);
  EXPECT_TRUE(projections_left_in_bf16(tiny("vllm")).empty());
}

TEST(Fp8Projections, QuantiseOnLoadByTheScalesOfTheBlocks) {
  const Weights plain = synthetic_weights(tiny("vllm"), 5, nullptr);
  const Weights w = synthetic_weights(tiny(), 5, nullptr);
  EXPECT_LT(w.bytes(), plain.bytes());
  for (std::size_t i = 0; i < w.layers.size(); ++i) {
    const WeightList& was = plain.layers[i];
    const WeightList& now = w.layers[i];
    EXPECT_EQ(now["wq_kv_a"].bf16.size(), 0);
    EXPECT_EQ(now["wq_b"].bf16.size(), 0);
    EXPECT_EQ(now["wo_b"].bf16.size(), 0);
    EXPECT_EQ(now["indexer.wq_b"].bf16.size(), 0);
    EXPECT_EQ(now["wo_a"].bf16.size(), 0);
    // Two groups of 64 rows, published as one block of 128.
    EXPECT_EQ(now["wo_a"].fp8.codes.shape(), (std::vector<std::int64_t>{2, 64, 2048}));
    EXPECT_EQ(now["wo_a"].fp8.scales.shape(), (std::vector<std::int64_t>{2, 1, 16}));
    const float* group = now["wo_a"].fp8.scales.data();
    EXPECT_TRUE(std::equal(group, group + 16, group + 16));
    EXPECT_EQ(now["wq_b"].fp8.scales.shape(), (std::vector<std::int64_t>{32, 1}));
    const Buffer<bf16_t> values = decoded(now["wq_b"].fp8, nullptr);
    ASSERT_EQ(values.shape(), was["wq_b"].bf16.shape());
    const float largest = now["wq_b"].fp8.scales.data()[0] * 448;
    for (std::int64_t e = 0; e < 128 * 128; ++e) {
      const float a = cpu::bf16_to_float(was["wq_b"].bf16.data()[e].bits);
      const float b = cpu::bf16_to_float(values.data()[e].bits);
      ASSERT_LE(std::fabs(a - b), std::max(std::fabs(a) / 16, largest * 0x1p-18f)) << e;
    }
  }
}

TEST(Fp8Projections, AllButTheFirstOfTheOutputWhereAskedFor) {
  const ModelConfig c = tiny("vllm,projections=fp8_but_wo_a");
  const Weights w = synthetic_weights(c, 5, nullptr),
                plain = synthetic_weights(tiny("vllm"), 5, nullptr);
  EXPECT_TRUE(same(w.layers[1]["wo_a"].bf16, plain.layers[1]["wo_a"].bf16));
  EXPECT_EQ(w.layers[1]["wo_b"].bf16.size(), 0);
  EXPECT_TRUE(projections_left_in_bf16(c).empty());
}

// The bytes that are said beforehand are those that are held.
TEST(Fp8Projections, CountTheirScales) {
  for (const int low : {32, 64, 128, 256}) {
    ModelConfig c = tiny();
    c.o_lora = low;
    const std::int64_t scales = c.o_groups * ((low + 127) / 128) * 16 * std::int64_t{sizeof(float)};
    const Weights weights = synthetic_weights(c, 1, nullptr);
    EXPECT_EQ(weights.layers[0]["wo_a"].bytes(), std::int64_t{c.o_groups} * low * 2048 + scales)
        << low;
    ModelConfig wide = c;
    wide.switches = *profile_switches("vllm,projections=fp8_but_wo_a");
    EXPECT_EQ(weight_bytes(wide) - weight_bytes(c),
              c.num_layers() * (std::int64_t{c.o_groups} * low * 2048 - scales))
        << low;
  }
}

// Scales go from the published blocks to the groups and back.
TEST(Fp8Projections, ScalesOfGroupsAreThoseOfTheirBlocks) {
  const std::vector<float> published = {1, 2, 3, 4};  // of 160 rows and 256 columns
  std::vector<float> held(10);
  hold_scales(published, 160, 256, 32, held.data());
  EXPECT_EQ(held, (std::vector<float>{1, 2, 1, 2, 1, 2, 1, 2, 3, 4}));
  EXPECT_EQ(published_scales(held.data(), 160, 256, 32), published);
}

TEST(Fp8Projections, SidesThatAreNoMultiplesStayBf16AndAreNamed) {
  ModelConfig c = tiny();
  c.o_lora = 96;
  c.q_lora = 192;
  EXPECT_EQ(projections_left_in_bf16(c),
            (std::vector<std::string>{"wq_a over wkv [704, 512]", "wq_b [4096, 192]",
                                      "wo_a [2, 96, 2048]", "wo_b [512, 192]",
                                      "indexer.wq_b [1024, 192]"}));
  const Weights w = synthetic_weights(c, 1, nullptr);
  EXPECT_EQ(w.layers[1]["wq_b"].fp8.codes.size(), 0);
  EXPECT_GT(w.layers[1]["wq_b"].bf16.size(), 0);
  EXPECT_TRUE(projections_left_in_bf16(tiny()).empty());
}

TEST(Fp8Projections, RanksHaveTheirBlocks) {
  ModelConfig whole = tiny();
  whole.o_lora = 128;  // 128 inputs of wo_b a rank
  const Weights all = synthetic_weights(whole, 3, nullptr);
  const auto ranks = rank_weights(whole, synthetic_weights(whole, 3, nullptr), {2, 1});
  const WeightList& mine = ranks[1]->layers[0];
  EXPECT_EQ(mine["wq_b"].fp8.codes.shape(), (std::vector<std::int64_t>{2048, 128}));
  EXPECT_EQ(mine["wo_b"].fp8.codes.shape(), (std::vector<std::int64_t>{512, 128}));
  EXPECT_EQ(mine["wo_b"].fp8.scales.shape(), (std::vector<std::int64_t>{4, 1}));
  const Fp8Matrix& wo_b = all.layers[0]["wo_b"].fp8;
  for (std::int64_t row : {0, 127, 511}) {
    EXPECT_EQ(mine["wo_b"].fp8.codes.data()[row * 128 + 5], wo_b.codes.data()[row * 256 + 128 + 5]);
    EXPECT_EQ(mine["wo_b"].fp8.scales.data()[row / 128], wo_b.scales.data()[row / 128 * 2 + 1]);
  }
  EXPECT_EQ(mine["wq_b"].fp8.codes.data()[0], all.layers[0]["wq_b"].fp8.codes.data()[2048 * 128]);
  const Fp8Matrix& wo_a = all.layers[0]["wo_a"].fp8;
  EXPECT_EQ(mine["wo_a"].fp8.codes.shape(), (std::vector<std::int64_t>{1, 128, 2048}));
  EXPECT_EQ(mine["wo_a"].fp8.codes.data()[9], wo_a.codes.data()[128 * 2048 + 9]);
  EXPECT_EQ(mine["wo_a"].fp8.scales.data()[3], wo_a.scales.data()[16 + 3]);
  EXPECT_TRUE(same(mine["wq_kv_a"].fp8, all.layers[0]["wq_kv_a"].fp8));
  EXPECT_TRUE(projections_left_in_bf16(rank_config(whole, {2, 1})).empty());
}

// 64 inputs a rank cut through the blocks: the values of the codes, and bf16.
TEST(Fp8Projections, ARankWithPartOfABlockTakesTheValues) {
  const ModelConfig whole = tiny();
  const Weights all = synthetic_weights(whole, 3, nullptr);
  const auto ranks = rank_weights(whole, synthetic_weights(whole, 3, nullptr), {2, 0});
  const WeightList& mine = ranks[0]->layers[0];
  EXPECT_EQ(mine["wo_b"].fp8.codes.size(), 0);
  ASSERT_EQ(mine["wo_b"].bf16.shape(), (std::vector<std::int64_t>{512, 64}));
  const Buffer<bf16_t> values = decoded(all.layers[0]["wo_b"].fp8, nullptr);
  EXPECT_EQ(mine["wo_b"].bf16.data()[64 + 7].bits, values.data()[128 + 7].bits);
  EXPECT_EQ(projections_left_in_bf16(rank_config(whole, {2, 0})),
            (std::vector<std::string>{"wo_b [512, 64]"}));
  // A group goes to its rank whole, with its scales.
  EXPECT_EQ(mine["wo_a"].fp8.scales.shape(), (std::vector<std::int64_t>{1, 1, 16}));
}

class Fp8Checkpoint : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = (fs::temp_directory_path() / "attnscope-fp8-XXXXXX").string();
    ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
  }
  void TearDown() override { fs::remove_all(folder_); }

  std::string exported(const Weights& weights, const ModelConfig& config, const std::string& name,
                       ExportDtype dtype) {
    std::string path = (folder_ / name).string();
    auto totals = export_checkpoint(weights, config, path, dtype, nullptr);
    EXPECT_TRUE(totals) << totals.error().text();
    return path;
  }
  static Weights load(const std::string& folder, const ModelConfig& config) {
    auto checkpoint = Checkpoint::open(folder, config);
    EXPECT_TRUE(checkpoint);
    auto loaded = load_weights(**checkpoint, config, nullptr);
    EXPECT_TRUE(loaded) << loaded.error().text();
    return loaded ? std::move(loaded->weights) : Weights{};
  }

  fs::path folder_;
};

// However weights come to be codes, they are the same ones: quantised from bf16 weights, read from
// an FP8 checkpoint, quantised from a bf16 one, exported from codes and read again.
TEST_F(Fp8Checkpoint, CodesAreTheSameOnEveryWay) {
  const ModelConfig fp8 = tiny(), bf16 = tiny("vllm");
  const Weights made = synthetic_weights(fp8, 9, nullptr);
  const Weights plain = synthetic_weights(bf16, 9, nullptr);
  const std::string in_fp8 = exported(plain, bf16, "a", ExportDtype::kFp8);
  const std::string in_bf16 = exported(plain, bf16, "b", ExportDtype::kBf16);
  const Weights read = load(in_fp8, fp8);
  const Weights again = load(exported(read, fp8, "c", ExportDtype::kFp8), fp8);
  const Weights quantised = load(in_bf16, fp8);
  const Weights wide = load(exported(read, fp8, "d", ExportDtype::kBf16), bf16);
  const Weights old = load(in_fp8, bf16);  // without the switch: their values
  for (std::size_t i = 0; i < made.layers.size(); ++i) {
    SCOPED_TRACE(i);
    expect_same(made.layers[i], read.layers[i]);
    expect_same(made.layers[i], again.layers[i]);
    expect_same(made.layers[i], quantised.layers[i]);
    EXPECT_TRUE(same(wide.layers[i]["wq_kv_a"].bf16, old.layers[i]["wq_kv_a"].bf16));
    EXPECT_TRUE(same(decoded(read.layers[i]["wo_b"].fp8, nullptr), old.layers[i]["wo_b"].bf16));
  }
  EXPECT_EQ(read.bytes(), made.bytes());
}

// Scales that are no powers of two stay what they are.
TEST_F(Fp8Checkpoint, ScalesInF32AreTakenAsTheyAre) {
  const ModelConfig fp8 = tiny();
  Weights made = synthetic_weights(fp8, 9, nullptr);
  Fp8Matrix& wq_b = made.layers[2]["wq_b"].fp8;
  for (std::int64_t i = 0; i < wq_b.scales.size(); ++i) {
    wq_b.scales.data()[i] *= 1.0f + static_cast<float>(i) / 64;
  }
  const std::string folder = exported(made, fp8, "a", ExportDtype::kFp8);
  const Weights read = load(folder, fp8);
  expect_same(made.layers[2], read.layers[2]);
  auto checkpoint = Checkpoint::open(folder, fp8);
  ASSERT_TRUE(checkpoint);
  EXPECT_EQ((*checkpoint)->get("layers.2.attn.wq_b.scale")->entry->type, ElementType::kF32);
  EXPECT_EQ((*checkpoint)->get("layers.2.attn.wo_b.scale")->entry->type, ElementType::kF8E8m0);
}

}  // namespace fp8_projections_test
}  // namespace attnscope
