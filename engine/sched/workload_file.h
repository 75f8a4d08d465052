// Workloads of the block manager as files: JSON with comments, unknown keys are errors.
//
//   {
//     "name": "G2",
//     "groups": [{"kind": "full", "block_size": 16},
//                {"kind": "swa", "block_size": 16, "window": 64},
//                {"kind": "chunked", "block_size": 16, "chunk": 64}],
//     "blocks": 301,                  // null block included
//     "scheduler_block_size": 16,     // optional: least common multiple of the groups' blocks
//     "hash_block_size": 16,          // optional: their greatest common divisor
//     "seed": 2, "requests": 200, "S": 50, "T": 120, "O": 60,   // engine/sched/workload.h
//     "dup": 0,                       // optional
//     "token_budget": 256, "max_seqs": 16,
//     "max_model_len": 8192,          // optional
//     "policy": "fcfs",               // optional; or "priority"
//     "profile": "M",                 // optional; or "A"
//     "switches": {},                 // optional: single differences from the profile, below
//     "caching": true,                // optional, as all that follow
//     "reserve_full_sequence": true,
//     "watermark": 0.0,
//     "lookahead": 0,
//     "retention": "dense",           // or 0, or a multiple of scheduler_block_size
//     "flagged": []                   // groups, from 0, that hold a draft model's layer
//   }
//
// switches: free_order append | split-front | lifo-when-uncached; mask tail | tail+draft-shift;
// window_basis computed | processed; adopt per-group | two-phase; cap_B budget | in-flight;
// partial_hashes, defer_frees, packed_layout true | false; victim_cursor scheduled-only |
// below-cursor; stats lookup | admission; full_trim floor | stored-length; concurrency by-bytes |
// by-group; and retention and watermark as above, in place of the outer keys.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "engine/sched/workload.h"

namespace attnscope {

class JsonObject;

// The part of a file that describes the engine: all keys above but those of the generator. `json`
// is what `root` reads.
void read_engine(JsonObject& root, const nlohmann::json& json, CacheProfile profile,
                 SchedulerOptions& options);
CacheProfile read_profile(JsonObject& root, std::optional<CacheProfile> instead);
// The object "serving" of a scenario: what of the engine a session lets one choose, in the words of
// workloads. `json` is what `object` reads.
void read_serving(JsonObject& object, const nlohmann::json& json, SchedulerOptions& options);

// profile: in place of the file's.
Result<Workload> parse_workload(const std::string& text, const std::string& name,
                                std::optional<CacheProfile> profile = std::nullopt);

// A name from assets/workloads or a path.
Result<Workload> load_workload(std::string_view name_or_path,
                               std::optional<CacheProfile> profile = std::nullopt);

}  // namespace attnscope
