#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "app/cli/guilty_token.h"
#include "app/cli/look_at.h"
#include "app/cli/look_commands.h"
#include "app/reports/report_parts.h"
#include "app/text/format.h"
#include "app/text/say.h"
#include "app/views/score_terms.h"
#include "engine/cache/cache_layout.h"
#include "engine/family/family.h"
#include "engine/session/place.h"
#include "engine/session/session_config.h"
#include "engine/session/verify/forced_copy.h"
#include "engine/session/what_if/pooled_tokens.h"
#include "engine/session/what_if/value_history.h"
#include "engine/trace/compare.h"
#include "kernels/layout/records.h"
#include "kernels/params/mla_params.h"
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

// What the queries' op was given as weights before their scales, of the layer that is looked at.
struct RawWeights {
  std::vector<float> values;  // [T, J]
  std::int64_t heads = 0;
};

void keep_raw_weights(const Session& session, int layer, RawWeights& kept) {
  if (as_op_find(session.last_params().op())->role != AS_ROLE_QUERY ||
      last_place(session).layer != layer)
    return;
  const OpParams& params = session.last_params();
  const as_tensor& raw = params.op() == AS_OP_INDEX_QUERY
                             ? params.get<as_index_query_params>().weights_raw
                             : params.get<as_indexer_q_params>().weights_raw;
  kept.heads = raw.shape[1];
  kept.values.clear();
  for (std::int64_t i = 0; i < as_tensor_numel(&raw); ++i) {
    kept.values.push_back(static_cast<float>(element(raw, i / kept.heads, i % kept.heads)));
  }
}

// Of an index score: each head's product, weight and scales.
Result<as_status> say_score_terms(const Session& session, const WhyCommand& command,
                                  std::int64_t token, const RawWeights& raw) {
  const auto& p = session.last_params().get<as_indexer_logits_params>();
  const std::int64_t seen =
      token >= 0 && token < p.lens.shape[0] ? *at<std::int32_t>(p.lens, token) : -1;
  if (command.entry >= seen) {
    return bad_input(seen < 0 ? fmt::format("token {} is not there", token)
                              : fmt::format("token {} does not see entry {}", token, command.entry),
                     seen < 0 ? fmt::format("tokens of this step: 0 to {}", p.lens.shape[0] - 1)
                              : fmt::format("it sees {} entries", seen));
  }
  const std::int64_t rows = p.cache.rows_per_block;
  const std::int32_t request = *at<std::int32_t>(p.token_to_req, token);
  const std::int64_t slot =
      std::int64_t{*at<std::int32_t>(p.table, request, command.entry / rows)} * rows +
      command.entry % rows;
  const as_row_address row = as_cache_row(&p.cache, slot);
  ScoreInput in;
  in.q = p.q;
  in.q_scale = p.q_scale;
  in.weights = p.weights;
  if (raw.heads == p.weights.shape[1] && std::ssize(raw.values) == p.weights.shape[0] * raw.heads) {
    in.weights_raw = make_tensor(raw.values.data(), {p.weights.shape[0], raw.heads});
  }
  in.row = token;
  in.record = p.cache.record;
  in.key = row.payload;
  in.key_scales = row.scales;
  in.entry = command.entry;
  in.score = element(p.logits, token, command.entry);
  const ScoreTerms terms = score_terms(in);
  if (!command.at.json) {
    say("{}\nkey scale {}, 1/sqrt(d J) {:.6g} (in the weights), slot {}\n\n", terms.sentence,
        terms.key_scale, terms.factor, slot);
    say("{:>5}{:>13}{:>13}{:>13}{:>11}{:>13}{:>13}\n", "head", "q.k", "relu", "weight raw",
        "q scale", "weight", "term");
    for (const ScoreTerm& t : terms.heads) {
      say("{:>5}{:>13.6g}{:>13.6g}{:>13.6g}{:>11.4g}{:>13.6g}{:>13.6g}\n", t.head, t.dot, t.relu,
          t.raw, t.q_scale, t.weight, t.term);
    }
    say("{:>81.6g} in all, the op has {:.6g}\n", terms.sum, terms.score);
    return AS_OK;
  }
  json heads = json::array();
  for (const ScoreTerm& t : terms.heads) {
    heads.push_back({{"head", t.head},
                     {"dot", t.dot},
                     {"relu", t.relu},
                     {"weight_raw", number_json(t.raw)},
                     {"q_scale", number_json(t.q_scale)},
                     {"weight", t.weight},
                     {"term", t.term}});
  }
  say_json(json{{"format", "attnscope-why-score"},
                {"version", 1},
                {"place", command.at.place},
                {"token", token},
                {"entry", command.entry},
                {"key_scale", terms.key_scale},
                {"factor", terms.factor},
                {"sum", terms.sum},
                {"score", number_json(terms.score)},
                {"heads", heads}});
  return AS_OK;
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

// Of the model; without a name its first one.
Result<NamedCache> cache_by_name(const ModelConfig& config, const std::string& name) {
  std::string names;
  for (const NamedCache& cache : family_of(config).cache_names()) {
    if (name.empty() || name == cache.name) return cache;
    names += fmt::format("{}{}", names.empty() ? "" : ", ", cache.name);
  }
  return usage_error(fmt::format("--cache {}: the model has no such cache", name),
                     "caches: " + names);
}

int running_layer(const ModelConfig& config, int published) {
  const auto& layers = config.layers;
  const auto it = std::find(layers.begin(), layers.end(), published);
  return it == layers.end() ? -1 : static_cast<int>(it - layers.begin());
}

// The cache that a command names, known before anything runs. A layer that does not run is left to
// the session, which says which do.
Result<NamedCache> cache_of(const WhyCommand& command, const Scenario& scenario, int published) {
  const ModelConfig config = session_config(scenario);
  auto cache = cache_by_name(config, command.cache);
  if (!cache || command.slot < 0) return cache;
  const int layer = running_layer(config, published);
  if (layer >= 0 && build_cache_layout(config).find(layer, cache->id) == nullptr) {
    return bad_input(
        fmt::format("layer {} of {} has no {} cache", published, config.name, cache->name),
        "--cache names another one; a model without caches has no slots");
  }
  return cache;
}

// Of a token without a place: the first op that is wrong for it.
Result<as_status> why_token(const WhyCommand& command) {
  auto found = guilty_token(command.at, command.chosen);
  if (!found) return found.error();
  if (command.at.json) {
    say_json(guilty_token_json(*found));
  } else {
    say("request {}, position {}: token {} of step {}\n", command.chosen.request,
        command.chosen.position, found->blame.token(), found->blame.step());
    for (const std::string& line : found->lines()) say("  {}\n", line);
  }
  return found->guilt() == nullptr ? AS_OK : AS_MISMATCH;
}

}  // namespace

