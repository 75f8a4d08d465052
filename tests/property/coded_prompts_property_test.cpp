// Prompts over rows of codes: tiles of tokens that follow each other, over several tiles of rows;
// scales that rise along a request, rows that hold no numbers and that not all tokens see.
#include "kernels/params/row_format.h"
#include "tests/property/checks.h"

namespace attnscope::properties {

std::vector<PagedCase> coded_prompts() {
  std::vector<PagedCase> cases;
  for (const std::int32_t record :
       {AS_RECORD_FP8_TENSOR, AS_RECORD_FP8_HEAD, AS_RECORD_FP8_TOKEN_HEAD,
        AS_RECORD_E5M2_TOKEN_HEAD, AS_RECORD_INT8_TOKEN_HEAD}) {
    const std::string name = as_row_format_of(record)->name;
    cases.push_back({name + "_prompts", {300, 130, 31}, 300, 8, 2, 128, 128, 16, record});
    cases.push_back({name + "_small_heads", {400, 90}, 200, 6, 6, 64, 64, 32, record, 150});
    cases.push_back({name + "_large_heads", {300, 90}, 100, 4, 2, 256, 192, 16, record});
    cases.push_back({name + "_many_heads", {150, 40}, 30, 21, 1, 80, 96, 24, record});
    cases.push_back({name + "_splits", {400, 200}, 70, 8, 4, 128, 128, 16, record | AS_RECORD_HND});
    cases.back().splits = 3;
    cases.back().sinks = true;
    cases.push_back({name + "_both_ways", {200, 130}, 150, 4, 2, 128, 96, 48, record, 0, 0});
    cases.push_back({name + "_capped", {300, 90}, 100, 8, 4, 128, 128, 16, record});
    cases.back().soft_cap = 4;
    cases.back().alibi = 0.3f;
    cases.push_back({name + "_rising", {500, 90}, 120, 8, 4, 128, 128, 16, record});
    cases.back().rising = 24;
    cases.push_back({name + "_rising_splits", {500, 90}, 90, 8, 4, 64, 64, 16, record});
    cases.back().rising = 40;
    cases.back().splits = 4;
    cases.push_back({name + "_bad_value", {300, 90}, 150, 8, 4, 128, 128, 16, record});
    cases.back().bad_value = 213;
    cases.push_back({name + "_bad_value_large", {300, 90}, 150, 4, 2, 256, 256, 16, record});
    cases.back().bad_value = 213;
    for (const std::int32_t record_v : {AS_RECORD_FP8_TENSOR, AS_RECORD_INT8_TOKEN_HEAD}) {
      if (record_v == record) continue;
      cases.push_back({name + "_before_" + as_row_format_of(record_v)->name,
                       {260, 40},
                       60,
                       8,
                       2,
                       128,
                       128,
                       16,
                       record});
      cases.back().record_v = record_v;
    }
  }
  for (PagedCase& c : cases) c.gap = 32;
  return cases;
}

namespace {

class CodedPrompts : public testing::TestWithParam<PagedCase> {};

TEST_P(CodedPrompts, MatchBothReferences) {
  const Report report = check_paged_attention(*cpu::lane(), GetParam());
  EXPECT_TRUE(report.ok()) << report;
}

INSTANTIATE_TEST_SUITE_P(Cases, CodedPrompts, testing::ValuesIn(coded_prompts()),
                         name_of<PagedCase>);

}  // namespace
}  // namespace attnscope::properties
