// What recording adds to a run, how fast captures are written beside plain files of the same size,
// opened and compared. The default scenario, tiny model, no references; captures of level full hold
// 64 token rows of a step at most, with ATTNSCOPE_BENCH_ALL all of them and more steps (1.3 and
// 2 GB). They lie in the folder for temporary files while it runs.
#include "tests/bench/bench_capture.h"

#include <benchmark/benchmark.h>
#include <fcntl.h>
#include <malloc.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "app/reports/capture_record.h"
#include "app/reports/own_judge.h"
#include "app/wiring/wiring.h"
#include "engine/capture/capture_diff.h"

namespace attnscope {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// A folder for the captures of one benchmark; goes with it.
struct Folder {
  fs::path path = fs::temp_directory_path() / ("attnscope-bench-" + std::to_string(::getpid()));
  Folder() { fs::create_directories(path); }
  ~Folder() {
    std::error_code code;
    fs::remove_all(path, code);
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  std::string at(const char* name) const { return (path / name).string(); }
};

bool large() { return std::getenv("ATTNSCOPE_BENCH_ALL") != nullptr; }

// Memory that no file is behind.
double anonymous_mb() {
  malloc_trim(0);
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with("RssAnon:")) return std::strtod(line.c_str() + 8, nullptr) * 1024 / 1e6;
  }
  return 0;
}

RunOptions run_options(std::int64_t decode_steps) {
  RunOptions options;
  options.session.references = References::kNone;
  options.session.rewind_every = 0;
  if (decode_steps > 0) options.decode_steps = decode_steps;
  return options;
}

Result<RecordResult> record(const std::string& path, CaptureLevel level,
                            std::int64_t decode_steps = 0,
                            const std::vector<std::string>& lanes = {}) {
  auto scenario = load_scenario("default");
  if (!scenario) return scenario.error();
  RecordOptions options;
  options.run = run_options(decode_steps);
  options.run.session.lanes = lanes;
  options.capture.level = level;
  if (large()) options.rows = 0;
  return record_scenario(*scenario, all_lanes(), options, path, nullptr);
}

// Of the whole default scenario without anybody watching.
Result<double> plain_seconds() {
  auto scenario = load_scenario("default");
  if (!scenario) return scenario.error();
  auto session = Session::create(*scenario, all_lanes(), run_options(0).session);
  if (!session) return session.error();
  std::int64_t decoded = 0;
  const auto start = Clock::now();
  while (!(*session)->finished() && decoded < scenario->decode_steps) {
    decoded += (*session)->decoding() ? 1 : 0;
    if (auto ok = (*session)->step(); !ok) return ok.error();
  }
  return seconds_since(start);
}

double median(std::vector<double> values) {
  std::ranges::sort(values);
  return values.empty() ? 0 : values[values.size() / 2];
}

// Runs with and without a recording in turns: the median of what the one took more.
void record_benchmark(benchmark::State& state, CaptureLevel level) {
  const Folder folder;
  std::vector<double> ratios;
  for (auto _ : state) {
    auto plain = plain_seconds();
    if (!plain) return state.SkipWithError(plain.error().text().c_str());
    auto made = record(folder.at("recorded.acap"), level);
    if (!made) return state.SkipWithError(made.error().text().c_str());
    state.SetIterationTime(made->wall_seconds);
    ratios.push_back(made->wall_seconds / *plain);
    state.counters["MB"] = static_cast<double>(made->totals.bytes) / 1e6;
  }
  state.counters["times_unrecorded"] = median(ratios);
}

// Written in pieces and brought to the disk at the end.
double disk_seconds(const std::string& path, std::uint64_t bytes) {
  const std::vector<char> piece(8u << 20, 'x');
  const auto start = Clock::now();
  const int fd = ::open(path.c_str(), O_CREAT | O_WRONLY | O_TRUNC, 0644);
  for (std::uint64_t done = 0; fd >= 0 && done < bytes;) {
    const auto wrote =
        ::write(fd, piece.data(), std::min<std::uint64_t>(piece.size(), bytes - done));
    if (wrote <= 0) break;
    done += static_cast<std::uint64_t>(wrote);
  }
  if (fd >= 0) {
    ::fsync(fd);
    ::close(fd);
  }
  return seconds_since(start);
}

