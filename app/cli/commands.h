// The commands behind the command line; each prints and returns an exit code or an error.
#pragma once

#include <string>
#include <vector>

#include "app/reports/run.h"

namespace attnscope {

inline constexpr char kTimelineHelp[] =
    "Write when every op ran and on which stream, as trace events that Perfetto and Chrome show";

struct RunCommand {
  std::string scenario;
  ModelChoice model;
  RunOptions options;
  std::string profile;   // empty = the scenario's
  std::string report;    // empty = no file
  std::string timeline;  // likewise: when every op ran
  bool reuse = false;    // show the kept report when nothing it depends on has changed
  bool json = false;
};
Result<as_status> run_command(const RunCommand& command);

struct GuiCommand {
  std::string scenario;  // empty = what was open last, or "default"
  ModelChoice model;
  References references = References::kBoth;
  std::vector<std::string> lanes;  // empty = cpu
  std::string layout, at, screenshot, tour, report;
  std::vector<std::string> commands;
  int width = 0, height = 0;  // 0 = as it was last
  int threads = 0;
};
// AS_NO_ENVIRONMENT in a build without the desktop app.
Result<as_status> gui_command(const GuiCommand& command);

Result<as_status> ops_command(bool json);

// Every lane, planted bugs included, with the sentence that says what it is.
Result<as_status> lanes_command(bool json);

struct DescribeCommand {
  std::string model;  // preset, config.json or checkpoint folder
  std::vector<int> layers;
  std::string profile;
  bool json = false;
};
Result<as_status> describe_command(const DescribeCommand& command);

Result<as_status> doctor_command(bool json);

struct SimulateCommand {
  std::string workload;  // file, or a name from assets/workloads
  std::string profile;   // empty = the file's
  std::string events;    // file for the log of events, JSONL; empty = none
  bool check = false;    // all invariants around every call
  bool json = false;
};
Result<as_status> simulate_command(const SimulateCommand& command);

// AS_MISMATCH where an expectation of the file does not come out.
Result<as_status> replay_command(const std::string& file);

struct LayoutCommand {
  std::string model;  // preset or config.json
  std::vector<int> layers;
  std::string model_profile;       // vllm or deepseek; empty = the model's
  std::string profile = "A";       // M or A
  double gpu_memory = 40;          // GiB for caches
  std::int64_t max_model_len = 0;  // 0 = the model's
  std::int64_t token_budget = 8192;
  int ranks = 1;  // that divide the heads
  bool json = false;
  std::string cache_dtype;  // of rows of K and V; empty = the model's
  int first_tokens = -1;    // with rows of 16 bits; -1 = the model's
};
Result<as_status> layout_command(const LayoutCommand& command);

// The map that a stream of cache events tells of.
Result<as_status> cache_events_command(const std::string& file, bool json);

}  // namespace attnscope
