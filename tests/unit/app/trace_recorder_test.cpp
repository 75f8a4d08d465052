// Step traces and summaries as a whole: order, metadata, verdicts, events, going back, memory.
#include "engine/session/trace_recorder.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "engine/family/deepseek_v4/deepseek_v4.h"
#include "engine/family/models.h"
#include "engine/session/snapshot.h"
#include "engine/session/step/layer_ops.h"
#include "kernels/params/tensor_view.h"
#include "tests/unit/app/trace_session.h"

namespace attnscope {
namespace trace_recorder_test {

std::vector<std::int64_t> numbers(const TraceRecorder& recorder) {
  std::vector<std::int64_t> out;
  for (const auto& trace : recorder.traces()) out.push_back(trace->step);
  return out;
}

std::vector<Event> events_of(const StepSummary& summary, EventKind kind) {
  std::vector<Event> out;
  std::ranges::copy_if(summary.events, std::back_inserter(out),
                       [&](const Event& e) { return e.kind == kind; });
  return out;
}

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

TEST(TraceStep, HoldsEveryOpInCausalOrderWithItsResultsAndTime) {
  auto session = small_session(References::kSim);
  TraceRecorder recorder;
  session->set_observer(&recorder);
  run_steps(*session, 4);
  const auto traces = recorder.traces();
  ASSERT_EQ(traces.size(), 4u);
  for (std::size_t step = 0; step < traces.size(); ++step) {
    const StepTrace& trace = *traces[step];
    const StepRecord& record = session->history()[step];
    EXPECT_TRUE(trace.complete);
    EXPECT_EQ(trace.step, static_cast<std::int64_t>(step));
    ASSERT_EQ(trace.ops.size(), record.timings.size());
    std::vector<TapResult> results;
    for (std::size_t i = 0; i < trace.ops.size(); ++i) {
      const OpTrace& op = *trace.ops[i];
      EXPECT_EQ(op.place, (Place{record.step, record.timings[i].layer, record.timings[i].op}));
      EXPECT_EQ(op.microseconds, record.timings[i].microseconds);
      EXPECT_EQ(op.lane, "cpu");
      EXPECT_EQ(trace.find(op.place.layer, op.place.op), &op);
      Verdict worst = Verdict::kEqual;
      double budget = 0;
      for (const TapResult& r : op.results) {
        EXPECT_EQ(r.op, op.place.op);
        EXPECT_EQ(r.layer, op.place.layer);
        EXPECT_EQ(op.result(r.tap), &r);
        if (r.verdict == Verdict::kRounding) worst = Verdict::kRounding;
        budget = std::max(budget, r.budget_used);
        results.push_back(r);
      }
      EXPECT_EQ(op.worst, worst);
      EXPECT_EQ(op.budget_used, budget);
    }
    ASSERT_EQ(results.size(), record.results.size());
    for (std::size_t i = 0; i < results.size(); ++i) {
      EXPECT_EQ(results[i].tap, record.results[i].tap);
      EXPECT_EQ(results[i].verdict, record.results[i].verdict);
    }
    EXPECT_EQ(trace.sampled, record.sampled);
  }
  EXPECT_EQ(traces[0]->find(99, AS_OP_WO_A), nullptr);
  EXPECT_EQ(traces[0]->find(0, AS_OP_SAMPLE), nullptr);
}

TEST(TraceStep, KnowsWhoStandsWhere) {
  auto session = small_session();
  TraceRecorder recorder;
  session->set_observer(&recorder);
  run_steps(*session, 3);  // 64 of "long"; 64 of "long"; the rest of it and the others
  const auto traces = recorder.traces();
  const StepTrace& trace = *traces[2];
  const StepMetadata& m = trace.metadata;
  std::set<std::int32_t> requests;
  for (std::int64_t t = 0; t < m.num_tokens_in_step(); ++t) {
    const std::int32_t id = trace.request_of(t);
    requests.insert(id);
    EXPECT_EQ(trace.token_row(id, m.positions[static_cast<std::size_t>(t)]), t);
    const auto it = std::ranges::find(trace.kept, t);
    EXPECT_EQ(trace.kept_index(t), it == trace.kept.end() ? -1 : it - trace.kept.begin());
    EXPECT_EQ(trace.requests[static_cast<std::size_t>(id)].request.id, id);
  }
  EXPECT_EQ(requests, (std::set<std::int32_t>{0, 1, 2}));
  EXPECT_EQ(trace.token_row(0, 127), -1);  // computed in the step before
  EXPECT_EQ(trace.token_row(0, 150), -1);
  EXPECT_GE(trace.token_row(0, 128), 0);
  EXPECT_EQ(trace.token_row(7, 0), -1);
  EXPECT_EQ(traces[0]->token_row(1, 0), -1);  // waits
  EXPECT_EQ(trace.request_of(-1), -1);
  EXPECT_EQ(trace.request_of(m.num_tokens_in_step()), -1);
  EXPECT_EQ(trace.kept_index(-1), -1);
}

TEST(TraceStep, TablesAndBlocksAreAsBlockTablesLeftThem) {
  auto session = small_session();
  TraceRecorder recorder;
  session->set_observer(&recorder);
  std::map<std::int64_t, std::vector<BlockOwner>> before, after;
  std::map<std::int64_t, std::vector<std::vector<std::int32_t>>> tables;
  std::map<std::int64_t, std::vector<std::int32_t>> free;
  while (!session->finished()) {
    const std::int64_t step = session->cursor().step;
    before[step] = session->serving().owners();
    ASSERT_TRUE(*session->run_until(
        [](const Session& s) { return s.last_params().op() == AS_OP_BLOCK_TABLES; }));
    after[step] = session->serving().owners();
    free[step] = session->serving().free_list();
    for (int g = 0; g < static_cast<int>(session->parts().layout.groups.size()); ++g) {
      const auto table = session->serving().table(0, g);
      tables[step].emplace_back(table.begin(), table.end());
    }
    ASSERT_TRUE(session->step());
  }
  std::size_t recycled = 0, ended = 0;
  for (const auto& trace : recorder.traces()) {
    const std::int64_t step = trace->step;
    ASSERT_EQ(trace->owners.size(), after[step].size());
    std::vector<std::int32_t> fresh, freed, finished;
    for (std::size_t id = 0; id < after[step].size(); ++id) {
      const BlockOwner &was = before[step][id], &is = after[step][id];
      EXPECT_EQ(trace->owners[id].request, is.request);
      EXPECT_EQ(trace->owners[id].index, is.index);
      const auto block = static_cast<std::int32_t>(id);
      if (was.request < 0 && is.request >= 0) fresh.push_back(block);
      if (was.request >= 0 && is.request < 0) freed.push_back(block);
      const std::int64_t next = step + 1;
      if (is.request >= 0 && (before.contains(next) ? before[next][id].request : -1) < 0) {
        finished.push_back(block);
      }
    }
    recycled += freed.size();
    ended += finished.size();
    freed.insert(freed.end(), finished.begin(), finished.end());
    std::ranges::sort(freed);
    std::vector<std::int32_t> trace_freed = trace->freed;
    std::ranges::sort(trace_freed);
    EXPECT_EQ(trace->fresh, fresh);
    EXPECT_EQ(trace_freed, freed);
    EXPECT_EQ(trace->free_list, free[step]);
    ASSERT_EQ(trace->requests.size(), 3u);
    EXPECT_EQ(trace->requests[0].tables, tables[step]);
    const Request& request = trace->requests[0].request;
    const Request& now = session->serving().requests()[0];
    ASSERT_LE(request.num_tokens(), now.num_tokens());
    EXPECT_TRUE(std::equal(request.tokens.begin(), request.tokens.end(), now.tokens.begin()));
    if (step + 1 < static_cast<std::int64_t>(session->history().size())) {
      EXPECT_LT(request.computed, now.computed);
    }
  }
  EXPECT_GT(recycled, 10u);
  EXPECT_GT(ended, 10u);
}

TEST(TraceSummary, CountsAndTimesAddUpToTheHistory) {
  auto session = small_session(References::kBoth, small_scenario(90, 2));
  TraceRecorder recorder;
  session->set_observer(&recorder);
  while (!session->finished()) ASSERT_TRUE(session->step());
  const auto summaries = recorder.summaries();
  ASSERT_EQ(summaries.size(), session->history().size());
  TraceRecorder adopted;
  adopted.adopt_history(*session);
  EXPECT_TRUE(adopted.traces().empty());
  const auto later = adopted.summaries();
  ASSERT_EQ(later.size(), summaries.size());
  std::set<Verdict> worst;
  for (std::size_t i = 0; i < summaries.size(); ++i) {
    const StepRecord& record = session->history()[i];
    for (const StepSummary* s : {summaries[i].get(), later[i].get()}) {
      EXPECT_EQ(s->step, record.step);
      EXPECT_EQ(s->tokens, record.tokens);
      EXPECT_TRUE(s->complete);
      EXPECT_EQ(s->decode_only, record.decode_only);
      EXPECT_EQ(s->seconds, record.seconds);
      EXPECT_EQ(s->wall_seconds, record.wall_seconds);
      EXPECT_FALSE(s->selective);
      ASSERT_EQ(s->results.size(), record.results.size());
      ASSERT_EQ(s->layers.size(), 5u);
      EXPECT_EQ(s->layers[0].layer, -1);
      for (std::size_t c = 0; c < s->layers.size(); ++c) {
        const LayerCell& cell = s->layers[c];
        EXPECT_TRUE(c == 0 || cell.layer == session->parts().config.layers[c - 1]);
        std::int64_t counts[kVerdicts] = {};
        double budget = 0, microseconds = 0;
        for (const TapResult& r : record.results) {
          if (r.layer != cell.layer) continue;
          ++counts[static_cast<std::size_t>(r.verdict)];
          budget = std::max(budget, r.budget_used);
        }
        for (const OpTiming& t : record.timings) {
          if (t.layer == cell.layer) microseconds += t.microseconds;
        }
        for (std::size_t v = 0; v < kVerdicts; ++v) EXPECT_EQ(cell.counts[v], counts[v]);
        EXPECT_EQ(cell.budget_used, budget);
        EXPECT_DOUBLE_EQ(cell.microseconds, microseconds);
        Verdict expected = Verdict::kNotCompared;
        for (const Verdict v : {Verdict::kEqual, Verdict::kRounding, Verdict::kQuantisation,
                                Verdict::kNearTie, Verdict::kWrong}) {
          if (counts[static_cast<std::size_t>(v)] > 0) expected = v;
        }
        EXPECT_EQ(cell.worst, expected);
        worst.insert(cell.worst);
      }
    }
    EXPECT_EQ(events_of(*summaries[i], EventKind::kSample).size(),
              events_of(*later[i], EventKind::kSample).size());
  }
  EXPECT_TRUE(worst.contains(Verdict::kEqual));
  // Which of them depends on how this machine's instructions round.
  EXPECT_TRUE(worst.contains(Verdict::kRounding) || worst.contains(Verdict::kQuantisation));
}

TEST(TraceSummary, SelectiveOnceATokenSeesMoreEntriesThanMayBeChosen) {
  Scenario scenario = small_scenario(90, 2);
  scenario.model.index_topk = 12;  // 48 tokens
  auto session = small_session(References::kNone, scenario);
  TraceRecorder recorder;
  session->set_observer(&recorder);
  run_steps(*session, 1);
  EXPECT_TRUE(recorder.summaries()[0]->selective);  // 64 tokens, 16 entries
  scenario.model.index_topk = 16;
  session = small_session(References::kNone, scenario);
  TraceRecorder other;
  session->set_observer(&other);
  run_steps(*session, 2);
  EXPECT_FALSE(other.summaries()[0]->selective);
  EXPECT_TRUE(other.summaries()[1]->selective);
  EXPECT_FALSE(session->history()[0].selective);
  EXPECT_TRUE(session->history()[1].selective);
}

TEST(TraceEvents, SayWhoCameWentAndSampledWhat) {
  auto session = small_session();
  TraceRecorder recorder;
  session->set_observer(&recorder);
  while (!session->finished()) ASSERT_TRUE(session->step());
  std::map<std::int32_t, std::int64_t> admitted, finished;
  std::map<std::int32_t, std::vector<std::int32_t>> holds;  // block -> request, group
  std::map<std::int32_t, int> samples;
  const auto traces = recorder.traces();
  for (const auto& summary : recorder.summaries()) {
    for (const Event& e : summary->events) {
      EXPECT_EQ(e.place.step, summary->step);
      EXPECT_FALSE(e.text.empty());
      const auto block_text = [&] {
        const CacheGroup& group = session->parts().layout.groups[static_cast<std::size_t>(e.group)];
        EXPECT_TRUE(contains(e.text, group.name)) << e.text;
        EXPECT_TRUE(contains(e.text, fmt::format("Block {} ", e.block))) << e.text;
      };
      switch (e.kind) {
        case EventKind::kAdmit:
          EXPECT_TRUE(admitted.emplace(e.request, e.place.step).second);
          break;
        case EventKind::kFinish:
          EXPECT_TRUE(finished.emplace(e.request, e.place.step).second);
          break;
        case EventKind::kAllocate:
          block_text();
          EXPECT_TRUE(holds.emplace(e.block, std::vector{e.request, e.group}).second) << e.text;
          break;
        case EventKind::kFree:
          block_text();
          EXPECT_EQ(holds[e.block], (std::vector{e.request, e.group})) << e.text;
          holds.erase(e.block);
          break;
        case EventKind::kSample:
          ++samples[e.request];
          EXPECT_EQ(e.place.op, AS_OP_SAMPLE);
          break;
        default:
          ADD_FAILURE() << e.text;
      }
    }
  }
  EXPECT_TRUE(holds.empty());
  EXPECT_EQ(admitted.size(), 3u);
  EXPECT_EQ(admitted[0], 0);
  EXPECT_EQ(finished.size(), 3u);
  EXPECT_EQ(samples, (std::map<std::int32_t, int>{{0, 6}, {1, 6}, {2, 6}}));
}

TEST(TraceEvents, BlocksNameThePositionsTheyHoldAndSamplesTheirCharacter) {
  auto session = small_session();
  TraceRecorder recorder;
  session->set_observer(&recorder);
  while (!session->finished()) ASSERT_TRUE(session->step());
  const auto summaries = recorder.summaries();
  bool full = false;
  for (const Event& e : events_of(*summaries[0], EventKind::kAllocate)) {
    const BlockOwner& owner = recorder.traces()[0]->owners[static_cast<std::size_t>(e.block)];
    const CacheGroup& group = session->parts().layout.groups[static_cast<std::size_t>(e.group)];
    const std::string range =
        fmt::format("positions {}-{} of long", owner.index * group.block_tokens,
                    (owner.index + 1) * group.block_tokens - 1);
    EXPECT_TRUE(contains(e.text, range)) << e.text;
    full = full || group.window == 0;
  }
  EXPECT_TRUE(full);
  std::size_t seen = 0;
  for (const auto& summary : summaries) {
    for (const Event& e : events_of(*summary, EventKind::kSample)) {
      const StepRecord& record = session->history()[static_cast<std::size_t>(summary->step)];
      const auto row =
          static_cast<std::size_t>(std::ranges::find(record.live, e.request) - record.live.begin());
      const std::int32_t token = record.sampled[row];
      EXPECT_TRUE(contains(e.text, fmt::format("({})", token))) << e.text;
      if (token < 33 || token > 126) continue;
      EXPECT_TRUE(contains(e.text, fmt::format("'{}'", static_cast<char>(token)))) << e.text;
      ++seen;
    }
  }
  EXPECT_GT(seen, 0u);
}

TEST(TraceEvents, WrongTapsCarryTheirPlaceAndEvidence) {
  auto session =
      small_session(References::kSim, small_scenario(200, 2), "mutant:window_off_by_one");
  TraceRecorder recorder;
  session->set_observer(&recorder);
  run_steps(*session, 4);
  std::size_t wrong = 0, told = 0;
  for (const auto& summary : recorder.summaries()) {
    for (const TapResult& r : summary->results) wrong += r.verdict == Verdict::kWrong ? 1 : 0;
    for (const Event& e : events_of(*summary, EventKind::kWrong)) {
      ++told;
      EXPECT_EQ(e.place.op, AS_OP_SWA_INDEX);
      EXPECT_EQ(e.place.layer, -1);
      EXPECT_TRUE(contains(e.text, "swa_index.indices is wrong: ") ||
                  contains(e.text, "swa_index.lens is wrong: "))
          << e.text;
    }
    EXPECT_EQ(summary->layers[0].worst == Verdict::kWrong,
              !events_of(*summary, EventKind::kWrong).empty());
  }
  EXPECT_GT(wrong, 0u);
  EXPECT_EQ(told, wrong);
}

TEST(TraceBack, LaterStepsStayAndReplaysReplaceTheirOwn) {
  auto session = small_session(References::kSim);
  TraceRecorder recorder;
  session->set_observer(&recorder);
  run_steps(*session, 5);
  const auto before = recorder.traces();
  const auto summaries = recorder.summaries();
  ASSERT_TRUE(session->seek({2, 1, 3, false}));
  EXPECT_EQ(numbers(recorder), (std::vector<std::int64_t>{0, 1, 2, 3, 4}));
  const auto now = recorder.traces();
  EXPECT_EQ(now[4], before[4]);
  // From the checkpoint at step 0: 0 and 1 ran again, 2 in part, which does not hide the whole.
  EXPECT_NE(now[0], before[0]);
  EXPECT_NE(now[1], before[1]);
  EXPECT_EQ(now[2], before[2]);
  EXPECT_TRUE(recorder.summaries()[2]->complete);
  ASSERT_TRUE(session->step());
  const auto again = recorder.traces()[2];
  EXPECT_NE(again, before[2]);
  ASSERT_EQ(again->ops.size(), before[2]->ops.size());
  for (std::size_t i = 0; i < again->ops.size(); ++i) {
    const OpTrace &a = *again->ops[i], &b = *before[2]->ops[i];
    ASSERT_EQ(a.taps.size(), b.taps.size());
    EXPECT_EQ(a.worst, b.worst);
    for (std::size_t t = 0; t < a.taps.size(); ++t) {
      EXPECT_EQ(a.taps[t].value_bytes, b.taps[t].value_bytes);
      EXPECT_EQ(a.taps[t].reference_bytes, b.taps[t].reference_bytes);
    }
  }
  // The log says that it went back, once, and does not count what happened twice.
  const auto back = recorder.summaries();
  ASSERT_EQ(events_of(*back[0], EventKind::kBack).size(), 1u);
  EXPECT_EQ(events_of(*back[0], EventKind::kBack)[0].place.step, 0);
  for (std::size_t i = 0; i < back.size(); ++i) {
    EXPECT_EQ(events_of(*back[i], EventKind::kAllocate).size(),
              events_of(*summaries[i], EventKind::kAllocate).size());
    EXPECT_EQ(back[i]->results.size(), summaries[i]->results.size());
  }
}

TEST(TraceBack, AStepLeftHalfwayKeepsWhatRan) {
  auto session = small_session();
  TraceRecorder recorder;
  session->set_observer(&recorder);
  run_steps(*session, 3);
  ASSERT_TRUE(session->seek({3, 2, 5, false}));
  const std::size_t ops = recorder.traces()[3]->ops.size();
  EXPECT_FALSE(recorder.traces()[3]->complete);
  ASSERT_TRUE(session->step_back());  // to the checkpoint at step 3
  ASSERT_TRUE(session->op());
  EXPECT_EQ(recorder.traces()[3]->ops.size(), ops);
  EXPECT_FALSE(recorder.summaries()[3]->complete);
  ASSERT_TRUE(session->step());
  EXPECT_TRUE(recorder.traces()[3]->complete);
  EXPECT_TRUE(recorder.summaries()[3]->complete);
}

TEST(TraceBack, OtherLanesForgetWhatTheyComputeAnew) {
  auto session = small_session(References::kSim, small_scenario(90, 4));
  TraceRecorder recorder;
  session->set_observer(&recorder);
  run_steps(*session, 4);
  const std::uint64_t digest = session->digest();
  ASSERT_TRUE(session->change_lanes(all_lanes(), {"mutant:sink_scaled"}, 2));
  EXPECT_EQ(session->cursor(), (Cursor{2, -1, 0, false}));
  EXPECT_EQ(numbers(recorder), (std::vector<std::int64_t>{0, 1}));
  EXPECT_EQ(recorder.summaries().size(), 2u);
  std::int64_t bytes = 0;
  for (const auto& trace : recorder.traces()) bytes += trace->bytes;
  EXPECT_EQ(recorder.bytes(), bytes);
  run_steps(*session, 2);
  EXPECT_NE(session->digest(), digest);
  const auto worst = [&](std::size_t step) {
    Verdict seen = Verdict::kEqual;
    for (const LayerCell& cell : recorder.summaries()[step]->layers) {
      if (cell.worst == Verdict::kWrong) seen = cell.worst;
    }
    return seen;
  };
  EXPECT_EQ(recorder.traces()[2]->find(0, AS_OP_SPARSE_ATTENTION)->lane, "mutant:sink_scaled");
  EXPECT_EQ(worst(2), Verdict::kWrong);
  // The steps before run on the lanes they ran on.
  ASSERT_TRUE(session->seek({1, -1, 0, false}));
  run_steps(*session, 1);
  EXPECT_EQ(recorder.traces()[1]->find(0, AS_OP_SPARSE_ATTENTION)->lane, "cpu");
  EXPECT_EQ(worst(1), Verdict::kEqual);
  ASSERT_TRUE(session->change_lanes(all_lanes(), {"cpu"}, 2));
  run_steps(*session, 2);
  EXPECT_EQ(session->digest(), digest);
  EXPECT_FALSE(session->change_lanes(all_lanes(), {"gpu"}, 2));
}

TEST(TraceMemory, IsAccountedAndTheOldestGoFirst) {
  auto session = small_session(References::kSim);
  TraceRecorder all({std::int64_t{1} << 40, 16});
  session->set_observer(&all);
  while (!session->finished()) ASSERT_TRUE(session->step());
  std::int64_t sum = 0, widest = 0;
  for (const auto& trace : all.traces()) {
    std::int64_t bytes = 0;
    for (const auto& op : trace->ops) {
      for (const TapCopy& tap : op->taps) {
        bytes += static_cast<std::int64_t>(tap.value_bytes.size() + tap.reference_bytes.size());
      }
      for (const RowsCopy& rows : op->rows) {
        bytes += static_cast<std::int64_t>(rows.bytes.size() + rows.reference.size());
      }
      if (op->attention) {
        const AttentionCopy& a = *op->attention;
        bytes += static_cast<std::int64_t>(8 * a.weights.size() + a.window_rows.bytes.size() +
                                           a.extra_rows.bytes.size());
      }
    }
    EXPECT_GE(trace->bytes, bytes);
    EXPECT_LT(trace->bytes, bytes + bytes / 2 + (1 << 16));
    sum += trace->bytes;
    widest = std::max(widest, trace->bytes);
  }
  EXPECT_EQ(all.bytes(), sum);
  const std::int64_t steps = static_cast<std::int64_t>(all.traces().size());
  ASSERT_GT(steps, 6);

  const std::int64_t budget = 2 * widest;  // the newest two stay in any case
  ASSERT_LT(budget, sum);
  TraceRecorder some({budget, 16});
  session = small_session(References::kSim);
  session->set_observer(&some);
  std::int64_t largest = 0;
  while (!session->finished()) {
    ASSERT_TRUE(session->op());
    largest = std::max(largest, some.bytes());
  }
  EXPECT_LE(largest, budget);
  const auto kept = numbers(some);
  EXPECT_LT(static_cast<std::int64_t>(kept.size()), steps);
  EXPECT_GT(kept.size(), 2u);
  for (std::size_t i = 0; i < kept.size(); ++i) {  // the newest, without holes
    EXPECT_EQ(kept[i], steps - static_cast<std::int64_t>(kept.size() - i));
  }
  EXPECT_EQ(static_cast<std::int64_t>(some.summaries().size()), steps);

  TraceRecorder few({0, 16});
  session = small_session(References::kSim);
  session->set_observer(&few);
  run_steps(*session, 4);
  EXPECT_EQ(numbers(few), (std::vector<std::int64_t>{2, 3}));
  ASSERT_TRUE(session->op());
  EXPECT_EQ(numbers(few), (std::vector<std::int64_t>{3, 4}));
  // Back: the newest two stay, and the one the session stands in.
  ASSERT_TRUE(session->seek({1, -1, 0, false}));
  run_steps(*session, 1);
  const auto back = numbers(few);
  EXPECT_TRUE(std::ranges::find(back, 1) != back.end());
  EXPECT_EQ(back.back(), 4);
}

// Steps whose block events are known, oldest first.
std::vector<std::int64_t> steps_with_events(const TraceRecorder& recorder) {
  std::vector<std::int64_t> out;
  for (const auto& summary : recorder.summaries()) {
    if (summary->cache_events) out.push_back(summary->step);
  }
  return out;
}

TEST(TraceMemory, BlockEventsOutliveTheTensorsOfTheirSteps) {
  auto session = small_session(References::kNone);
  TraceRecorder all({std::int64_t{1} << 40, 16});
  session->set_observer(&all);
  run_steps(*session, 7);
  session = small_session(References::kNone);
  TraceRecorder few({0, 16});
  session->set_observer(&few);
  run_steps(*session, 7);
  ASSERT_EQ(numbers(few).size(), 2u);
  std::int64_t events = 0, newest = 0;
  const auto summaries = few.summaries();
  ASSERT_EQ(summaries.size(), 7u);
  for (std::size_t step = 0; step < 7; ++step) {
    const std::vector<CacheEvent>& want = all.traces()[step]->cache_events;
    ASSERT_NE(summaries[step]->cache_events, nullptr) << step;
    const std::vector<CacheEvent>& is = *summaries[step]->cache_events;
    ASSERT_EQ(is.size(), want.size()) << step;
    for (std::size_t i = 0; i < is.size(); ++i) {
      EXPECT_EQ(is[i].kind, want[i].kind);
      EXPECT_EQ(is[i].block, want[i].block);
      EXPECT_EQ(is[i].refs, want[i].refs);
    }
    newest = std::ssize(is);
    events += newest;
  }
  // A ring of its own size: of whole steps, the newest ones.
  for (const std::int64_t most : {events, events - 1, newest, std::int64_t{0}}) {
    session = small_session(References::kNone);
    TraceOptions options;
    options.max_events = most;
    TraceRecorder ring(options);
    session->set_observer(&ring);
    run_steps(*session, 7);
    std::int64_t kept = 0;
    const std::vector<std::int64_t> steps = steps_with_events(ring);
    ASSERT_FALSE(steps.empty());
    EXPECT_EQ(steps.back() - steps.front() + 1, std::ssize(steps)) << "without holes";
    EXPECT_EQ(steps.back(), 6);
    for (const auto& summary : ring.summaries()) {
      kept += summary->cache_events ? std::ssize(*summary->cache_events) : 0;
    }
    EXPECT_LE(kept, std::max(most, newest));
    EXPECT_EQ(std::ssize(steps) == 7, most == events);
    EXPECT_EQ(numbers(ring).size(), 7u) << "tensors have their own budget";
    // A replay of a step whose events are gone does not bring them back alone.
    ASSERT_TRUE(session->seek({0, -1, 0, false}));
    run_steps(*session, 1);
    EXPECT_EQ(steps_with_events(ring), steps);
  }
}

TEST(TraceMemory, LongPromptsKeepFewerRowsAndNeverMoreThanAsked) {
  Scenario scenario = small_scenario();
  scenario.model = *preset("tiny");  // wide enough that 64 tokens are too many
  auto session = small_session(References::kBoth, scenario);
  TraceRecorder recorder({std::int64_t{1} << 40, 64});
  session->set_observer(&recorder);
  run_steps(*session, 1);  // 64 tokens
  const StepTrace& wide = *recorder.traces()[0];
  EXPECT_LT(wide.kept.size(), 64u);
  EXPECT_GE(wide.kept.size(), 8u);
  EXPECT_LT(wide.bytes, std::int64_t{40} << 20);
  EXPECT_GT(wide.bytes, std::int64_t{12} << 20);
  EXPECT_EQ(wide.kept.back(), 63);
  session = small_session();
  TraceRecorder narrow({std::int64_t{1} << 40, 10});
  session->set_observer(&narrow);
  run_steps(*session, 1);
  EXPECT_EQ(narrow.traces()[0]->kept.size(), 10u);
}

TEST(TraceRecorderObserves, FromTheMiddleOfAStepToo) {
  auto session = small_session();
  ASSERT_TRUE(session->seek({1, 1, 4, false}));
  TraceRecorder recorder;
  session->set_observer(&recorder);
  ASSERT_TRUE(session->step());
  const auto trace = recorder.traces().front();
  EXPECT_TRUE(trace->complete);
  EXPECT_EQ(trace->ops.front()->place.op, AS_OP_Q_ROPE_KV_INSERT);
  EXPECT_EQ(trace->kept.size(), 64u);
  EXPECT_EQ(trace->requests.size(), 3u);
}

TEST(TraceRecorderObserves, DoesNotChangeWhatTheSessionComputes) {
  auto plain = small_session(References::kSim), watched = small_session(References::kSim);
  TraceRecorder recorder;
  watched->set_observer(&recorder);
  while (!plain->finished()) {
    ASSERT_TRUE(plain->step());
    ASSERT_TRUE(watched->step());
    ASSERT_EQ(plain->digest(), watched->digest());
  }
}

TEST(TraceSnapshot, FindsStepsByNumber) {
  auto session = small_session();
  TraceRecorder recorder({0, 8});
  session->set_observer(&recorder);
  const auto info = session_info(*session);
  run_steps(*session, 5);
  const auto snapshot = take_snapshot(*session, recorder, info, 7);
  EXPECT_EQ(snapshot->version, 7u);
  EXPECT_EQ(snapshot->trace(2), nullptr);
  ASSERT_NE(snapshot->trace(3), nullptr);
  EXPECT_EQ(snapshot->trace(3)->step, 3);
  EXPECT_EQ(snapshot->trace(5), nullptr);
  for (std::int64_t i = 0; i < 5; ++i) EXPECT_EQ(snapshot->summary(i)->step, i);
  EXPECT_EQ(snapshot->summary(5), nullptr);
  EXPECT_EQ(snapshot->trace_bytes, recorder.bytes());
  EXPECT_EQ(snapshot->free_blocks, session->serving().num_free());
  EXPECT_EQ(snapshot->next_layer, -1);
  ASSERT_TRUE(session->seek({5, 2, 0, false}));
  const auto inside = take_snapshot(*session, recorder, info, 8);
  EXPECT_EQ(inside->next_layer, info->config.layers[2]);
  EXPECT_EQ(inside->next_op, AS_OP_ATTN_NORM);
}

TEST(TraceSnapshot, InfoListsTheOpsThatRun) {
  auto session = small_session();
  TraceRecorder recorder;
  session->set_observer(&recorder);
  run_steps(*session, 3);
  const auto info = session_info(*session);
  std::vector<as_op_id> listed = info->ops_before, ran;
  for (const auto& layer : info->ops) listed.insert(listed.end(), layer.begin(), layer.end());
  listed.insert(listed.end(), info->ops_after.begin(), info->ops_after.end());
  for (const auto& op : recorder.traces()[2]->ops) ran.push_back(op->place.op);
  EXPECT_EQ(listed, ran);
  EXPECT_EQ(info->num_blocks, 400);
  EXPECT_EQ(info->prompt_tokens, (std::vector<std::int64_t>{150, 37, 3}));
  EXPECT_EQ(info->lane_of[AS_OP_WO_A], "cpu");
  // Without C128A layers there is no c128_index.
  Scenario scenario = small_scenario();
  scenario.model = *preset("tiny", {0, 1});
  const auto other = session_info(*small_session(References::kNone, scenario));
  const bool has_c128 =
      std::ranges::find(other->ops_before, AS_OP_C128_INDEX) != other->ops_before.end();
  bool wanted = false;
  for (int i = 0; i < 2; ++i)
    wanted = wanted || type_of_layer(other->config, i) == LayerType::kC128A;
  EXPECT_EQ(has_c128, wanted);
}

}  // namespace trace_recorder_test
}  // namespace attnscope
