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

std::map<std::string, CacheStudyFormat> formats_of(const char* name,
                                                   const CacheStudyOptions& options) {
  std::map<std::string, CacheStudyFormat> of;
  const auto scenario = load_scenario(name);
  EXPECT_TRUE(scenario) << name;
  const auto study = study_cache_formats(*scenario, options, nullptr);
  EXPECT_TRUE(study) << (study ? "" : study.error().message);
  if (study) {
    for (const CacheStudyFormat& f : study->formats) of[f.name] = f;
  }
  return of;
}

// Rows come out as they were, so that they say more in 16 bits alone.
TEST(CacheStudy, TokensMadeAnewAreRowsOf16Bits) {
  auto of = formats_of("tiny-llama", {{64, 300}, 8, 32, 32});
  ASSERT_EQ(of.size(), 15u);
  for (const char* name : {"fp8_tensor", "fp8_token_head", "int8_token_head"}) {
    SCOPED_TRACE(name);
    const CacheStudyFormat& again = of[std::string(name) + "+again32"];
    for (std::size_t i = 0; i < 2; ++i) {
      EXPECT_LT(again.points[i].error, of[name].points[i].error);
      EXPECT_GT(again.points[i].error, 0);
      // Four layers, keys and values of each token.
      EXPECT_EQ(again.points[i].made_anew, 4 * 32 * 2);
      EXPECT_LE(again.points[i].other_codes, 4 * 32 * 2 / 16);
    }
    // Those that are attended most give more than as many first ones.
    EXPECT_LT(again.points[1].error, of[std::string(name) + "+first32"].points[1].error);
  }
  // 4 layers, hidden 256: inputs of every token, where K and V of 16 bits are 256 bytes a layer.
  const CacheStudyFormat& f = of["fp8_tensor+again32"];
  EXPECT_EQ(f.input_bytes, 4 * 2 * 256);
  EXPECT_EQ(f.again_products, 4 * 2 * 32 * 256 * 64);
  EXPECT_DOUBLE_EQ(f.bytes(), 512 + 2048 + 32.0 * 1024 / 300);
  EXPECT_GT(f.bytes(), of["bf16"].bytes());
}

// Where nothing is known of attention first tokens are chosen: rows of the same numbers.
TEST(CacheStudy, FirstTokensMadeAnewAreFirstTokens) {
  auto of = formats_of("tiny-llama", {{24}, 16, 8, 8});
  ASSERT_EQ(of.size(), 15u);
  const CacheStudyPoint again = of["fp8_tensor+again8"].points[0];
  const CacheStudyPoint first = of["fp8_tensor+first8"].points[0];
  EXPECT_EQ(again.made_anew, 4 * 8 * 2);
  EXPECT_NEAR(again.error, first.error, first.error * 1e-2);
  EXPECT_LT(again.error, of["fp8_tensor"].points[0].error);
}

TEST(CacheStudy, TokensMadeAnewNeedLayersThatSeeAll) {
  EXPECT_EQ(formats_of("tiny-mistral", {{64}, 8, 0, 16}).size(), 9u);
  // Every second layer has a window.
  auto of = formats_of("tiny-gptoss", {{200}, 8, 0, 16});
  ASSERT_EQ(of.size(), 12u);
  EXPECT_LT(of["fp8_tensor+again16"].points[0].error, of["fp8_tensor"].points[0].error);
  const auto alibi = load_scenario("tiny-alibi");
  ASSERT_TRUE(alibi);
  const auto refused = study_cache_formats(*alibi, {{64}, 8, 0, 16}, nullptr);
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.error().message.find("ALiBi"), std::string::npos);
  EXPECT_TRUE(study_cache_formats(*alibi, {{64}, 8, 0, 0}, nullptr));
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

// Runs loops by itself; at one of them somebody stops the study.
struct StoppedAt {
  explicit StoppedAt(int loop) : stop_at(loop) {
    threads.pool = this;
    threads.num_threads = 2;
    threads.parallel_for = [](void* self, std::int64_t count, std::int64_t, as_parallel_body body,
                              void* ctx) {
      auto& own = *static_cast<StoppedAt*>(self);
      if (++own.loops == own.stop_at) own.progress.stopped = true;
      body(ctx, 0, count);
    };
  }
  int stop_at, loops = 0;
  StudyProgress progress;
  as_threads threads{};
};

// Whatever it is at: no op begins after the one that runs.
TEST(CacheStudy, EndsWithinTheStepThatRunsWhereItIsStopped) {
  const auto scenario = load_scenario("tiny-llama");
  ASSERT_TRUE(scenario);
  CacheStudyOptions options;
  options.lengths = {64};
  options.tokens = 8;
  options.again_tokens = 16;
  StoppedAt never(-1);
  ASSERT_TRUE(study_cache_formats(*scenario, options, &never.threads, &never.progress));
  ASSERT_GT(never.loops, 200);
  for (const int share : {0, 1, 2, 5, 9}) {
    StoppedAt some(1 + share * never.loops / 10);
    const auto stopped = study_cache_formats(*scenario, options, &some.threads, &some.progress);
    ASSERT_FALSE(stopped) << share;
    EXPECT_NE(stopped.error().text().find("it was stopped"), std::string::npos);
    EXPECT_LE(some.loops, some.stop_at + 3) << share << ": of one op, or of making weights";
  }
}

}  // namespace cache_study_test
}  // namespace attnscope
