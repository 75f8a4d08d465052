#include "app/reports/storage_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "app/reports/storage_ranks.h"
#include "engine/family/family.h"
#include "engine/family/lifetimes.h"
#include "engine/family/models.h"
#include "engine/family/selected_entries.h"
#include "engine/family/tensor_parallel.h"
#include "engine/io/printable.h"
#include "engine/model/numbers.h"

namespace attnscope {
namespace {

using Json = nlohmann::ordered_json;

Json group_json(const PlannedGroup& group, std::int64_t request_blocks) {
  Json pages = Json::array();
  for (const PlannedPage& page : group.pages) {
    pages.push_back(
        {{"layers", page.layers}, {"bytes", page.real_bytes}, {"padded", page.padded_bytes}});
  }
  const bool windowed = group.spec.kind != GroupKind::kFull;
  return {{"name", group.name},
          {"kind", group_kind_name(group.spec.kind)},
          {"block_tokens", group.spec.block_tokens},
          {"window", windowed ? Json(group.spec.window) : Json(nullptr)},
          {"caches", group.layers},
          {"bytes", group.bytes},
          {"pages", pages},
          {"admission_cap", windowed ? Json(request_blocks) : Json(nullptr)},
          {"request_blocks", request_blocks}};
}

// Blocks that a prefill chunk of so many tokens may ask for, by group.
Json chunk_json(const StoragePlan& plan, std::int64_t tokens) {
  Json groups = Json::array();
  std::int64_t total = 0;
  for (const PlannedGroup& group : plan.groups) {
    const std::int64_t n = blocks_for(group.spec, tokens);
    groups.push_back(n);
    total += n;
  }
  return {{"tokens", tokens}, {"groups", groups}, {"total", total}};
}

// What the values between ops take in a step that is one chunk of the longest request.
Json activations_json(const ModelConfig& config, const StorageQuestion& q) {
  StepSizes sizes;
  sizes.tokens = q.token_budget;
  sizes.score_columns = std::max<std::int64_t>(1, q.max_model_len / tokens_of_selected(config));
  const auto graph = model_graph(config);
  const LivePeak peak = live_peak(*graph, sizes, false);
  return {{"tokens", sizes.tokens},
          {"bytes", peak.bytes},
          {"op", as_op_find(peak.op)->name},
          {"layer", peak.layer < 0 ? Json(nullptr) : Json(config.layers[to_size(peak.layer)])},
          {"bytes_on_streams", live_peak(*graph, sizes, true).bytes},
          {"bytes_apart", peak.bytes_apart}};
}

}  // namespace

Json storage_report(const ModelConfig& whole, const StorageQuestion& q) {
  const ModelConfig config = rank_config(whole, q.parallel);
  const CacheSwitches switches = switches_of(q.profile);
  const StoragePlan plan = plan_storage(build_cache_layout(config), switches.layout);
  const Capacity c =
      capacity_of(plan, q.bytes, q.max_model_len, q.token_budget, switches.concurrency);
  Json groups = Json::array();
  double per_token = 0;  // of the groups that keep all tokens
  double written = 0;    // blocks taken per decoded token
  for (std::size_t g = 0; g < plan.groups.size(); ++g) {
    const PlannedGroup& group = plan.groups[g];
    groups.push_back(group_json(group, c.request_blocks[g]));
    // A group of first tokens takes none behind these.
    if (group.spec.kind != GroupKind::kFirst) written += 1.0 / group.spec.block_tokens;
    if (group.spec.kind == GroupKind::kFull) per_token += 1.0 / group.spec.block_tokens;
  }
  Json chunks = Json::array();
  for (const std::int64_t tokens : {std::int64_t{512}, std::int64_t{2048}, q.token_budget}) {
    if (tokens <= q.token_budget) chunks.push_back(chunk_json(plan, tokens));
  }
  if (chunks.size() > 1 && chunks.back() == chunks[chunks.size() - 2])
    chunks.erase(chunks.size() - 1);
  const bool packed = plan.layout == StorageLayout::kPacked;
  return {{"format", "attnscope-storage"},
          {"version", 1},
          {"model", config.name},
          {"profile", cache_profile_name(q.profile)},
          {"layout", packed ? "packed" : "per_tensor"},
          {"groups", groups},
          {"tuples", plan.tuples},
          {"block_stride_bytes", plan.bytes_per_block},
          {"kept_bytes_per_token", per_token * static_cast<double>(plan.bytes_per_block)},
          {"decode_blocks_per_token", written},
          {"alignment_tokens", c.alignment},
          {"hash_block_tokens", c.hash_block},
          {"memory_bytes", q.bytes},
          {"num_blocks", c.num_blocks},
          {"max_model_len", q.max_model_len},
          {"token_budget", q.token_budget},
          {"request_blocks", c.request_total},
          {"request_bytes", c.request_bytes},
          {"longest_request_fits", c.request_bytes <= q.bytes},
          {"max_concurrency",
           {{"worker", c.concurrency_worker}, {"scheduler", c.concurrency_scheduler}}},
          {"prefill_chunks", chunks},
          {"activations", activations_json(config, q)},
          {"tensor_parallel", tensor_ranks_json(whole, q)},
          {"context_parallel", context_ranks_json(config, q)}};
}

namespace {

// "-", "128", "chunk 32", "first 32".
std::string window_text(const Json& group) {
  if (group.at("window").is_null()) return "-";
  const bool chunk = group.at("kind") == group_kind_name(GroupKind::kChunked);
  const bool first = group.at("kind") == group_kind_name(GroupKind::kFirst);
  return (chunk ? "chunk " : first ? "first " : "") + group.at("window").dump();
}

// Groups, what a block costs, and how much fits.
std::string blocks_text(const Json& r) {
  const auto number = [&](const char* key) { return r.at(key).get<std::int64_t>(); };
  std::string out = fmt::format(
      "{}, profile {}: {} storage\n\n{:<14}{:>8}{:>12}{:>8}{:>14}{:>10}  "
      "pages (layers x bytes, padded)\n",
      printable(r.at("model").get<std::string>()), r.at("profile").get<std::string>(),
      r.at("layout") == "packed" ? "packed" : "per-tensor", "group", "tokens", "window", "caches",
      "bytes", "request");
  for (const Json& g : r.at("groups")) {
    out += fmt::format("{:<14}{:>8}{:>12}{:>8}{:>14}{:>10}  ", g.at("name").get<std::string>(),
                       g.at("block_tokens").get<int>(), window_text(g),
                       g.at("caches").get<std::int64_t>(), g.at("bytes").get<std::int64_t>(),
                       g.at("request_blocks").get<std::int64_t>());
    for (const Json& p : g.at("pages")) {
      out += fmt::format("{} x {} ({})  ", p.at("layers").get<std::int64_t>(),
                         p.at("bytes").get<std::int64_t>(), p.at("padded").get<std::int64_t>());
    }
    out += '\n';
  }
  out += fmt::format(
      "\na block id costs {} bytes; {:.1f} bytes a token are kept for good; a decoding request "
      "takes "
      "{:.3f} blocks a token\nhits end at multiples of {} tokens, hashes cover {} tokens\n",
      number("block_stride_bytes"), r.at("kept_bytes_per_token").get<double>(),
      r.at("decode_blocks_per_token").get<double>(), number("alignment_tokens"),
      number("hash_block_tokens"));
  out += fmt::format(
      "\n{:.2f} GiB hold {} blocks; a request of {} tokens, {} a step, may hold {}, {:.2f} GiB by "
      "the "
      "check at startup: it {}\nlongest requests at once: {:.3f} as the worker counts, {:.3f} as "
      "the "
      "scheduler does\n\nblocks that a prefill chunk may ask for\n",
      static_cast<double>(number("memory_bytes")) / 1073741824.0, number("num_blocks"),
      number("max_model_len"), number("token_budget"), number("request_blocks"),
      static_cast<double>(number("request_bytes")) / 1073741824.0,
      r.at("longest_request_fits").get<bool>() ? "fits" : "does not fit",
      r.at("max_concurrency").at("worker").get<double>(),
      r.at("max_concurrency").at("scheduler").get<double>());
  for (const Json& chunk : r.at("prefill_chunks")) {
    out += fmt::format("  {:>8} tokens {:>8}  {}\n", chunk.at("tokens").get<std::int64_t>(),
                       chunk.at("total").get<std::int64_t>(), chunk.at("groups").dump());
  }
  return out;
}

}  // namespace

std::string storage_text(const Json& r) {
  const bool stored = !r.at("groups").empty();
  std::string out;
  if (stored) {
    out = blocks_text(r);
  } else {
    out =
        fmt::format("{}: no layer keeps keys and values for later steps, so there are no blocks\n",
                    printable(r.at("model").get<std::string>()));
  }
  const Json& a = r.at("activations");
  const auto mib = [&](const char* key) {
    return static_cast<double>(a.at(key).get<std::int64_t>()) / 1048576.0;
  };
  out += fmt::format(
      "\nvalues between ops, {} tokens a step: {:.2f} MiB at most, in {}{}; {:.2f} MiB on the "
      "streams of a device, {:.2f} MiB if each had memory of its own\n",
      a.at("tokens").get<std::int64_t>(), mib("bytes"), a.at("op").get<std::string>(),
      a.at("layer").is_null() ? "" : fmt::format(" of layer {}", a.at("layer").get<int>()),
      mib("bytes_on_streams"), mib("bytes_apart"));
  if (!stored) return out;
  return out + tensor_ranks_text(r.at("tensor_parallel")) +
         context_ranks_text(r.at("context_parallel"));
}

}  // namespace attnscope