// All steps of a run, kept in memory.
Result<std::shared_ptr<const Snapshot>> run_and_keep(const Scenario& scenario) {
  auto session = Session::create(scenario, all_lanes(), run_options(0).session);
  if (!session) return session.error();
  TraceOptions options;
  options.budget_bytes = std::int64_t{8} << 30;
  options.all_rows = large();
  TraceRecorder recorder(options);
  (*session)->set_observer(&recorder);
  const auto info = session_info(**session);
  std::int64_t decoded = 0;
  while (!(*session)->finished() && decoded < scenario.decode_steps) {
    decoded += (*session)->decoding() ? 1 : 0;
    if (auto ok = (*session)->step(); !ok) return ok.error();
  }
  (*session)->set_observer(nullptr);
  return take_snapshot(**session, recorder, info, 1);
}

// Writing alone: of steps that are there. Beside a plain file of as many bytes, in turns.
void write_benchmark(benchmark::State& state) {
  const Folder folder;
  auto scenario = load_scenario("default");
  if (!scenario) return state.SkipWithError(scenario.error().text().c_str());
  auto kept = run_and_keep(*scenario);
  if (!kept) return state.SkipWithError(kept.error().text().c_str());
  std::vector<double> rates, shares;
  double mb = 0;
  for (auto _ : state) {
    const auto start = Clock::now();
    auto totals = write_capture(**kept, *scenario, folder.at("written.acap"));
    const double seconds = seconds_since(start);
    if (!totals) return state.SkipWithError(totals.error().text().c_str());
    state.SetIterationTime(seconds);
    mb = static_cast<double>(totals->bytes) / 1e6;
    rates.push_back(mb / seconds);
    shares.push_back(disk_seconds(folder.at("plain"), totals->bytes) / seconds);
  }
  state.counters["MB"] = mb;
  state.counters["MB/s"] = median(rates);
  state.counters["share_of_plain"] = median(shares);
}

// Up to what a first picture needs: all summaries and the last step's trace.
void open_benchmark(benchmark::State& state) {
  const Folder folder;
  auto made = record(folder.at("open.acap"), CaptureLevel::kFull, large() ? 28 : 0);
  if (!made) return state.SkipWithError(made.error().text().c_str());
  state.counters["MB"] = static_cast<double>(made->totals.bytes) / 1e6;
  const double before = anonymous_mb();
  for (auto _ : state) {
    auto capture = Capture::open(folder.at("open.acap"));
    if (!capture) return state.SkipWithError(capture.error().text().c_str());
    auto trace = (*capture)->trace((*capture)->summaries().back()->step);
    if (!trace) return state.SkipWithError(trace.error().text().c_str());
    state.PauseTiming();
    state.counters["anonymous_MB"] = anonymous_mb() - before;
    state.ResumeTiming();
  }
}

// Against a second recording of the same run, or one with a bug in one op.
void diff_benchmark(benchmark::State& state, bool with_bug) {
  const Folder folder;
  auto tolerances = Tolerances::load();
  auto a = record(folder.at("a.acap"), CaptureLevel::kFull);
  if (!a) return state.SkipWithError(a.error().text().c_str());
  std::vector<std::string> lanes;
  if (with_bug) lanes = {"wo_b=mutant:activations_in_fp8"};
  auto b = record(folder.at("b.acap"), CaptureLevel::kFull, 0, lanes);
  if (!b) return state.SkipWithError(b.error().text().c_str());
  state.counters["MB_each"] = static_cast<double>(a->totals.bytes) / 1e6;
  for (auto _ : state) {
    auto first = Capture::open(folder.at("a.acap")), second = Capture::open(folder.at("b.acap"));
    if (!first || !second) return state.SkipWithError("a capture does not open");
    auto diff = diff_captures(**first, **second, *tolerances, {}, reference_judge(*tolerances));
    if (!diff) return state.SkipWithError(diff.error().text().c_str());
    if (diff->first.has_value() != with_bug) return state.SkipWithError("the wrong answer");
  }
}

}  // namespace

void register_capture_benchmarks() {
  const auto add = [](const char* name, auto function, auto... arguments) {
    return benchmark::RegisterBenchmark(name, function, arguments...)
        ->Unit(benchmark::kMillisecond);
  };
  add("capture/record summary", record_benchmark, CaptureLevel::kSummary)
      ->Iterations(7)
      ->UseManualTime();
  add("capture/record full", record_benchmark, CaptureLevel::kFull)->Iterations(5)->UseManualTime();
  add("capture/write", write_benchmark)->Iterations(5)->UseManualTime();
  add("capture/open", open_benchmark)->Iterations(5)->UseRealTime();
  add("capture/diff same", diff_benchmark, false)->Iterations(1)->UseRealTime();
  add("capture/diff with a bug", diff_benchmark, true)->Iterations(1)->UseRealTime();
}

}  // namespace attnscope
