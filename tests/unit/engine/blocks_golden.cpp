// Workloads against digests and counters recorded from the serving engine's own scheduler and
// managers: equal digests mean equal block ids in every table in every step.
#include <gtest/gtest.h>

#include <array>
#include <map>
#include <ostream>
#include <string>
#include <vector>

#include "engine/sched/workload_file.h"

namespace attnscope {
namespace blocks_golden_test {

constexpr std::array<std::int64_t, 7> kSteps = {1, 10, 50, 100, 200, 400, 800};

struct Golden {
  const char* name;
  CacheProfile profile;
  std::int64_t steps;
  std::uint64_t final_digest, queue_digest;
  // hit tokens, lookups, failed allocations, preemptions, evictions, aborted, scheduled tokens,
  // fewest free, most keys
  std::array<std::int64_t, 9> counters;
  std::vector<std::uint64_t> checkpoints;  // after kSteps, as many as there are
};

std::ostream& operator<<(std::ostream& out, const Golden& g) {
  return out << g.name << cache_profile_name(g.profile);
}

const std::vector<Golden> kGoldens = {
    {"g1",
     CacheProfile::kM,
     405,
     0xa4e566d8548fd1d8,
     0x050c388f9231648d,
     {16944, 181, 0, 0, 864, 19, 18130, 35, 185},
     {0x8cbd6699851b3de2, 0x9a4db70327ac2f5a, 0xbe9dbd9ffead3f56, 0x9ef4569a97f3dc59,
      0xf80eb99371222459, 0x9cc38bc87414b588}},
    {"g1",
     CacheProfile::kA,
     405,
     0x94e58c51a1cfdc03,
     0xedcf7a422575ae2d,
     {16944, 181, 0, 0, 850, 19, 18130, 35, 198},
     {0x8cbd6699851b3de2, 0xfa775e992313910e, 0x0588d0d524e5c72e, 0xf85bfc0f616e9d01,
      0x34fbe51969fcf35d, 0x9f8bfe0729b3e5d0}},
    {"g2",
     CacheProfile::kM,
     359,
     0x22f5e1a39adefe7e,
     0xb51820837cf86a0e,
     {7216, 170, 0, 0, 2680, 33, 24923, 19, 262},
     {0xddec2ff1a95f295e, 0xf0ce4b41fd425c48, 0xca67dba38f4e46a5, 0xa00099d6d88a2e78,
      0x800848f0917e8a0c}},
    {"g2",
     CacheProfile::kA,
     358,
     0x84481523bd25faff,
     0x60763245bfc5e316,
     {7776, 170, 0, 0, 2588, 33, 24363, 23, 274},
     {0xddec2ff1a95f295e, 0xf0ce4b41fd425c48, 0x2dcce0383e42fdf9, 0xc9c73bca3ef877ed,
      0x33a64481b8f514fc}},
    {"g3",
     CacheProfile::kM,
     371,
     0xe1b3d2525fc27aa0,
     0xa78f4a2bc00f745a,
     {11008, 174, 0, 0, 2745, 30, 22398, 174, 316},
     {0xb4b7fd76454ce530, 0x2f09ae71e4de740b, 0x7453d53832ac1503, 0xe29323406b3f6432,
      0x3597c4704ba2eca9}},
    {"g3",
     CacheProfile::kA,
     371,
     0x393463c575996529,
     0x7d63567dc8b484d2,
     {11744, 174, 0, 0, 2570, 30, 21662, 174, 374},
     {0xb4b7fd76454ce530, 0x6cb2d0418a7aa919, 0x6bc576b477c84348, 0x04a94c03dfbf7ba2,
      0x3e154164e0904a9d}},
    {"g4",
     CacheProfile::kM,
     715,
     0x9e1480a9bcc7a55f,
     0x4083268feb43b215,
     {18944, 131, 0, 0, 8692, 20, 116472, 742, 319},
     {0xf37a6a1c2d676881, 0xf0d50458e24c2411, 0xa1dd5cdbc15d7037, 0xf006e25db98770fe,
      0x2ff60571c1e60701, 0xb3d07a4573891607}},
    {"g4",
     CacheProfile::kA,
     698,
     0xa7b8280e0b91671f,
     0xfda78c3ae1977601,
     {58624, 131, 0, 0, 4508, 20, 76792, 749, 947},
     {0xf37a6a1c2d676881, 0x403ad32aed3289c4, 0xeeaf05f317d23e05, 0xe105c95566afc3bf,
      0x0b8e518cedda1120, 0xdcea21377b7ebfc5}},
    {"g5",
     CacheProfile::kM,
     377,
     0x98257d50d8601cae,
     0xa2a81c9adc4a19f2,
     {15008, 186, 0, 0, 2230, 16, 21202, 90, 260},
     {0x3185bcdba109ab60, 0x4aacd83864c6bf79, 0x73359a1643ff039a, 0x19549acd78bb14ae,
      0x48d03af0ce59bcf2}},
    {"g5",
     CacheProfile::kA,
     377,
     0xf35b6b721b4c1617,
     0x1accf90889251072,
     {15232, 186, 0, 0, 2172, 16, 20978, 90, 275},
     {0x3185bcdba109ab60, 0xfa5009ecd94bef93, 0x2aff535a93e93e04, 0x93595d8677dc2dfd,
      0xc4e2c2a6cbea5340}},
    {"g6",
     CacheProfile::kM,
     735,
     0xc868363740fd730e,
     0xc29c7bddec3ade05,
     {72960, 864, 681, 42, 1276, 18, 23253, 0, 77},
     {0x65106f2e2be71a88, 0x7afa942da14ca1f8, 0xf0ae2b401fb94f01, 0x3df3b687830b0525,
      0x9036f947819599a1, 0xc972d5a009f944e3}},
    {"g6",
     CacheProfile::kA,
     735,
     0x40a808b79c4aa84a,
     0x6545447b8cef9645,
     {73424, 864, 681, 42, 1254, 18, 22965, 0, 78},
     {0x65106f2e2be71a88, 0x38595dcf0aa5652f, 0x8c1cf211922c72c2, 0xbc11fc67eb3de663,
      0xc3abb6e2148900b6, 0xd9368679a026b8b7}},
    {"g7",
     CacheProfile::kM,
     752,
     0x3b0eb421a68323ce,
     0x99da30ea410a1de5,
     {72112, 854, 671, 33, 1259, 18, 22884, 0, 76},
     {0x65106f2e2be71a88, 0x91cf8143f0a2db14, 0x16e1553ec3a27a81, 0xbd3e94cfbc528d35,
      0x625c48782532c800, 0xcff5e2079554e493}},
    {"g7",
     CacheProfile::kA,
     752,
     0xfbea498e505095c7,
     0xf56cec978ce6ccc5,
     {72288, 854, 671, 33, 1246, 18, 22756, 0, 79},
     {0x65106f2e2be71a88, 0xdc1cb6dc8d3ff923, 0x5a312bae1ce411af, 0xf246a0611e852bb9,
      0x1e846ac8e77af68f, 0xeec1d0bd6bb96e13}},
    {"g8",
     CacheProfile::kM,
     1095,
     0x83e4858821ba1b7f,
     0xef4c4c699a85f4e9,
     {10240, 1000, 873, 2, 8619, 24, 113826, 2, 130},
     {0x17c913c7bbe5d2f2, 0x01bd26bedf630c88, 0x524ab120484d81a3, 0x7e339496bc3adb3f,
      0xb35e9dd4871864bc, 0x3a1458dc7fe050bd, 0xd2270728faecb251}},
    {"g8",
     CacheProfile::kA,
     1091,
     0x29000ebc9b7b8e79,
     0xed0159ec17151ca1,
     {50688, 1005, 878, 5, 8100, 24, 109315, 0, 186},
     {0x17c913c7bbe5d2f2, 0xe59efe9904699860, 0x744d34c53a011a98, 0xa5deaea9cea0b2f5,
      0xd6ebe627e451614a, 0x1e6a8852eee2ec22, 0xaa74a2174877613e}},
    {"g13",
     CacheProfile::kM,
     408,
     0x905a01be9f42fa6e,
     0x7dfbf783f8058842,
     {26608, 183, 0, 0, 408, 18, 9904, 38, 109},
     {0x5c843b6a97283408, 0xc51a5a35e543df8d, 0x19fc59afb58eb7e0, 0xd66ff3bc7f4dd52e,
      0x875c9efb37c2a7d7, 0xc427a97b88b5555d}},
    {"g13",
     CacheProfile::kA,
     408,
     0x8c518e8283c78220,
     0x70192f5f107daf72,
     {26656, 183, 0, 0, 384, 18, 9856, 38, 123},
     {0x5c843b6a97283408, 0xc51a5a35e543df8d, 0x7af064b391a31ac6, 0x38e92e1bdffce88e,
      0x62f0474eb9d620a9, 0xec70b42521d64380}},
    {"g15",
     CacheProfile::kM,
     372,
     0x8b8760117fc202c9,
     0x8b4f5d61f0ca192a,
     {18800, 179, 0, 0, 1666, 26, 16576, 61, 183},
     {0x54b33272613cb400, 0xe20639acebfc7349, 0x5b6bb61f07dfc6b0, 0xf3c619af2a583210,
      0xa305b1a5fa80fc9a}},
    {"g15",
     CacheProfile::kA,
     372,
     0x77755e868a7ac17c,
     0x2c88f61562e22f8e,
     {19728, 179, 0, 0, 1516, 26, 15648, 64, 191},
     {0x54b33272613cb400, 0x155855060473eec5, 0xaf5bb6c0805083c8, 0xf940a1b262a79b14,
      0x0cc57444fb82a02d}},
    {"g18",
     CacheProfile::kM,
     712,
     0x47cc848bb7c78f3b,
     0xdb0d8df988e9ff71,
     {0, 759, 584, 29, 0, 25, 36896, 0, 0},
     {0x40be2d9d0b08764e, 0x368bed1e83a0d67d, 0x224d0cf74d19308c, 0xa43b9f088a57dade,
      0xabdfa326ba84de63, 0xbbfb2c8025c710c8}},
    {"g18",
     CacheProfile::kA,
     712,
     0x47cc848bb7c78f3b,
     0xdb0d8df988e9ff71,
     {0, 759, 584, 29, 0, 25, 36896, 0, 0},
     {0x40be2d9d0b08764e, 0x368bed1e83a0d67d, 0x224d0cf74d19308c, 0xa43b9f088a57dade,
      0xabdfa326ba84de63, 0xbbfb2c8025c710c8}},
    {"g20",
     CacheProfile::kA,
     700,
     0x1b2ec4e236ef0111,
     0x4e10f5a12348d6fd,
     {58624, 131, 0, 0, 2187, 20, 76792, 747, 929},
     {0xf37a6a1c2d676881, 0x16579b717ee90a8b, 0xeaf66bf0ad1e291b, 0xd3469c54614b8b77,
      0x91980f9d6a4382cf, 0x73000e88035cd6f9}},
    {"g22",
     CacheProfile::kA,
     718,
     0x8a1d6b94ebc9d08b,
     0x009b85ab14ff34b9,
     {41216, 135, 0, 0, 3702, 15, 96393, 748, 862},
     {0x13ad0dcfce0c64b4, 0xfa110676500ecb78, 0x05d658a2fe9b3a6b, 0x59ac43c5d3678f0b,
      0xbad81b17498dca9f, 0xc83f28f3c450d735}},
    {"g23",
     CacheProfile::kA,
     828,
     0x7298a6bfa1d9f802,
     0x3cd8a0cf6a700ff5,
     {70064, 927, 744, 0, 1192, 18, 21691, 0, 79},
     {0x65106f2e2be71a88, 0x95e0a1435dd65874, 0x28296e89a6499f09, 0xbde29db45f312283,
      0xc49224cb68d2cae5, 0x2ed09d09b39df7b4, 0x45feae5de734c7da}},
};

class BlocksGolden : public testing::TestWithParam<Golden> {};

TEST_P(BlocksGolden, DigestsAndCounters) {
  const Golden& g = GetParam();
  Result<Workload> w = load_workload(g.name, g.profile);
  ASSERT_TRUE(w) << w.error().text();
  Result<WorkloadResult> r = run_workload(*w);
  ASSERT_TRUE(r) << r.error().text();
  std::map<std::int64_t, std::uint64_t> checkpoints;
  for (std::size_t i = 0; i < g.checkpoints.size(); ++i) checkpoints[kSteps[i]] = g.checkpoints[i];
  EXPECT_EQ(r->checkpoints, checkpoints);
  EXPECT_EQ(r->steps, g.steps);
  EXPECT_EQ(r->final_digest, g.final_digest);
  EXPECT_EQ(r->queue_digest, g.queue_digest);
  const std::array<std::int64_t, 9> counters = {
      r->hit_tokens, r->lookups,          r->failed_allocations, r->preemptions, r->evictions,
      r->aborted,    r->scheduled_tokens, r->min_free,           r->max_keys};
  EXPECT_EQ(counters, g.counters);
}

std::string golden_name(const testing::TestParamInfo<Golden>& golden) {
  return std::string(golden.param.name) + cache_profile_name(golden.param.profile);
}

INSTANTIATE_TEST_SUITE_P(Peer, BlocksGolden, testing::ValuesIn(kGoldens), golden_name);

// Every shipped workload runs in both profiles, ends with all blocks free, and twice the same.
TEST(BlocksWorkloads, AllRunFromTheirParameters) {
  for (int i = 1; i <= 23; ++i) {
    for (const CacheProfile profile : {CacheProfile::kM, CacheProfile::kA}) {
      SCOPED_TRACE(testing::Message() << "g" << i << cache_profile_name(profile));
      Result<Workload> w = load_workload("g" + std::to_string(i), profile);
      ASSERT_TRUE(w) << w.error().text();
      Result<WorkloadResult> first = run_workload(*w);
      Result<WorkloadResult> second = run_workload(*w);
      ASSERT_TRUE(first && second);
      EXPECT_EQ(first->final_free, w->options.kv.num_blocks - 1);
      EXPECT_EQ(first->final_digest, second->final_digest);
      EXPECT_EQ(first->queue_digest, second->queue_digest);
      EXPECT_EQ(first->checkpoints, second->checkpoints);
    }
  }
}

// The order of freed blocks alone explains what profile A does otherwise in these.
TEST(BlocksWorkloads, FreeOrderAloneTurnsOneProfileIntoTheOther) {
  for (const char* name : {"g1", "g2", "g3", "g4", "g5", "g6", "g7", "g8", "g9", "g10", "g12"}) {
    SCOPED_TRACE(name);
    Result<Workload> m = load_workload(name, CacheProfile::kM);
    Result<Workload> a = load_workload(name, CacheProfile::kA);
    ASSERT_TRUE(m && a);
    m->options.kv.switches.free_order = FreeOrder::kSplitFront;
    Result<WorkloadResult> split = run_workload(*m);
    Result<WorkloadResult> full = run_workload(*a);
    ASSERT_TRUE(split && full);
    EXPECT_EQ(split->final_digest, full->final_digest);
    EXPECT_EQ(split->checkpoints, full->checkpoints);
  }
}

TEST(BlocksWorkloads, PublishedEffects) {
  const auto run = [](const char* name, CacheProfile profile) {
    return *run_workload(*load_workload(name, profile));
  };
  // A flagged group that keeps one block too few never hits.
  EXPECT_EQ(run("g16", CacheProfile::kM).hit_tokens, 0);
  EXPECT_EQ(run("g16", CacheProfile::kA).hit_tokens, 46848);
  // Without caching the profiles are the same.
  EXPECT_EQ(run("g19", CacheProfile::kM).final_digest, run("g19", CacheProfile::kA).final_digest);
}

TEST(BlocksWorkloads, RandomNumbersAndFirstRequests) {
  Result<Workload> w = load_workload("g1");
  ASSERT_TRUE(w);
  const std::vector<GeneratedRequest> r = generate_requests(*w);
  ASSERT_EQ(r.size(), 200u);
  const std::vector<std::array<std::int64_t, 7>> expected = {
      {2, 150, 37, 31, 0, 0, 2}, {2, 200, 107, 4, 1, 0, 0}, {2, 100, 11, 36, 2, 0, 1},
      {1, 50, 91, 10, 4, 0, 2},  {1, 150, 48, 59, 4, 0, 2}, {2, 50, 59, 17, 5, 0, 1}};
  std::int64_t prompts = 0;
  for (const GeneratedRequest& g : r) prompts += g.shared + g.tail;
  EXPECT_EQ(prompts, 32068);
  EXPECT_EQ(r.back().arrival_step, 215);
  for (std::size_t i = 0; i < expected.size(); ++i) {
    const GeneratedRequest& g = r[i];
    const std::array<std::int64_t, 7> found = {
        g.family, g.shared, g.tail, g.outputs, g.arrival_step, g.aborted ? 1 : 0, g.priority};
    EXPECT_EQ(found, expected[i]) << i;
  }
}

TEST(BlocksWorkloads, DigestOfZerosIsThatOfWords) {
  for (const std::int64_t n : {0, 1, 2, 3, 7, 64, 1000}) {
    Digest one;
    Digest many;
    one.word(70000);
    many.word(70000);
    one.zeros(n);
    for (std::int64_t i = 0; i < n; ++i) many.word(0);
    EXPECT_EQ(one.value(), many.value());
  }
  // FNV-1a of the four bytes "abcd", published test vector.
  Digest d;
  d.word(0x64636261);
  EXPECT_EQ(d.value(), 0xfc179f83ee0724ddu);
}

}  // namespace blocks_golden_test
}  // namespace attnscope
