// A scenario: which model, which requests, which limits. JSON with comments (//, /* */), one parser
// for all of the project's files; unknown keys are errors.
//
//   {
//     "version": 1,
//     "name": "default",              // optional: the file's name
//     "model": {"preset": "tiny",     // or "config": a config.json, whose weights are synthetic,
//                                     // or the folder of a checkpoint, whose weights are read
//               "layers": [0, 1],     // optional: all
//               "seed": 1,            // optional: 1
//               "sink_shift": 0.0,    // optional: added to every sink
//               "sinks": {"3": "-inf",  // optional: sinks of heads, in every layer, instead of the
//                         "5": "inf"},  // weights': a number, "-inf" (none), "inf" (takes all)
//               "logit_gain": 1.0,    // optional, of synthetic weights: attention's logits are so
//                                     // many times as large
//               "twin_tokens": false,  // optional, of synthetic weights: bytes 128 apart have one
//                                     // embedding, so that every choice of a token is a tie
//               "cache_dtype": "fp8_tensor",  // optional, of dense attention: what rows of K and V
//                                     // hold, by the name of a row format
//               "cache_layout": "NHD",  // optional, likewise: "HND" = the rows of a head lie
//                                     // together in a page
//               "first_tokens_16bit": 32,  // optional, of rows of codes: so many first tokens of
//                                     // a request have rows of 16 bits, which attention reads
//               "index_topk": 64,     // optional: entries that a layer selects; the model's
//               "mtp": 0},            // optional: 1 = the model's draft layer runs, and decode
//                                     // steps verify what it drafts
//     "hidden_states": "x.safetensors",  // optional: what the layers are fed, recorded elsewhere
//     "profile": "vllm",              // optional: "vllm"; or "deepseek", then switches:
//                                     // "vllm,q_norm=bf16" (profile_switches.h)
//     "tensor_parallel": {"size": 2,  // optional: one rank of so many is looked at, the others
//                         "rank": 0}, // compute beside it; rank: optional, 0
//     "context_parallel": {"ranks": 4,  // optional: the rows of each request are dealt out to so
//                          "interleave": 1},  // many ranks, 1 to 8, by runs of so many tokens
//     "pool_blocks": 640,             // null block included
//     "first_block": 1,               // optional: 1; the lowest id that blocks have
//     "ess": {"ratio": 0.2,           // optional: rows that layers select from lie in host memory
//                                     // while their requests decode; so large a share of all rows
//                                     // that the requests come to has a place in each layer's pool
//             "policy": "lru",        // optional: "lru"; or "fifo"
//             "warm": 32,             // optional: 32 last tokens of each prompt fill the pool
//             "attend": "da,4=dba"},  // optional: "none"; how layers hide the rows that come
//                                     // (engine/offload/overlap_choice.h)
//     "lists": "plain",               // optional: "plain"; or "adversarial": lanes get lists with
//                                     // holes, and garbage behind their ends
//     "token_budget": 512,            // optional: 512
//     "max_requests": 8,              // optional: 8
//     "serving": {                    // optional; defaults as here
//       "prefix_caching": true,
//       "profile": "M",               // of the block manager: "M" or "A"
//       "policy": "fcfs",             // or "priority"
//       "scheduler_block_size": 256,  // hits end at its multiples; default: the least common
//                                     // multiple of the groups' blocks
//       "hash_block_size": 4,         // default: their greatest common divisor
//       "retention": "dense",         // or a number
//       "reserve_full_sequence": true,
//       "watermark": 0.0,
//       "adaptive_chunks": {"least": 16, "most": 512},  // optional: tokens of a prompt in a step,
//                                     // by what is free of the pool (block_scheduler.h)
//       "preemption": "recompute",    // or "swap": rows of preempted requests wait in host memory,
//       "swap_blocks": 64,            // with "swap": blocks there; prefix_caching must be false
//       "draft_tokens": 0,            // drafted for each decode step and verified in it, up to 15
//       "draft_accept": [3, 0],       // of these are right, by verification of a request, over and
//                                     // over; default: all
//       "switches": {}},              // as in workloads
//     "decode_steps": 20,             // optional: 20; of `run` without --steps and --decode-steps
//     "stops": [{"when": "wrong",     // optional: what the app runs to; "on": optional, true
//                "on": true}],
//     "requests": [
//       {"name": "manual", "text_file": "prompts.md", "offset": 0, "tokens": 2104,
//        "max_new_tokens": 24},
//       {"name": "inline", "text": "Why does the window move?", "max_new_tokens": 24,
//        "arrival_step": 3,           // optional: 0; earlier where nothing else is left to do
//        "abort_step": 9,             // optional: never; it is taken away before this step
//        "priority": 0}               // optional: 0; smaller is more urgent
//     ]
//   }
//
// Files are looked up beside the scenario file, then in the assets folder; offset and tokens are in
// bytes (one token a byte) and default to 0 and all that follows. Whoever wrote a scenario may be
// somebody else, and a prompt ends in reports and captures: a text_file that lies neither in the
// scenario's folder nor in the assets, links followed, is refused unless the user allowed it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/cache/cache_layout.h"
#include "engine/cache/context_split.h"
#include "engine/model/model_config.h"
#include "engine/offload/overlap_choice.h"
#include "engine/offload/selection_trace.h"
#include "engine/sched/block_scheduler.h"
#include "engine/sched/request.h"

