// Event log, explanations, replays and streams of cache events.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "engine/cache/event_log.h"
#include "engine/config/kv_event_file.h"
#include "engine/sched/explain.h"
#include "engine/sched/replay.h"
#include "engine/sched/workload_file.h"
#include "tests/unit/engine/blocks_bench.h"

namespace attnscope::blocks_test {
namespace blocks_tools_test {

using nlohmann::json;

SchedRequest request(std::int64_t id, Ids prompt) {
  SchedRequest r;
  r.id = id;
  r.tokens = std::move(prompt);
  r.stop.max_tokens = 16;
  return r;
}

SchedulerOptions small(std::vector<GroupSpec> groups, std::int64_t blocks,
                       CacheProfile p = CacheProfile::kM) {
  SchedulerOptions o;
  o.kv = options(p, std::move(groups), blocks);
  o.token_budget = 512;
  o.max_requests = 2;
  return o;
}

TEST(BlocksEventLog, LifeOfABlockFollowsFromIt) {
  BlockScheduler s = *BlockScheduler::make(small({full(16)}, 4));
  CacheEventLog log;
  s.kv().pool().set_observer(&log);
  ASSERT_TRUE(s.add(request(0, tokens(20))));
  s.results(s.schedule(), Ids{7});
  s.abort(0);
  ASSERT_TRUE(s.add(request(1, tokens(33, 500))));
  s.schedule();
  std::vector<std::string> names, stages;
  for (const CacheEvent& e : log.of_block(1)) {
    names.push_back(std::string(cache_event_name(e.kind)) + " " + cache_reason_name(e.reason));
    stages.emplace_back(allocation_stage_name(allocation_stage(e)));
  }
  EXPECT_EQ(stages, (std::vector<std::string>{"3 new blocks", "3 new blocks", "", "3 new blocks",
                                              "3 new blocks"}));
  EXPECT_EQ(names, (std::vector<std::string>{"allocate grow", "cache full_block", "free abort",
                                             "unhash reuse", "allocate grow"}));
  EXPECT_EQ(log.of_block(1)[2].step, 0);
  EXPECT_EQ(log.of_block(1)[4].step, 1);
  EXPECT_EQ(log.of_block(1)[4].request, 1);
  const json line = json::parse(event_json(log.of_block(1)[2]));
  EXPECT_EQ(line, (json{{"step", 0},
                        {"event", "free"},
                        {"reason", "abort"},
                        {"request", 0},
                        {"group", 0},
                        {"block", 1},
                        {"refs", 0}}));
}

// Within one allocation the stages follow one another: what left the windows, what was found, what
// is taken anew. An allocation begins with a lower stage than the one before it ended with, or is
// of another request.
TEST(BlocksEventLog, StagesOfAnAllocationComeInOrder) {
  CacheEventLog log(std::size_t{1} << 22);
  WorkloadRun run;
  std::shared_ptr<SchedWatch> none = std::make_shared<SchedWatch>();
  run.watch = [&](BlockScheduler& s) {
    s.kv().pool().set_observer(&log);
    return none;
  };
  ASSERT_TRUE(run_workload(*load_workload("g3"), run));
  std::int64_t seen[4] = {};
  std::map<std::pair<std::int64_t, std::int64_t>, AllocationStage> last;  // by step and request
  for (const CacheEvent& e : log.events()) {
    const AllocationStage stage = allocation_stage(e);
    ++seen[static_cast<int>(stage)];
    const json line = json::parse(event_json(e));
    EXPECT_EQ(line.value("stage", 0), static_cast<int>(stage));
    if (e.kind == CacheEventKind::kPreempt) last.erase({e.step, e.request});
    if (stage == AllocationStage::kNone) continue;
    AllocationStage& before = last[{e.step, e.request}];
    EXPECT_LE(before, stage) << event_json(e);
    before = stage;
  }
  for (int stage = 0; stage < 4; ++stage) EXPECT_GT(seen[stage], 0) << stage;
}

// References and free blocks follow from the events of a whole workload alone.
TEST(BlocksEventLog, EventsAccountForAllReferences) {
  for (const char* name : {"g2", "g7", "g8"}) {
    CacheEventLog log(std::size_t{1} << 22);
    WorkloadRun run;
    std::map<std::int32_t, std::int64_t> refs;
    run.watch = [&](BlockScheduler& s) {
      s.kv().pool().set_observer(&log);
      return std::make_shared<SchedWatch>();
    };
    const Result<WorkloadResult> r = run_workload(*load_workload(name), run);
    ASSERT_TRUE(r);
    std::int64_t evictions = 0, preemptions = 0, aborts = 0;
    for (const CacheEvent& e : log.events()) {
      if (e.kind == CacheEventKind::kAllocate || e.kind == CacheEventKind::kTouch) {
        ASSERT_EQ(++refs[e.block], e.refs);
      } else if (e.kind == CacheEventKind::kFree) {
        ASSERT_EQ(--refs[e.block], e.refs);
      }
      evictions += e.kind == CacheEventKind::kUnhash && e.reason == CacheReason::kReuse;
      preemptions += e.kind == CacheEventKind::kPreempt;
      aborts += e.kind == CacheEventKind::kAbort;
    }
    EXPECT_EQ(log.dropped(), 0);
    EXPECT_EQ(evictions, r->evictions);
    EXPECT_EQ(preemptions, r->preemptions);
    EXPECT_EQ(aborts, r->aborted);
    for (const auto& [block, n] : refs) EXPECT_EQ(n, 0) << block;
  }
}

TEST(BlocksEventLog, KeepsTheNewest) {
  CacheEventLog log(2);
  for (std::int32_t b = 1; b <= 3; ++b) {
    CacheEvent e;
    e.block = b;
    log.on_event(e);
  }
  EXPECT_EQ(log.events().size(), 2u);
  EXPECT_EQ(log.dropped(), 1);
  EXPECT_EQ(log.events().front().block, 2);
}

TEST(BlocksExplain, WhyAPromptMissed) {
  Bench b(options(CacheProfile::kM, {full(32), flagged(swa(8, 8))}, 60));
  KvRequest& r = b.add(tokens(128));
  b.admit(r);
  const MissReport report = explain_miss(b.kv, r);
  EXPECT_EQ(report.hit, 0);
  EXPECT_EQ(report.longest, 96);
  ASSERT_EQ(report.groups.size(), 2u);
  EXPECT_EQ(report.groups[0].reach, 96);
  EXPECT_EQ(report.groups[0].missing_entry, -1);
  EXPECT_EQ(report.groups[1].reach, 0);  // its draft needs a block that this profile never keeps
  EXPECT_EQ(report.limiting, Ids{1});

  Bench c(options(CacheProfile::kM, {full(16), swa(16, 32)}, 40));
  KvRequest& r0 = c.add(tokens(64));
  c.admit(r0);
  c.forget(r0, 1, 2);
  KvRequest& r1 = c.add(tokens(64));
  const MissReport hole = explain_miss(c.kv, r1);
  EXPECT_EQ(hole.hit, 32);
  EXPECT_EQ(hole.longest, 48);
  EXPECT_EQ(hole.groups[0].reach, 48);
  EXPECT_EQ(hole.groups[1].reach, 32);
  EXPECT_EQ(hole.groups[1].missing_entry, 2);
  EXPECT_EQ(hole.groups[1].missing_position, 32);
  EXPECT_TRUE(hole.groups[1].ever_stored);
  EXPECT_EQ(hole.limiting, Ids{1});
  EXPECT_NE(miss_text(hole).find("lacks entry 2 (from token 32)"), std::string::npos);
}

TEST(BlocksExplain, WhyTheHeadWaits) {
  SchedulerOptions o = small({full(16), swa(16, 32)}, 21);
  BlockScheduler s = *BlockScheduler::make(o);
  EXPECT_EQ(explain_admission(s).request, -1);
  ASSERT_TRUE(s.add(request(0, tokens(100))));
  s.results(s.schedule(), Ids{7});
  ASSERT_TRUE(s.add(request(1, tokens(100))));
  const AdmissionReport r = explain_admission(s);
  EXPECT_EQ(r.request, 1);
  EXPECT_EQ(r.free, 6);
  EXPECT_EQ(r.held, 14);
  EXPECT_EQ(r.groups[0].required, 7);
  EXPECT_EQ(r.groups[0].hit, 6);
  EXPECT_EQ(r.groups[0].evictable, 0);
  EXPECT_EQ(r.groups[0].need, 1);
  EXPECT_EQ(r.groups[1].need, 1);
  EXPECT_FALSE(r.blocks_short);
  ASSERT_TRUE(s.abort(1));
  ASSERT_TRUE(s.add(request(2, tokens(100, 900))));
  const AdmissionReport other = explain_admission(s);
  EXPECT_EQ(other.need, 14);
  EXPECT_TRUE(other.blocks_short);
  EXPECT_FALSE(other.never_fits);
  EXPECT_TRUE(s.schedule().scheduled.size() == 1);
  ASSERT_TRUE(s.abort(2));
  ASSERT_TRUE(s.add(request(3, tokens(400, 900))));
  EXPECT_TRUE(explain_admission(s).never_fits);
  EXPECT_NE(admission_text(explain_admission(s)).find("empty pool"), std::string::npos);
}

TEST(BlocksExplain, WhatAPreemptionCost) {
  SchedulerOptions o = small({full(16)}, 6);
  o.whole_sequence = false;
  o.kv.caching = false;
  BlockScheduler s = *BlockScheduler::make(o);
  ASSERT_TRUE(s.add(request(0, tokens(40))));
  ASSERT_TRUE(s.add(request(1, tokens(30, 900))));
  std::int64_t lost = 0;
  for (int i = 0; i < 12 && lost == 0; ++i) {
    const std::int64_t computed = s.find(1)->computed;
    const StepPlan plan = s.schedule();
    if (!plan.preempted.empty()) {
      EXPECT_EQ(plan.preempted, std::vector<std::int64_t>{1});
      lost = computed;
    }
    s.results(plan, Ids(plan.scheduled.size(), 7));
  }
  ASSERT_GT(lost, 0);
  ASSERT_TRUE(s.abort(0));
  s.results(s.schedule(), Ids{7});
  const std::vector<PreemptionCost> costs = preemption_costs(s);
  ASSERT_EQ(costs.size(), 1u);
  EXPECT_EQ(costs[0].request, 1);
  EXPECT_EQ(costs[0].preemptions, 1);
  EXPECT_EQ(costs[0].recomputed, lost);
  EXPECT_EQ(s.counters().recomputed_tokens, lost);
}

constexpr const char* kHeader =
    R"({"format":"attnscope-blocks-replay","version":1,"groups":[{"kind":"full","block_size":16}],)"
    R"("blocks":11,"token_budget":100,"max_seqs":4,"show":["tables","queue"]})";

std::string replay_text(const std::vector<std::string>& lines) {
  std::string text = std::string(kHeader) + "\n";
  for (const std::string& line : lines) text += line + "\n";
  return text;
}

TEST(BlocksReplay, TellsTheStateAfterEachCall) {
  Result<Replay> replay = parse_replay(
      replay_text({R"({"call":"add","id":4,"prompt_range":[0,54],"max_tokens":5})", "",
                   "// a comment", R"({"call":"schedule","expect":{"free":6,"running":[4]}})",
                   R"({"call":"results","tokens":{"4":[9]}})", R"({"call":"abort","id":4})",
                   R"({"call":"reset"})"}),
      "trace");
  ASSERT_TRUE(replay) << replay.error().text();
  Result<ReplayOutcome> outcome = run_replay(*replay);
  ASSERT_TRUE(outcome) << outcome.error().text();
  EXPECT_TRUE(outcome->mismatches.empty());
  std::vector<json> lines;
  std::istringstream in(outcome->lines);
  for (std::string line; std::getline(in, line);) lines.push_back(json::parse(line));
  ASSERT_EQ(lines.size(), 5u);
  EXPECT_EQ(lines[1]["line"], 5);
  EXPECT_EQ(lines[1]["tables"], (json{{"4", {{1, 2, 3, 4}}}}));
  EXPECT_EQ(lines[1]["hash_entries"], 3);
  EXPECT_EQ(lines[3]["queue"], (json{5, 6, 7, 8, 9, 10, 4, 3, 2, 1}));
  EXPECT_EQ(lines[3]["finished"], (json{4}));
  EXPECT_EQ(lines[4]["hash_entries"], 0);
}

TEST(BlocksReplay, TellsWhatDiffers) {
  Result<Replay> replay =
      parse_replay(replay_text({R"({"call":"schedule","expect":{"free":9,"colour":1}})"}), "trace");
  ASSERT_TRUE(replay);
  Result<ReplayOutcome> outcome = run_replay(*replay);
  ASSERT_TRUE(outcome);
  ASSERT_EQ(outcome->mismatches.size(), 2u);
  EXPECT_EQ(outcome->mismatches[1].what, "free: expected 9, found 10");
  EXPECT_EQ(outcome->mismatches[0].line, 2);
}

TEST(BlocksReplay, BadFilesAreRefusedAsAWhole) {
  const std::string add = R"({"call":"add","id":0,"tokens":[1,2],"max_tokens":5})";
  const std::string deep = std::string(100000, '[') + std::string(100000, ']');
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"", "holds no line"},
      {"{\"call\":\"schedule\"}\n", "line 1"},
      {replay_text({add, "{"}), "line 3"},
      {replay_text({add, R"({"call":"fly"})"}), "expected one of add"},
      {replay_text({R"({"call":"add","id":0,"max_tokens":5})"}), "prompt_range"},
      {replay_text({R"({"call":"add","id":-1,"tokens":[1],"max_tokens":5})"}), "line 2: id"},
      {replay_text({R"({"call":"add","id":0,"tokens":[1],"max_tokens":5,"colour":1})"}), "colour"},
      {replay_text({R"({"call":"add","id":0,"prompt_range":[0,1000000000],"max_tokens":5})"}),
       "prompt_range: has 1000000001 tokens"},
      {replay_text({R"({"call":"results","tokens":{"x":[1]}})"}), "request id"},
      {replay_text({R"({"call":"results","tokens":{"00":[1]}})"}), "request id"},
      {replay_text({R"({"call":"schedule","expect":)" + deep + "}"}), "nested deeper"},
      {replay_text({R"({"call":"schedule","expect":7})"}), "expect"}};
  for (const auto& [text, message] : cases) {
    const Result<Replay> replay = parse_replay(text, "trace");
    ASSERT_FALSE(replay) << text;
    EXPECT_NE(replay.error().text().find(message), std::string::npos) << replay.error().text();
  }
  for (const auto& [line, message] :
       {std::pair<std::string, std::string>{add, "already alive"},
        {R"({"call":"results","tokens":{"0":[1]}})", "without results"}}) {
    const Result<Replay> replay = parse_replay(replay_text({add, line}), "trace");
    ASSERT_TRUE(replay) << replay.error().text();
    const Result<ReplayOutcome> outcome = run_replay(*replay);
    ASSERT_FALSE(outcome);
    EXPECT_NE(outcome.error().text().find("trace: line 3: "), std::string::npos);
    EXPECT_NE(outcome.error().text().find(message), std::string::npos);
  }
}

