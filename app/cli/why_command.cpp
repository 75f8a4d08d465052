#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "app/cli/look_at.h"
#include "app/cli/look_commands.h"
#include "app/reports/report_parts.h"
#include "app/text/format.h"
#include "app/text/say.h"
#include "engine/family/deepseek_v4/caches.h"
#include "engine/session/place.h"
#include "engine/session/verify/forced_copy.h"
#include "engine/session/what_if/deepseek_v4/pooled_tokens.h"
#include "engine/session/what_if/value_history.h"
#include "kernels/params/row_access.h"

namespace attnscope {
namespace {

using nlohmann::json;

json contribution_json(const Contribution& c) {
  json j = {{"kind", c.kind},
            {"status", c.status},
            {"row", c.row},
            {"block", c.block},
            {"slot", c.slot},
            {"bytes", c.bytes},
            {"value", number_json(c.value)},
            {"logit", number_json(c.logit)},
            {"weight", number_json(c.weight)},
            {"partial", number_json(c.partial)}};
  if (c.rank >= 0) {
    j["rank"] = c.rank;
    j["margin"] = number_json(c.margin);
  }
  return j;
}

void print_history(const ValueHistory& h, std::int64_t rows) {
  say("o[token {}, head {}, dim {}] of request {}, position {}: {:.6g}", h.token, h.head, h.dim,
      h.request, h.position, h.output);
  if (!std::isnan(h.reference)) say(", ref.sim {:.6g}", h.reference);
  say("; the contributions below sum to {:.6g}\n\n", h.sum);
  std::vector<const Contribution*> read, others;
  for (const Contribution& c : h.contributions) {
    (c.status == "contributed" ? read : others).push_back(&c);
  }
  std::stable_sort(read.begin(), read.end(),
                   [](const auto* a, const auto* b) { return a->weight > b->weight; });
  say("{:<8}{:>9}{:>8}{:>9}  {:<10}{:>11}{:>10}{:>10}{:>12}\n", "kind", "position", "block", "slot",
      "bytes", "value", "logit", "weight", "partial");
  std::int64_t shown = 0;
  for (const Contribution* c : read) {
    if (++shown > rows) {
      say("  and {} more (--rows)\n", static_cast<std::int64_t>(read.size()) - rows);
      break;
    }
    if (c->kind == "sink") {
      say("{:<8}{:>9}{:>8}{:>9}  {:<10}{:>11}{:>10.4f}{:>10.3g}{:>12}\n", "sink", "-", "-", "-",
          "-", "-", c->logit, c->weight, "-");
      continue;
    }
    say("{:<8}{:>9}{:>8}{:>9}  {:<10}{:>11.4g}{:>10.4f}{:>10.3g}{:>12.4g}\n", c->kind, c->row,
        c->block, c->slot, c->bytes, c->value, c->logit, c->weight, c->partial);
  }
  if (others.empty()) return;
  say("\ndid not contribute:\n");
  std::stable_sort(others.begin(), others.end(),
                   [](const auto* a, const auto* b) { return a->margin < b->margin; });
  shown = 0;
  for (const Contribution* c : others) {
    if (++shown > rows) {
      say("  and {} more (--rows)\n", static_cast<std::int64_t>(others.size()) - rows);
      break;
    }
    if (c->rank >= 0) {
      say("  entry {:<7} not selected: rank {}, {:.4g} below the worst selected score\n", c->row,
          c->rank, c->margin);
    } else {
      say("  {} in slot {}: {}\n", c->kind, c->slot, c->status);
    }
  }
}

struct Write {
  std::int64_t step = 0, token = 0, position = 0;
  std::int32_t request = -1;
  as_op_id op = AS_OP_SCHEDULE;
};

// Rows the op that ran last wrote to this slot of one layer's cache.
void note_writes(const Session& session, int layer, CacheId id, std::int64_t slot,
                 std::vector<Write>& writes) {
  const Place place = last_place(session);
  if (place.layer != layer) return;
  const OpParams& params = session.last_params();
  const StepMetadata& m = session.metadata();
  for (const as_cache_access& access : RowAccess::of(params.op())) {
    if (access.direction != AS_TAP_OUT || tap_cache(params.op(), access.cache) != id) continue;
    RowAccess::for_each(params.data(), access, [&](const RowVisit& v) {
      if (v.slot != slot) return;
      const auto token = static_cast<std::size_t>(v.token);
      const auto row = static_cast<std::size_t>(m.token_to_req[token]);
      writes.push_back({place.step, v.token, m.positions[token], m.live[row], params.op()});
    });
  }
}

Result<CacheId> cache_by_name(const std::string& name) {
  std::string names;
  for (const Family* family : families()) {
    for (const NamedCache& cache : family->cache_names()) {
      if (name == cache.name) return cache.id;
      names += fmt::format("{}{}", names.empty() ? "" : ", ", cache.name);
    }
  }
  return usage_error(fmt::format("--cache {}: no such cache", name), "caches: " + names);
}

int running_layer(const Session& session, int published) {
  const auto& layers = session.parts().config.layers;
  const auto it = std::find(layers.begin(), layers.end(), published);
  return it == layers.end() ? -1 : static_cast<int>(it - layers.begin());
}

}  // namespace

Result<as_status> why_command(const WhyCommand& command) {
  const auto place = parse_place(command.at.place);
  if (!place) return place.error();
  auto cache = cache_by_name(command.cache);
  if (!cache) return cache.error();
  KeptScores scores;
  std::vector<Write> writes;
  auto session = session_at(command.at, *place, [&](const Session& s) {
    keep_scores(s, &scores);
    if (command.slot >= 0) note_writes(s, place->layer, *cache, command.slot, writes);
  });
  if (!session) return session.error();
  if (command.slot >= 0) {
    json out = json::array();
    for (const Write& w : writes) {
      out.push_back({{"step", w.step},
                     {"op", as_op_find(w.op)->name},
                     {"request", w.request},
                     {"position", w.position},
                     {"token", w.token}});
      if (!command.at.json) {
        say("step {}: {} wrote position {} of request {} (token {})\n", w.step,
            as_op_find(w.op)->name, w.position, w.request, w.token);
      }
    }
    if (command.at.json) {
      say_json(out);
    } else if (writes.empty()) {
      say("slot {} of the {} cache of layer {} was never written up to {}\n", command.slot,
          command.cache, place->layer, command.at.place);
    }
    return AS_OK;
  }
  if (command.entry >= 0) {
    const int layer = running_layer(**session, place->layer);
    const bool index = *cache == kIndexCache || *cache == kIndexStateCache;
    auto tokens =
        pooled_tokens(**session, layer, command.request, command.entry, command.dim, index);
    if (!tokens) return tokens.error();
    json out = json::array();
    for (const PooledToken& t : *tokens) {
      out.push_back({{"position", t.position},
                     {"half", t.older_half ? "older" : "own"},
                     {"weight", t.weight},
                     {"mean_weight", t.mean_weight},
                     {"value", t.value}});
      if (!command.at.json) {
        say("position {:<7} {:<6} weight {:<10.4g} over all channels {:<10.4g} value {:.4g}\n",
            t.position, t.older_half ? "older" : "own", t.weight, t.mean_weight, t.value);
      }
    }
    if (command.at.json) say_json(out);
    return AS_OK;
  }
  const std::int64_t token =
      command.token >= 0 ? command.token : (*session)->metadata().num_tokens_in_step() - 1;
  auto history = value_history(**session, token, command.head, command.dim, scores);
  if (!history) return history.error();
  if (!command.at.json) {
    print_history(*history, command.rows);
    return AS_OK;
  }
  json contributions = json::array();
  for (const Contribution& c : history->contributions) {
    contributions.push_back(contribution_json(c));
  }
  say_json(json{{"format", "attnscope-why"},
                {"version", 1},
                {"place", command.at.place},
                {"token", history->token},
                {"head", history->head},
                {"dim", history->dim},
                {"request", history->request},
                {"position", history->position},
                {"output", number_json(history->output)},
                {"reference", number_json(history->reference)},
                {"sum", number_json(history->sum)},
                {"contributions", contributions}});
  return AS_OK;
}

}  // namespace attnscope