namespace attnscope {

struct ScenarioRequest {
  std::string name;
  std::vector<std::int32_t> tokens;  // bytes of the prompt
  std::int64_t max_new_tokens = 0;
  std::int64_t arrival_step = 0;
  std::int64_t abort_step = -1;  // -1 = never
  std::int64_t priority = 0;
};

// What whoever looks at a run wants to be stopped at: a condition on a step, as text that the app
// knows (app/views/stop_condition.h).
struct ScenarioStop {
  std::string when;
  bool on = true;
  friend bool operator==(const ScenarioStop&, const ScenarioStop&) = default;
};

// A pool of rows on the device for each layer that selects (engine/offload/row_pool.h).
struct EssOptions {
  double ratio = 0;  // 0 = all rows lie on the device
  PoolPolicy policy = PoolPolicy::kLru;
  int warm = kWarmWindows;
  OverlapChoice attend;
};

struct Scenario {
  std::string name;
  std::string path;         // file it came from
  std::string text;         // the file as read, for reports and keys
  ModelConfig model;        // the whole one
  TensorParallel parallel;  // the slice of it that a session runs
  ContextSplit context;     // how rows of a request are dealt out over ranks
  std::uint64_t seed = 1;
  std::string checkpoint;        // folder the weights are read from; empty = synthetic ones
  std::string hidden_states;     // file with the inputs of the layers; empty = they come about
  std::int64_t pool_blocks = 0;  // null block included
  std::int64_t first_block = 1;  // the lowest id but the null block's
  bool adversarial_lists = false;
  EssOptions ess;
  SchedulerLimits limits;
  SchedulerOptions serving;  // all but the limits, the groups and the pool
  std::int64_t decode_steps = 20;
  std::vector<ScenarioRequest> requests;
  std::vector<ScenarioStop> stops;  // compute nothing
  // Keys of "model" that another model (ModelChoice) took the place of, but what names a model.
  std::vector<std::string> left_out;
};

// Of a prompt of so many tokens: the first ones, which an encoder sees; 0 = the model has none.
std::int64_t source_tokens(const ModelConfig& model, std::int64_t prompt);

// Whether the pool holds a request alone: `prompt` tokens and `fresh` new ones.
Result<void> fits_pool(const std::string& name, std::int64_t prompt, std::int64_t fresh,
                       const CacheLayout& layout, const Scenario& scenario);
// What the session's scheduler is built from.
SchedulerOptions serving_options(const Scenario& scenario, const CacheLayout& layout);

// A model and inputs in the place of a scenario's own. Paths as on the command line.
struct ModelChoice {
  std::string model;  // a preset, a config.json or the folder of a checkpoint; empty = its own
  std::vector<int> layers;                  // empty = its own, or those of another model
  std::optional<std::string> cache_dtype;   // of rows of K and V; none = its own
  std::optional<std::string> cache_layout;  // of pages of K and V; none = its own
  std::optional<int> first_tokens;          // with rows of 16 bits; none = its own
  std::string hidden_states;                // empty = its own
  std::string attend;                       // of "ess"; empty = its own
  int ranks = 0;                            // 0 = its own
  int rank = -1;                            // -1 = its own
  bool any() const {
    return !model.empty() || !layers.empty() || cache_dtype || cache_layout || first_tokens ||
           !hidden_states.empty() || !attend.empty() || ranks > 0 || rank >= 0;
  }
};

// A name from assets/scenarios or a path. Malformed JSON is reported with line and column, a wrong
// or unknown key with its place ("requests[1].tokens") and the allowed values; a prompt that the
// pool can never hold names the request, its demand and the pool.
Result<Scenario> load_scenario(std::string_view name_or_path, const ModelChoice& choice = {});
std::vector<std::string> scenario_names();

// The same of a text that stands for the file `path`: messages name it, and other files are looked
// up beside it. It need not exist.
Result<Scenario> parse_scenario(std::string text, const std::string& path);

// For the whole program, as its user says on the command line: captures, goldens and the app read
// scenarios too. Not allowed at first.
void allow_text_files_anywhere(bool allowed);

// A file named in a scenario: beside it, else in the assets folder.
Result<std::string> find_scenario_file(const std::string& name, const std::string& scenario_path);

}  // namespace attnscope