TEST(BlocksEventStream, OwnEventsComeBackInBothFormats) {
  BlockScheduler s = *BlockScheduler::make(small({full(16), swa(16, 32)}, 30, CacheProfile::kA));
  s.kv().keep_events(true);
  KvEventMirror mirror;
  for (std::int64_t id = 0; id < 6; ++id) {
    ASSERT_TRUE(s.add(request(id, tokens(40 + 7 * static_cast<std::int32_t>(id)))));
    s.results(s.schedule(), Ids(4, 7));
    if (id >= 2) s.abort(id - 2);
    KvEventBatch batch;
    batch.time = 1.5;
    batch.rank = 0;
    batch.events = s.kv().take_events();
    const std::string text = kv_events_json(batch);
    const Result<std::vector<KvEventBatch>> read = parse_kv_events(text, "stream");
    ASSERT_TRUE(read) << read.error().text();
    EXPECT_EQ(kv_events_json((*read)[0]), text);
    const std::vector<std::uint8_t> packed = json::to_msgpack(json::parse(text));
    const Result<std::vector<KvEventBatch>> unpacked =
        parse_kv_events(std::string(packed.begin(), packed.end()), "stream");
    ASSERT_TRUE(unpacked) << unpacked.error().text();
    EXPECT_EQ(kv_events_json((*unpacked)[0]), text);
    for (const KvEvent& event : (*unpacked)[0].events) EXPECT_TRUE(mirror.apply(event));
    const Finding finding = check_events(s.kv(), mirror);
    EXPECT_FALSE(finding) << finding->text();
  }
}

