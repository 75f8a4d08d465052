// index.json of a capture: what was recorded, of what, by whom. A capture is a folder:
//
//   index.json                     this; "complete": false while it is being recorded
//   steps.jsonl                    one line a step: its summary, where its trace is, its payload
//   traces.jsonl                   one line a step: ops, taps with statistics, names of tensors
//   payload/000012.safetensors     tables and tensors of step 12 (levels tables and full)
//   cache/000012.safetensors       blocks in use after step 12, where asked for
//   weights.safetensors            inputs that are the model's weights, where asked for
//   notes.json                     what its readers noted (notes.h), if anything
//
// Every line begins with a checksum of the rest of it, every payload's digest stands in its line: a
// recording that was interrupted reads up to its last whole step, and damage is told apart from it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/capture/capture_options.h"
#include "engine/capture/trace_fields.h"
#include "engine/session/snapshot.h"

namespace attnscope {

inline constexpr const char* kCaptureFormat = "attnscope-capture";
inline constexpr int kCaptureVersion = 1;

struct CaptureProperty {
  std::string name, value;
};

// Where a capture comes from, said by the program that records.
struct CaptureOrigin {
  std::string program;   // "attnscope 0.1.0"
  std::string scenario;  // name
  std::vector<CaptureProperty> machine;
  // So that it can be run again; empty in captures of older programs and of other engines.
  std::string scenario_file = {}, scenario_text = {};
  std::string checkpoint = {};     // folder the weights were read from; empty = synthetic
  std::string hidden_states = {};  // file with the inputs of the layers; empty = none
};

struct CaptureIndex {
  std::string format = kCaptureFormat;
  int version = kCaptureVersion;
  bool complete = false;
  std::string created;  // UTC, 2026-01-31T12:00:00Z
  CaptureOrigin origin;
  CaptureLevel level = CaptureLevel::kTables;
  std::string filter;
  std::string rows = {};  // CaptureOptions::rows
  bool weights = false;
  std::int64_t steps = 0;   // once complete
  std::uint64_t bytes = 0;  // of the other files, once complete; 0 in captures of older programs
  std::vector<std::int64_t> cache_steps;
  // SessionInfo, less what follows from the model
  ModelConfig model;
  std::int64_t num_blocks = 0, first_block = 1, block_stride = 0;
  std::int64_t token_budget = 0, max_requests = 0, draft_tokens = 0;
  std::string lanes;                 // chosen at the start; Capture::info() says who ran
  std::vector<std::string> lane_of;  // by op id
  References references = References::kNone;
  std::vector<std::string> request_names;
  std::vector<std::int64_t> prompt_tokens;
  double drift_limit = 0;
};

CaptureIndex make_index(const SessionInfo& info, const CaptureOptions& options,
                        const CaptureOrigin& origin);
// With a checksum, key "sum": of the compact text of everything else, so that white space is free.
std::string index_text(const CaptureIndex& index);
// Whether a text fits its checksum. Those of older programs have none, and fit.
bool check_index(const std::string& text);
// Errors begin with `path` and are one of: too new, damaged, not a capture.
Result<CaptureIndex> parse_index(const std::string& text, const std::string& path);
// AS_BAD_INPUT when the model is none that this program knows how to lay out, or when a number is
// none that a recording can have: whoever opens a capture calculates with all of them.
Result<std::shared_ptr<const SessionInfo>> info_of(const CaptureIndex& index,
                                                   const std::string& path);

// "payload/000012.safetensors".
std::string step_file(const char* folder, std::int64_t step);

// {"sum":"..",REST: the text of an object with a checksum before it, a newline after it.
std::string checked_line(const std::string& object);
// The object of such a line without its newline; false = damaged.
bool check_line(std::string_view line);

}  // namespace attnscope
