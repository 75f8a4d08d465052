#include "app/reports/workload_report.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "engine/io/printable.h"

namespace attnscope {
namespace {

std::string digest_text(std::uint64_t digest) { return fmt::format("{:016x}", digest); }

}  // namespace

nlohmann::ordered_json workload_json(const Workload& w, const WorkloadResult& r) {
  nlohmann::ordered_json checkpoints = nlohmann::ordered_json::object();
  for (const auto& [step, digest] : r.checkpoints) {
    checkpoints[std::to_string(step)] = digest_text(digest);
  }
  nlohmann::ordered_json out = {{"format", "attnscope-blocks-simulate"},
                                {"version", 1},
                                {"name", w.name},
                                {"profile", cache_profile_name(w.profile)},
                                {"steps", r.steps},
                                {"final_digest", digest_text(r.final_digest)},
                                {"queue_digest", digest_text(r.queue_digest)},
                                {"hit_tokens", r.hit_tokens},
                                {"lookups", r.lookups},
                                {"alloc_none", r.failed_allocations},
                                {"preemptions", r.preemptions},
                                {"evictions", r.evictions},
                                {"aborted", r.aborted},
                                {"scheduled_tokens", r.scheduled_tokens},
                                {"recomputed_tokens", r.recomputed_tokens},
                                {"complete", r.complete},
                                {"min_free", r.min_free},
                                {"max_hash_entries", r.max_keys},
                                {"common_prefix_steps", r.common_steps},
                                {"max_common_prefix_blocks", r.most_common},
                                {"checkpoints", checkpoints}};
  if (w.options.swap_blocks > 0) {
    out["blocks_swapped_out"] = r.blocks_out;
    out["blocks_swapped_in"] = r.blocks_in;
    out["swaps_refused"] = r.swaps_refused;
    out["max_host_blocks"] = r.most_host_blocks;
  }
  if (w.options.chunks.on()) {
    out["min_chunk"] = r.least_chunk;
    out["max_chunk"] = r.most_chunk;
  }
  return out;
}

std::string workload_text(const Workload& w, const WorkloadResult& r) {
  std::string out =
      fmt::format("{}, profile {}\n\n", printable(w.name), cache_profile_name(w.profile));
  const auto line = [&](const char* name, const auto& value) {
    out += fmt::format("  {:<19} {:>16}\n", name, value);
  };
  if (!r.complete) out += "  INCOMPLETE: it was ended before its end\n\n";
  line("steps", r.steps);
  line("final digest", digest_text(r.final_digest));
  line("queue digest", digest_text(r.queue_digest));
  line("hit tokens", r.hit_tokens);
  line("lookups", r.lookups);
  line("failed allocations", r.failed_allocations);
  line("preemptions", r.preemptions);
  line("evictions", r.evictions);
  line("aborted", r.aborted);
  line("scheduled tokens", r.scheduled_tokens);
  line("recomputed tokens", r.recomputed_tokens);
  line("fewest free", r.min_free);
  line("most hash entries", r.max_keys);
  line("common prefix steps", r.common_steps);
  line("most common blocks", r.most_common);
  if (w.options.swap_blocks > 0) {
    line("blocks swapped out", r.blocks_out);
    line("blocks swapped in", r.blocks_in);
    line("swaps refused", r.swaps_refused);
    line("most host blocks", fmt::format("{} of {}", r.most_host_blocks, w.options.swap_blocks));
  }
  if (w.options.chunks.on()) {
    line("chunks allowed", fmt::format("{} to {}", r.least_chunk, r.most_chunk));
  }
  if (r.checkpoints.empty()) return out;
  out += "\nrunning digest after step\n";
  for (const auto& [step, digest] : r.checkpoints)
    line(std::to_string(step).c_str(), digest_text(digest));
  return out;
}

}  // namespace attnscope