TEST(BlocksEventStream, ListsBytesAndIntegers) {
  const json batch = {2.5,
                      {{"BlockStored",
                        {-1, json::binary({1, 171})},
                        nullptr,
                        {5, 6},
                        2,
                        nullptr,
                        "GPU",
                        "ad",
                        nullptr,
                        3,
                        "sliding_window",
                        128},
                       {"BlockRemoved", {-1}, "GPU", 3},
                       {"AllBlocksCleared"}},
                      1};
  const std::vector<std::uint8_t> packed = json::to_msgpack(batch);
  const Result<std::vector<KvEventBatch>> read =
      parse_kv_events(std::string(packed.begin(), packed.end()), "stream");
  ASSERT_TRUE(read) << read.error().text();
  const KvEventBatch& b = (*read)[0];
  EXPECT_EQ(b.rank, 1);
  ASSERT_EQ(b.events.size(), 3u);
  EXPECT_EQ(b.events[0].hashes, (std::vector<std::string>{"ffffffffffffffff", "01ab"}));
  EXPECT_EQ(b.events[0].adapter, "ad");
  EXPECT_EQ(b.events[0].group, 3);
  EXPECT_EQ(b.events[0].window, 128);
  EXPECT_EQ(b.events[0].tokens, (Ids{5, 6}));
  KvEventMirror mirror;
  EXPECT_TRUE(mirror.apply(b.events[0]));
  EXPECT_TRUE(mirror.apply(b.events[1]));
  EXPECT_EQ(mirror.size(), 1u);
  EXPECT_FALSE(mirror.apply(b.events[1]));  // twice: nobody stored it again
  EXPECT_TRUE(mirror.apply(b.events[2]));
  EXPECT_EQ(mirror.size(), 0u);
}

