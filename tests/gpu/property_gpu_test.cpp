// The property checks of the CPU lane, with both ways to call the CUDA lane: ref.sim through the
// tolerance file, ref.exact through bounds, bytes of caches, guards.
#include <fmt/format.h>

#include <cstdlib>

#include "kernels/cuda/device.h"
#include "tests/gpu/support.h"

namespace attnscope::gpu_tests {
namespace {

using namespace properties;

constexpr Way kWays[] = {Way::kHost, Way::kDevice};

void expect_right(const Report& report) { EXPECT_TRUE(report.ok()) << report; }

template <class Case>
class Checks : public testing::TestWithParam<std::tuple<Way, Case>> {};

template <class Case>
std::string param_name(const testing::TestParamInfo<std::tuple<Way, Case>>& info) {
  return way_name(std::get<0>(info.param)) + "_" + std::get<1>(info.param).name;
}

class GpuAttentionProperty : public Checks<AttentionCase> {};
TEST_P(GpuAttentionProperty, MatchesBothReferences) {
  expect_right(check_attention(lane(std::get<0>(GetParam())), std::get<1>(GetParam())));
}
const AttentionCase kAttention[] = {
    {"no_tokens", {0, 0}, 1, 8, {64, 0}},
    {"one_token", {1}, 1, 1, {64, 0}, 0, {}, Lists::kPlain, 1.0f, 7},
    {"first_tokens", {1, 3, 0, 4}, 5, 8, {1, 0}, 5, {1, 7}},
    {"window_edges", {127, 128, 129}, 1, 64, {64, 1152}, 512, {64, 0}},
    {"window_edges_of_three", {127, 0, 128, 129, 255}, 2, 8, {3, 100}, 16, {2, 64}},
    {"verify_five", {256, 129, 4}, 5, 8, {53, 1}, 64, {61, 13}},
    {"long_selection", {2050, 2051}, 2, 8, {64, 0}, 512, {64, 576}},
    {"long_all_visible", {2051}, 1, 64, {61, 33}, 513, {53, 1}},
    {"heads_17", {300, 140}, 2, 17, {69, 0}, 65, {256, 0}},
    {"heads_32", {300}, 2, 32, {256, 0}, 64, {2, 0}},
    {"heads_100", {300}, 1, 100, {64, 0}, 40, {64, 0}},
    {"heads_128", {700}, 1, 128, {64, 0}, 170, {64, 0}},
    {"holes", {129, 255}, 2, 8, {2, 11}, 40, {3, 0}, Lists::kHoles},
    {"duplicates", {128, 3, 256}, 2, 8, {53, 0}, 64, {2, 5}, Lists::kDuplicates},
    {"some_empty", {127, 129, 1, 255}, 2, 8, {64, 64}, 7, {64, 64}, Lists::kSomeEmpty},
    {"all_scores_equal", {200}, 2, 8, {61, 0}, 50, {64, 0}, Lists::kPlain, 0.0f},
    {"scores_far_apart", {129, 130}, 1, 8, {64, 0}, 32, {64, 0}, Lists::kPlain, 30.0f, 1},
    {"scores_beyond_sinks", {255}, 1, 64, {3, 2}, 0, {}, Lists::kPlain, 200.0f},
    {"sink_minus_infinity", {128}, 1, 1, {64, 0}, 8, {64, 0}, Lists::kPlain, 1.0f, 1},
    {"sink_large", {128}, 1, 1, {1, 3}, 8, {1, 0}, Lists::kPlain, 1.0f, 2},
    {"sink_plus_infinity", {4}, 2, 1, {64, 0}, 8, {64, 0}, Lists::kPlain, 1.0f, 3},
    {"sink_huge", {3}, 1, 1, {2, 0}, 0, {}, Lists::kPlain, 1.0f, 5},
    {"gathered", {300, 129, 40}, 33, 64, {53, 1}, 24, {61, 13}, Lists::kPlain, 1.0f, 0, 0},
    {"gathered_beside_decodes",
     {70, 131, 9, 260},
     5,
     128,
     {64, 0},
     512,
     {64, 0},
     Lists::kPlain,
     1.0f,
     0,
     2},
    {"gathered_by_nobody", {70, 131}, 2, 8, {64, 0}, 8, {64, 0}, Lists::kPlain, 1.0f, 0, 2},
    {"gathered_windows", {300, 129}, 17, 17, {3, 2}, 0, {}, Lists::kPlain, 1.0f, 3, 0},
    {"gathered_holes", {129, 255, 30}, 9, 8, {2, 11}, 40, {3, 0}, Lists::kHoles, 1.0f, 0, 0},
    {"gathered_duplicates",
     {128, 3, 256},
     8,
     8,
     {53, 0},
     64,
     {2, 5},
     Lists::kDuplicates,
     1.0f,
     0,
     0},
    {"gathered_some_empty",
     {127, 129, 1, 255},
     6,
     8,
     {64, 64},
     7,
     {64, 64},
     Lists::kSomeEmpty,
     1.0f,
     0,
     1},
};
INSTANTIATE_TEST_SUITE_P(Shapes, GpuAttentionProperty,
                         testing::Combine(testing::ValuesIn(kWays), testing::ValuesIn(kAttention)),
                         param_name<AttentionCase>);

// By plans: splits of one tile, of several, and rows that none is cut of.
std::vector<AttentionCase> planned_attention() {
  std::vector<AttentionCase> cases;
  for (const AttentionCase& c : kAttention) {
    if (c.gathered >= 0) continue;  // a plan is of lists in the caches
    for (const std::int32_t rule : {AS_PLAN_OWN, AS_PLAN_FLASHMLA}) {
      for (const std::int32_t multiprocessors : {7, 132}) {
        AttentionCase planned = c;
        planned.name +=
            (rule == AS_PLAN_OWN ? "_own_" : "_flashmla_") + std::to_string(multiprocessors);
        planned.plan = rule;
        planned.multiprocessors = multiprocessors;
        cases.push_back(std::move(planned));
      }
    }
  }
  return cases;
}
INSTANTIATE_TEST_SUITE_P(Planned, GpuAttentionProperty,
                         testing::Combine(testing::ValuesIn(kWays),
                                          testing::ValuesIn(planned_attention())),
                         param_name<AttentionCase>);

class GpuPlanProperty : public Checks<PlanCase> {};
TEST_P(GpuPlanProperty, EqualsBothReferences) {
  expect_right(check_attention_plan(lane(std::get<0>(GetParam())), std::get<1>(GetParam())));
}
std::vector<PlanCase> plan_cases() {
  std::vector<PlanCase> cases;
  for (const std::int32_t rule : {AS_PLAN_OWN, AS_PLAN_FLASHMLA}) {
    for (const std::int64_t rows : {0, 1, 2, 31, 32, 33, 64, 300, 2000}) {
      for (const std::int32_t multiprocessors : {1, 8, 132, 148}) {
        PlanCase c{fmt::format("{}_{}_rows_{}", rule == AS_PLAN_OWN ? "own" : "flashmla", rows,
                               multiprocessors),
                   {}};
        for (std::int64_t t = 0; t < rows; ++t) {
          const auto at_row = static_cast<std::int32_t>(t);
          c.window.push_back(at_row % 11 == 7 ? 0 : 1 + at_row * 53 % 128);
          c.c4.push_back(at_row % 11 == 7 ? 0 : at_row * 97 % 700);
          c.c128.push_back(at_row % 5 == 1 ? 0 : at_row * 31 % (rows == 1 ? 9000 : 200));
        }
        if (rows == 31) c.c4.clear();
        c.rule = rule;
        c.multiprocessors = multiprocessors;
        c.heads = rows % 2 == 0 ? 64 : 128;
        cases.push_back(std::move(c));
      }
    }
  }
  return cases;
}
INSTANTIATE_TEST_SUITE_P(Shapes, GpuPlanProperty,
                         testing::Combine(testing::ValuesIn(kWays),
                                          testing::ValuesIn(plan_cases())),
                         param_name<PlanCase>);

class GpuInsertProperty : public Checks<InsertCase> {};
TEST_P(GpuInsertProperty, MatchesBothReferences) {
  expect_right(check_insert(lane(std::get<0>(GetParam())), std::get<1>(GetParam())));
}
std::vector<InsertCase> insert_cases() {
  std::vector<InsertCase> cases = {
      {"no_tokens", {0}, 1, 8},
      {"first_token", {1}, 1, 1, {64, 0}, 1.0f, false, 3},
      {"one_row_pages", {128, 129}, 2, 64, {1, 100}, 3.0f, false, 0},
      {"far_positions", {2050, 2051}, 5, 8, {61, 0}, 1.0f, true, 0},
      {"zeros", {129, 2}, 2, 8, {64, 0}, 0.0f},
      {"below_the_scale_floor", {129, 2}, 2, 8, {64, 64}, 1e-6f},
      {"huge", {130, 5}, 3, 1, {53, 0}, 1e15f},
  };
  const std::int64_t heads[] = {1, 8, 64, 128, 5, 16};
  int i = 0;
  for (std::int32_t rows : {2, 53, 61, 64, 69, 256}) {
    for (std::int64_t queries : {1, 2, 3}) {
      for (std::int64_t batch : {1, 4, 74}) {
        for (float scale : {1.0f, 30.0f, 0.003f}) {
          InsertCase c;
          c.name = "rows" + std::to_string(rows) + "_q" + std::to_string(queries) + "_b" +
                   std::to_string(batch) + "_" + std::to_string(i);
          for (std::int64_t b = 0; b < batch; ++b) c.lengths.push_back(1 + (b * 37 + i * 11) % 300);
          c.queries = queries;
          c.heads = batch > 4 ? heads[i % 2] : heads[i % 6];
          c.pages = {rows, i % 3 * 16};
          c.scale = scale;
          c.compressed_rope = i % 2 == 0;
          c.pad = i % 5;
          cases.push_back(std::move(c));
          ++i;
        }
      }
    }
  }
  return cases;
}
INSTANTIATE_TEST_SUITE_P(Shapes, GpuInsertProperty,
                         testing::Combine(testing::ValuesIn(kWays),
                                          testing::ValuesIn(insert_cases())),
                         param_name<InsertCase>);

bool exact_form() {
  const char* form = std::getenv("ATTNSCOPE_ATTENTION");
  return form != nullptr && std::string(form) == "exact";
}

// Whether AS_SCORES_E4M3 has kernels of its own here.
bool multiplies_codes() {
  const char* hopper = std::getenv("ATTNSCOPE_HOPPER");
  const auto& device = cuda::Device::get();
  return !exact_form() && (hopper == nullptr || std::string(hopper) != "0") && device &&
         (*device)->info().major == 9 && (*device)->info().minor == 0;
}

class GpuLogitsProperty : public Checks<LogitsCase> {};
TEST_P(GpuLogitsProperty, MatchesBothReferences) {
  LogitsCase c = std::get<1>(GetParam());
  c.as_fp32 = c.as_fp32 || !multiplies_codes();
  expect_right(check_logits(lane(std::get<0>(GetParam())), c));
}
std::vector<LogitsCase> logits_cases() {
  std::vector<LogitsCase> cases;
  const std::int64_t heads[] = {64, 1, 8, 32, 5, 17};
  int i = 0;
  for (std::int32_t record : {AS_RECORD_INDEX_FP8, AS_RECORD_INDEX_MXFP4}) {
    for (std::int32_t rows : {2, 53, 61, 64, 69, 256}) {
      for (std::int64_t queries : {1, 2, 3, 5}) {
        for (std::int64_t batch : {1, 4, 20}) {
          LogitsCase c;
          c.name = (record == AS_RECORD_INDEX_FP8 ? "fp8_rows" : "mxfp4_rows") +
                   std::to_string(rows) + "_q" + std::to_string(queries) + "_b" +
                   std::to_string(batch);
          c.record = record;
          for (std::int64_t b = 0; b < batch; ++b) {
            c.entries.push_back((b * 97 + i * 41) % (batch == 1 ? 1500 : 200));
          }
          c.queries = queries;
          c.heads = batch > 4 ? heads[1 + i % 2] : heads[i % 6];
          c.pages = {rows, i % 2 * 448};
          c.spare_columns = i % 4;
          cases.push_back(std::move(c));
          ++i;
        }
      }
    }
  }
  cases.push_back({"fp8_long", AS_RECORD_INDEX_FP8, {2050, 2051}, 1, 64, {64, 192}, 0});
  cases.push_back({"mxfp4_long", AS_RECORD_INDEX_MXFP4, {2051, 2050}, 1, 64, {64, 256}});
  cases.push_back({"fp8_no_keys", AS_RECORD_INDEX_FP8, {0, 0}, 2, 8});
  for (std::int32_t record : {AS_RECORD_INDEX_FP8, AS_RECORD_INDEX_MXFP4}) {
    for (std::int64_t count : {1, 8, 64}) {
      const char* name = record == AS_RECORD_INDEX_FP8 ? "fp8" : "mxfp4";
      cases.push_back({std::string(name) + "_bf16_scores_h" + std::to_string(count),
                       record,
                       {300, 0, 65},
                       3,
                       count,
                       {64, 192},
                       3,
                       AS_SCORES_BF16});
    }
  }
  // By whatever kernel takes such pages and heads.
  for (std::int64_t count : {64, 17, 32, 40, 8}) {
    for (std::int64_t queries : {1, 3}) {
      LogitsCase c;
      c.name = "fp8_e4m3_scores_h" + std::to_string(count) + "_q" + std::to_string(queries);
      c.heads = count;
      c.queries = queries;
      c.pages = {64, 192};
      c.scores = AS_SCORES_E4M3;
      c.as_fp32 = count < 17;
      for (std::int64_t b = 0; b < 24; ++b) c.entries.push_back(b % 5 == 4 ? b * 61 : b % 9);
      cases.push_back(std::move(c));
    }
  }
  cases.push_back(
      {"fp8_e4m3_long", AS_RECORD_INDEX_FP8, {9000, 70}, 1, 64, {64, 0}, 0, AS_SCORES_E4M3, false});
  cases.push_back(
      {"fp8_e4m3_pages_of_53", AS_RECORD_INDEX_FP8, {300}, 2, 64, {53, 0}, 0, AS_SCORES_E4M3});
  cases.push_back(
      {"mxfp4_e4m3", AS_RECORD_INDEX_MXFP4, {300, 65}, 2, 64, {64, 0}, 0, AS_SCORES_E4M3});
  return cases;
}
INSTANTIATE_TEST_SUITE_P(Shapes, GpuLogitsProperty,
                         testing::Combine(testing::ValuesIn(kWays),
                                          testing::ValuesIn(logits_cases())),
                         param_name<LogitsCase>);

class GpuTopkProperty : public Checks<TopkCase> {};
TEST_P(GpuTopkProperty, MatchesBothReferences) {
  expect_right(check_topk(lane(std::get<0>(GetParam())), std::get<1>(GetParam())));
}
TEST(GpuExchangeRowsProperty, MovesWhatTheReferenceMoves) {
  // All four caches are one: with its tensors on the host staging takes the blocks of each.
  for (int which = 0; which < 60; ++which) {
    expect_right(check_exchange_rows(lane(Way::kHost), which));
  }
}
class GpuSwapBlocksProperty : public testing::TestWithParam<Way> {};
TEST_P(GpuSwapBlocksProperty, MovesWhatTheReferenceMoves) {
  for (int which = 0; which < 160; ++which) {
    expect_right(check_swap_blocks(lane(GetParam()), which));
  }
}
INSTANTIATE_TEST_SUITE_P(Ways, GpuSwapBlocksProperty, testing::ValuesIn(kWays));
std::vector<TopkCase> topk_cases() {
  const char* names[] = {"normal", "few",   "equal",      "nan",
                         "allnan", "zeros", "infinities", "falling"};
  const Scores scores[] = {Scores::kNormal,     Scores::kFewValues, Scores::kAllEqual,
                           Scores::kNaN,        Scores::kAllNaN,    Scores::kZeros,
                           Scores::kInfinities, Scores::kFalling};
  std::vector<TopkCase> cases;
  for (int s = 0; s < 8; ++s) {
    for (std::int64_t k : {1, 53, 127, 512, 1024, 2048}) {
      TopkCase c{std::string(names[s]) + "_k" + std::to_string(k), scores[s], {}};
      c.k = k;
      for (std::int64_t len : {std::int64_t{0}, std::int64_t{1}, k - 1, k, k + 1, 2 * k, 3 * k + 7,
                               std::int64_t{5000}}) {
        c.lens.push_back(static_cast<std::int32_t>(len));
      }
      c.spare_columns = k % 4;
      cases.push_back(std::move(c));
    }
    TopkCase one{std::string(names[s]) + "_long", scores[s], {70001}, 512, 3};
    cases.push_back(std::move(one));
  }
  cases.push_back({"no_tokens", Scores::kNormal, {}, 8, 4});
  // Every way to cut a row: rows of one block that holds all of it, of 16, 8, 4 and 2 blocks, with
  // and without a list, more entries than a list can be cut to. Few rows are long.
  struct Cut {
    std::int64_t rows, columns, k;
  };
  const Cut cuts[] = {{1, 4096, 512},    {64, 4096, 1024},  {1, 16384, 512},    {64, 16384, 2048},
                      {1, 16385, 512},   {1, 65536, 2048},  {1, 262144, 512},   {2, 262141, 2048},
                      {8, 65536, 512},   {8, 65533, 1024},  {8, 262144, 512},   {8, 131073, 2048},
                      {20, 65536, 512},  {20, 65537, 2048}, {64, 65536, 512},   {64, 40001, 1024},
                      {40, 70000, 2048}, {140, 40000, 512}, {140, 40003, 2048}, {3, 70000, 2500}};
  const std::pair<const char*, Scores> kinds[] = {{"normal", Scores::kNormal},
                                                  {"few", Scores::kFewValues},
                                                  {"infinities", Scores::kInfinities},
                                                  {"narrow", Scores::kNarrow},
                                                  {"split", Scores::kSplit}};
  for (const auto& [name, score] : kinds) {
    for (const Cut& cut : cuts) {
      TopkCase c{fmt::format("{}_rows{}_columns{}_k{}", name, cut.rows, cut.columns, cut.k),
                 score,
                 {},
                 cut.k};
      for (std::int64_t row = 0; row < cut.rows; ++row) {
        const std::int64_t len =
            row < 2 || row + 1 == cut.rows ? cut.columns - row % 2 : (cut.k - 3) + row * 61 % 5000;
        c.lens.push_back(static_cast<std::int32_t>(std::min(len, cut.columns)));
      }
      cases.push_back(std::move(c));
    }
  }
  return cases;
}
INSTANTIATE_TEST_SUITE_P(Shapes, GpuTopkProperty,
                         testing::Combine(testing::ValuesIn(kWays),
                                          testing::ValuesIn(topk_cases())),
                         param_name<TopkCase>);

class GpuCompressProperty : public Checks<CompressCase> {};
TEST_P(GpuCompressProperty, MatchesBothReferences) {
  expect_right(check_compress(lane(std::get<0>(GetParam())), std::get<1>(GetParam())));
}
std::vector<CompressCase> compress_cases() {
  struct Kind {
    const char* name;
    std::int32_t ratio, record;
  };
  const Kind kinds[] = {{"c4", 4, AS_RECORD_LATENT},
                        {"c128", 128, AS_RECORD_LATENT},
                        {"index_fp8", 4, AS_RECORD_INDEX_FP8},
                        {"index_mxfp4", 4, AS_RECORD_INDEX_MXFP4}};
  std::vector<CompressCase> cases;
  int i = 0;
  for (const Kind& kind : kinds) {
    for (std::int32_t rows : {2, 53, 61, 64, 69, 256}) {
      for (std::int32_t state_rows : {1, 4, 7, 8}) {
        for (bool rounded : {false, true}) {
          CompressCase c;
          c.name = std::string(kind.name) + "_rows" + std::to_string(rows) + "_state" +
                   std::to_string(state_rows) + (rounded ? "_rounded" : "");
          c.ratio = kind.ratio;
          c.record = kind.record;
          c.lengths = kind.ratio == 4 ? std::vector<std::int64_t>{33 + i % 7, 4, 3, 64}
                                      : std::vector<std::int64_t>{257, 128, 130};
          c.split = kind.ratio == 4 ? 9 + i % 5 : 200 + i % 50;
          c.state_pages = {state_rows, i % 2 * 64};
          c.pages = {rows, i % 3 * 32};
          c.hadamard = kind.record != AS_RECORD_LATENT && i % 2 == 0;
          c.round_pooled = rounded;
          c.score_scale = i % 3 == 0 ? 5.0f : 1.0f;
          cases.push_back(std::move(c));
          ++i;
        }
      }
    }
  }
  return cases;
}
INSTANTIATE_TEST_SUITE_P(Shapes, GpuCompressProperty,
                         testing::Combine(testing::ValuesIn(kWays),
                                          testing::ValuesIn(compress_cases())),
                         param_name<CompressCase>);

class GpuWindowProperty : public Checks<WindowCase> {};
TEST_P(GpuWindowProperty, MatchesBothReferences) {
  expect_right(check_window(lane(std::get<0>(GetParam())), std::get<1>(GetParam())));
}
std::vector<WindowCase> window_cases() {
  std::vector<WindowCase> cases;
  int i = 0;
  for (std::int32_t block : {1, 2, 53, 61, 64, 69, 256}) {
    for (std::int64_t queries : {1, 2, 3}) {
      for (std::int64_t groups : {1, 2}) {
        WindowCase c{"block" + std::to_string(block) + "_q" + std::to_string(queries) + "_g" +
                         std::to_string(groups),
                     {}};
        c.lengths = {127, 128, 129, 3, 1, 0, 300 + i};
        c.queries = queries;
        c.block_size = block;
        c.groups = groups;
        cases.push_back(std::move(c));
        ++i;
      }
    }
  }
  return cases;
}
INSTANTIATE_TEST_SUITE_P(Shapes, GpuWindowProperty,
                         testing::Combine(testing::ValuesIn(kWays),
                                          testing::ValuesIn(window_cases())),
                         param_name<WindowCase>);

class GpuLocalProperty : public Checks<LocalCase> {};
TEST_P(GpuLocalProperty, MatchesBothReferences) {
  expect_right(check_local_batch(lane(std::get<0>(GetParam())), std::get<1>(GetParam())));
}
std::vector<LocalCase> local_cases() {
  std::vector<LocalCase> cases;
  for (std::int32_t block : {1, 16, 53}) {
    for (std::int32_t blocks : {1, 2, 7}) {
      for (std::int64_t queries : {1, 40, 400}) {
        LocalCase c{"block" + std::to_string(block) + "_x" + std::to_string(blocks) + "_q" +
                        std::to_string(queries),
                    {127, 128, 0, 3, 1, 300}};
        c.queries = queries;
        c.block_size = block;
        c.chunk = block * blocks;
        c.groups = blocks;
        cases.push_back(std::move(c));
      }
    }
  }
  return cases;
}
INSTANTIATE_TEST_SUITE_P(Shapes, GpuLocalProperty,
                         testing::Combine(testing::ValuesIn(kWays),
                                          testing::ValuesIn(local_cases())),
                         param_name<LocalCase>);

class GpuPagedProperty : public Checks<PagedCase> {};
TEST_P(GpuPagedProperty, MatchesBothReferences) {
  PagedCase c = std::get<1>(GetParam());
  // Tiles of tokens that follow each other, or of many heads.
  c.rounded_weights = !exact_form() && (c.queries > 1 || c.heads / c.kv_heads > 16);
  expect_right(check_paged_attention(lane(std::get<0>(GetParam())), c));
}
std::vector<PagedCase> paged_cases() {
  std::vector<PagedCase> cases = {
      {"no_tokens", {0, 0}, 1, 4, 2},
      {"not_causal", {70, 5}, 70, 4, 2, 64, 64, 16, AS_RECORD_BF16, 0, 0},
      {"window_below_a_block", {150, 40}, 5, 4, 2, 64, 64, 48, AS_RECORD_BF16, 7},
      {"splits_before_the_window", {400}, 2, 4, 2, 64, 64, 8, AS_RECORD_BF16, 70, 1, 0, true, 8},
      {"soft_cap", {130, 9}, 4, 4, 2, 64, 64, 16, AS_RECORD_BF16, 0, 1, 5.0, false, 0, 4.0f},
      {"many_heads", {100, 33}, 2, 71, 1, 64, 64, 16},
      {"odd_sizes", {77, 12}, 3, 6, 2, 40, 72, 5},
      {"values_narrower", {120}, 2, 4, 2, 192, 128, 64},
      {"largest_heads", {66}, 2, 2, 1, 512, 512, 16},
      {"long", {9000}, 1, 4, 1, 64, 64, 64},
      {"alibi_not_causal", {70, 5}, 70, 12, 4, 64, 64, 16, AS_RECORD_BF16, 0, 0},
      {"alibi_cap_sinks", {130, 9}, 4, 4, 2, 64, 64, 16, AS_RECORD_BF16, 0, 1, 5.0, true},
      {"alibi_window", {400}, 3, 8, 2, 64, 64, 8, AS_RECORD_BF16, 70, 1, 0, false, 8},
  };
  for (PagedCase& c : cases) c.alibi = c.name.starts_with("alibi") ? 0.7f : 0.0f;
  int i = 0;
  for (std::int64_t size : {32, 64, 80, 96, 128, 256}) {
    for (std::int32_t rows : {1, 8, 16, 48}) {
      for (std::int64_t queries : {1, 7}) {
        PagedCase c;
        c.name = "d" + std::to_string(size) + "_rows" + std::to_string(rows) + "_q" +
                 std::to_string(queries);
        c.lengths = {257, 1, 0, 100 + i};
        c.queries = queries;
        c.heads = i % 3 == 0 ? 4 : 8;
        c.kv_heads = i % 4 == 0 ? 4 : 2;
        c.size = c.size_v = size;
        c.rows = rows;
        c.record = (i % 2 == 0 ? AS_RECORD_BF16 : AS_RECORD_F16) | (i % 3 == 1 ? AS_RECORD_HND : 0);
        c.window = i % 5 == 2 ? 33 : 0;
        if (i % 5 == 3) c.chunk = 4 * rows;
        c.local = c.chunk > 0 && i % 2 == 0;
        c.sinks = i % 4 == 3;
        c.splits = i % 6;
        if (i % 7 == 4) c.alibi = 0.6f;
        cases.push_back(std::move(c));
        ++i;
      }
    }
  }
  return cases;
}
// Pages that begin at addresses of 16 bytes, so that tensor cores take them: tokens one by one, and
// tiles of those that follow each other.
std::vector<PagedCase> paged_step_cases() {
  std::vector<PagedCase> cases = {
      {"decode", {257, 1, 0, 100}, 1, 32, 8, 128, 128, 16},
      {"decode_of_one_head", {257, 33}, 1, 4, 4, 64, 64, 8},
      {"decode_splits", {3000, 40}, 1, 8, 2, 128, 128, 16, AS_RECORD_BF16, 0, 1, 0, true, 7},
      {"decode_window", {400, 33}, 1, 8, 2, 128, 128, 48, AS_RECORD_BF16, 70},
      {"decode_many_heads", {300, 41}, 1, 71, 1, 96, 96, 16},
      {"decode_largest", {300, 41}, 1, 12, 2, 256, 192, 16},
      {"decode_narrow_values", {300, 41}, 1, 12, 2, 192, 128, 16},
      {"two_drafts", {300, 41, 77}, 3, 8, 2, 128, 128, 16},
      {"tiles", {700, 130, 31}, 700, 8, 2, 128, 128, 16},
      {"tiles_of_one_head", {300, 130}, 300, 3, 3, 128, 128, 32},
      {"tiles_hnd", {300, 130}, 150, 8, 2, 128, 128, 64, AS_RECORD_BF16 | AS_RECORD_HND},
      {"tiles_of_large_pages", {300, 130}, 150, 8, 2, 128, 128, 128},
      {"tiles_of_small_pages", {300, 130}, 150, 8, 2, 80, 80, 8},
      {"tiles_of_odd_pages", {300, 130}, 150, 8, 2, 128, 128, 48},
      {"tiles_not_causal", {300, 130}, 300, 4, 2, 128, 128, 16, AS_RECORD_BF16, 0, 0},
      {"tiles_window", {700, 300}, 400, 8, 4, 128, 128, 16, AS_RECORD_BF16, 100, 1, 0, true},
      {"tiles_chunk", {700, 300}, 400, 8, 4, 128, 128, 16},
      {"tiles_splits", {700, 300}, 200, 8, 4, 128, 128, 16, AS_RECORD_BF16, 0, 1, 0, true, 3},
      {"tiles_soft_cap", {300, 90}, 200, 8, 4, 128, 128, 16, AS_RECORD_BF16, 0, 1, 5, false, 0, 4},
      {"tiles_narrow_values", {300, 90}, 200, 8, 4, 128, 64, 16},
      {"tiles_of_small_heads", {300, 90}, 200, 8, 4, 64, 64, 16},
      {"tiles_of_small_heads_window", {900, 90}, 500, 6, 6, 64, 64, 32, AS_RECORD_BF16, 150},
      {"tiles_of_large_heads", {300, 90}, 200, 8, 4, 256, 256, 16},
      {"tiles_of_large_heads_window", {900, 90}, 400, 4, 4, 256, 256, 64, AS_RECORD_BF16, 150},
      {"tiles_of_large_heads_splits",
       {700, 300},
       200,
       4,
       2,
       256,
       192,
       16,
       AS_RECORD_BF16,
       0,
       1,
       0,
       true,
       3},
      {"tiles_of_large_heads_hnd",
       {300, 90},
       200,
       3,
       1,
       192,
       192,
       128,
       AS_RECORD_BF16 | AS_RECORD_HND},
      {"tiles_of_long_pages", {600, 90}, 200, 8, 4, 128, 128, 256},
      {"tiles_many_heads", {300, 90}, 60, 71, 1, 128, 128, 16},
      {"tiles_of_heads_beyond", {140, 90}, 60, 150, 1, 128, 128, 16},
      {"alibi_tiles", {300, 90}, 200, 8, 4, 128, 128, 16},
      {"bad_value_tiles", {300, 90}, 200, 8, 4, 128, 128, 16},
      {"bad_value_small_heads", {300, 90}, 200, 8, 4, 64, 64, 16},
      {"bad_value_large_heads", {300, 90}, 200, 8, 4, 256, 256, 16},
      {"bad_value_decode", {300, 90}, 1, 8, 4, 128, 128, 16},
      {"long_tiles", {5000}, 300, 4, 1, 128, 128, 16},
  };
  for (PagedCase& c : cases) {
    c.gap = 32;
    if (c.name.starts_with("alibi")) c.alibi = 0.7f;
    if (c.name.starts_with("bad_value")) c.bad_value = 213;
    if (c.name == "tiles_chunk") c.chunk = 128;
  }
  return cases;
}
INSTANTIATE_TEST_SUITE_P(Steps, GpuPagedProperty,
                         testing::Combine(testing::ValuesIn(kWays),
                                          testing::ValuesIn(paged_step_cases())),
                         param_name<PagedCase>);
INSTANTIATE_TEST_SUITE_P(Shapes, GpuPagedProperty,
                         testing::Combine(testing::ValuesIn(kWays),
                                          testing::ValuesIn(paged_cases())),
                         param_name<PagedCase>);

INSTANTIATE_TEST_SUITE_P(Codes, GpuPagedProperty,
                         testing::Combine(testing::ValuesIn(kWays),
                                          testing::ValuesIn(coded_cases())),
                         param_name<PagedCase>);
INSTANTIATE_TEST_SUITE_P(CodedPrompts, GpuPagedProperty,
                         testing::Combine(testing::ValuesIn(kWays),
                                          testing::ValuesIn(coded_prompts())),
                         param_name<PagedCase>);

// Pages that begin at addresses of 16 bytes too, so that tensor cores take what has no bias.
std::vector<PagedCase> sided_step_cases() {
  std::vector<PagedCase> cases = sided_cases();
  for (PagedCase c : sided_cases()) {
    c.name += "_steps";
    c.gap = 32;
    cases.push_back(c);
    c.name += "_of_many";
    c.queries = 40;
    cases.push_back(c);
  }
  return cases;
}
INSTANTIATE_TEST_SUITE_P(Masked, GpuPagedProperty,
                         testing::Combine(testing::ValuesIn(kWays),
                                          testing::ValuesIn(masked_cases())),
                         param_name<PagedCase>);
INSTANTIATE_TEST_SUITE_P(Placed, GpuPagedProperty,
                         testing::Combine(testing::ValuesIn(kWays),
                                          testing::ValuesIn(placed_cases())),
                         param_name<PagedCase>);
INSTANTIATE_TEST_SUITE_P(FirstRows, GpuPagedProperty,
                         testing::Combine(testing::ValuesIn(kWays),
                                          testing::ValuesIn(wide_cases())),
                         param_name<PagedCase>);
INSTANTIATE_TEST_SUITE_P(Forms, GpuPagedProperty,
                         testing::Combine(testing::ValuesIn(kWays),
                                          testing::ValuesIn(formed_cases())),
                         param_name<PagedCase>);
INSTANTIATE_TEST_SUITE_P(Sided, GpuPagedProperty,
                         testing::Combine(testing::ValuesIn(kWays),
                                          testing::ValuesIn(sided_step_cases())),
                         param_name<PagedCase>);

TEST(GpuMaskPlaces, ALoopOverPairsAgrees) {
  for (int i = 0; i < 120; ++i) {
    const std::uint64_t seed = case_seed(fmt::format("gpu mask places {}", i));
    const Report report = check_mask_places(lane(kWays[i / 3 % 2]), i % 3, seed);
    ASSERT_TRUE(report.ok()) << i << report;
  }
}

class GpuVarlenProperty : public Checks<VarlenCase> {};
TEST_P(GpuVarlenProperty, MatchesBothReferences) {
  VarlenCase c = std::get<1>(GetParam());
  c.rounded_weights = !exact_form();
  expect_right(check_varlen(lane(std::get<0>(GetParam())), c));
}
// Sequences of several tiles of queries and of keys, and many that are less than one.
std::vector<VarlenCase> varlen_tile_cases() {
  std::vector<VarlenCase> cases = {
      {"tiles", {700, 1, 130}, {}, 0, 8, 2, 128, 128},
      {"tiles_behind", {150, 300}, {}, 140, 4, 4, 128, 128},
      {"tiles_causal", {700, 130}, {}, 0, 8, 2, 128, 128, 1},
      {"tiles_window", {700, 130}, {}, 0, 8, 2, 64, 64, 0, 90, 40},
      {"tiles_cross", {300, 5, 40}, {90, 700, 0}, 0, 4, 2, 80, 80},
      {"tiles_of_large_heads", {300, 130}, {}, 3, 4, 2, 256, 256, 1},
      {"tiles_narrow_values", {300, 130}, {}, 0, 4, 2, 192, 128},
      {"tiles_many_heads", {60, 9}, {}, 0, 150, 1, 64, 64},
      {"tiles_of_many", std::vector<std::int64_t>(150, 7), {}, 5, 4, 2, 72, 72},
      {"tiles_soft_cap", {300, 40}, {}, 0, 4, 2, 128, 128, 1, -1, -1, 4},
  };
  return cases;
}
INSTANTIATE_TEST_SUITE_P(Steps, GpuVarlenProperty,
                         testing::Combine(testing::ValuesIn(kWays),
                                          testing::ValuesIn(varlen_tile_cases())),
                         param_name<VarlenCase>);
INSTANTIATE_TEST_SUITE_P(Shapes, GpuVarlenProperty,
                         testing::Combine(testing::ValuesIn(kWays),
                                          testing::ValuesIn(varlen_cases())),
                         param_name<VarlenCase>);

class GpuMaskProperty : public Checks<MaskCase> {};
TEST_P(GpuMaskProperty, TilesChangeNoByteAndReferencesAgree) {
  expect_right(check_masked(lane(std::get<0>(GetParam())), std::get<1>(GetParam())));
}
INSTANTIATE_TEST_SUITE_P(Masks, GpuMaskProperty,
                         testing::Combine(testing::ValuesIn(kWays),
                                          testing::ValuesIn(mask_cases())),
                         param_name<MaskCase>);

class GpuRopeKvProperty : public Checks<RopeKvCase> {};
TEST_P(GpuRopeKvProperty, MatchesTheReference) {
  expect_right(check_rope_kv_insert(lane(std::get<0>(GetParam())), std::get<1>(GetParam())));
}
std::vector<RopeKvCase> rope_kv_cases() {
  std::vector<RopeKvCase> cases = {{"keys_alone", {33, 4}, 5, 0, 3, 64, 40, 64},
                                   {"not_rotated", {33}, 5, 4, 2, 64, 64, 0}};
  int i = 0;
  for (std::int64_t size : {32, 64, 96, 128, 256}) {
    for (std::int32_t rows : {1, 8, 16, 48}) {
      RopeKvCase c;
      c.name = "d" + std::to_string(size) + "_rows" + std::to_string(rows);
      c.lengths = {200, 1, 40 + i};
      c.queries = 1 + i % 7;
      c.heads = 8;
      c.kv_heads = i % 2 == 0 ? 2 : 8;
      c.size = c.size_v = size;
      c.rotated = i % 3 == 0 ? size / 2 : size;
      c.style = i % 2;
      c.norm = i % 4 < 2;
      c.plus_one = i % 8 < 2;
      c.rows = rows;
      c.record = (i % 3 == 0 ? AS_RECORD_F16 : AS_RECORD_BF16) | (i % 2 == 1 ? AS_RECORD_HND : 0);
      cases.push_back(std::move(c));
      ++i;
    }
  }
  return cases;
}
INSTANTIATE_TEST_SUITE_P(Shapes, GpuRopeKvProperty,
                         testing::Combine(testing::ValuesIn(kWays),
                                          testing::ValuesIn(rope_kv_cases())),
                         param_name<RopeKvCase>);
// Rows of first tokens in 16 bits beside those of codes.
std::vector<RopeKvCase> first_row_cases() {
  std::vector<RopeKvCase> cases;
  for (const std::int32_t record :
       {AS_RECORD_FP8_TENSOR, AS_RECORD_FP8_TOKEN_HEAD, AS_RECORD_INT8_TOKEN_HEAD}) {
    for (const std::int64_t wide : {1, 12, 40}) {
      RopeKvCase c{fmt::format("record{}_wide{}", record, wide), {40, 3, 17}, 17, 4, 2};
      c.record = record;
      c.wide = wide;
      cases.push_back(std::move(c));
    }
  }
  return cases;
}
INSTANTIATE_TEST_SUITE_P(FirstRows, GpuRopeKvProperty,
                         testing::Combine(testing::ValuesIn(kWays),
                                          testing::ValuesIn(first_row_cases())),
                         param_name<RopeKvCase>);
INSTANTIATE_TEST_SUITE_P(Codes, GpuRopeKvProperty,
                         testing::Combine(testing::ValuesIn(kWays),
                                          testing::ValuesIn(coded_rows())),
                         param_name<RopeKvCase>);

class GpuTurnedCodesProperty : public Checks<TurnedCodesCase> {};
TEST_P(GpuTurnedCodesProperty, MatchesBothReferences) {
  expect_right(check_turned_codes(lane(std::get<0>(GetParam())), std::get<1>(GetParam())));
}
INSTANTIATE_TEST_SUITE_P(Shapes, GpuTurnedCodesProperty,
                         testing::Combine(testing::ValuesIn(kWays),
                                          testing::ValuesIn(turned_codes_cases())),
                         param_name<TurnedCodesCase>);

class GpuGroupsInFp8Property : public Checks<GroupsCase> {};
TEST_P(GpuGroupsInFp8Property, MatchesRefSim) {
  expect_right(check_groups_in_fp8(lane(std::get<0>(GetParam())), std::get<1>(GetParam())));
}
INSTANTIATE_TEST_SUITE_P(Shapes, GpuGroupsInFp8Property,
                         testing::Combine(testing::ValuesIn(kWays),
                                          testing::ValuesIn(groups_cases())),
                         param_name<GroupsCase>);

}  // namespace
}  // namespace attnscope::gpu_tests
