// First tokens in 16 bits beside rows of codes: which rows are read and written where, and what
// the planted bugs of it look like. Rows of codes of first tokens hold NaN, and their blocks are
// not there.
#include <algorithm>
#include <string>

#include "kernels/mutants/mutants.h"
#include "kernels/params/paged_params.h"
#include "tests/property/checks.h"

namespace attnscope::properties {

std::vector<PagedCase> wide_cases() {
  std::vector<PagedCase> cases;
  const auto add = [&](PagedCase c, std::int32_t wide, std::int32_t rows) {
    c.wide = wide;
    c.wide_rows = rows;
    c.gap = 32;
    cases.push_back(std::move(c));
  };
  for (const std::int32_t record :
       {AS_RECORD_FP8_TENSOR, AS_RECORD_FP8_HEAD, AS_RECORD_FP8_TOKEN_HEAD, AS_RECORD_E5M2_TENSOR,
        AS_RECORD_INT8_TOKEN_HEAD}) {
    const std::string name = as_row_format_of(record)->name;
    // Borders inside a tile and inside a page of codes; a request that ends before the border.
    add({name + "_decode", {300, 1, 65}, 2, 8, 2, 64, 64, 16, record}, 24, 8);
    add({name + "_prefill", {90, 33}, 40, 6, 3, 48, 96, 16, record | AS_RECORD_HND}, 40, 8);
    add({name + "_splits", {400}, 2, 4, 2, 128, 128, 8, record, 0, 1, 5.0, true, 3}, 130, 5);
    add({name + "_window", {150, 40}, 60, 4, 2, 64, 64, 16, record, 30}, 16, 8);
    add({name + "_many", {100, 40}, 1, 21, 1, 64, 64, 16, record}, 64, 16);
  }
  // A border at a tile's end, one token, rows of all requests; f16; slopes, sinks, cap.
  add({"at_a_tile", {300, 70}, 3, 4, 2, 64, 64, 16, AS_RECORD_FP8_TENSOR}, 64, 8);
  add({"one_token", {300, 1}, 300, 4, 2, 64, 64, 16, AS_RECORD_FP8_TOKEN_HEAD}, 1, 1);
  add({"all_tokens", {30, 64}, 64, 4, 2, 64, 64, 16, AS_RECORD_FP8_TENSOR}, 64, 8);
  add({"f16", {90, 17}, 5, 4, 2, 64, 64, 16, AS_RECORD_INT8_TOKEN_HEAD}, 32, 8);
  cases.back().record_wide = AS_RECORD_F16 | AS_RECORD_HND;
  add({"alibi", {90, 300}, 2, 8, 2, 128, 128, 16, AS_RECORD_FP8_HEAD}, 48, 8);
  cases.back().alibi = 0.7f;
  add({"masked", {90, 60}, 20, 4, 2, 64, 64, 16, AS_RECORD_FP8_TENSOR}, 24, 8);
  cases.back().causal = 0;
  cases.back().mask = "kv_idx <= q_idx && (head % 2 == 0 || kv_idx % 3 != 0)";
  cases.back().score = "score * 0.5 + 0.02 * (kv_idx - q_idx)";
  add({"merged", {90, 60}, 20, 4, 2, 64, 64, 16, AS_RECORD_FP8_TENSOR}, 24, 8);
  cases.back().form = AS_PAGED_MERGED;
  add({"cascade", {90, 120}, 2, 4, 2, 64, 64, 16, AS_RECORD_FP8_TOKEN_HEAD}, 32, 8);
  cases.back().form = AS_PAGED_CASCADE;
  cases.back().common = 64;
  // Over rows of 16 bits alone it is the same rule.
  add({"beside_bf16", {90, 60}, 2, 4, 2, 64, 64, 16, AS_RECORD_BF16}, 24, 8);
  return cases;
}

namespace {

class WideRows : public testing::TestWithParam<PagedCase> {};

TEST_P(WideRows, AreReadInThePlaceOfCodes) {
  const Report report = check_paged_attention(*cpu::lane(), GetParam());
  EXPECT_TRUE(report.ok()) << report;
}

INSTANTIATE_TEST_SUITE_P(Cases, WideRows, testing::ValuesIn(wide_cases()),
                         [](const auto& c) { return c.param.name; });

class WideWrites : public testing::TestWithParam<std::int32_t> {};

TEST_P(WideWrites, AreTheRowsBeforeQuantisation) {
  for (const std::int64_t wide : {1, 12, 40}) {
    RopeKvCase c{"wide_" + std::to_string(wide), {40, 3, 17}, 17, 4, 2};
    c.record = GetParam();
    c.wide = wide;
    const Report report = check_rope_kv_insert(*cpu::lane(), c);
    EXPECT_TRUE(report.ok()) << report;
  }
}

INSTANTIATE_TEST_SUITE_P(Records, WideWrites,
                         testing::Values(AS_RECORD_FP8_TENSOR, AS_RECORD_FP8_TOKEN_HEAD,
                                         AS_RECORD_INT8_TOKEN_HEAD));

Report read_first_rows(const Lane& lane) {
  PagedCase c{"wide_mutants", {129, 300, 90}, 2, 8, 2};
  c.record = AS_RECORD_FP8_HEAD;
  c.gap = 32;
  c.wide = 40;
  c.both = true;
  return check_paged_attention(lane, c);
}

Report write_first_rows(const Lane& lane) {
  RopeKvCase c{"wide_mutants", {40, 17}, 17, 4, 2};
  c.record = AS_RECORD_FP8_TENSOR;
  c.wide = 12;
  return check_rope_kv_insert(lane, c);
}

TEST(WideMutants, FailWhereTheirBugIs) {
  int seen = 0;
  for (const mutants::RareMutant& mutant : mutants::rare()) {
    const std::string name = mutant.lane.name;
    if (!name.starts_with("mutant:wide_")) continue;
    SCOPED_TRACE(name);
    ++seen;
    const bool writes = mutant.op == AS_OP_ROPE_KV_INSERT;
    const Report right = writes ? write_first_rows(*cpu::lane()) : read_first_rows(*cpu::lane());
    EXPECT_TRUE(right.ok()) << right;
    const Report wrong = writes ? write_first_rows(mutant.lane) : read_first_rows(mutant.lane);
    EXPECT_FALSE(wrong.ok());
    for (const std::string& tap : wrong.taps()) {
      const std::string output = tap.substr(0, tap.find(" against"));
      EXPECT_TRUE(writes ? output == "k_wide" || output == "v_wide"
                         : output == "o" || output == "lse")
          << tap;
    }
  }
  EXPECT_EQ(seen, 4);
}

}  // namespace
}  // namespace attnscope::properties
