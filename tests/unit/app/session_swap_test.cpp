// Sessions that move the rows of preempted requests to host memory and back: the same tokens as
// with a pool that holds all, nothing computed again, the same bytes after going back and in a kept
// session, and a row that changed there is named.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <string>
#include <vector>

#include "app/wiring/wiring.h"
#include "engine/session/persist/session_file.h"
#include "tests/unit/app/trace_session.h"

namespace attnscope {
namespace session_swap_test {

struct Model {
  const char* preset;
  int small, large;  // blocks of a pool that preempts, and of one that does not
  int tokens;        // new ones of each request
  const char* more = "";
};

constexpr Model kModels[] = {
    {"tiny", 36, 400, 40},
    {"tiny-llama", 12, 100, 20},
    {"tiny-v3.2", 6, 100, 28},
    {"tiny-llama", 12, 100, 20, R"(, "context_parallel": {"ranks": 2})"},
};
constexpr Model kLlama = kModels[1];

// Four requests that grow out of the pool; swap: blocks of host memory.
Scenario growing(const Model& model, int pool, int swap) {
  std::string requests;
  for (const char* name : {"a", "b", "c", "d"}) {
    requests += std::string(requests.empty() ? "" : ", ") + R"({"name": ")" + name +
                R"(", "text": ")" + name +
                R"( asks: why does the window move today?", "max_new_tokens": )" +
                std::to_string(model.tokens) + "}";
  }
  auto scenario = parse_scenario(
      R"({"version": 1, "model": {"preset": ")" + std::string(model.preset) +
          R"(", "seed": 7}, "token_budget": 64, "max_requests": 4, "pool_blocks": )" +
          std::to_string(std::max(pool, 100)) + model.more +
          R"(, "serving": {"prefix_caching": false, "preemption": "swap", "swap_blocks": )" +
          std::to_string(swap) + R"(}, "requests": [)" + requests + "]}",
      "growing.json");
  EXPECT_TRUE(scenario) << scenario.error().text();
  if (!scenario) return {};
  if (std::string(model.preset) == "tiny") scenario->model = narrow_model({1, 2});
  scenario->pool_blocks = pool;
  return *scenario;
}

std::unique_ptr<Session> make(const Scenario& scenario, References references = References::kSim) {
  SessionOptions options;
  options.references = references;
  options.threads = 2;
  options.rewind_every = 3;
  options.invariants = Invariants::kCall;
  auto session = Session::create(scenario, all_lanes(), options);
  EXPECT_TRUE(session) << session.error().text();
  return session ? std::move(*session) : nullptr;
}

std::vector<std::string> wrong(const Session& session) {
  std::vector<std::string> all;
  for (const StepRecord& step : session.history()) {
    for (const TapResult& r : step.results) {
      if (r.verdict != Verdict::kWrong) continue;
      all.push_back(std::to_string(r.step) + " " + as_op_find(r.op)->name + "." + r.tap + ": " +
                    r.note);
    }
  }
  return all;
}

std::vector<std::vector<std::int32_t>> tokens(const Session& session) {
  std::vector<std::vector<std::int32_t>> all;
  for (const Request& r : session.serving().requests()) all.push_back(r.tokens);
  return all;
}

TEST(SessionSwap, NothingIsComputedAgainAndTheTokensAreTheSame) {
  for (const Model& m : kModels) {
    SCOPED_TRACE(std::string(m.preset) + m.more);
    auto session = make(growing(m, m.small, 64));
    ASSERT_NE(session, nullptr);
    digests(*session);
    EXPECT_EQ(wrong(*session), std::vector<std::string>());
    const ServingTotals totals = session->serving().totals();
    EXPECT_GT(totals.preemptions, 0);
    EXPECT_GT(totals.blocks_out, 0);
    EXPECT_EQ(totals.blocks_in, totals.blocks_out);
    EXPECT_EQ(totals.recomputed, 0);
    EXPECT_EQ(totals.hits, 0);
    EXPECT_TRUE(session->swapped().blocks().empty());
    auto roomy = make(growing(m, m.large, 64), References::kNone);
    digests(*roomy);
    EXPECT_EQ(roomy->serving().totals().preemptions, 0);
    EXPECT_EQ(tokens(*session), tokens(*roomy));
  }
}

TEST(SessionSwap, WithoutRoomThereARequestIsComputedAnew) {
  auto session = make(growing(kLlama, kLlama.small, 2));
  digests(*session);
  EXPECT_EQ(wrong(*session), std::vector<std::string>());
  const ServingTotals totals = session->serving().totals();
  EXPECT_GT(totals.swaps_refused, 0);
  EXPECT_GT(totals.recomputed, 0);
}

TEST(SessionSwap, GoingBackGivesTheSameBytes) {
  for (const Model& m : kModels) {
    SCOPED_TRACE(std::string(m.preset) + m.more);
    const bool llama = &m == &kModels[1];  // the others' bytes alone
    auto session = make(growing(m, m.small, 64), llama ? References::kSim : References::kNone);
    const std::vector<std::uint64_t> first = digests(*session);
    for (const std::int64_t step : {std::int64_t{1}, static_cast<std::int64_t>(first.size()) / 2}) {
      ASSERT_TRUE(session->seek({step, -1, 0, false}));
      const std::vector<std::uint64_t> again = digests(*session);
      ASSERT_EQ(again.size(), first.size() - static_cast<std::size_t>(step));
      EXPECT_TRUE(std::equal(again.begin(), again.end(), first.begin() + step)) << step;
    }
    EXPECT_EQ(session->replay_faults(), std::vector<std::string>());
    EXPECT_EQ(wrong(*session), std::vector<std::string>());
  }
}