TEST(BlocksEventStream, BadStreamsAreRefusedWithTheirPlace) {
  const std::string deep(100000, '\x91');
  const std::string nested = std::string(100000, '[') + std::string(100000, ']');
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"", "empty"},
      {"[1,[[\"AllBlocksCleared\"]]]\n[1,[[\"Nope\"]]]\n", "line 2: event 0: \"Nope\""},
      {"[1,[[\"BlockStored\"]]]", "block_hashes"},
      {"[1,[[\"BlockRemoved\",[[1]]]]]", "hash"},
      {"[1,[{\"type\":\"BlockStored\",\"block_hashes\":[],\"token_ids\":[\"a\"]}]]", "token id"},
      {"[1,[{\"type\":\"BlockStored\",\"block_hashes\":[],\"block_size\":-3}]]", "block_size"},
      {"[1,[{\"type\":\"BlockStored\",\"block_hashes\":[],\"token_ids\":[7,4294967296]}]]",
       "token id 1"},
      {"[1,[{\"type\":\"BlockRemoved\",\"block_hashes\":[],\"x\":" + nested + "}]]",
       "nested deeper"},
      {"{\"events\": [\n  {},\n  x\n]}", "line 3, column 3"},
      {"{\"ts\":1}", "batch"},
      {"[[1,2]]", "batch 0"},
      {deep, "nested deeper than 32"},
      {"\xc1", "MessagePack from byte 1"}};
  for (const auto& [bytes, message] : cases) {
    const Result<std::vector<KvEventBatch>> read = parse_kv_events(bytes, "stream");
    ASSERT_FALSE(read) << bytes.substr(0, 80);
    EXPECT_NE(read.error().text().find(message), std::string::npos) << read.error().text();
  }
}

