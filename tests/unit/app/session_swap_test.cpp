// Sessions that move the rows of preempted requests to host memory and back: the same tokens as
// with a pool that holds all, nothing computed again, the same bytes after going back and in a kept
// session, and a row that changed there is named.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <string>
#include <vector>

#include "app/views/pipeline_view.h"
#include "app/wiring/wiring.h"
#include "app/workbench/workbench.h"
#include "engine/capture/capture.h"
#include "engine/capture/capture_writer.h"
#include "engine/opcase/case_run.h"
#include "engine/session/persist/session_file.h"
#include "engine/session/place.h"
#include "engine/session/snapshot.h"
#include "tests/unit/app/host_device.h"
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

// What a device has written leaves, and comes back to it, in steps that replay recorded lists too.
TEST(SessionSwap, BlocksOfADeviceComeBack) {
  for (const Model& model : {kModels[0], kLlama}) {
    const Scenario scenario = growing(model, model.small, 64);
    const auto on = [&](std::vector<std::string> lanes, std::shared_ptr<HostDevice> device) {
      SessionOptions options;
      options.references = References::kNone;
      options.lanes = std::move(lanes);
      options.threads = 2;
      options.rewind_every = 3;
      options.device = std::move(device);
      auto session = Session::create(scenario, host_device::lanes(), options);
      EXPECT_TRUE(session) << session.error().text();
      return session ? std::move(*session) : nullptr;
    };
    const auto device = std::make_shared<HostDevice>();
    auto cpu = on({"cpu"}, nullptr), whole = on({"cuda"}, device);
    auto by_host = on({"cuda", "swap_out=cpu", "swap_in=cpu"}, std::make_shared<HostDevice>());
    ASSERT_TRUE(cpu && whole && by_host);
    std::vector<std::uint64_t> digests;
    while (!cpu->finished()) {
      digests.push_back(cpu->digest());
      for (Session* session : {cpu.get(), whole.get(), by_host.get()}) {
        const auto ok = session->step();
        ASSERT_TRUE(ok) << ok.error().text();
        ASSERT_EQ(session->digest(), cpu->digest()) << cpu->cursor().step;
      }
    }
    EXPECT_GT(cpu->serving().totals().blocks_in, 0);
    EXPECT_GT(device->counts.replays, 0);
    EXPECT_GT(device->counts.list_calls, 0);
    EXPECT_EQ(tokens(*whole), tokens(*cpu));
    const auto middle = static_cast<std::int64_t>(digests.size() / 2);
    ASSERT_TRUE(whole->seek({middle, -1, 0, false}));
    EXPECT_EQ(whole->digest(), digests[digests.size() / 2]);
  }
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

// Of the steps that move blocks, right behind what is decided; byte for byte, and timed.
TEST(SessionSwap, MovesAreOpsOfTheirSteps) {
  for (const Model& m : kModels) {
    SCOPED_TRACE(std::string(m.preset) + m.more);
    auto session = make(growing(m, m.small, 64), References::kBoth);
    digests(*session);
    std::int64_t out = 0, in = 0;
    for (const StepRecord& step : session->history()) {
      for (const TapResult& r : step.results) {
        if (!moves_blocks(r.op)) continue;
        EXPECT_EQ(r.verdict, Verdict::kEqual) << r.note;
        EXPECT_EQ(r.tap, r.op == AS_OP_SWAP_OUT ? "staged" : "blocks");
        ASSERT_EQ(r.shape.size(), 2u);
        EXPECT_EQ(r.shape[1], session->slab().block_stride());
        EXPECT_EQ(r.elements, r.shape[0] * r.shape[1]);
        (r.op == AS_OP_SWAP_OUT ? out : in) += r.shape[0];
        ASSERT_GE(step.timings.size(), 2u);
        EXPECT_EQ(step.timings[1].op, r.op);
      }
    }
    EXPECT_EQ(out, session->serving().totals().blocks_out);
    EXPECT_EQ(in, session->serving().totals().blocks_in);
    EXPECT_GT(out, 0);
  }
  auto roomy = make(growing(kLlama, kLlama.large, 64), References::kNone);
  digests(*roomy);
  for (const StepRecord& step : roomy->history()) {
    for (const OpTiming& t : step.timings) EXPECT_FALSE(moves_blocks(t.op)) << step.step;
  }
}

TEST(SessionSwap, StopsAtAMoveForwardAndBack) {
  for (const Model& m : {kModels[1], kModels[2]}) {
    SCOPED_TRACE(m.preset);
    auto session = make(growing(m, m.small, 64), References::kNone);
    std::vector<Place> moves;
    while (!session->finished()) {
      if (moves_blocks(session->next_op())) {
        moves.push_back({session->cursor().step, -1, session->next_op()});
      }
      ASSERT_TRUE(session->op());
    }
    ASSERT_GE(moves.size(), 2u);
    EXPECT_EQ(moves.front().op, AS_OP_SWAP_OUT);
    EXPECT_TRUE(std::ranges::any_of(moves, [](const Place& p) { return p.op == AS_OP_SWAP_IN; }));
    for (const Place& place : moves) {
      ASSERT_TRUE(go_to(*session, place)) << place.step;
      EXPECT_EQ(last_place(*session), place);
      EXPECT_EQ(session->last_params().op(), place.op);
      // A case holds what it read and wrote.
      auto kept = keep_case(*find_case_op(place.op), session->last_called().data(), {});
      ASSERT_TRUE(kept) << kept.error().text();
      for (const char* name : {"cpu", "ref.sim", "ref.exact"}) {
        const Lane* lane = all_lanes().find(name);
        CaseRunOptions how;
        how.tolerances = &session->parts().tolerances;
        const bool reference = std::string_view(name).starts_with("ref.");
        const auto again = run_case(*kept, {name, lane->ops[place.op], reference}, how);
        ASSERT_TRUE(again) << again.error().text();
        EXPECT_TRUE(again->right()) << name;
        EXPECT_EQ(again->taps.size(), 1u);
      }
      const std::uint64_t after = session->digest();
      ASSERT_TRUE(session->op_back());
      EXPECT_EQ(session->next_op(), place.op);
      ASSERT_TRUE(session->op_back());
      EXPECT_EQ(session->next_op(), AS_OP_SCHEDULE);
      ASSERT_TRUE(session->op());
      EXPECT_EQ(session->next_op(), place.op);
      ASSERT_TRUE(session->op());
      EXPECT_EQ(session->digest(), after);
    }
    EXPECT_EQ(session->replay_faults(), std::vector<std::string>());
    // Where nothing moves there is no such op.
    const auto nowhere = go_to(*session, {0, -1, AS_OP_SWAP_IN});
    ASSERT_FALSE(nowhere);
    EXPECT_NE(nowhere.error().text().find("no block moves there"), std::string::npos)
        << nowhere.error().text();
  }
}

TEST(SessionSwap, ALaneThatMovesBlocksWrongIsNamed) {
  const struct {
    as_op_id op;
    const char* mutant;
  } bugs[] = {{AS_OP_SWAP_OUT, "mutant:block_behind_sent"},
              {AS_OP_SWAP_OUT, "mutant:half_block_sent"},
              {AS_OP_SWAP_IN, "mutant:blocks_come_reversed"},
              {AS_OP_SWAP_IN, "mutant:half_block_back"}};
  for (const Model& m : kModels) {
    for (const auto& bug : bugs) {
      SCOPED_TRACE(std::string(m.preset) + m.more + " " + bug.mutant);
      SessionOptions options;
      options.references = References::kSim;
      options.threads = 2;
      options.lanes = {"cpu", std::string(as_op_find(bug.op)->name) + "=" + bug.mutant};
      auto session = Session::create(growing(m, m.small, 64), all_lanes(), options);
      ASSERT_TRUE(session) << session.error().text();
      std::vector<Blame> blamed;
      while (!(*session)->finished() && blamed.empty()) {
        ASSERT_TRUE((*session)->step());
        blamed = blame((*session)->history().back().results);
      }
      ASSERT_FALSE(blamed.empty());
      EXPECT_EQ(blamed[0].op, bug.op) << blamed[0].sentence();
      EXPECT_FALSE(blamed[0].cache) << blamed[0].sentence();
    }
  }
}

// A byte that changed before its block leaves is named there, and nobody else is blamed for it.
TEST(SessionSwap, AChangedRowInALeavingBlockIsNamed) {
  auto session = make(growing(kLlama, kLlama.small, 64));
  while (session->next_op() != AS_OP_SWAP_OUT) ASSERT_TRUE(session->op());
  const SwapMove& move = session->serving().plan().swapped_out.front();
  const CacheLayout& layout = session->parts().layout;
  const CacheGroup& group = layout.groups[static_cast<std::size_t>(move.group)];
  const CacheSpec& spec = layout.specs[static_cast<std::size_t>(group.specs.front())];
  session->slab().block(move.block)[spec.offset + 1] ^= 0x40;
  digests(*session);
  std::vector<TapResult> results;
  for (const StepRecord& step : session->history()) {
    results.insert(results.end(), step.results.begin(), step.results.end());
  }
  const std::vector<Blame> blamed = blame(results);
  ASSERT_EQ(blamed.size(), 1u);
  EXPECT_EQ(blamed[0].op, AS_OP_SWAP_OUT);
  EXPECT_TRUE(blamed[0].cache);
  EXPECT_EQ(blamed[0].first.tap, "blocks.read");
  EXPECT_NE(
      blamed[0].sentence().find("no longer holds what was written for position 0 of request " +
                                std::to_string(move.request)),
      std::string::npos)
      << blamed[0].sentence();
}

TEST(SessionSwap, ACaptureHoldsWhatMoved) {
  const std::string file =
      (std::filesystem::temp_directory_path() / "attnscope_swap_test.acap").string();
  std::filesystem::remove_all(file);
  auto session = make(growing(kLlama, kLlama.small, 64));
  TraceRecorder recorder;
  session->set_observer(&recorder);
  digests(*session);
  CaptureOptions options;
  options.level = CaptureLevel::kFull;
  auto writer = CaptureWriter::create(file, options, *session_info(*session), {"t", "swap", {}});
  ASSERT_TRUE(writer) << writer.error().text();
  for (const auto& trace : recorder.traces()) {
    const auto summary = recorder.summary(trace->step);
    ASSERT_NE(summary, nullptr);
    auto ok = (*writer)->add(*summary, trace.get(), nullptr);
    ASSERT_TRUE(ok) << ok.error().text();
  }
  ASSERT_TRUE((*writer)->finish());
  const auto capture = Capture::open(file);
  ASSERT_TRUE(capture) << capture.error().text();
  ASSERT_TRUE((*capture)->verify());
  const std::vector<as_op_id>& before = (*capture)->info()->ops_before;
  EXPECT_NE(std::ranges::find(before, AS_OP_SWAP_IN), before.end());
  std::int64_t out = 0, in = 0;
  for (const auto& live : recorder.traces()) {
    const auto read = (*capture)->trace(live->step);
    ASSERT_TRUE(read) << read.error().text();
    for (const auto& op : (*read)->ops) {
      if (!moves_blocks(op->place.op)) continue;
      const bool leaves = op->place.op == AS_OP_SWAP_OUT;
      const TapCopy *ids = op->tap(leaves ? "from" : "to"), *staged = op->tap("staged");
      ASSERT_NE(ids, nullptr);
      ASSERT_NE(staged, nullptr);
      EXPECT_EQ(staged->value.shape[0], ids->value.shape[0]);
      EXPECT_EQ(staged->value.shape[1], session->slab().block_stride());
      EXPECT_EQ(op->worst, Verdict::kEqual);
      ASSERT_EQ(op->results.size(), 1u);
      (leaves ? out : in) += ids->value.shape[0];
    }
  }
  EXPECT_EQ(out, session->serving().totals().blocks_out);
  EXPECT_EQ(in, out);
  // What is there is not said to be missing: blocks are no rows of an op.
  Workbench bench({});
  ASSERT_TRUE(bench.open_capture(file));
  std::int64_t step = -1;
  for (const auto& trace : recorder.traces()) {
    for (const auto& op : trace->ops) {
      if (op->place.op == AS_OP_SWAP_IN) step = trace->step;
    }
  }
  bench.go_to({step, -1, AS_OP_SWAP_IN});
  ASSERT_NE(bench.op(), nullptr);
  EXPECT_EQ(bench.op()->place.op, AS_OP_SWAP_IN);
  EXPECT_EQ(bench.why_missing(), "");
  std::filesystem::remove_all(file);
}

// Where nothing moves the op does not wait to be run.
TEST(SessionSwap, ThePipelineSaysWhichStepsMoveBlocks) {
  auto session = make(growing(kLlama, kLlama.small, 64));
  TraceRecorder recorder;
  session->set_observer(&recorder);
  digests(*session);
  const auto snapshot = take_snapshot(*session, recorder, session_info(*session), 1);
  int moving = 0;
  for (const StepRecord& step : session->history()) {
    const auto ran = [&](as_op_id op) {
      return std::ranges::find(step.timings, op, &OpTiming::op) != step.timings.end();
    };
    const PipelineState state =
        pipeline_state(*snapshot, {PipelinePart::Kind::kBefore, -1}, step.step);
    if (step.tokens == 0) continue;  // it ended there
    for (const PipelineCard& card : state.cards) {
      EXPECT_EQ(card.ran, ran(card.op)) << step.step << " " << card.label;
      EXPECT_EQ(card.absent, !ran(card.op)) << step.step << " " << card.label;
      moving += card.ran && moves_blocks(card.op) ? 1 : 0;
      const bool said = pipeline_card_text(card).find("no block moves") != std::string::npos;
      EXPECT_EQ(said, card.absent);
    }
    EXPECT_EQ(pipeline_sentence(state).find("next is"), std::string::npos) << step.step;
  }
  EXPECT_GT(moving, 1);
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