// Runs until somebody's rows lie in host memory.
bool run_until_swapped(Session& session) {
  while (!session.finished() && session.swapped().blocks().empty()) {
    if (!session.step()) return false;
  }
  return !session.swapped().blocks().empty();
}

TEST(SessionSwap, AKeptSessionGoesOnWithWhatWaitsInHostMemory) {
  const std::string file =
      (std::filesystem::temp_directory_path() / "attnscope_swap_test.keep").string();
  for (const Model& m : {kModels[0], kModels[1]}) {
    SCOPED_TRACE(m.preset);
    const Scenario scenario = growing(m, m.small, 64);
    const std::vector<std::uint64_t> all = digests(*make(scenario, References::kNone));
    auto first = make(scenario);
    ASSERT_TRUE(run_until_swapped(*first));
    const std::size_t at = first->history().size();
    ASSERT_TRUE(save_session(*first, file, "key"));
    auto second = make(scenario);
    const auto ok = load_session(*second, file, "key");
    ASSERT_TRUE(ok) << ok.error().text();
    EXPECT_EQ(second->digest(), first->digest());
    EXPECT_EQ(second->swapped().blocks().size(), first->swapped().blocks().size());
    const std::vector<std::uint64_t> rest = digests(*second);
    ASSERT_EQ(rest.size(), all.size() - at);
    EXPECT_TRUE(
        std::equal(rest.begin(), rest.end(), all.begin() + static_cast<std::ptrdiff_t>(at)));
    EXPECT_EQ(wrong(*second), std::vector<std::string>());
    ASSERT_TRUE(second->seek({static_cast<std::int64_t>(at), -1, 0, false}));
    EXPECT_EQ(second->digest(), first->digest());
    // Cut anywhere it is refused.
    const auto size = std::filesystem::file_size(file);
    for (const double share : {0.2, 0.6, 0.95}) {
      std::filesystem::resize_file(file,
                                   static_cast<std::uintmax_t>(static_cast<double>(size) * share));
      EXPECT_FALSE(load_session(*make(scenario), file, "key")) << share;
      ASSERT_TRUE(save_session(*first, file, "key"));
    }
  }
  std::remove(file.c_str());
}

// A byte that changes while the row is away shows when it is read again, as the cache's fault.
TEST(SessionSwap, AChangedRowInHostMemoryIsNamed) {
  auto session = make(growing(kLlama, kLlama.small, 64));
  ASSERT_TRUE(run_until_swapped(*session));
  const auto& [host, block] = *session->swapped().blocks().begin();
  const CacheGroup& group = session->parts().layout.groups[static_cast<std::size_t>(block.group)];
  const CacheSpec& spec =
      session->parts().layout.specs[static_cast<std::size_t>(group.specs.front())];
  auto& bytes = const_cast<std::vector<std::uint8_t>&>(block.kept->content);
  bytes[static_cast<std::size_t>(spec.offset) + 1] ^= 0x40;
  const std::string request = "request " + std::to_string(block.request);
  EXPECT_TRUE(wrong(*session).empty());
  digests(*session);
  const std::vector<std::string> found = wrong(*session);
  ASSERT_FALSE(found.empty());
  EXPECT_NE(found.front().find("k_cache.between: "), std::string::npos) << found.front();
  EXPECT_NE(found.front().find(" of " + request), std::string::npos) << found.front();
}

TEST(SessionSwap, EventsSayWhoseRowsWentAndCame) {
  auto session = make(growing(kLlama, kLlama.small, 64), References::kNone);
  TraceRecorder recorder;
  session->set_observer(&recorder);
  digests(*session);
  int went = 0, came = 0, out = 0, in = 0;
  for (const auto& summary : recorder.summaries()) {
    for (const Event& e : summary->events) {
      went += e.kind == EventKind::kPreempt &&
              e.text.find(" wait in host memory.") != std::string::npos;
      came += e.kind == EventKind::kAdmit &&
              e.text.find(" come back from host memory: 1 of its ") != std::string::npos;
    }
  }
  for (const auto& trace : recorder.traces()) {
    for (const CacheEvent& e : trace->cache_events) {
      out += e.kind == CacheEventKind::kSwapOut;
      in += e.kind == CacheEventKind::kSwapIn;
    }
  }
  EXPECT_EQ(went, session->serving().totals().preemptions);
  EXPECT_EQ(came, went);
  EXPECT_GT(out, 0);
  EXPECT_EQ(in, out);
}

TEST(SessionSwap, IsAnOptionOfScenarios) {
  const auto refused = [](const std::string& serving, const std::string& more = "") {
    const auto scenario = parse_scenario(
        R"({"version": 1, "model": {"preset": "tiny"}, "pool_blocks": 400, )" + more +
            R"("serving": {)" + serving +
            R"(}, "requests": [{"name": "a", "text": "Why does it move?", "max_new_tokens": 2}]})",
        "swap.json");
    return scenario ? std::string() : scenario.error().text();
  };
  EXPECT_EQ(refused(R"("prefix_caching": false, "preemption": "swap", "swap_blocks": 8)"), "");
  EXPECT_NE(refused(R"("preemption": "swap", "swap_blocks": 8)").find("where no lookup finds them"),
            std::string::npos);
  EXPECT_NE(refused(R"("swap_blocks": 8)").find("nothing is swapped"), std::string::npos);
  EXPECT_NE(refused(R"("prefix_caching": false, "preemption": "swap", "swap_blocks": 8)",
                    R"("ess": {"ratio": 0.5}, )")
                .find("both move rows to host memory"),
            std::string::npos);
}

}  // namespace session_swap_test
}  // namespace attnscope