TEST(BlocksWorkloadFile, BadFilesNameWhatIsWrong) {
  const std::string good = R"({"groups":[{"kind":"full","block_size":16}],"blocks":81,"seed":1,
    "requests":10,"S":5,"T":12,"O":6,"token_budget":256,"max_seqs":16)";
  ASSERT_TRUE(parse_workload(good + "}", "w"));
  const std::vector<std::pair<std::string, std::string>> cases = {
      {R"(,"colour":1})", "colour"},
      {R"(,"profile":"B"})", "profile"},
      {R"(,"policy":"lifo"})", "policy"},
      {R"(,"flagged":[1]})", "there is no group 1"},
      {R"(,"retention":33})", "multiple of scheduler_block_size"},
      {R"(,"retention":"sparse"})", "dense"},
      {R"(,"caching":1})", "true or false"},
      {R"(,"hash_block_size":5})", "hash_block_size"},
      {R"(,"hash_block_size":8})", "with one group both are equal"},
      {R"(,"scheduler_block_size":24})", "scheduler_block_size"},
      {R"(,"watermark":1.5})", "watermark"},
      {R"(,"max_model_len":20})", "request"},
      {R"(,"max_model_len":30})", "request"},  // S and T alone would fit
      {R"(,"switches":{"free_order":"random"}})", "free_order"},
      {R"(,"switches":{"colour":1}})", "colour"},
      {R"(,"retention":0,"switches":{"retention":0}})", "give it once"}};
  for (const auto& [rest, message] : cases) {
    const Result<Workload> w = parse_workload(good + rest, "w");
    ASSERT_FALSE(w) << rest;
    EXPECT_NE(w.error().text().find(message), std::string::npos) << w.error().text();
  }
}

TEST(BlocksWorkloadFile, SwitchesAreSingleDifferences) {
  const std::string text = R"({"groups":[{"kind":"full","block_size":16}],"blocks":81,"seed":1,
    "requests":10,"S":5,"T":12,"O":6,"token_budget":256,"max_seqs":16,"profile":"M",
    "switches":{"free_order":"split-front","mask":"tail+draft-shift","window_basis":"processed",
      "adopt":"two-phase","cap_B":"in-flight","partial_hashes":true,"victim_cursor":"below-cursor",
      "defer_frees":true,"stats":"admission","full_trim":"stored-length","packed_layout":true,
      "concurrency":"by-group","retention":"dense","watermark":0.5}})";
  const Result<Workload> w = parse_workload(text, "w");
  ASSERT_TRUE(w) << w.error().text();
  EXPECT_EQ(w->options.kv.switches, switches_of(CacheProfile::kA));
  EXPECT_EQ(w->options.kv.watermark, 0.5);
  const Result<Workload> a = parse_workload(text, "w", CacheProfile::kA);
  ASSERT_TRUE(a);
  EXPECT_EQ(a->options.kv.switches, switches_of(CacheProfile::kA));
}

}  // namespace blocks_tools_test
}  // namespace attnscope::blocks_test
