#include "app/reports/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "app/reports/doctor.h"
#include "app/reports/explain_call.h"
#include "app/reports/report_decisions.h"
#include "app/reports/report_parts.h"
#include "app/text/interrupt.h"
#include "app/wiring/plugins.h"
#include "engine/cache/cache_layout.h"
#include "engine/checkpoint/checkpoint.h"
#include "engine/family/model_weights.h"
#include "engine/family/models.h"
#include "engine/family/tensor_parallel.h"
#include "engine/io/assets_folder.h"
#include "engine/io/content_hash.h"
#include "engine/io/json_file.h"
#include "engine/io/mapped_file.h"
#include "engine/io/printable.h"
#include "engine/model/profile_switches.h"
#include "kernels/params/op_table.h"

namespace attnscope {
namespace {

using nlohmann::json;

// JSON has no infinity: null says "beyond any bound".
json figures(const std::optional<ErrorFigures>& f) {
  if (!f) return nullptr;
  return {{"max_abs", number_json(f->max_abs)},
          {"max_rel", number_json(f->max_rel)},
          {"cosine", number_json(f->cosine)},
          {"median", number_json(f->median)},
          {"p90", number_json(f->p90)},
          {"p99", number_json(f->p99)},
          {"max_ulp", number_json(f->max_ulp)},
          {"differing", f->differing},
          {"beyond", f->beyond}};
}

json layer_number(int layer) { return layer < 0 ? json(nullptr) : json(layer); }

json result_json(const TapResult& r) {
  json j = {{"layer", layer_number(r.layer)},
            {"op", as_op_find(r.op)->name},
            {"tap", r.tap},
            {"lane", r.lane},
            {"shape", r.shape},
            {"dtype", r.dtype},
            {"elements", r.elements},
            {"introduced", figures(r.introduced)},
            {"inherited", figures(r.inherited)},
            {"quantisation", figures(r.quantisation)},
            {"tolerance", r.tolerance},
            {"budget_used", number_json(r.budget_used)},
            {"verdict", verdict_name(r.verdict)}};
  if (r.selection) {
    j["selection"] = {{"tokens", r.selection->tokens},
                      {"entries", r.selection->entries},
                      {"margin", number_json(r.selection->margin)},
                      {"score_difference", number_json(r.selection->score_difference)},
                      {"recall", r.selection->recall}};
  }
  if (r.introduced && as_op_role(r.op) == AS_ROLE_SELECT) j["recall"] = r.introduced->recall;
  if (r.mass_moved) j["mass_moved"] = number_json(*r.mass_moved);
  if (r.worst) {
    j["worst"] = {{"index", r.worst->index},
                  {"value", number_json(r.worst->value)},
                  {"reference", number_json(r.worst->reference)}};
  }
  if (!r.note.empty()) j["note"] = r.note;
  return j;
}

json located(const TapResult& r) {
  json j = result_json(r);
  j["step"] = r.step;
  return j;
}

json message_json(const ExchangeCount& count) {
  return {{"messages", count.messages}, {"bytes", count.bytes}};
}

json step_json(const StepRecord& step) {
  json j = {{"step", step.step},
            {"tokens", step.tokens},
            {"decode_only", step.decode_only},
            {"seconds", step.seconds},
            {"wall_seconds", step.wall_seconds},
            {"sampled", step.sampled},
            {"drafted", step.drafted},
            {"accepted", step.accepted},
            {"proposed", step.proposed},
            {"timings", json::array()},
            {"taps", json::array()}};
  for (const OpTiming& t : step.timings) {
    j["timings"].push_back(
        {{"op", as_op_find(t.op)->name},
         {"layer", layer_number(t.layer)},
         {"microseconds",
          t.microseconds == OpTiming::kNotMeasured ? json(nullptr) : json(t.microseconds)},
         {"start", t.start == OpTiming::kNotMeasured ? json(nullptr) : json(t.start)},
         {"stream", t.stream}});
  }
  if (step.exchanged != ExchangeCounts{}) {
    j["exchanged"] = {{"queries", message_json(step.exchanged[0])},
                      {"parts", message_json(step.exchanged[1])}};
  }
  for (const TapResult& r : step.results) j["taps"].push_back(result_json(r));
  return j;
}

json quantiles_json(const std::vector<double>& values) {
  const Quantiles q = quantiles(values);
  if (q.count == 0) return nullptr;
  return {{"count", q.count},   {"min", q.min}, {"p10", q.p10},
          {"median", q.median}, {"p90", q.p90}, {"max", q.max}};
}

json distributions_json(const Distributions& distributions) {
  json out = json::array();
  for (const LayerDistributions& d : distributions.layers()) {
    out.push_back({{"layer", d.layer},
                   {"sink_mass", quantiles_json(d.sink_mass)},
                   {"lse", quantiles_json(d.lse)},
                   {"score_deviation", quantiles_json(d.score_deviation)},
                   {"score_distinct", quantiles_json(d.score_distinct)},
                   {"margin", quantiles_json(d.margin)},
                   {"selective_tokens", d.selective_tokens},
                   {"indexer_tokens", d.tokens}});
  }
  return out;
}

// What was left undone may have been wrong.
std::string verdict_of(const RunResult& run) {
  const std::string verdict = run.summary.verdict();
  const bool bad = verdict == "wrong" || verdict == "diverged";
  const bool ended_early = run.stopped || (run.error && verdict == "ok");
  return ended_early && !bad ? "incomplete" : verdict;
}

json summary_json(const RunResult& run) {
  const Summary& s = run.summary;
  json j = {{"taps", s.taps}};
  for (int v = 0; v < kVerdicts; ++v) {
    j[verdict_name(static_cast<Verdict>(v))] = s.counts[static_cast<std::size_t>(v)];
  }
  j["verdict"] = verdict_of(run);
  j["idle_lanes"] = run.idle_lanes;
  j["cut_short"] = run.cut_short;
  j["blamed"] = blamed_json(s);
  j["first_wrong"] = s.first_wrong ? located(*s.first_wrong) : json(nullptr);
  return j;
}

json scenario_json(const Scenario& scenario) {
  json requests = json::array();
  for (const ScenarioRequest& r : scenario.requests) {
    requests.push_back({{"name", r.name},
                        {"prompt_tokens", r.tokens.size()},
                        {"max_new_tokens", r.max_new_tokens}});
  }
  return {{"name", scenario.name},
          {"path", scenario.path},
          {"seed", scenario.seed},
          {"profile", scenario.model.switches.profile},
          {"pool_blocks", scenario.pool_blocks},
          {"token_budget", scenario.limits.token_budget},
          {"max_requests", scenario.limits.max_requests},
          {"requests", requests}};
}

// Of all steps and layers; null where all rows lie on the device.
json pools_json(const Scenario& scenario, const std::vector<StepRecord>& steps) {
  if (!scenario.model.host_rows) return nullptr;
  PoolCounts sum;
  for (const StepRecord& step : steps) {
    for (const PoolCounts& one : step.pools) {
      sum.hits += one.hits;
      sum.misses += one.misses;
      sum.written += one.written;
      sum.evictions += one.evictions;
      sum.warmed += one.warmed;
    }
  }
  return {{"ratio", scenario.ess.ratio}, {"policy", pool_policy_name(scenario.ess.policy)},
          {"warm", scenario.ess.warm},   {"hits", sum.hits},
          {"misses", sum.misses},        {"written", sum.written},
          {"evictions", sum.evictions},  {"warmed", sum.warmed}};
}

// What ranks sent each other in all steps; null where there is one.
json ranks_json(const Scenario& scenario, const std::vector<StepRecord>& steps) {
  if (!scenario.context.splits()) return nullptr;
  ExchangeCounts sum{};
  for (const StepRecord& step : steps) {
    for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += step.exchanged[i];
  }
  return {{"ranks", scenario.context.ranks},
          {"interleave", scenario.context.interleave},
          {"queries", message_json(sum[0])},
          {"parts", message_json(sum[1])}};
}

json serving_json(const Scenario& scenario, const ServingTotals& totals) {
  // Some models have none, whatever the scenario says.
  const SchedulerOptions options = serving_options(scenario, build_cache_layout(scenario.model));
  return {{"prefix_caching", options.kv.caching},
          {"hits", totals.hits},
          {"hit_tokens", totals.hit_tokens},
          {"preemptions", totals.preemptions},
          {"recomputed_tokens", totals.recomputed},
          {"blocks_swapped_out", totals.blocks_out},
          {"blocks_swapped_in", totals.blocks_in},
          {"swaps_refused", totals.swaps_refused},
          {"aborted", totals.aborted},
          {"aborted_without_token", totals.tokenless},
          {"drafts_by_model", scenario.serving.drafts.by_model},
          {"drafted_tokens", totals.drafted},
          {"accepted_drafts", totals.accepted}};
}

const char* references_name(References r) {
  return r == References::kNone ? "none" : r == References::kSim ? "sim" : "both";
}

// What a token costs for good: rows of the full group; windowed groups do not grow with length.
double full_bytes_per_token(const CacheLayout& layout) {
  if (layout.mla_group < 0) return 0;
  const CacheGroup& g = layout.groups[static_cast<std::size_t>(layout.mla_group)];
  return static_cast<double>(g.bytes) / g.block_tokens;
}

// Blocks of the windowed groups that one decoding request holds at most, window not aligned; chunks
// begin with a block.
std::int64_t decode_blocks(const CacheLayout& layout) {
  std::int64_t blocks = 0;
  for (const CacheGroup& g : layout.groups) {
    if (g.kind == GroupKind::kChunked) {
      blocks += blocks_ceil(g.window, g.block_tokens);
    } else if (g.kind == GroupKind::kFirst) {
      blocks += blocks_for(g, g.window);
    } else if (g.window > 0) {
      blocks += (g.window - 1 + g.block_tokens - 1) / g.block_tokens + 1;
    }
  }
  return blocks;
}

// Tokens of a group of this kind, null of others.
json of_kind(const CacheGroup& group, GroupKind kind) {
  return group.kind == kind ? json(group.window) : json(nullptr);
}

class Fnv {
 public:
  void add(const std::string& text) {
    for (char c : text) hash_ = (hash_ ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
    hash_ = (hash_ ^ 0xFFu) * 0x100000001b3u;
  }
  std::string hex() const { return fmt::format("{:016x}", hash_); }

 private:
  std::uint64_t hash_ = 0xcbf29ce484222325u;
};

}  // namespace

json describe_model(const ModelConfig& config) {
  const CacheLayout layout = build_cache_layout(config);
  json layers = json::array();
  for (int i = 0; i < config.num_layers(); ++i) {
    layers.push_back({{"layer", config.layers[static_cast<std::size_t>(i)]},
                      {"type", layer_type_name(config, i)},
                      {"ratio", config.ratio(i)}});
    if (layout.owner(i) == i) continue;
    layers.back()["shares_with"] = config.layers[static_cast<std::size_t>(layout.owner(i))];
  }
  json groups = json::array();
  for (const CacheGroup& g : layout.groups) {
    json caches = json::array();
    for (int index : g.specs) {
      const CacheSpec& s = layout.specs[static_cast<std::size_t>(index)];
      caches.push_back({{"layer", config.layers[static_cast<std::size_t>(s.layer)]},
                        {"cache", s.name},
                        {"rows_per_block", s.rows_per_block},
                        {"width", s.width},
                        {"page_bytes", s.page_bytes},
                        {"offset", s.offset}});
    }
    groups.push_back({{"name", g.name},
                      {"block_tokens", g.block_tokens},
                      {"window", of_kind(g, GroupKind::kSliding)},
                      {"chunk", of_kind(g, GroupKind::kChunked)},
                      {"first_tokens", of_kind(g, GroupKind::kFirst)},
                      {"bytes_per_block", g.bytes},
                      {"caches", caches}});
  }
  // Null where no layer selects.
  bool selects = false;
  for (int i = 0; i < config.num_layers(); ++i) selects = selects || layer_selects(config, i);
  const auto of_indexer = [&](const auto& value) { return selects ? json(value) : json(nullptr); };
  return {{"name", config.name},
          {"family", config.family},
          {"hidden", config.hidden},
          {"heads", config.heads},
          {"kv_heads", config.kv_heads},
          {"tensor_parallel", {{"size", config.parallel.size}, {"rank", config.parallel.rank}}},
          {"head_dim", config.head_dim},
          {"q_lora", config.q_lora},
          {"o_lora", config.o_lora},
          {"o_groups", config.o_groups},
          {"window", config.window},
          {"index_heads", of_indexer(config.index_heads)},
          {"index_dim", of_indexer(config.index_dim)},
          {"index_topk", of_indexer(config.index_topk)},
          {"index_rows",
           of_indexer(config.switches.index_format == AS_RECORD_INDEX_MXFP4 ? "mxfp4" : "fp8")},
          {"published_layers", config.compress_ratios.size()},
          {"vocabulary", config.vocabulary},
          {"parameters", parameter_count(config)},
          {"parameter_bytes", weight_bytes(config)},
          {"projections", switch_value(config.switches, "projections")},
          {"projections_left_in_bf16", projections_left_in_bf16(config)},
          {"layers", layers},
          {"groups", groups},
          {"block_stride_bytes", layout.block_stride},
          {"full_group_bytes_per_token", full_bytes_per_token(layout)},
          {"decode_blocks_per_request", decode_blocks(layout)},
          {"scope",
           "attention layers with residual, final norm and tied head over 256 byte tokens; no "
           "mixture of experts, no hyper-connections"}};
}

namespace {

// Where the weights come from: null for synthetic ones.
json weights_json(const Scenario& scenario, const RunResult& result) {
  if (!result.weights_read) return nullptr;
  std::uint64_t bytes = 0;
  std::int64_t rounded = 0;
  json tensors = json::array();
  for (const TensorUse& use : *result.weights_read) {
    bytes += use.bytes;
    rounded += use.rounded;
    tensors.push_back(use_json(use));
  }
  return {{"folder", scenario.checkpoint},
          {"bytes", bytes},
          {"rounded", rounded},
          {"tensors", tensors}};
}

}  // namespace

json use_json(const TensorUse& use) {
  return {{"name", use.name},
          {"role", use.role},
          {"shard", use.shard},
          {"dtype", use.dtype},
          {"scales", use.scales.empty() ? json(nullptr) : json(use.scales)},
          {"shape", use.shape},
          {"bytes", use.bytes},
          {"rounded", use.rounded},
          {"warning", use.warning.empty() ? json(nullptr) : json(use.warning)}};
}

json make_report(const Scenario& scenario, const RunOptions& options, const RunResult& result,
                 const std::string& key) {
  json steps = json::array();
  for (const StepRecord& step : result.steps) steps.push_back(step_json(step));
  json near_ties = json::array();
  for (const TapResult& r : result.summary.near_ties) near_ties.push_back(located(r));
  json selections = json::array();
  for (const TapResult& r : result.summary.selections) {
    json j = result_json(r)["selection"];
    j["step"] = r.step;
    j["layer"] = layer_number(r.layer);
    selections.push_back(std::move(j));
  }
  json drift = json::array();
  for (const LayerDrift& d : result.summary.drift) {
    drift.push_back({{"layer", d.layer}, {"cosine", number_json(d.cosine)}, {"step", d.step}});
    // Beyond the limit, and why that is not held against the run.
    const bool excused = !(d.cosine <= result.summary.drift_limit) && !d.beyond;
    if (excused) drift.back()["past_near_ties"] = d.past_near_ties;
  }
  return {{"format", "attnscope-report"},
          {"version", kReportVersion},
          {"key", key},
          {"scenario", scenario_json(scenario)},
          {"model", describe_model(rank_config(scenario.model, scenario.parallel))},
          {"weights", weights_json(scenario, result)},
          {"hidden_states",
           scenario.hidden_states.empty() ? json(nullptr) : json(scenario.hidden_states)},
          {"machine", describe_machine()},
          {"error", result.error ? json{{"code", static_cast<int>(result.error->code)},
                                        {"message", result.error->text()}}
                                 : json(nullptr)},
          {"why", result.why ? explanation_json(*result.why) : json(nullptr)},
          {"complete", !result.stopped && !result.error},
          {"interrupted", result.stopped ? json(interrupt_name()) : json(nullptr)},
          {"lanes", result.lanes},
          {"plugin_faults", plugin_faults()},
          {"references", references_name(options.session.references)},
          {"ref_model",
           {{"rows", result.witnessed.rows},
            {"worst", result.witnessed.worst},
            {"drift", result.witnessed.drift},
            {"sim_drift", result.witnessed.sim_drift},
            {"seconds", result.witnessed.seconds},
            {"left_out", result.witnessed.left_out},
            {"says", unwitnessed_text(result.witnessed)}}},
          {"run",
           {{"steps", result.steps.size()},
            {"decode_steps", result.decode_steps},
            {"engine_seconds", result.engine_seconds},
            {"wall_seconds", result.wall_seconds},
            {"hashing_seconds", result.hashing_seconds},
            {"peak_bytes", result.peak_bytes}}},
          {"distributions", distributions_json(result.distributions)},
          {"free_running",
           {{"limit", result.summary.drift_limit}, {"layers", drift}, {"selections", selections}}},
          {"curves", curves_json(result.steps)},
          {"invariants", invariants_json(result.invariants)},
          {"guard", guard_json(result)},
          {"decisions", decisions_json(result)},
          {"exercise", coverage_json(result.coverage)},
          {"budgets", budgets_json(result.summary)},
          {"near_ties", near_ties},
          {"steps", steps},
          {"serving", serving_json(scenario, result.serving)},
          {"pools", pools_json(scenario, result.steps)},
          {"context_parallel", ranks_json(scenario, result.steps)},
          {"summary", summary_json(result)}};
}

as_status report_status(const json& report) {
  const std::string verdict = report.at("summary").at("verdict");
  if (verdict == "wrong" || verdict == "failed" || verdict == "diverged") return AS_MISMATCH;
  if (!report.at("plugin_faults").empty()) return AS_MISMATCH;
  const json& error = report.at("error");
  // What was to be tried was not, and nothing but the scenario ended the run before it came.
  const json& summary = report.at("summary");
  const bool idle = !summary.value("idle_lanes", json::array()).empty();
  if (idle && error.is_null() && !summary.value("cut_short", false)) return AS_MISMATCH;
  return error.is_null() ? AS_OK : static_cast<as_status>(error.at("code").get<int>());
}

namespace {

// Sizes and times of a file, or of all files of a folder; empty for an empty path.
std::string file_state(const std::string& path) {
  namespace fs = std::filesystem;
  std::error_code code;
  std::vector<fs::path> files;
  if (fs::is_directory(path, code)) {
    for (const auto& entry : fs::directory_iterator(path, code)) files.push_back(entry.path());
    std::sort(files.begin(), files.end());
  } else if (!path.empty()) {
    files.push_back(path);
  }
  std::string state;
  for (const fs::path& file : files) {
    const auto size = fs::file_size(file, code);
    const auto time = fs::last_write_time(file, code).time_since_epoch().count();
    state += fmt::format("{} {} {}\n", file.string(), size, time);
  }
  return state;
}

}  // namespace

std::string run_key(const Scenario& scenario, const RunOptions& options) {
  Fnv fnv;
  if (const auto self = MappedFile::open("/proc/self/exe")) {
    fnv.add(std::to_string(content_hash(self->bytes().data(), self->bytes().size())));
  }
  fnv.add(scenario.text);
  const ModelConfig& m = scenario.model;
  fnv.add(json_text(describe_model(rank_config(m, scenario.parallel))));
  fnv.add(fmt::format("{} {} {} {} {} {} {} {} {} {}", m.sink_shift, m.rms_eps, m.rope_theta,
                      m.compress_rope_theta, m.yarn_factor, m.yarn_original_max, m.yarn_beta_fast,
                      m.yarn_beta_slow, m.max_position, scenario.seed));
  fnv.add(fmt::format("{} {} {} {}", m.logit_gain, m.twin_tokens, scenario.first_block,
                      scenario.adversarial_lists));
  fnv.add(m.switches.profile);
  fnv.add(file_state(scenario.checkpoint) + file_state(scenario.hidden_states));
  for (const ScenarioRequest& r : scenario.requests) {
    fnv.add(r.name);
    for (std::int32_t token : r.tokens) fnv.add(std::to_string(token));
  }
  fnv.add(references_name(options.session.references));
  fnv.add(invariants_name(options.session.invariants));
  for (const std::string& lane : options.session.lanes) fnv.add(lane);
  if (options.session.serial) fnv.add("serial");
  const PluginChoice& plugins = plugin_choice();
  for (const std::string& library : plugins.libraries) fnv.add(file_state(library));
  fnv.add(fmt::format("{} {}", plugins.in_process, plugins.seconds_limit));
  fnv.add(fmt::format("{} {}", options.steps.value_or(-1), options.decode_steps.value_or(-1)));
  std::string tolerances = options.session.tolerance_file;
  if (tolerances.empty()) {
    if (auto assets = assets_folder()) tolerances = *assets + "/tolerances.json";
  }
  if (auto text = read_text_file(tolerances)) fnv.add(*text);
  fnv.add(json_text(describe_machine()));
  return fnv.hex();
}

}  // namespace attnscope
