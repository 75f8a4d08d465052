// How the metadata builder of a serving engine takes the batch of a step: who decodes and who
// prefills, decodes first; in which chunks prefill gathers its rows; how many tokens a recorded
// graph of the step has, or why none replays it. Worked out from the step's metadata alone.
//
//   BatchPlan plan = batch_plan(step, {.decode_threshold = 1 + drafts});
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/cache/cache_layout.h"
#include "engine/metadata/step_metadata.h"
#include "engine/model/model_config.h"

namespace attnscope {

// Tokens that graphs of decode steps are recorded for: 1, 2, 4, then multiples of 8.
std::int64_t graph_tokens(std::int64_t tokens);
inline constexpr std::int64_t kLargestGraph = 512;

struct BatchRules {
  std::int64_t decode_threshold = 1;  // tokens of a request in a step that decodes, at most
  std::int64_t window = 128;
  std::int64_t max_model_len = 0;  // of chunks of prefill, as token_budget
  std::int64_t token_budget = 0;
  std::vector<std::int64_t> ratios = {};  // of compressed rows that prefill gathers; 0 = none
};

// Those of a model whose caches lie so. draft_tokens: verified in a decode step.
BatchRules batch_rules(const ModelConfig& config, const CacheLayout& layout,
                       std::int64_t draft_tokens, std::int64_t token_budget);

// A request that computes something in the step.
struct BatchRow {
  std::int32_t row = -1;  // of the step's metadata
  std::int32_t request = -1;
  std::int64_t query = 0;     // its tokens in this step
  std::int64_t computed = 0;  // before
  bool decode = false;
  std::int64_t length() const { return computed + query; }
};

// Prefills whose rows are gathered together: [begin, end) of BatchPlan::rows. A request's part of
// the workspace has `width` rows: the compressed ones from 0 on, those of windows from `compressed`
// on.
struct PrefillChunk {
  std::int64_t begin = 0, end = 0;
  std::int64_t compressed = 0;  // of the longest request
  std::int64_t gathered = 0;    // window rows of the request that has most of them
  std::int64_t width() const { return compressed + gathered; }
  std::int64_t area() const { return (end - begin) * width(); }
};
struct PrefillChunks {
  std::int64_t ratio = 0;
  std::int64_t limit = 0;  // of a chunk's area; one request alone is always a chunk
  std::vector<PrefillChunk> chunks;
};

struct BatchPlan {
  std::vector<BatchRow> rows;  // decodes first
  std::int64_t decodes = 0, decode_tokens = 0;
  std::int64_t prefills() const { return static_cast<std::int64_t>(rows.size()) - decodes; }
  std::int64_t prefill_tokens() const { return tokens - decode_tokens; }
  std::int64_t tokens = 0;
  std::vector<std::int64_t> query_start_loc;  // of the rows in this order
  std::int64_t moved = 0;                     // rows that are not where the step has them
  bool uniform = true;                        // all decodes compute as many tokens
  std::vector<PrefillChunks> chunks;          // by ratio; empty without prefills
  std::int64_t graph = 0;                     // tokens of the graph that replays it; 0 = none
  std::string why_none;                       // why none does
  std::int64_t padding() const { return graph > 0 ? graph - tokens : 0; }
};

// The step's tokens are planned (plan_tokens).
BatchPlan batch_plan(const StepMetadata& step, const BatchRules& rules);

// Fills the step's tensors of kind kParts, once its lists are planned (plan_lists): which tokens
// prefill, and where their requests stand in the chunks of the lowest ratio, whose workspaces are
// the largest. Layers of all ratios gather by these.
void plan_parts(StepMetadata& step, const BatchRules& rules);

// Why no graph can replay a step, whatever records it; empty = one of graph_tokens() can.
std::string graph_refusal(const StepMetadata& step);

// Which of the rows stand where: those of the right part keep their places, the others fill the
// places that are left in their order. decode[i]: whether the i-th decodes.
std::vector<std::size_t> decodes_first(const std::vector<bool>& decode);

}  // namespace attnscope
