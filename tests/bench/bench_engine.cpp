// Speed of whole steps on the CPU lane: decode and prefill of shipped scenarios, with and without
// references. Benchmarks that take minutes are there only when ATTNSCOPE_BENCH_ALL is set.
//
// Each runs a fixed number of steps on one session. Columns: time of a step (or of the prefill),
// rates, the peak of the resident set while measuring, and microseconds per call of the ops that
// cost most.
#include <benchmark/benchmark.h>
#include <malloc.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "app/reports/doctor.h"
#include "app/wiring/wiring.h"
#include "engine/session/session.h"
#include "kernels/params/op_table.h"
#include "tests/bench/bench_blocks.h"
#include "tests/bench/bench_capture.h"

namespace attnscope {
namespace {

constexpr std::array kTimedOps = {AS_OP_Q_B_PROJ, AS_OP_INDEXER_LOGITS, AS_OP_INDEXER_TOPK,
                                  AS_OP_SPARSE_ATTENTION, AS_OP_WO_A};

struct Case {
  std::string name;
  std::string scenario;
  References references = References::kNone;
  int decode_steps = 1;
};

// A session whose requests have all finished their prefill, and what that cost.
struct Prefilled {
  std::string scenario;
  std::unique_ptr<Session> session;
  double seconds = 0;  // references included
  std::int64_t tokens = 0;
  double peak_mb = 0;
};

// Gives freed memory back and forgets the peak so far.
void reset_peak() {
  malloc_trim(0);
  std::ofstream("/proc/self/clear_refs") << "5";
}

double peak_mb() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with("VmHWM:")) return std::strtod(line.c_str() + 6, nullptr) * 1024 / 1e6;
  }
  return 0;
}

// The session that a prefill benchmark leaves for the decode benchmark after it.
std::optional<Prefilled>& kept() {
  static std::optional<Prefilled> slot;
  return slot;
}

bool failed = false;

void fail(benchmark::State& state, const std::string& message) {
  failed = true;
  state.SkipWithError(message.c_str());
}

std::optional<Prefilled> prefill(benchmark::State& state, const Case& c) {
  kept().reset();
  reset_peak();
  auto scenario = load_scenario(c.scenario);
  if (!scenario) {
    fail(state, scenario.error().text());
    return std::nullopt;
  }
  SessionOptions options;
  options.references = c.references;
  options.rewind_every = 0;
  auto session = Session::create(*scenario, all_lanes(), options);
  if (!session) {
    fail(state, session.error().text());
    return std::nullopt;
  }
  Prefilled result{c.scenario, std::move(*session), 0, 0, 0};
  while (!result.session->decoding()) {
    if (auto ok = result.session->step(); !ok) {
      fail(state, ok.error().text());
      return std::nullopt;
    }
    result.seconds += result.session->history().back().wall_seconds;
    result.tokens += result.session->history().back().tokens;
  }
  result.peak_mb = peak_mb();
  return result;
}

void count_ops(benchmark::State& state, const Session& session, std::size_t first_step) {
  for (as_op_id op : kTimedOps) {
    double microseconds = 0;
    int calls = 0;
    for (std::size_t i = first_step; i < session.history().size(); ++i) {
      for (const OpTiming& timing : session.history()[i].timings) {
        if (timing.op != op) continue;
        microseconds += timing.microseconds;
        ++calls;
      }
    }
    if (calls > 0) state.counters[std::string("us_") + as_op_find(op)->name] = microseconds / calls;
  }
}

void prefill_benchmark(benchmark::State& state, const Case& c) {
  for (auto _ : state) {
    auto done = prefill(state, c);
    if (!done) return;
    state.SetIterationTime(done->seconds);
    state.counters["tokens/s"] = static_cast<double>(done->tokens) / done->seconds;
    state.counters["peak_MB"] = done->peak_mb;
    count_ops(state, *done->session, 0);
    kept() = std::move(done);
  }
}

void decode_benchmark(benchmark::State& state, const Case& c) {
  std::optional<Prefilled> start;
  if (c.references == References::kNone && kept() && kept()->scenario == c.scenario) {
    start.swap(kept());
  } else {
    start = prefill(state, c);
  }
  if (!start) return;
  Session& session = *start->session;
  const std::size_t first = session.history().size();
  reset_peak();
  for (auto _ : state) {
    if (session.finished()) {
      fail(state, "the scenario ends before all steps are measured");
      return;
    }
    if (auto ok = session.step(); !ok) {
      fail(state, ok.error().text());
      return;
    }
  }
  double seconds = 0, tokens = 0;
  for (std::size_t i = first; i < session.history().size(); ++i) {
    seconds += session.history()[i].wall_seconds;
    tokens += static_cast<double>(session.history()[i].tokens);
    for (const TapResult& tap : session.history()[i].results) {
      if (tap.verdict == Verdict::kWrong) {
        fail(state, "a measured step is wrong: see ./attnscope run " + c.scenario);
        return;
      }
    }
  }
  state.counters["steps/s"] = static_cast<double>(session.history().size() - first) / seconds;
  state.counters["tokens/s"] = tokens / seconds;
  state.counters["peak_MB"] = peak_mb();
  count_ops(state, session, first);
}

void register_benchmarks() {
  const Case tiny{"tiny/no_references", "default", References::kNone, 20};
  const Case tiny_both{"tiny/both_references", "default", References::kBoth, 20};
  const Case flash{"flash/no_references", "flash", References::kNone, 5};
  const Case flash_both{"flash/both_references", "flash", References::kBoth, 1};
  const auto add_prefill = [](const Case& c) {
    benchmark::RegisterBenchmark(("prefill/" + c.name).c_str(), prefill_benchmark, c)
        ->Iterations(1)
        ->UseManualTime()
        ->Unit(benchmark::kMillisecond);
  };
  const auto add_decode = [](const Case& c) {
    benchmark::RegisterBenchmark(("decode/" + c.name).c_str(), decode_benchmark, c)
        ->Iterations(c.decode_steps)
        ->UseRealTime()
        ->Unit(benchmark::kMillisecond);
  };
  add_prefill(tiny);
  add_decode(tiny);
  add_decode(tiny_both);
  add_prefill(flash);
  add_decode(flash);
  if (std::getenv("ATTNSCOPE_BENCH_ALL") != nullptr) add_decode(flash_both);
}

int run(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return AS_USAGE;
  const nlohmann::json machine = describe_machine();
  for (const auto& [key, value] : machine.items()) {
    benchmark::AddCustomContext(key, value.is_string() ? value.get<std::string>() : value.dump());
  }
  register_benchmarks();
  register_block_benchmarks();
  register_capture_benchmarks();
  const std::size_t count = benchmark::RunSpecifiedBenchmarks();
  kept().reset();
  benchmark::Shutdown();
  if (failed) return AS_INTERNAL;
  return count > 0 ? 0 : AS_USAGE;
}

}  // namespace
}  // namespace attnscope

int main(int argc, char** argv) {
  try {
    return attnscope::run(argc, argv);
  } catch (const std::exception& e) {
    std::fprintf(stderr, "%s\n", e.what());
    return AS_INTERNAL;
  }
}
