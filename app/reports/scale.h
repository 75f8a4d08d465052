// How time and memory of one decode step grow with the context: ops of a model's attention timed
// from 4K tokens on, the block manager by the size of its pool, bytes of the caches a token.
//
//   Result<ScaleResult> r = measure_scale({.lane = "cuda", .max_context = 1 << 20});
//   say("{}", Lines{scale_text(*r)});   // scale_report.h
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "app/reports/scale_fit.h"
#include "engine/backend/lane_timer.h"
#include "engine/model/model_config.h"
#include "kernels/params/lane_table.h"
#include "kernels/params/result.h"

namespace attnscope {

inline constexpr std::int64_t kLeastContext = 4096;
inline constexpr std::int64_t kMostContext = 1 << 20;

struct ScaleOptions {
  std::string lane;              // "cpu" or "cuda"; empty = cuda where a GPU is
  std::int64_t max_context = 0;  // tokens; 0 = 1M on a GPU, 256K on the CPU
  std::int64_t requests = 1;     // one token each
  int threads = 0;               // 0 = all
  std::int64_t max_blocks = 1 << 20;
};

struct ScalePoint {
  std::int64_t context = 0;  // tokens of every request, the decoded one included
  std::int64_t x = 0;        // rows, keys or logits that all requests read together
  double us = 0;             // of a call
  int calls = 0;             // of a round
};

struct ScaleLine {
  std::string name;                // of the op
  std::string variant;             // which layer, empty where only one kind has it
  std::string unit;                // of x: "row"
  std::string reads;               // what x is: "128 + context / 128 rows"
  bool flat = false;               // expected not to grow: its line is over tokens of context
  std::vector<ScalePoint> points;  // by context
  std::optional<LinearFit> fit;    // us over x, or over tokens; none with fewer than two points
};

// Caches of one request, whose blocks the block manager gives as a session asks for them, beside
// what the storage report (`attnscope blocks layout`) says of the same model.
struct ScaleMemory {
  std::int64_t context = 0;
  // After `context` tokens, of the groups that keep all tokens.
  std::int64_t kept_blocks = 0;
  double kept_per_token = 0, report_kept_per_token = 0;  // bytes
  // While the next token is decoded, of all groups.
  std::int64_t held_blocks = 0, report_held_blocks = 0;
  double held_per_token = 0, report_held_per_token = 0;  // bytes
  bool equal = false;
};

struct ScaleBlocks {
  std::int64_t blocks = 0;    // of the pool
  double get_release_ns = 0;  // a block
  double evict_ns = 0;        // a block: get, which evicts its content, a new key, release
  double evicted = 0;         // share of the blocks taken that lost a key; 1 = all
};

// By what and on what it was measured.
struct ScaleHow {
  std::string model, lane, date;
  std::string gpu, driver, cuda;          // empty on the CPU
  std::string processor, simd, compiler;  // of the host, which the block manager runs on
  int threads = 0;                        // of the host that ops run on, 0 on a GPU
  std::int64_t requests = 1;
  std::int64_t cache_bytes = 0;  // of the last-level cache
  LaneTimer::Rounds rounds;
  std::string method;
};

struct ScaleResult {
  ScaleHow how;
  std::vector<ScaleLine> lines;
  std::vector<std::string> left_out;  // a sentence each: contexts for which memory is too small
  std::vector<ScaleMemory> memory;
  std::vector<ScaleBlocks> blocks;

  bool memory_equal() const;
};

// AS_NO_ENVIRONMENT without the GPU that is asked for, AS_USAGE for options out of their range.
Result<ScaleResult> measure_scale(const ScaleOptions& options);

// Its parts. contexts: ascending.
struct ScaleAsked {
  std::vector<std::int64_t> contexts;
  std::int64_t requests = 1;
  std::int64_t memory = 0;  // bytes that inputs may take together
};
Result<void> measure_ops(const ModelConfig& config, const Lane& lane, LaneTimer& timer,
                         const ScaleAsked& asked, ScaleResult& out);
Result<std::vector<ScaleMemory>> measure_memory(const ModelConfig& config,
                                                const std::vector<std::int64_t>& contexts);
std::vector<ScaleBlocks> measure_blocks(std::int64_t max_blocks);

}  // namespace attnscope
