// The study of cache formats: what is the same must be 0, and finer codes must err less.
#include "app/reports/cache_study.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "engine/family/models.h"

namespace attnscope {
namespace cache_study_test {

const CacheStudy& studied() {
  static const CacheStudy study = [] {
    const auto scenario = load_scenario("tiny-llama");
    EXPECT_TRUE(scenario);
    auto made = study_cache_formats(*scenario, {{64, 300}, 8}, nullptr);
    EXPECT_TRUE(made) << (made ? "" : made.error().message);
    return made ? std::move(*made) : CacheStudy();
  }();
  return study;
}

TEST(CacheStudy, FinerCodesErrLess) {
  std::map<std::string, std::vector<CacheStudyPoint>> of;
  for (const CacheStudyFormat& f : studied().formats) of[f.name] = f.points;
  ASSERT_EQ(of.size(), 12u);
  for (std::size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(of["bf16"][i].error, 0);
    EXPECT_EQ(of["bf16"][i].carried, 0);
    EXPECT_EQ(of["bf16"][i].changed, 0);
    EXPECT_LT(of["f16"][i].error, 1e-3);  // bf16 numbers that it holds exactly
    EXPECT_GT(of["int8_token_head"][i].error, 1e-4);
    EXPECT_LT(of["int8_token_head"][i].error, of["fp8_token_head"][i].error);
    EXPECT_LT(of["fp8_token_head"][i].error, of["e5m2_token_head"][i].error);
    EXPECT_LT(of["fp8_tensor"][i].error, of["e5m2_tensor"][i].error);
    EXPECT_LT(of["e5m2_tensor"][i].error, 0.5);
    // Half of 64 tokens, a tenth of 300.
    EXPECT_LT(of["fp8_tensor+first32"][i].error, of["fp8_tensor"][i].error);
    EXPECT_GT(of["fp8_tensor+first32"][i].error, 0);
  }
}

// 4 layers of 2 heads of 32: 512 bytes of codes a token, 1,024 of 16 bits.
TEST(CacheStudy, SaysWhatFirstTokensCostAtEachLength) {
  const CacheStudyFormat& f = *std::ranges::find(
      studied().formats, std::string("fp8_tensor+first32"), &CacheStudyFormat::name);
  EXPECT_EQ(f.bytes_per_token, 512);
  EXPECT_EQ(f.first_bytes, 1024);
  EXPECT_DOUBLE_EQ(f.bytes_at(16), 1536);
  EXPECT_DOUBLE_EQ(f.bytes_at(64), 1024);
  EXPECT_DOUBLE_EQ(f.bytes(), 512 + 32.0 * 1024 / 300);
  const auto scenario = load_scenario("tiny-llama");
  ASSERT_TRUE(scenario);
  const auto none = study_cache_formats(*scenario, {{24}, 4, 0}, nullptr);
  ASSERT_TRUE(none);
  EXPECT_EQ(none->formats.size(), 9u);
  EXPECT_FALSE(study_cache_formats(*scenario, {{24}, 4, -1}, nullptr));
  // Layers with windows forget first tokens.
  const auto windows = load_scenario("tiny-mistral");
  ASSERT_TRUE(windows);
  const auto forget = study_cache_formats(*windows, {{24}, 4}, nullptr);
  ASSERT_TRUE(forget);
  EXPECT_EQ(forget->formats.size(), 9u);
}

TEST(CacheStudy, IsATableAFileAndADrawing) {
  const std::string text = cache_study_text(studied()), csv = cache_study_csv(studied());
  const std::string svg = cache_study_svg(studied());
  EXPECT_EQ(std::ranges::count(csv, '\n'), 1 + 12 * 2);
  EXPECT_NE(csv.find("\nint8_token_head,640,300,"), std::string::npos) << csv;
  EXPECT_NE(text.find("int8_token_head              640   1.60"), std::string::npos) << text;
  for (const CacheStudyFormat& f : studied().formats) {
    EXPECT_NE(svg.find(">" + f.name + "</text>"), std::string::npos);
  }
  EXPECT_NE(svg.find("</svg>"), std::string::npos);
}

TEST(CacheStudy, RefusesWhatItCannotRun) {
  for (const char* name : {"tiny-llama4", "tiny-bert", "tiny-t5", "default"}) {
    const auto scenario = load_scenario(name);
    ASSERT_TRUE(scenario) << name;
    EXPECT_FALSE(study_cache_formats(*scenario, {{64}, 8}, nullptr)) << name;
  }
  const auto scenario = load_scenario("tiny-llama");
  EXPECT_FALSE(study_cache_formats(*scenario, {{64, 32}, 8}, nullptr));
  EXPECT_FALSE(study_cache_formats(*scenario, {{4}, 8}, nullptr));
  EXPECT_FALSE(study_cache_formats(*scenario, {{1 << 30}, 8}, nullptr));
}

}  // namespace cache_study_test
}  // namespace attnscope
