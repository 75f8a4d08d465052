// AS_OP_INDEXER_LOGITS of so many pages that a block has hundreds of them.
//
// References would take minutes. So pages of a small pool come again and again, in any order: a
// page's scores are to be those, bit by bit, that a call gives in which each page comes once. That
// such calls are right, GpuLogitsProperty tells.
#include <algorithm>
#include <cstring>

#include "kernels/cpu/codec.h"
#include "tests/gpu/support.h"

namespace attnscope::gpu_tests {
namespace {

using properties::below;
using properties::TwinCache;

struct LongCase {
  const char* name;
  Way way;
  std::int32_t record, scores;
};
void PrintTo(const LongCase& c, std::ostream* out) { *out << c.name; }

constexpr std::int64_t kPageKeys = 64, kPool = 96;
constexpr std::int64_t kTokens = 3;

class GpuLogitsLong : public testing::TestWithParam<LongCase> {};

TEST_P(GpuLogitsLong, ScoresEveryPageAsItDoesAlone) {
  const LongCase& c = GetParam();
  Report report(properties::case_seed(std::string("gpu long logits ") + c.name));
  Random random(report.seed());
  Memory memory;
  TwinCache keys(c.record, AS_INDEX_DIM, {kPool * kPageKeys}, {kPageKeys, 192}, random);
  keys.put_all(random);
  const as_tensor pool = keys.table();

  OpParams once;
  auto& p = once.init<as_indexer_logits_params>(AS_OP_INDEXER_LOGITS);
  const bool fp4 = c.record == AS_RECORD_INDEX_MXFP4;
  constexpr std::int64_t kHeads = 64;
  p.q = memory.make(AS_U8, {kTokens, kHeads, fp4 ? 64 : 128});
  if (fp4) p.q_scale = memory.make(AS_U8, {kTokens, kHeads, 4});
  p.weights = memory.make(AS_F32, {kTokens, kHeads});
  std::normal_distribution<float> normal;
  for (std::int64_t i = 0; i < kTokens * kHeads; ++i) {
    float query[AS_INDEX_DIM];
    for (float& v : query) v = normal(random);
    unsigned char scales[4];
    const std::int64_t t = i / kHeads, head = i % kHeads;
    cpu::quantise_row(c.record, AS_INDEX_DIM, query, at<unsigned char>(p.q, t, head), scales);
    if (fp4) std::memcpy(at<unsigned char>(p.q_scale, t, head), scales, sizeof(scales));
    *at<float>(p.weights, t, head) = normal(random);
  }
  p.weights.reserved = c.scores;
  p.cache = keys.paged();
  OpParams again = once;

  std::vector<std::int32_t> ids;
  for (std::int64_t k = 0; k < kTokens * kPool; ++k) {
    ids.push_back(*at<std::int32_t>(pool, 0, k % kPool));
  }
  p.table = memory.ints(ids, {kTokens, kPool});
  p.token_to_req = memory.ints({0, 1, 2}, {kTokens});
  p.lens = memory.ints(std::vector<std::int32_t>(kTokens, kPool * kPageKeys), {kTokens});
  p.logits = memory.make(AS_F32, {kTokens, kPool * kPageKeys});
  ASSERT_TRUE(properties::run(lane(c.way), once, &report)) << report;

  // At least 200 pages for each of 132 multiprocessors, and blocks that go on to the next token.
  const std::int64_t pages[kTokens] = {19'500, 700, 9'300};
  constexpr std::int64_t kColumns = 19'500;
  constexpr std::int32_t kUnused = 17;  // keys that the last page lacks
  auto& l = again.get<as_indexer_logits_params>();
  std::vector<std::int64_t> from(kTokens * kColumns, -1);  // -1: absent
  std::vector<std::int32_t> table(from.size(), -1), lens;  // -1 lies beyond lengths or is absent
  for (std::int64_t t = 0; t < kTokens; ++t) {
    for (std::int64_t k = 0; k < pages[t]; ++k) {
      // Of tensors of the host an absent page would be refused.
      if (c.way == Way::kDevice && below(random, 50) == 0) continue;
      const auto place = static_cast<std::size_t>(t * kColumns + k);
      from[place] = below(random, kPool);
      table[place] = ids[static_cast<std::size_t>(from[place])];
    }
    lens.push_back(static_cast<std::int32_t>(pages[t] * kPageKeys) - kUnused);
  }
  l.table = memory.ints(table, {kTokens, kColumns});
  l.token_to_req = memory.ints({0, 1, 2}, {kTokens});
  l.lens = memory.ints(lens, {kTokens});
  l.logits = memory.make(AS_F32, {kTokens, kColumns * kPageKeys});
  ASSERT_TRUE(properties::run(lane(c.way), again, &report)) << report;
  memory.check_guards(&report);

  std::int64_t wrong = 0;
  for (std::int64_t t = 0; t < kTokens; ++t) {
    for (std::int64_t k = 0; k < pages[t]; ++k) {
      const std::int64_t page = from[static_cast<std::size_t>(t * kColumns + k)];
      const std::int64_t count =
          std::min(kPageKeys, lens[static_cast<std::size_t>(t)] - kPageKeys * k);
      const float zeros[kPageKeys] = {};
      const float* expected = page < 0 ? zeros : at<float>(p.logits, t, kPageKeys * page);
      if (std::memcmp(at<float>(l.logits, t, kPageKeys * k), expected,
                      static_cast<std::size_t>(count) * sizeof(float)) == 0) {
        continue;
      }
      if (++wrong > 5) continue;
      report.fail("logits", "token " + std::to_string(t) + ", page " + std::to_string(k) +
                                " scores otherwise than alone");
    }
  }
  EXPECT_TRUE(report.ok()) << report << wrong << " pages are wrong";
}

constexpr LongCase kLongCases[] = {
    {"host_fp8", Way::kHost, AS_RECORD_INDEX_FP8, AS_SCORES_FP32},
    {"host_e4m3", Way::kHost, AS_RECORD_INDEX_FP8, AS_SCORES_E4M3},
    {"host_mxfp4", Way::kHost, AS_RECORD_INDEX_MXFP4, AS_SCORES_FP32},
    {"gpu_fp8", Way::kDevice, AS_RECORD_INDEX_FP8, AS_SCORES_FP32},
    {"gpu_e4m3", Way::kDevice, AS_RECORD_INDEX_FP8, AS_SCORES_E4M3},
    {"gpu_mxfp4", Way::kDevice, AS_RECORD_INDEX_MXFP4, AS_SCORES_FP32},
};
INSTANTIATE_TEST_SUITE_P(Forms, GpuLogitsLong, testing::ValuesIn(kLongCases),
                         properties::name_of<LongCase>);

}  // namespace
}  // namespace attnscope::gpu_tests
