// Speed of the block manager and the scheduler, without a model: pool operations by pool size, a
// decode step, whole workloads bare, with digests and with the checks of every step.
#include "tests/bench/bench_blocks.h"

#include <benchmark/benchmark.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "engine/sched/step_watch.h"
#include "engine/sched/workload_file.h"

namespace attnscope {
namespace {

using benchmark::Counter;
using benchmark::State;

void per_block(State& state, std::int64_t blocks) {
  state.counters["per block"] =
      Counter(static_cast<double>(blocks), Counter::kIsIterationInvariantRate | Counter::kInvert);
}

// get and free of 1,000 blocks; argument: blocks of the pool, caching.
void pool_get_free(State& state) {
  const bool caching = state.range(1) != 0;
  BlockPool pool(state.range(0), caching, FreeOrder::kSplitFront);
  std::vector<std::int32_t> blocks;
  for (auto _ : state) {
    blocks.clear();
    pool.get(1000, blocks);
    pool.release(blocks);
  }
  per_block(state, 1000);
}

// The same where every block taken loses a key and gets another one.
void pool_get_cache_free(State& state) {
  BlockPool pool(state.range(0), true, FreeOrder::kAppend);
  std::vector<std::int32_t> blocks;
  std::uint64_t content = 0;
  for (auto _ : state) {
    blocks.clear();
    pool.get(1000, blocks);
    for (const std::int32_t b : blocks) {
      ++content;
      pool.cache(b, {content * 0x9e3779b97f4a7c15u, content}, 0);
    }
    pool.release(blocks);
  }
  per_block(state, 1000);
}

KvOptions five_groups(std::int64_t blocks) {
  KvOptions o;
  o.groups = {{GroupKind::kFull, 256, 0, false},
              {GroupKind::kSliding, 64, 128, false},
              {GroupKind::kSliding, 64, 128, false},
              {GroupKind::kSliding, 4, 8, false},
              {GroupKind::kSliding, 8, 128, false}};
  o.num_blocks = blocks;
  o.max_model_len = 1 << 20;
  return o;
}

// A decode step of 64 or 256 requests of five groups; argument: requests, blocks, profile. Timed by
// hand: schedule() or results() alone.
void decode_step(State& state, bool results) {
  SchedulerOptions o;
  o.kv = five_groups(state.range(1));
  o.kv.switches = switches_of(state.range(2) == 0 ? CacheProfile::kM : CacheProfile::kA);
  o.token_budget = 1 << 16;
  o.max_requests = state.range(0);
  BlockScheduler s = *BlockScheduler::make(o);
  for (std::int64_t i = 0; i < state.range(0); ++i) {
    SchedRequest r;
    r.id = i;
    r.stop.max_tokens = std::int64_t{1} << 40;
    for (std::int32_t p = 0; p < 200 + static_cast<std::int32_t>(i); ++p) {
      r.tokens.push_back(static_cast<std::int32_t>(i) * 1000000 + p);
    }
    if (!s.add(std::move(r))) return state.SkipWithError("a request was refused");
  }
  std::vector<std::int32_t> sampled(static_cast<std::size_t>(state.range(0)), 1);
  s.results(s.schedule(), sampled);
  using Clock = std::chrono::steady_clock;
  for (auto _ : state) {
    const Clock::time_point start = Clock::now();
    const StepPlan& plan = s.schedule();
    const Clock::time_point scheduled = Clock::now();
    s.results(plan, sampled);
    const Clock::time_point end = Clock::now();
    state.SetIterationTime(
        std::chrono::duration<double>(results ? end - scheduled : scheduled - start).count());
  }
  state.counters["per request"] = Counter(static_cast<double>(state.range(0)),
                                          Counter::kIsIterationInvariantRate | Counter::kInvert);
}

// G9-G12: bare, with digests, with the checks of every step; argument: profile.
enum class Extra { kNone, kDigests, kChecks };
void workloads(State& state, Extra extra) {
  const CacheProfile profile = state.range(0) == 0 ? CacheProfile::kM : CacheProfile::kA;
  std::vector<Workload> loaded;
  for (const char* name : {"g9", "g10", "g11", "g12"}) {
    Result<Workload> w = load_workload(name, profile);
    if (!w) return state.SkipWithError(w.error().text().c_str());
    loaded.push_back(std::move(*w));
  }
  WorkloadRun run;
  run.digests = extra == Extra::kDigests;
  if (extra == Extra::kChecks) {
    run.watch = [](BlockScheduler& s) -> std::shared_ptr<SchedWatch> {
      return std::make_shared<StepWatch>(s);
    };
  }
  std::int64_t tokens = 0;
  for (auto _ : state) {
    for (const Workload& w : loaded) {
      const Result<WorkloadResult> r = run_workload(w, run);
      if (!r) return state.SkipWithError(r.error().text().c_str());
      tokens += r->scheduled_tokens;
    }
  }
  state.counters["tokens/s"] = Counter(static_cast<double>(tokens), Counter::kIsRate);
}

// Hashing and looking up a prompt of 131,072 tokens that is all there.
void long_prompt(State& state, bool lookup) {
  KvManager kv(*check_options(five_groups(100000)));
  KvRequest r;
  for (std::int32_t p = 0; p < 131072; ++p) r.tokens.push_back(p);
  r.prompt_tokens = r.num_tokens();
  kv.add(r);
  Allocation a;
  a.new_tokens = r.num_tokens();
  if (kv.allocate(r, a) != Allocated::kYes) return state.SkipWithError("no blocks");
  for (auto _ : state) {
    if (lookup) {
      benchmark::DoNotOptimize(kv.lookup(r).tokens);
    } else {
      r.chain.clear();
      kv.extend_hashes(r);
    }
  }
}

}  // namespace

void register_block_benchmarks() {
  for (const std::int64_t blocks : {1 << 10, 1 << 15, 1 << 20}) {
    benchmark::RegisterBenchmark("blocks/pool get+free, caching off", pool_get_free)
        ->Args({blocks, 0});
    benchmark::RegisterBenchmark("blocks/pool get+free, caching on", pool_get_free)
        ->Args({blocks, 1});
    benchmark::RegisterBenchmark("blocks/pool get+evict+cache+free", pool_get_cache_free)
        ->Args({blocks});
  }
  for (const std::int64_t profile : {0, 1}) {
    for (const std::int64_t blocks : {60000, 1 << 20}) {
      for (const std::int64_t requests : {64, 256}) {
        for (const bool results : {false, true}) {
          benchmark::RegisterBenchmark(
              results ? "blocks/decode results(), 5 groups" : "blocks/decode schedule(), 5 groups",
              decode_step, results)
              ->Args({requests, blocks, profile})
              ->Iterations(2000)
              ->UseManualTime()
              ->Unit(benchmark::kMicrosecond);
        }
      }
    }
    benchmark::RegisterBenchmark("blocks/g9-g12", workloads, Extra::kNone)
        ->Args({profile})
        ->Unit(benchmark::kMillisecond);
    benchmark::RegisterBenchmark("blocks/g9-g12, digests", workloads, Extra::kDigests)
        ->Args({profile})
        ->Unit(benchmark::kMillisecond);
    benchmark::RegisterBenchmark("blocks/g9-g12, checks", workloads, Extra::kChecks)
        ->Args({profile})
        ->Unit(benchmark::kMillisecond);
  }
  benchmark::RegisterBenchmark("blocks/hash 131072 tokens by 4", long_prompt, false)
      ->Unit(benchmark::kMillisecond);
  benchmark::RegisterBenchmark("blocks/lookup 131072 tokens, full hit", long_prompt, true)
      ->Unit(benchmark::kMillisecond);
}

}  // namespace attnscope
