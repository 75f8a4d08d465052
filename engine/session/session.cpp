#include "engine/session/session.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <new>
#include <numeric>

#include "engine/backend/call_op.h"
#include "engine/backend/stand_in.h"
#include "engine/checkpoint/checkpoint.h"
#include "engine/checkpoint/hidden_states.h"
#include "engine/checkpoint/second_reading.h"
#include "engine/family/family.h"
#include "engine/family/model_weights.h"
#include "engine/family/models.h"
#include "engine/family/tensor_parallel.h"
#include "engine/io/elapsed.h"
#include "engine/metadata/batch_plan.h"
#include "engine/model/memory.h"
#include "engine/model/numbers.h"
#include "engine/model/profile_switches.h"
#include "engine/session/rewind_points.h"
#include "engine/session/session_config.h"
#include "engine/session/step/between_ops.h"
#include "engine/session/step/context_parallel.h"
#include "engine/session/step/op_change.h"
#include "engine/session/verify/context_checks.h"
#include "engine/session/verify/part_checks.h"
#include "engine/session/verify/recorded_rows.h"
#include "engine/trace/judged_taps.h"
#include "kernels/cpu/rope_table.h"
#include "kernels/params/tensor_view.h"

namespace attnscope {
namespace {

Error out_of_memory() {
  return {
      AS_NO_ENVIRONMENT, "out of memory",
      "use fewer layers, shorter prompts, a smaller pool or token_budget, or --references none"};
}

// Bytes that a session is sure to touch: weights, logical histories, the widest tensors of a step.
std::int64_t memory_estimate(const Scenario& scenario, References references) {
  const ModelConfig& config = scenario.model;
  const CacheLayout layout = build_cache_layout(config);
  std::int64_t rows = 0, prompt = 0;
  for (const ScenarioRequest& r : scenario.requests) {
    rows += static_cast<std::int64_t>(r.tokens.size()) + r.max_new_tokens;
    prompt += static_cast<std::int64_t>(r.tokens.size());
  }
  std::int64_t history = 0;  // per row: the shadow's records, ref.sim's, ref.exact's values
  for (const CacheSpec& spec : layout.specs) {
    const std::int64_t record = spec.row_bytes();
    const std::int64_t copies = references == References::kNone  ? record
                                : references == References::kSim ? 2 * record
                                                                 : 2 * record + 8 * spec.width;
    history += copies / row_ratio(spec);
  }
  std::int64_t slot_maps = 0;  // row held by every slot
  for (const CacheSpec& spec : layout.specs) slot_maps += 8 * spec.rows_per_block;
  const std::int64_t tokens = std::min(scenario.limits.token_budget, prompt);
  // q before and after its norm, o before and after its rotation: bf16 here, float64 in references.
  const std::int64_t references_count = static_cast<std::int64_t>(references);
  const std::int64_t step =
      tokens * config.heads * config.head_dim * 4 * (2 + 8 * references_count);
  return 2 * parameter_count(config) + rows * history + scenario.pool_blocks * slot_maps + step;
}

Result<void> read_weights(const std::string& folder, const ModelConfig& whole,
                          const BetweenOps* between, SessionParts& parts) {
  auto checkpoint = Checkpoint::open(folder, whole);
  if (!checkpoint) return checkpoint.error();
  auto loaded = load_weights(**checkpoint, whole, parts.threads);
  if (!loaded) return loaded.error();
  if (between != nullptr && between->loaded != nullptr) between->loaded(loaded->weights);
  parts.ranks = rank_weights(whole, std::move(loaded->weights), parts.config.parallel);
  parts.weights_read = std::make_shared<const std::vector<TensorUse>>(std::move(loaded->used));
  return {};
}

Result<void> open_inputs(const Scenario& scenario, SessionParts& parts) {
  std::vector<HiddenStates::Need> needs;
  needs.reserve(scenario.requests.size());
  for (const ScenarioRequest& r : scenario.requests) {
    needs.push_back({r.name, static_cast<std::int64_t>(r.tokens.size())});
  }
  auto inputs = HiddenStates::open(scenario.hidden_states, parts.config, needs);
  if (!inputs) return inputs.error();
  parts.inputs = std::move(*inputs);
  std::vector<std::string> names;
  names.reserve(scenario.requests.size());
  for (const ScenarioRequest& r : scenario.requests) names.push_back(r.name);
  auto again = RecordedRows::open(scenario.hidden_states, std::move(names), parts.config.layers);
  if (!again) return again.error();
  parts.recorded = std::move(*again);
  return {};
}

template <class T>
as_tensor tensor1(std::vector<T>& v) {
  return make_tensor(v.data(), {static_cast<std::int64_t>(v.size())});
}

}  // namespace

Session::Session() = default;
// References that are still looking at tensors of the step end first.
Session::~Session() { verifier_.reset(); }

Result<std::unique_ptr<Session>> Session::create(const Scenario& scenario,
                                                 const LaneRegistry& registry,
                                                 const SessionOptions& options) {
  try {
    return build(scenario, registry, options, {});
  } catch (const std::bad_alloc&) {
    return out_of_memory();
  }
}

Result<std::unique_ptr<Session>> Session::build(const Scenario& scenario,
                                                const LaneRegistry& registry,
                                                const SessionOptions& options,
                                                std::vector<std::shared_ptr<const Weights>> ranks) {
  std::unique_ptr<Session> s(new Session());
  auto lanes = LaneSelector::make(registry, options.lanes);
  if (!lanes) return lanes.error();
  const std::string cpu = "cpu";
  auto cpu_lanes = LaneSelector::make(registry, std::span(&cpu, 1));
  if (!cpu_lanes) return cpu_lanes.error();
  s->cpu_lanes_ = std::move(*cpu_lanes);
  s->compute_device_ = options.device;
  s->op_times_ = options.op_times;
  s->serial_ = options.serial;
  s->lanes_ = *lanes;
  s->lanes_from_.emplace(0, std::move(*lanes));
  auto tolerances = Tolerances::load(options.tolerance_file);
  if (!tolerances) return tolerances.error();

  SessionParts& parts = s->parts_;
  parts.tolerances = std::move(*tolerances);
  if (auto ok = check_parallel(scenario.model, scenario.parallel); !ok) return ok.error();
  parts.config = session_config(scenario);
  parts.graph = model_graph(parts.config);
  if (auto ok = check_lane_ops(options.lanes, *parts.graph); !ok) return ok.error();
  // Copies: the registry need not outlive the session.
  const auto own = [&](const char* name, Lane& copy) -> const Lane* {
    const Lane* lane = registry.find(name);
    if (lane != nullptr) copy = *lane;
    return lane != nullptr ? &copy : nullptr;
  };
  parts.sim = own("ref.sim", s->sim_lane_);
  parts.exact = own("ref.exact", s->exact_lane_);
  if (options.references != References::kNone && (parts.sim == nullptr || parts.exact == nullptr)) {
    return Error{AS_NO_ENVIRONMENT, "this build has no references",
                 "build with libtorch, or use --references none"};
  }
  if (auto ok = check_memory(memory_estimate(scenario, options.references)); !ok) return ok.error();
  s->threads_ = std::make_unique<Threads>(options.threads);
  parts.threads = s->threads_->pool.handle();
  if (!scenario.hidden_states.empty()) {
    if (auto ok = open_inputs(scenario, parts); !ok) return ok.error();
  }
  if (!ranks.empty()) {
    parts.ranks = std::move(ranks);
  } else if (!scenario.checkpoint.empty()) {
    auto ok = read_weights(scenario.checkpoint, scenario.model, s->lanes_.between(), parts);
    if (!ok) return ok.error();
  } else {
    Weights made = synthetic_weights(scenario.model, scenario.seed, parts.threads);
    const BetweenOps* between = s->lanes_.between();
    if (between != nullptr && between->loaded != nullptr) between->loaded(made);
    parts.ranks = rank_weights(scenario.model, std::move(made), scenario.parallel);
  }
  parts.weights = parts.ranks[static_cast<std::size_t>(scenario.parallel.rank)];
  parts.layout =
      with_peers(build_cache_layout(parts.config), scenario.parallel.size, scenario.parallel.rank);
  parts.context = scenario.context;
  parts.adversarial_lists = scenario.adversarial_lists;

  std::int64_t longest = 1;
  std::vector<Request> requests;
  for (const ScenarioRequest& from : scenario.requests) {
    Request& request = requests.emplace_back();
    request.name = from.name;
    request.tokens = from.tokens;
    request.prompt_tokens = static_cast<std::int64_t>(from.tokens.size());
    request.source_tokens = source_tokens(scenario.model, request.prompt_tokens);
    request.max_new_tokens = from.max_new_tokens;
    if (parts.inputs) {  // it ends where the recorded rows do; the last token is only sampled
      const auto id = static_cast<std::int32_t>(requests.size()) - 1;
      request.max_new_tokens =
          std::min(request.max_new_tokens, parts.inputs->rows(id) - request.prompt_tokens + 1);
    }
    request.priority = from.priority;
    request.arrival_step = from.arrival_step;
    request.abort_step = from.abort_step;
    longest = std::max(longest, request.max_len());
    // The scenario may have been changed since it was read.
    auto fits = fits_pool(request.name, request.prompt_tokens, request.max_new_tokens, parts.layout,
                          scenario);
    if (!fits) return fits.error();
  }
  auto serving = Serving::make(serving_options(scenario, parts.layout), std::move(requests));
  if (!serving) return serving.error();
  s->serving_ = std::make_unique<Serving>(std::move(*serving));
  s->token_watch_.emplace(s->serving_->requests());
  if (scenario.serving.drafts.tokens > 0 && !scenario.serving.drafts.by_model) {
    if (auto ok = s->make_drafter(scenario, registry, options); !ok) return ok.error();
  }
  s->guard_.attach(*s->serving_, options.invariants);
  s->judge_.emplace(*s->serving_);
  s->tables_.assign(scenario.requests.size(),
                    std::vector<std::vector<std::int32_t>>(parts.layout.groups.size()));
  s->make_rope_tables(longest);
  s->make_tier(scenario);
  const std::int64_t pool_blocks = s->tier_ ? s->tier_->blocks() : 0;
  s->slab_ =
      std::make_unique<Slab>(parts.layout, s->serving_->end_block() + pool_blocks, pool_blocks);
  for (std::int64_t b = 0; b < pool_blocks; ++b) s->slab_->poison(s->serving_->end_block() + b);
  if (parts.adversarial_lists) plant_nan_codes(parts.layout, *s->slab_);
  s->space_ = std::make_unique<AddressSpace>(s->serving_->requests());
  s->verifier_ = std::make_unique<Verifier>(
      parts, options.references, *s->space_, scenario.pool_blocks + pool_blocks,
      scenario.first_block, options.references_lag && registry.references_beside());
  const bool on_device = std::ranges::any_of(
      options.lanes, [](const std::string& lane) { return lane.ends_with(DeviceRun::kLane); });
  if (options.witness && !on_device) s->verifier_->watch_memory();
  if (options.rest_old_rows && !registry.references_beside()) s->verifier_->rest_old_rows();
  if (auto ok = s->make_ranks(scenario); !ok) return ok.error();
  if (parts.weights_read && options.references != References::kNone) {
    auto differing = check_loaded(scenario.checkpoint, scenario.model, scenario.parallel,
                                  *parts.weights_read, parts.ranks);
    if (!differing) return differing.error();
    s->verifier_->set_loaded(std::move(*differing));
  }
  s->rewind_every_ = options.rewind_every;
  s->rewind_points_ = std::make_unique<RewindPoints>(options.rewind_bytes);
  s->choose_witness(scenario, registry, options);
  s->save_rewind_point();
  if (s->keeps_digests()) {
    s->replay_watch_.came_to(0, s->replay_state(), parts.layout, parts.config.layers);
  }
  return s;
}

bool Session::finished() const { return !in_step_ && serving_->done(); }

bool Session::decoding() const {
  return std::ranges::all_of(serving_->requests(),
                             [](const Request& r) { return is_over(r.state) || !r.in_prefill(); });
}

as_op_id Session::next_op() const {
  if (finished()) return AS_OP_COUNT;
  const auto i = static_cast<std::size_t>(cursor_.op);
  return ops_at(cursor_)[i];
}

const std::vector<as_op_id>& Session::ops_at(const Cursor& cursor) const {
  if (cursor.layer >= 0) return parts_.graph->layer(cursor.layer).ops();
  return cursor.after_layers ? parts_.graph->after.ops() : parts_.graph->before.ops();
}

Result<void> Session::begin() {
  if (auto ok = make_witness(); !ok) return ok;
  lanes_ = std::prev(lanes_from_.upper_bound(cursor_.step))->second;
  if (auto ok = open_device(); !ok) return ok;
  set_rope_tables();
  serving_->begin_step(cursor_.step);
  verifier_->begin_step(cursor_.step);
  frame_.drop_outgrown();
  guarded([](InvariantGuard& guard) { guard.after_arrivals(); });
  judge_->begin_step(cursor_.step, *serving_);
  if (metadata_.own.empty()) {
    metadata_.own = parts_.graph->family->step_tensors(parts_.config, parts_.layout);
  }
  metadata_ = begin_step(parts_.layout, *serving_, tables_, std::move(metadata_));
  host_ = {serving_.get()};
  if (context_) context_->begin_step();
  decided_ = judge_waits_ = fresh_waits_ = false;
  plan_error_.reset();
  current_ = {};
  current_.step = cursor_.step;
  current_.decode_only = decoding();
  in_step_ = true;
  ran_any_ = false;  // the last op's tensors belong to the step before
  return {};
}

void Session::make_rope_tables(std::int64_t rows) {
  parts_.ropes.clear();
  rope_tables_.clear();
  for (int i = 0; i < parts_.config.num_layers(); ++i) {
    as_rope rope = layer_rope(parts_.config, i);
    if (rope.base == 0) {  // nothing is rotated
      rope_tables_.emplace_back();
      parts_.ropes.push_back(rope);
      continue;
    }
    rope_tables_.emplace_back(static_cast<std::size_t>(rows * parts_.config.rope_dim));
    cpu::build_rope_table(rope, rows, rope_tables_.back().data(), parts_.threads,
                          parts_.config.rope_dim);
    set_rope_table(rope, rope_tables_.back().data(), rows, parts_.config.rope_dim);
    parts_.ropes.push_back(rope);
  }
}

void Session::take_profiles(int version) {
  ProfileSwitches& switches = parts_.config.switches;
  const std::string projections = switch_value(switches, "projections");
  switches = switches_of_version(switches, version);
  (void)set_switch(switches, "projections", projections);  // as the weights are held
  parts_.graph = model_graph(parts_.config);
  std::int64_t rows = 0;  // a layer may have no table
  for (const as_rope& rope : parts_.ropes) rows = std::max(rows, rope.table.shape[0]);
  make_rope_tables(rows);
  verifier_->watch_weights_anew();
  replay_watch_ = {};  // its first boundary had other tables
  witness_to_make_ = nullptr;
  unwitnessed_.left_out = "an older program kept the session";
  unwitnessed_.hint = "start over: the steps are computed anew, with it";
}

void Session::set_rope_tables() {
  const std::size_t layers = parts_.ropes.size();
  rope_tables_.resize(layers);  // behind them lie changed copies, of the step before
  const BetweenOps* between = lanes_.between();
  const bool changed = between != nullptr && between->rope != nullptr && !device_;
  for (std::size_t i = 0; i < layers; ++i) {
    as_tensor& table = parts_.ropes[i].table;
    if (rope_tables_[i].empty()) continue;
    table.data = rope_tables_[i].data();
    if (!changed) continue;
    std::vector<float> copy = rope_tables_[i];
    table.data = rope_tables_.emplace_back(std::move(copy)).data();
    between->rope(table);
  }
}

Result<void> Session::op() {
  if (finished()) return {};
  const auto start = std::chrono::steady_clock::now();
  const std::size_t complete = history_.size();
  Result<void> ok;
  try {
    ok = run_next();
    if (ok && history_.size() > complete) ok = ask_witness();
  } catch (const std::bad_alloc&) {
    ok = out_of_memory();
  }
  if (!ok && device_failed_) return leave_device(ok.error());
  const double elapsed = seconds_since(start);
  const bool step_ended = history_.size() > complete;
  (step_ended ? history_.back() : current_).wall_seconds += elapsed;
  if (step_ended && observer_ != nullptr) observer_->step_done(*this);
  if (ok && step_ended) {
    const StepRecord& record = history_.back();
    ok = progress_.step_done(record.step, record.tokens, serving_->requests(),
                             serving_->num_blocks() - 1);
  }
  return ok;
}

Result<void> Session::run_next() {
  if (auto ok = check_invariants(); !ok) return ok;
  if (!in_step_) {
    if (auto ok = begin(); !ok) return ok;
  }
  const as_op_id id = next_op();
  if (id != AS_OP_SWAP_OUT) begin_fresh();
  const auto planned = try_plan(id);
  if (!planned) return planned.error();
  if (*planned) return check_invariants();
  if (cursor_.layer < 0 && !cursor_.after_layers) {
    if (auto ok = run_before_op(id); !ok) return ok;
  } else {
    if (parts_.inputs && !cursor_.after_layers && cursor_.op == 1) replay_input();
    const PagedSource source(parts_.layout, *slab_, metadata_, tier());
    const OpContext context = op_context();
    const ModelGraph& graph = *parts_.graph;
    const bool drafts = in_draft_layer();
    if (drafts && cursor_.op == 0) begin_drafts();
    if (id == graph.after.ops().front()) {
      gather_last(graph, frame_, metadata_, drafts);
      if (device_) {
        auto ok = device_->gather(frame_.get(drafts ? graph.draft_out : graph.hidden),
                                  metadata_.sample_rows,
                                  frame_.get(drafts ? graph.draft_last : graph.last));
        if (!ok) return device_failure(ok.error());
      }
    }
    if (id == graph.sum.read_by) {
      if (auto ok = sum_over_ranks(source); !ok) return ok;
    }
    if (id == AS_OP_EXCHANGE_ROWS) {
      if (auto ok = look_up_rows(); !ok) return ok;
    }
    OpParams params = layer_op_params(id, cursor_.layer, context, frame_, source);
    if (auto ok = run_op(id, cursor_.layer, params); !ok) return ok;
    if (cursor_.layer >= 0 && !drafts && id == graph.layer(cursor_.layer).ops().back()) {
      frame_.swap(graph.hidden, graph.hidden_out);
    }
  }
  if (auto ok = advance_cursor(); !ok) return ok;
  return check_invariants();
}

OpContext Session::op_context() {
  OpContext context;
  context.graph = parts_.graph.get();
  context.config = &parts_.config;
  context.weights = parts_.weights.get();
  context.ropes = &parts_.ropes;
  context.positions = tensor1(metadata_.positions);
  context.token_to_req = tensor1(metadata_.token_to_req);
  context.seq_lens = tensor1(metadata_.seq_lens);
  context.query_start_loc = tensor1(metadata_.query_start_loc);
  context.source_lens = tensor1(metadata_.source_lens);
  context.logits_width = metadata_.logits_width();
  return context;
}

Result<void> Session::run_before_op(as_op_id id) {
  if (moves_blocks(id)) return run_swap(id);
  if (id == AS_OP_SCHEDULE) {
    if (auto ok = decide(); !ok) return ok;
  }
  OpParams params =
      step_op_params(id, *parts_.graph, metadata_, parts_.config, parts_.layout,
                     serving_->limits().token_budget, serving_->options().kv.alignment);
  if (id == AS_OP_SCHEDULE) {
    params.get<as_schedule_params>().longest_chunk =
        static_cast<std::int32_t>(serving_->plan().chunk);
  }
  if (auto ok = run_op(id, -1, params); !ok) return ok;
  if (id == AS_OP_SLOT_MAPPING) note_selective();
  if (id == AS_OP_SLOT_MAPPING && tier_) return begin_tier();
  return {};
}

void Session::note_selective() {
  const std::int32_t k = parts_.config.index_topk;
  const auto seen = std::ranges::find(metadata_.own, true, &StepTensor::selected_from);
  current_.selective = seen != metadata_.own.end() &&
                       std::ranges::any_of(seen->numbers, [k](std::int32_t n) { return n > k; });
}

void Session::embed() {
  const std::int64_t hidden = parts_.config.hidden;
  as_tensor h =
      frame_.make(parts_.graph->hidden, AS_BF16, {metadata_.num_tokens_in_step(), hidden});
  for (std::int64_t t = 0; t < h.shape[0]; ++t) {
    std::memcpy(
        at<bf16_t>(h, t),
        parts_.weights->embedding() + metadata_.tokens[static_cast<std::size_t>(t)] * hidden,
        static_cast<std::size_t>(hidden) * sizeof(bf16_t));
  }
}

void Session::replay_input() {
  const as_tensor rows = frame_.get(parts_.graph->layer_input);
  for (std::int64_t t = 0; t < rows.shape[0]; ++t) {
    const auto i = static_cast<std::size_t>(t);
    const auto row = static_cast<std::size_t>(metadata_.token_to_req[i]);
    parts_.inputs->row(cursor_.layer, metadata_.live[row], metadata_.positions[i],
                       at<bf16_t>(rows, t));
  }
  if (verifier_->references() != References::kNone) verifier_->replay_input(cursor_.layer, rows);
  if (device_) device_->residency().host_wrote(rows);
}

Result<void> Session::run_op(as_op_id id, int layer, OpParams& params) {
  const std::string& lane = lanes_.lane(id);
  const bool by_device = device_ && as_op_find(id)->phase != AS_PHASE_BEFORE;
  const bool is_seen = !by_device || seen();
  if (is_seen) {
    const bool apart = by_device && lane == DeviceRun::kLane && !on_ranks(id, layer);
    if (auto ok = verifier_->before(layer, params, lane, apart); !ok) return ok;
  }
  as_call call = host_call(parts_.threads);
  call.host = &host_;
  const auto start = std::chrono::steady_clock::now();
  Result<void> ran;
  const StandInWatch watch;
  last_called_ = params;
  launches_ = {};
  if (change_ != nullptr && change_->changes(id, layer)) {
    ran = run_changed(layer, params, call);
  } else {
    const auto called = as_called(layer, params, by_device);
    if (!called) return called.error();
    last_called_ = **called;
    ran = on_ranks(id, layer)   ? run_on_ranks(id, layer, **called, call)
          : overlaps(id, layer) ? run_overlapped(layer, **called, call, is_seen)
          : by_device ? device_->run(lane, lanes_.function(id), layer, **called, call, is_seen,
                                     observer_ != nullptr ? &launches_ : nullptr)
                      : call_op(lanes_.function(id), (*called)->data(), call);
  }
  double elapsed = seconds_since(start);
  if (on_ranks(id, layer)) elapsed -= context_->watch_seconds();
  const int published = layer < 0 ? -1 : parts_.config.layers[static_cast<std::size_t>(layer)];
  if (!ran) {
    device_failed_ = ran.error().code == AS_NO_ENVIRONMENT && lane == DeviceRun::kLane;
    return Error{ran.error().code,
                 fmt::format("step {}, layer {}, lane {}: {}", cursor_.step, published, lane,
                             ran.error().message),
                 ran.error().hint};
  }
  const std::optional<StandIn>& stand_in = watch.seen();
  if (stand_in) change_hands(id, published, *stand_in->lane);
  if (id == AS_OP_SCHEDULE) {
    elapsed += deciding_seconds_;
    if (auto ok = plan_step(); !ok) return ok;
  }
  if (id == AS_OP_BLOCK_TABLES) keep_tables(metadata_, tables_);
  // What a device needs of the step is known with its tables, or without where it has none.
  const bool tables_known =
      id == (parts_.layout.groups.empty() ? AS_OP_SCHEDULE : AS_OP_BLOCK_TABLES);
  if (tables_known && device_) device_->begin_step(metadata_);
  if (on_ranks(id, layer) && context_->exchange_seconds() > 0) {
    const double exchange = context_->exchange_seconds();
    current_.timings.push_back({id, published, exchange * 1e6,
                                (current_.seconds + elapsed - exchange) * 1e6,
                                OpTiming::kExchange});
  }
  if (overlaps(id, layer)) time_travel(published);
  current_.timings.push_back({id, published, elapsed * 1e6, current_.seconds * 1e6, 0});
  if (by_device && is_seen && lane == DeviceRun::kLane) {
    // The op alone: without the launch, and without the copies for whoever looks at it.
    if (auto ok = take_device_times(); !ok) return ok;
    elapsed = current_.timings.back().microseconds * 1e-6;
  }
  current_.seconds += elapsed;
  auto ok =
      is_seen ? verifier_->after(layer, params, lane) : verifier_->unseen(layer, params, lane);
  if (ok && !by_device) ok = probe_nan_codes(layer, params, call);
  last_params_ = params;
  ran_any_ = is_seen;
  if (id == AS_OP_SAMPLE && is_seen) {
    const auto& tokens = params.get<as_sample_params>();
    layer < 0 ? token_watch_->sampled(tokens) : token_watch_->drafted(tokens);
  }
  if (ok && observer_ != nullptr) ok = verifier_->settle();
  if (ok && is_seen && witness_) witness_->op_done(*this);
  if (ok && observer_ != nullptr) {
    observer_->op_done(*this);
    if (stand_in) observer_->lane_failed(*this, Error{AS_MISMATCH, stand_in->why, {}});
  }
  const BetweenOps* between = lanes_.between();
  if (between != nullptr && between->ran != nullptr && !device_) {
    if (ok) ok = verifier_->settle();
    between->ran(params);
  }
  return ok;
}

void Session::change_hands(as_op_id op, int layer, const Lane& to) {
  const std::string from = lanes_.lane(op);
  lanes_ = lanes_.with(op, to);
  verifier_->change_hands(op, layer, from, lanes_.lane(op));
  replay_watch_.changed_hands(cursor_.step);
  lanes_from_.insert_or_assign(cursor_.step, lanes_);
  for (auto it = lanes_from_.upper_bound(cursor_.step); it != lanes_from_.end(); ++it) {
    if (it->second.lane(op) == from) it->second = it->second.with(op, to);
  }
}

Result<void> Session::check_invariants() const {
  const auto& violation = guard_.violation();
  if (!violation) return {};
  return Error{AS_MISMATCH, fmt::format("step {}: invariant {}", cursor_.step, violation->text()),
               "what follows could not be trusted"};
}

template <class F>
void Session::guarded(const F& tell) {
  const bool before = guard_.violation().has_value();
  tell(guard_);
  if (before || !guard_.violation()) return;
  const Violation& v = *guard_.violation();
  verifier_->found(judged_wrong(AS_OP_SCHEDULE,
                                v.invariant.substr(0, v.invariant.find(' ')) + kInvariantTap, 1, 1,
                                v.text()));
}

template <class F>
void Session::judged(const F& tell) {
  const auto total = [&] {
    const DecisionCounts& counts = judge_->counts();
    return std::accumulate(counts.begin(), counts.end(), std::int64_t{0});
  };
  const bool before = judge_->wrong().has_value();
  current_.decisions -= total();
  tell(*judge_);
  current_.decisions += total();
  if (before || !judge_->wrong()) return;
  const WrongDecision& wrong = *judge_->wrong();
  verifier_->found(judged_wrong(
      AS_OP_SCHEDULE, std::string(decision_name(wrong.decision)) + kDecisionTap, 1, 1, wrong.note));
}

Result<void> Session::decide() {
  if (plan_error_) return *plan_error_;
  if (decided_) return {};  // the op failed before and is tried again
  guard_.before_schedule();
  const auto start = std::chrono::steady_clock::now();
  const ServingStep& step = serving_->schedule();
  deciding_seconds_ = seconds_since(start);
  judge_waits_ = true;
  auto ok = check_plan(step);
  if (!ok || !device_ || !whole_step_ || seen()) judge_plan();
  if (!ok) {
    plan_error_ = ok.error();
    return ok;
  }
  take_decisions(metadata_, *serving_);
  decided_ = true;
  guarded([&](InvariantGuard& guard) { guard.after_schedule(serving_->plan()); });
  swapped_.note_marks(serving_->plan().swapped_out, verifier_->shadow());
  check_swapped_in();
  verifier_->begin_blocks(*serving_, *slab_);
  fresh_waits_ = true;
  if (!has_op(AS_OP_SWAP_OUT)) begin_fresh();
  if (!has_op(AS_OP_SWAP_IN)) swapped_.forget_free(serving_->scheduler().host_blocks());
  return check_invariants();
}

void Session::judge_plan() {
  if (!judge_waits_) return;
  judge_waits_ = false;
  judged([&](ServingJudge& judge) { judge.planned(*serving_); });
}

Result<void> Session::check_plan(const ServingStep& step) const {
  for (std::size_t row = 0; row < step.num_scheduled_tokens.size(); ++row) {
    const std::int32_t id = serving_->live()[row];
    const Request& request = serving_->requests()[static_cast<std::size_t>(id)];
    const std::int64_t end = step.num_computed[row] + step.num_scheduled_tokens[row];
    const auto drafts = static_cast<std::int64_t>(serving_->drafts()[row].size());
    const std::int64_t known = std::min(request.num_tokens() + drafts, request.max_len());
    std::size_t entries = 0;
    for (std::size_t g = 0; g < parts_.layout.groups.size(); ++g) {
      entries = std::max(entries, serving_->table(id, static_cast<int>(g)).size());
    }
    if (step.num_scheduled_tokens[row] == 0 ||
        (end <= known && entries <= to_size(metadata_.columns))) {
      continue;
    }
    return Error{AS_MISMATCH,
                 fmt::format("step {}: request {} is to compute tokens up to {} on {} entries of a "
                             "table; it has {} tokens, a table has room for {} entries",
                             cursor_.step, id, end, entries, known, metadata_.columns),
                 "the scheduler or the block manager is wrong: what follows cannot be computed"};
  }
  return {};
}

Result<void> Session::plan_step() {
  const std::int64_t longest = plan_tokens(metadata_, *serving_, parts_.layout);
  plan_lists(metadata_, parts_.graph->family->list_columns(longest, parts_.config));
  plan_parts(metadata_, batch_rules(parts_.config, parts_.layout, serving_->options().drafts.tokens,
                                    serving_->options().token_budget));
  const BetweenOps* between = lanes_.between();
  current_.tokens = metadata_.num_tokens_in_step();
  if (between != nullptr && between->planned != nullptr && current_.tokens > 0) {
    between->planned(metadata_);
  }
  if (current_.tokens == 0) {
    if (!serving_->plan().preempted.empty()) return {};  // all were preempted: the next step runs
    return internal_error(fmt::format("step {}: no request could be scheduled although {} are live",
                                      cursor_.step, metadata_.num_live()));
  }
  verifier_->begin_tokens(metadata_, *serving_);
  for (TapResult& wrong : token_watch_->planned(metadata_)) verifier_->found(std::move(wrong));
  embed();
  if (between != nullptr && between->embedded != nullptr) {
    between->embedded(frame_.get(parts_.graph->hidden));
  }
  return {};
}

Result<void> Session::advance_cursor() {
  ++cursor_.op;
  if (cursor_.layer < 0 && !cursor_.after_layers) {
    const std::vector<as_op_id>& ops = parts_.graph->before.ops();
    const auto next = std::find_if(ops.begin() + cursor_.op, ops.end(),
                                   [this](as_op_id op) { return has_op(op); });
    cursor_.op = static_cast<int>(next - ops.begin());
    const bool moves = next != ops.end() && moves_blocks(*next);
    if (current_.tokens == 0 && !moves) return end_step();  // nobody computes anything
    if (next != ops.end()) return {};
    cursor_.op = 0;
    cursor_.layer = 0;
    return {};
  }
  if (!cursor_.after_layers) {
    if (cursor_.op < static_cast<int>(ops_at(cursor_).size())) return {};
    cursor_.op = 0;
    if (++cursor_.layer < parts_.config.main_layers()) return {};
    cursor_.layer = -1;
    cursor_.after_layers = true;
    if (!metadata_.sample_rows.empty()) return {};
  } else if (const auto& ops = ops_at(cursor_); cursor_.op < static_cast<int>(ops.size())) {
    // Where nothing is sampled the head of a layer that drafts has no rows.
    const bool head =
        as_op_find(ops[static_cast<std::size_t>(cursor_.op)])->phase == AS_PHASE_AFTER;
    if (!metadata_.sample_rows.empty() || !head) return {};
  }
  if (cursor_.layer < 0 && parts_.graph->draft_layer >= 0) {
    cursor_.layer = parts_.graph->draft_layer;
    cursor_.op = 0;
    return {};
  }
  return end_step();
}

Result<void> Session::end_step() {
  if (auto ok = verifier_->settle(); !ok) return ok;
  begin_fresh();
  finish_step();
  return {};
}

void Session::finish_step() {
  judge_plan();  // of a step without tokens
  verify_drafts();
  // Times alone: what they belong to has run. A lost device shows in the next op.
  if (device_) static_cast<void>(take_device_times());
  const BetweenOps* between = lanes_.between();
  std::vector<std::int32_t> sampled = current_.sampled, accepted = current_.accepted;
  if (between != nullptr && between->appending != nullptr) {
    between->appending(metadata_, sampled, accepted);
  }
  serving_->finish_step(sampled, accepted, current_.proposed);
  judged([&](ServingJudge& judge) { judge.ended(*serving_, sampled, accepted); });
  guarded([&](InvariantGuard& guard) { guard.after_results(serving_->plan()); });
  if (context_) current_.exchanged = context_->counts();
  check_step();
  current_.results = verifier_->take_results();
  history_.push_back(std::move(current_));
  if (!ahead_.empty()) ahead_.pop_front();  // the same step, as it ran before
  current_ = {};
  in_step_ = false;
  cursor_ = {cursor_.step + 1, -1, 0, false};
  if (rewind_every_ > 0 && cursor_.step % rewind_every_ == 0) save_rewind_point();
}

void Session::check_step() {
  for (TapResult& wrong : token_watch_->appended(metadata_, serving_->requests())) {
    verifier_->found(std::move(wrong));
  }
  if (!keeps_digests()) return;
  auto wrong =
      replay_watch_.came_to(cursor_.step + 1, replay_state(), parts_.layout, parts_.config.layers);
  if (!wrong) return;
  replay_faults_.push_back(wrong->note);
  verifier_->found(std::move(*wrong));
}

Result<void> Session::layer() {
  const Cursor start = cursor_;
  do {
    if (auto ok = op(); !ok) return ok;
  } while (!finished() && !cancelled_ && in_step_ && cursor_.layer == start.layer &&
           cursor_.after_layers == start.after_layers);
  return {};
}

Result<void> Session::step() {
  if (finished()) return {};
  Result<void> ok;
  whole_step_ = !in_step_;
  do {
    ok = op();
  } while (ok && in_step_ && !cancelled_);
  whole_step_ = false;
  return ok;
}

Result<bool> Session::run_until(const std::function<bool(const Session&)>& predicate) {
  while (!finished() && !cancelled_) {
    if (auto ok = op(); !ok) return ok.error();
    if (predicate(*this)) return true;
  }
  return false;
}

}  // namespace attnscope
