#include "app/reports/storage_ranks.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "app/text/format.h"
#include "engine/cache/dealt_cache.h"
#include "engine/family/context_check.h"
#include "engine/family/models.h"
#include "engine/family/tensor_parallel.h"
#include "engine/io/printable.h"
#include "engine/session/step/rank_transport.h"

namespace attnscope {
namespace {

using Json = nlohmann::ordered_json;

// What one rank of so many holds.
Json held_json(int ranks, const CacheLayout& layout, const StorageQuestion& q) {
  const CacheSwitches switches = switches_of(q.profile);
  const StoragePlan plan = plan_storage(layout, switches.layout);
  const Capacity c =
      capacity_of(plan, q.bytes, q.max_model_len, q.token_budget, switches.concurrency);
  return {{"ranks", ranks},
          {"block_bytes", plan.bytes_per_block},
          {"request_bytes", c.request_bytes},
          {"num_blocks", c.num_blocks},
          {"max_concurrency", c.concurrency_worker}};
}

std::string held_heading() {
  return fmt::format("  {:>5}{:>16}{:>12}{:>12}", "ranks", "bytes a block", "blocks", "a request");
}

std::string held_text(const Json& row) {
  return fmt::format("  {:>5}{:>16}{:>12}{:>12}", row.at("ranks").get<int>(),
                     row.at("block_bytes").get<std::int64_t>(),
                     row.at("num_blocks").get<std::int64_t>(),
                     format_bytes(row.at("request_bytes").get<double>()));
}

std::string refused_text(const Json& table) {
  const Json& refused = table.at("refused");
  return refused.is_null() ? "" : "  " + printable(refused.get<std::string>()) + "\n";
}

Json exchange_json(const ModelConfig& config, int ranks, std::int64_t tokens) {
  const AttendedDims dims = attended_dims(config);
  const ExchangeCounts layer =
      planned_exchange(ranks, config.heads, dims.query, dims.value, tokens);
  ExchangeCount sum;
  for (const ExchangeCount& part : layer) sum += part;
  return {{"tokens", tokens},
          {"messages", sum.messages * config.num_layers()},
          {"bytes", sum.bytes * config.num_layers()}};
}

// What rows of caches are that ranks do not deal out, each once.
Json whole_caches(const CacheLayout& layout) {
  Json contents = Json::array();
  for (const CacheSpec& spec : layout.specs) {
    const bool known = std::ranges::find(contents, Json(spec.content)) != contents.end();
    if (!is_dealt(spec) && !known) contents.push_back(spec.content);
  }
  return contents;
}

}  // namespace

Json tensor_ranks_json(const ModelConfig& whole, const StorageQuestion& q) {
  Json rows = Json::array();
  std::string refused;
  for (const int ranks : {1, 2, 4, 8}) {
    const TensorParallel parallel{ranks, 0};
    if (auto ok = check_parallel(whole, parallel); !ok) {
      refused = ok.error().text();
      break;
    }
    rows.push_back(held_json(ranks, build_cache_layout(rank_config(whole, parallel)), q));
  }
  return {{"ranks", rows}, {"refused", refused.empty() ? Json(nullptr) : Json(refused)}};
}

std::string tensor_ranks_text(const Json& table) {
  std::string out = "\nranks that divide the heads (tensor_parallel), each with all tokens\n";
  const Json& rows = table.at("ranks");
  if (rows.size() > 1) {
    out += held_heading() + "\n";
    for (const Json& row : rows) out += held_text(row) + "\n";
    if (rows.front().at("block_bytes") == rows.back().at("block_bytes")) {
      out += "  no row of a cache belongs to a head: every rank keeps all of them\n";
    }
  }
  return out + refused_text(table);
}

Json context_ranks_json(const ModelConfig& config, const StorageQuestion& q) {
  Json rows = Json::array();
  std::string refused;
  for (const int ranks : {1, 2, 4, 8}) {
    const ContextSplit split{ranks, 1};
    if (auto ok = check_context(config, split); !ok) {
      refused = ok.error().text();
      break;
    }
    const CacheLayout whole = build_cache_layout(shared_config(config, split));
    Json row = held_json(ranks, rank_layout(whole, split), q);
    row["decode"] = exchange_json(config, ranks, 1);
    row["chunk"] = exchange_json(config, ranks, q.token_budget);
    rows.push_back(std::move(row));
  }
  return {{"ranks", rows},
          {"whole", whole_caches(build_cache_layout(config))},
          {"refused", refused.empty() ? Json(nullptr) : Json(refused)}};
}

std::string context_ranks_text(const Json& context) {
  std::string out = "\nranks that share each request (context_parallel), token by token\n";
  const Json& rows = context.at("ranks");
  if (rows.size() > 1) {
    const Json& chunk = rows.at(0).at("chunk").at("tokens");
    out += fmt::format("{}{:>28}{:>30}\n", held_heading(), "a decoded token",
                       fmt::format("a chunk of {} tokens", chunk.get<std::int64_t>()));
    const auto sent = [](const Json& exchange) {
      return fmt::format(
          "{} in {}", format_bytes(exchange.at("bytes").get<double>()),
          plural(exchange.at("messages").get<std::int64_t>(), "message", "messages"));
    };
    for (const Json& row : rows) {
      out += fmt::format("{}{:>28}{:>30}\n", held_text(row), sent(row.at("decode")),
                         sent(row.at("chunk")));
    }
    std::string whole;
    for (const Json& content : context.at("whole")) {
      whole += (whole.empty() ? "" : ", ") + content.get<std::string>();
    }
    if (!whole.empty()) out += "  whole on every rank: " + printable(whole) + "\n";
  }
  return out + refused_text(context);
}

}  // namespace attnscope