Result<as_status> why_command(const WhyCommand& command) {
  if (command.at.place.empty()) {
    if (command.slot < 0 && command.entry < 0 && command.chosen.asked()) return why_token(command);
    return usage_error("a place is needed: STEP/LAYER/OP",
                       "without one, --request R --position P finds the first op that is wrong for "
                       "that token");
  }
  const auto place = parse_place(command.at.place);
  if (!place) return place.error();
  NamedCache cache;
  KeptScores scores;
  std::vector<Write> writes;
  RawWeights raw;
  const auto after_op = [&](const Session& s) {
    keep_scores(s, &scores);
    keep_raw_weights(s, place->layer, raw);
    if (command.slot >= 0) note_writes(s, place->layer, cache.id, command.slot, writes);
  };
  auto session =
      session_at(command.at, *place, after_op, [&](const Scenario& scenario) -> Result<void> {
        auto named = cache_of(command, scenario, place->layer);
        if (!named) return named.error();
        cache = *named;
        return {};
      });
  if (!session) return session.error();
  if (command.slot >= 0) {
    const SessionParts& parts = (*session)->parts();
    const CacheSpec* spec = parts.layout.find(running_layer(parts.config, place->layer), cache.id);
    const std::int64_t slots = (*session)->slab().num_blocks() * spec->rows_per_block;
    if (command.slot >= slots) {
      return bad_input(fmt::format("--slot {}: there is none", command.slot),
                       fmt::format("slots of the {} cache of layer {}: 0 to {}", cache.name,
                                   place->layer, slots - 1));
    }
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
      say_json(json{{"format", "attnscope-why-slot"},
                    {"version", 1},
                    {"place", command.at.place},
                    {"cache", cache.name},
                    {"slot", command.slot},
                    {"writes", out}});
    } else if (writes.empty()) {
      say("slot {} of the {} cache of layer {} was never written up to {}\n", command.slot,
          cache.name, place->layer, command.at.place);
    }
    return AS_OK;
  }
  std::int64_t token =
      command.token >= 0 ? command.token : (*session)->metadata().num_tokens_in_step() - 1;
  if (command.chosen.asked()) {
    auto row = row_in_step(**session, command.chosen);
    if (!row) return row.error();
    token = *row;
  }
  if (command.entry >= 0 && as_op_find(place->op)->role == AS_ROLE_SCORE) {
    return say_score_terms(**session, command, token, raw);
  }
  if (command.entry >= 0) {
    const int layer = running_layer((*session)->parts().config, place->layer);
    const bool index = read_to_select((*session)->parts().config, cache.id);
    auto request = request_in(**session, command.chosen.request);
    if (!request) return request.error();
    auto tokens = pooled_tokens(**session, layer, *request, command.entry, command.dim, index);
    if (!tokens) return tokens.error();
    json out = json::array();
    for (const PooledToken& t : *tokens) {
      out.push_back({{"position", t.position},
                     {"half", t.older_half ? "older" : "own"},
                     {"weight", t.weight},
                     {"mean_weight", t.mean_weight},
                     {"score", t.score},
                     {"ape", t.ape},
                     {"value", t.value}});
      if (!command.at.json) {
        say("position {:<7} {:<6} gate {:<11.4g} + ape {:<11.4g} weight {:<10.4g} over all "
            "channels {:<10.4g} value {:<11.4g} part {:.4g}\n",
            t.position, t.older_half ? "older" : "own", t.score - t.ape, t.ape, t.weight,
            t.mean_weight, t.value, t.weight * t.value);
      }
    }
    if (command.at.json) {
      say_json(json{{"format", "attnscope-why-entry"},
                    {"version", 1},
                    {"place", command.at.place},
                    {"entry", command.entry},
                    {"dim", command.dim},
                    {"tokens", out}});
    }
    return AS_OK;
  }
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
