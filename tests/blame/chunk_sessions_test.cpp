// Sessions of a model with chunks: prompts in pieces across the borders of chunks, decoding across
// them, prefixes that are shared, requests that lose their blocks; blocks of a chunk are given back
// when it has ended.
#include <algorithm>

#include "engine/sched/serving.h"
#include "engine/trace/tap_result.h"
#include "kernels/params/paged_params.h"
#include "tests/blame/dense_session.h"

namespace attnscope {
namespace chunk_sessions_test {

constexpr std::int64_t kChunk = 32;  // of tiny-llama4; its pages have 16 tokens

Scenario chunk_scenario() {
  Scenario s = dense_scenario(*preset("tiny-llama4"));
  s.requests.clear();
  s.limits = {29, 4};
  s.decode_steps = 60;
  return s;
}

std::unique_ptr<Session> checked_session(const Scenario& scenario) {
  SessionOptions options;
  options.references = References::kBoth;
  options.threads = 2;
  options.witness = true;
  auto session = Session::create(scenario, all_lanes(), options);
  EXPECT_TRUE(session) << session.error().text();
  return session ? std::move(*session) : nullptr;
}

// To the end, step by step; nothing may be wrong.
template <class Visit>
void run(Session& session, const Visit& visit) {
  while (!session.finished()) {
    const auto ok = session.step();
    ASSERT_TRUE(ok) << ok.error().text();
    const auto blamed = blame(session.history().back().results);
    ASSERT_TRUE(blamed.empty()) << blamed.front().sentence();
    visit(session);
  }
}

std::vector<std::vector<std::int32_t>> tokens_of(const Session& session) {
  std::vector<std::vector<std::int32_t>> all;
  for (const Request& r : session.serving().requests()) all.push_back(r.tokens);
  return all;
}

std::vector<std::int32_t> alone(Scenario scenario, std::size_t request) {
  scenario.requests = {scenario.requests[request]};
  scenario.requests[0].arrival_step = 0;
  scenario.limits.token_budget = 400;
  scenario.pool_blocks = 900;
  auto session = session_of(scenario, References::kNone);
  while (!session->finished()) EXPECT_TRUE(session->step());
  return tokens_of(*session)[0];
}

// The one-token steps of decoding, and steps of a prompt that lie in two chunks.
TEST(ChunkSessions, PromptsInPiecesAndDecodingCrossBorders) {
  Scenario scenario = chunk_scenario();
  add_request(scenario, 70, 40);     // decodes over 96
  add_request(scenario, 32, 3, 1);   // ends with a chunk
  add_request(scenario, 33, 34, 2);  // decodes over 64
  add_request(scenario, 1, 2, 3);
  auto session = checked_session(scenario);
  ASSERT_NE(session, nullptr);
  int two_chunks = 0, border = 0;
  run(*session, [&](const Session& s) {
    const StepMetadata& m = s.metadata();
    for (std::size_t t = 0; t < m.positions.size(); ++t) {
      const bool begins = m.positions[t] > 0 && m.positions[t] % kChunk == 0;
      const bool first = t == 0 || m.token_to_req[t - 1] != m.token_to_req[t];
      (first ? border : two_chunks) += begins ? 1 : 0;
    }
  });
  EXPECT_GE(two_chunks, 3);
  EXPECT_GT(border, 2);
  EXPECT_EQ(session->witnessed().left_out, "");
  EXPECT_GT(session->witnessed().rows, 0);
  EXPECT_LT(session->witnessed().worst, 1e-9);
  for (std::size_t r = 0; r < scenario.requests.size(); ++r) {
    EXPECT_EQ(tokens_of(*session)[r], alone(scenario, r)) << r;
  }
}

// Blocks before the chunk that a request is in are null once it computes in that chunk.
TEST(ChunkSessions, BlocksAreGivenBackWhenTheirChunkEnds) {
  Scenario scenario = chunk_scenario();
  add_request(scenario, 70, 40);
  auto session = session_of(scenario);
  std::int64_t given_back = 0;
  run(*session, [&](const Session& s) {
    const Request& request = s.serving().requests()[0];
    if (is_over(request.state)) return;
    const std::int64_t computed = s.metadata().num_computed[0];
    for (const int g : s.parts().layout.chunk_groups) {
      const auto table = s.serving().table(0, g);
      for (std::size_t i = 0; i < table.size(); ++i) {
        const bool before = static_cast<std::int64_t>(i + 1) * 16 <= computed / kChunk * kChunk;
        EXPECT_EQ(table[i] == AS_NULL_BLOCK, before) << "entry " << i << " at " << computed;
        given_back += before ? 1 : 0;
      }
    }
  });
  EXPECT_GT(given_back, 0);
}

TEST(ChunkSessions, APrefixIsFoundAndItsOldChunksAreNot) {
  Scenario scenario = chunk_scenario();
  add_request(scenario, 100, 4);
  scenario.requests.push_back(scenario.requests[0]);
  scenario.requests[1].name = "again";
  scenario.requests[1].arrival_step = 8;
  scenario.requests[1].tokens.resize(90);
  auto session = checked_session(scenario);
  ASSERT_NE(session, nullptr);
  std::int64_t found = 0;
  run(*session, [&](const Session& s) {
    const StepMetadata& m = s.metadata();
    for (std::size_t r = 0; r < m.live.size(); ++r) {
      if (m.live[r] != 1 || m.joins[r] == 0) continue;
      found = m.num_computed[r];
      const auto table = s.serving().table(1, s.parts().layout.chunk_groups.front());
      ASSERT_GE(table.size(), 5u);
      EXPECT_EQ(table[3], AS_NULL_BLOCK) << "of the chunk before";
      EXPECT_NE(table[4], AS_NULL_BLOCK);
    }
  });
  EXPECT_EQ(found, 80) << "whole blocks before the last token";
  EXPECT_LT(session->witnessed().worst, 1e-9);
  EXPECT_EQ(tokens_of(*session)[1], alone(scenario, 1));
}

TEST(ChunkSessions, RequestsThatLoseTheirBlocksComeOutAlike) {
  Scenario scenario = chunk_scenario();
  for (const std::int64_t length : {70, 64, 40, 31}) add_request(scenario, length, 30);
  scenario.serving.whole_sequence = false;
  const CacheLayout layout = build_cache_layout(scenario.model);
  scenario.pool_blocks = layout.demand(100, scenario.limits.token_budget) + 3;
  auto session = session_of(scenario);
  ASSERT_NE(session, nullptr);
  std::size_t preempted = 0;
  run(*session, [&](const Session& s) { preempted += s.serving().plan().preempted.size(); });
  EXPECT_GT(preempted, 0u);
  for (std::size_t r = 0; r < scenario.requests.size(); ++r) {
    EXPECT_EQ(tokens_of(*session)[r], alone(scenario, r)) << r;
  }
}

// A model of chunks alone: what a token is computed from begins with its chunk.
TEST(ChunkSessions, NoLayerNeedsToSeeAll) {
  Scenario scenario = chunk_scenario();
  scenario.model = *preset("tiny-llama4", {0, 1, 2});
  add_request(scenario, 70, 30);
  scenario.requests.push_back(scenario.requests[0]);
  scenario.requests[1].name = "another beginning";
  scenario.requests[1].arrival_step = 6;
  scenario.requests[1].tokens[3] ^= 1;
  auto session = checked_session(scenario);
  ASSERT_NE(session, nullptr);
  run(*session, [](const Session&) {});
  EXPECT_EQ(tokens_of(*session)[0], alone(scenario, 0));
  EXPECT_EQ(tokens_of(*session)[1], alone(scenario, 1));
}

}  // namespace chunk_sessions_test
}  // namespace attnscope
