// Whole sessions of dense attention over layouts, head sizes, block sizes and lengths, held against
// ref.sim, ref.exact and ref.model: nothing is wrong, ref.model has followed every step, and the
// tokens are those of a session that computes each request alone, without sharing a pool.
#include <fmt/format.h>

#include <limits>

#include "engine/sched/serving.h"
#include "engine/trace/tap_result.h"
#include "kernels/params/paged_params.h"
#include "tests/blame/dense_session.h"

namespace attnscope {
namespace dense_sessions_test {

struct Shape {
  const char* name;
  int heads, kv_heads, head_dim, rope_dim, block, window, style;
  bool qk_norm = false, plus_one = false, sinks = false, tied = true;
  double soft_cap = 0;
  int chunk = 0;  // of the first layer
};

void PrintTo(const Shape& shape, std::ostream* out) { *out << shape.name; }

ModelConfig model_of(const Shape& s) {
  ModelConfig c = *preset("tiny-llama");
  c.name = s.name;
  c.hidden = 64;
  c.heads = s.heads;
  c.kv_heads = s.kv_heads;
  c.head_dim = s.head_dim;
  c.rope_dim = s.rope_dim;
  c.window = s.window;
  c.compress_ratios.assign(2, 0);
  c.layers = {0, 1};
  c.dense.windows = {s.window, 0};
  if (s.chunk > 0) c.dense.chunks = {s.chunk, 0};
  c.dense.block_tokens = s.block;
  c.dense.rope_style = s.style;
  c.dense.qk_norm = s.qk_norm;
  c.dense.weight_plus_one = s.plus_one;
  c.dense.sinks = s.sinks;
  c.dense.tied = s.tied;
  c.dense.soft_cap = s.soft_cap;
  return c;
}

constexpr int kHalves = AS_ROPE_NEOX, kPairs = AS_ROPE_GPTJ;
const Shape kShapes[] = {
    {"mha_32_block_1", 4, 4, 32, 32, 1, 0, kHalves},
    {"gqa_64_block_8", 4, 2, 64, 64, 8, 5, kHalves, true},
    {"gqa_96_block_16", 6, 2, 96, 48, 16, 16, kPairs, true, true},
    {"mqa_128_block_48", 4, 1, 128, 128, 48, 7, kHalves, false, false, true},
    {"mqa_256_block_16", 2, 1, 256, 64, 16, 1, kPairs, false, false, true, false, 15},
    {"gqa_80_block_3", 4, 2, 80, 2, 3, 40, kHalves, false, true, false, true, 30},
    {"chunk_of_a_block", 4, 2, 32, 32, 8, 0, kPairs, false, false, false, true, 0, 8},
    {"chunk_of_three_blocks", 4, 2, 32, 32, 4, 0, kHalves, true, false, true, true, 0, 12},
    {"chunk_in_pages_of_one", 4, 1, 32, 16, 1, 0, kHalves, false, false, false, false, 0, 7},
    {"chunk_longer_than_all", 4, 4, 32, 32, 16, 0, kPairs, false, false, false, true, 0, 64},
};

class DenseSessions : public ::testing::TestWithParam<Shape> {};

INSTANTIATE_TEST_SUITE_P(Shapes, DenseSessions, ::testing::ValuesIn(kShapes),
                         [](const auto& shape) { return std::string(shape.param.name); });

Scenario scenario_of(const Shape& shape) {
  Scenario s = dense_scenario(model_of(shape));
  s.requests.clear();
  s.limits = {19, 3};
  s.decode_steps = 40;
  add_request(s, 1, 6);
  add_request(s, shape.block, 5);
  add_request(s, 2 * shape.block + 1, 4, 1);
  add_request(s, 45, 3, 2);
  return s;
}

// Returns how often a request lost its blocks.
std::size_t run_to_end(Session& session) {
  std::size_t preempted = 0;
  while (!session.finished()) {
    const auto ok = session.step();
    EXPECT_TRUE(ok) << ok.error().text();
    if (!ok) return preempted;
    preempted += session.serving().plan().preempted.size();
  }
  for (const StepRecord& step : session.history()) {
    for (const TapResult& r : step.results) {
      // Numbers of rows as they are stored, not their bytes.
      if (r.quantisation) {
        EXPECT_LT(r.quantisation->max_abs, 1) << as_op_find(r.op)->name << r.tap;
      }
    }
    const auto blamed = blame(step.results);
    EXPECT_TRUE(blamed.empty()) << "step " << step.step << ": "
                                << (blamed.empty() ? "" : blamed.front().sentence());
  }
  return preempted;
}

std::vector<std::vector<std::int32_t>> tokens_of(const Session& session) {
  std::vector<std::vector<std::int32_t>> all;
  for (const Request& r : session.serving().requests()) all.push_back(r.tokens);
  return all;
}

TEST_P(DenseSessions, AreRightByAllReferences) {
  SessionOptions options;
  options.references = References::kBoth;
  options.threads = 2;
  options.witness = true;
  const Scenario scenario = scenario_of(GetParam());
  auto session = Session::create(scenario, all_lanes(), options);
  ASSERT_TRUE(session) << session.error().text();
  run_to_end(**session);
  const Witnessed witnessed = (*session)->witnessed();
  EXPECT_EQ(witnessed.left_out, "");
  EXPECT_GT(witnessed.rows, 0);
  EXPECT_LT(witnessed.worst, 1e-9);
  EXPECT_LT(witnessed.drift, 0.05);

  // Each request alone.
  for (std::size_t r = 0; r < scenario.requests.size(); ++r) {
    Scenario alone = scenario;
    alone.requests = {scenario.requests[r]};
    alone.requests[0].arrival_step = 0;
    alone.limits.token_budget = 200;
    auto other = session_of(alone, References::kNone);
    while (!other->finished()) ASSERT_TRUE(other->step());
    EXPECT_EQ(tokens_of(*other)[0], tokens_of(**session)[r]) << scenario.requests[r].name;
  }
}

// Heads whose sinks take all, or nothing.
TEST(DenseSinks, MayBeInfinite) {
  Scenario scenario = dense_scenario(*preset("tiny-mqa"));
  const float infinity = std::numeric_limits<float>::infinity();
  scenario.model.sinks = {{0, infinity}, {3, -infinity}};
  SessionOptions options;
  options.references = References::kBoth;
  options.threads = 2;
  options.witness = true;
  auto session = Session::create(scenario, all_lanes(), options);
  ASSERT_TRUE(session) << session.error().text();
  run_to_end(**session);
  EXPECT_EQ((*session)->witnessed().left_out, "");
  EXPECT_LT((*session)->witnessed().worst, 1e-9);
}

// In a pool too small for all, requests lose their blocks and are computed again.
TEST_P(DenseSessions, AreRightWhereRequestsArePreempted) {
  const Shape& shape = GetParam();
  Scenario scenario = scenario_of(shape);
  for (ScenarioRequest& r : scenario.requests) {
    r.arrival_step = 0;
    r.max_new_tokens = 20;
  }
  scenario.limits.max_requests = 4;
  scenario.serving.whole_sequence = false;
  const CacheLayout layout = build_cache_layout(scenario.model);
  scenario.pool_blocks = layout.demand(65, scenario.limits.token_budget) + 3;
  auto session = session_of(scenario, References::kSim);
  ASSERT_NE(session, nullptr);
  EXPECT_GT(run_to_end(*session), 0u);
  auto large = scenario;
  large.pool_blocks = 900;
  auto other = session_of(large, References::kNone);
  while (!other->finished()) ASSERT_TRUE(other->step());
  EXPECT_EQ(tokens_of(*other), tokens_of(*session));
}

}  // namespace dense_sessions_test
}  // namespace attnscope
