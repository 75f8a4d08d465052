#include "engine/session/trace_recorder.h"

#include <malloc.h>

#include <algorithm>
#include <new>
#include <optional>
#include <set>

#include "engine/session/coverage.h"
#include "engine/session/place.h"
#include "engine/session/resting_trace.h"
#include "engine/session/session.h"
#include "engine/session/snapshot.h"
#include "engine/session/step/attention_copy.h"
#include "engine/session/step/listed_attention.h"
#include "engine/session/step_events.h"
#include "engine/session/tap_copies.h"
#include "engine/trace/wiring_tap.h"
#include "kernels/params/row_access.h"

namespace attnscope {
namespace {

// Copies of one step aim at this much; long prompts keep fewer rows.
constexpr std::int64_t kStepBytes = std::int64_t{24} << 20;
constexpr std::int64_t kFewestRows = 8;
constexpr int kAlwaysKept = 2;  // newest steps
constexpr std::int64_t kFreedAtOnce = std::int64_t{16} << 20;
constexpr int kAwake = 3;  // newest steps, whose tensors do not rest

std::int64_t copy_bytes(const OpTrace& op) {
  std::size_t bytes = 0;
  for (const TapCopy& tap : op.taps) bytes += tap.value_bytes.size() + tap.reference_bytes.size();
  for (const RowsCopy& rows : op.rows) bytes += rows.bytes.size() + rows.reference.size();
  const std::int64_t attention = op.attention ? attention_bytes(*op.attention) : 0;
  return static_cast<std::int64_t>(bytes) + attention;
}

std::vector<LayerCell> empty_cells(const ModelConfig& config) {
  std::vector<LayerCell> cells(1 + config.layers.size());
  for (std::size_t i = 0; i < config.layers.size(); ++i) cells[i + 1].layer = config.layers[i];
  return cells;
}

LayerCell* cell_of(std::vector<LayerCell>& cells, int layer) {
  const auto it = std::ranges::find(cells, layer, &LayerCell::layer);
  return it != cells.end() ? &*it : nullptr;
}

void count_result(const TapResult& result, StepSummary& summary) {
  LayerCell* cell = cell_of(summary.layers, result.layer);
  if (cell == nullptr) return;
  cell->worst = worse(cell->worst, result.verdict);
  cell->budget_used = std::max(cell->budget_used, result.budget_used);
  ++cell->counts[static_cast<std::size_t>(result.verdict)];
}

void time_op(const OpTiming& timing, StepSummary& summary) {
  if (timing.stream == OpTiming::kExchange) return;  // part of the op behind it
  LayerCell* cell = cell_of(summary.layers, timing.layer);
  if (cell == nullptr || cell->microseconds == OpTiming::kNotMeasured) return;
  const bool measured = timing.microseconds != OpTiming::kNotMeasured;
  cell->microseconds = measured ? cell->microseconds + timing.microseconds : OpTiming::kNotMeasured;
}

// The attention of the op that ran last, with the rows it read and the steps that wrote them.
std::shared_ptr<const AttentionCopy> copy_with_rows(const Session& session,
                                                    const std::vector<std::int32_t>& kept) {
  const OpParams& params = session.last_params();
  if (params.op() == AS_OP_VARLEN_ATTENTION) {  // whose rows lie in no cache
    return std::make_shared<const AttentionCopy>(
        copy_attention(params.get<as_varlen_attention_params>(), kept, session.parts().threads));
  }
  AttentionCopy copy;
  const auto copy_of = [&](const auto& attention) {
    copy = copy_attention(attention, kept, session.parts().threads);
    copy_rows_read(attention, &copy);
  };
  const bool paged = !ListedAttention::of(params.op());
  paged ? copy_of(params.get<as_paged_attention_params>())
        : copy_of(ListedAttention(params, kept).params());
  const auto& layers = session.parts().config.layers;
  const int published = session.current().timings.back().layer;
  const auto layer = static_cast<int>(std::ranges::find(layers, published) - layers.begin());
  const Shadow& shadow = session.verifier().shadow();
  // The caches whose rows are values, in the order of the op's accesses.
  const auto accesses = RowAccess::of(params.op());
  for (const auto& [rows, access] : {std::pair{&copy.window_rows, accesses[paged ? 1 : 0]},
                                     {&copy.extra_rows, accesses.back()}}) {
    for (std::size_t i = 0; i < rows->slots.size(); ++i) {
      const CacheSpec& spec = *session.parts().layout.of_tap(layer, params.op(), access.cache);
      const std::int64_t row = shadow.row_of(spec, rows->slots[i]);
      if (row >= 0) rows->steps[i] = static_cast<std::int32_t>(shadow.written(spec, row));
    }
  }
  return std::make_shared<const AttentionCopy>(std::move(copy));
}

std::shared_ptr<const StepWrites> writes_of(const StepMetadata& step) {
  StepWrites writes;
  const auto tokens = static_cast<std::size_t>(step.num_tokens_in_step());
  for (const std::int32_t row : step.token_to_req) {
    writes.requests.push_back(step.live[static_cast<std::size_t>(row)]);
  }
  writes.positions = step.positions;
  for (std::size_t at = 0; tokens > 0 && at + tokens <= step.slots.size(); at += tokens) {
    const auto first = step.slots.begin() + static_cast<std::ptrdiff_t>(at);
    writes.slots.emplace_back(first, first + static_cast<std::ptrdiff_t>(tokens));
  }
  for (const StepTensor& tensor : step.own) {
    if (tensor.kind == StepTensor::Kind::kSlots) {
      writes.entries[tensor.tokens_per_row] = tensor.slots;
    }
  }
  return std::make_shared<const StepWrites>(std::move(writes));
}

bool stays(const Event& event) {
  return event.kind == EventKind::kBack || event.kind == EventKind::kError;
}

}  // namespace

struct TraceRecorder::State {
  // A step being recorded.
  struct Step {
    StepTrace trace;
    StepSummary summary;
    std::size_t events_seen = 0;  // of the serving's
    OutputsOfStep outputs;
    bool planned = false;  // tokens are known, `kept` is chosen
    // Of the step's results those that are here; all of them from the step's first op on.
    std::size_t results_seen = 0;
    bool from_start = false;
  };

  explicit State(TraceOptions o) : options(std::move(o)) {}

  void begin(const Session& session);
  void plan(const Session& session);
  void take_events(const Session& session, bool at_end);
  void record_op(const Session& session);
  void finish(const Session& session);
  void add_witnessed(const StepRecord& record);
  void stash();
  void rest_old();
  void evict();
  void keep_summary(StepSummary summary);
  void add_event(std::int64_t step, Event event);
  bool shows_current_trace() const;
  bool shows_current_summary() const;
  std::int64_t bytes() const { return kept_bytes + (current ? current->trace.bytes : 0); }
  // Steps from here on will be computed by others.
  void forget_from(std::int64_t step) {
    current.reset();
    for (auto it = traces.lower_bound(step); it != traces.end(); it = traces.erase(it)) {
      kept_bytes -= it->second->bytes;
    }
    for (auto it = summaries.lower_bound(step); it != summaries.end(); it = summaries.erase(it)) {
      if (it->second->cache_events) kept_events -= std::ssize(*it->second->cache_events);
    }
  }
  // Memory ran out: what was recorded goes, the session does not suffer.
  void drop() {
    traces.clear();
    kept_bytes = 0;
    current.reset();
  }

  TraceOptions options;
  std::map<std::int64_t, std::shared_ptr<const StepTrace>> traces;
  std::set<std::int64_t> awake;  // of traces
  std::int64_t freed = 0;        // bytes of traces that rest, since memory was given back
  std::shared_ptr<RestingFile> resting_file = std::make_shared<RestingFile>();
  std::map<std::int64_t, std::shared_ptr<const StepSummary>> summaries;
  std::map<std::int64_t, std::vector<Event>> pending;  // of steps without a summary yet
  std::optional<Step> current;
  std::int64_t position = 0;  // step the session stands in
  std::int64_t kept_bytes = 0;
  std::int64_t kept_events = 0;  // of summaries
  std::int64_t events_from = 0;  // summaries of older steps have none
  std::vector<std::vector<std::uint8_t>> scratch;
};

void TraceRecorder::State::begin(const Session& session) {
  stash();
  current = Step{};  // emplace() does not compile with clang 16 for a nested aggregate
  current->trace.step = position;
  current->summary.step = position;
  current->summary.layers = empty_cells(session.parts().config);
  // What happened to this step from outside outlives its replay.
  if (const auto old = summaries.find(position); old != summaries.end()) {
    std::ranges::copy_if(old->second->events, std::back_inserter(current->summary.events), stays);
  }
  if (const auto waiting = pending.find(position); waiting != pending.end()) {
    std::ranges::move(waiting->second, std::back_inserter(current->summary.events));
    pending.erase(waiting);
  }
}

void TraceRecorder::State::take_events(const Session& session, bool at_end) {
  const std::vector<CacheEvent>& events = session.serving().events();
  add_cache_events(session, current->events_seen, at_end, current->trace, current->summary.events);
  current->events_seen = events.size();
  current->trace.cache_events = events;
  current->summary.cache_events = std::make_shared<const std::vector<CacheEvent>>(events);
}

// A finished or interrupted step's summary; the oldest lose their events where there are too many.
void TraceRecorder::State::keep_summary(StepSummary summary) {
  const auto events = [](const StepSummary& s) {
    return s.cache_events ? std::ssize(*s.cache_events) : 0;
  };
  if (summary.step < events_from) summary.cache_events = nullptr;  // those behind it are gone
  auto& slot = summaries[summary.step];
  if (slot) kept_events -= events(*slot);
  kept_events += events(summary);
  slot = std::make_shared<const StepSummary>(std::move(summary));
  for (auto it = summaries.lower_bound(events_from);
       kept_events > options.max_events && std::next(it) != summaries.end(); ++it) {
    kept_events -= events(*it->second);
    events_from = it->first + 1;
    auto changed = std::make_shared<StepSummary>(*it->second);
    changed->cache_events = nullptr;
    it->second = std::move(changed);
  }
}

// Once tokens and tables of the step are known.
void TraceRecorder::State::plan(const Session& session) {
  StepTrace& trace = current->trace;
  const std::int64_t limit =
      std::clamp(kStepBytes / std::max<std::int64_t>(1, row_copy_bytes(session)), kFewestRows,
                 std::max(kFewestRows, options.max_rows));
  const std::int64_t tokens = session.metadata().num_tokens_in_step();
  trace.kept = rows_to_keep(session.metadata(),
                            options.all_rows ? tokens : std::min(limit, options.max_rows));
  if (!options.requests.empty()) {
    const StepMetadata& step = session.metadata();
    std::erase_if(trace.kept, [&](std::int32_t row) {
      const std::int32_t id =
          step.live[static_cast<std::size_t>(step.token_to_req[static_cast<std::size_t>(row)])];
      return std::ranges::find(options.requests, id) == options.requests.end();
    });
  }
  trace.requests = request_views(session);
  const Serving& serving = session.serving();
  trace.owners = serving.owners();
  trace.free_list = serving.free_list();
  trace.keys = serving.keys();
  trace.common_prefix = serving.plan().common_prefix;
  for (std::size_t r = 0; r < serving.step().misses.size(); ++r) {
    const auto& miss = serving.step().misses[r];
    if (miss) trace.misses.push_back({serving.live()[r], miss_text(*miss)});
  }
  const AdmissionReport head = explain_admission(serving.scheduler());
  if (head.request >= 0) {
    trace.waiting = {static_cast<std::int32_t>(head.request), admission_text(head)};
  }
  StepSummary& summary = current->summary;
  summary.tokens = session.metadata().num_tokens_in_step();
  summary.usage = serving.usage();
  summary.preemptions = static_cast<std::int64_t>(serving.plan().preempted.size());
  const StepMetadata& m = session.metadata();
  for (std::size_t r = 0; r < m.live.size(); ++r) {
    if (m.joins[r] == 1) summary.hit_tokens += m.num_computed[r];
  }
  take_events(session, false);
  current->planned = true;
}

void TraceRecorder::State::record_op(const Session& session) {
  position = session.cursor().step;
  const as_op_id id = session.last_params().op();
  const OpTiming& timing = session.current().timings.back();
  if (!current || current->trace.step != position || id == AS_OP_SCHEDULE) begin(session);
  StepTrace& trace = current->trace;
  StepSummary& summary = current->summary;
  const bool before_layers = as_op_find(id)->phase == AS_PHASE_BEFORE;
  if (before_layers || trace.ops.empty()) trace.metadata = session.metadata();
  if (!current->planned) plan(session);
  if (id == AS_OP_EXCHANGE_ROWS && session.tier() != nullptr) {
    const int layer = session.cursor().layer;
    current->trace.pools.push_back(session.tier()->picture(
        layer, session.parts().config.layers[static_cast<std::size_t>(layer)]));
  }
  if (id == AS_OP_SLOT_MAPPING) summary.writes = writes_of(session.metadata());
  auto op = std::make_shared<OpTrace>();
  op->place = {position, timing.layer, id};
  op->lane = session.lanes().lane(id);
  op->microseconds = timing.microseconds;
  op->launches = session.last_launches();
  copy_taps(session, trace.kept, options.keeps, current->outputs, scratch, *op);
  if (as_op_role(id) == AS_ROLE_ATTENTION && options.attention) {
    op->attention = copy_with_rows(session, trace.kept);
  }
  // The op's own results are the last ones. What was found around it is the step's.
  const std::vector<TapResult>& results = session.current_results();
  const auto own = [&](const TapResult& r) { return r.op == id && r.layer == timing.layer; };
  if (session.current().timings.size() == 1) current->from_start = true;
  auto first = results.end();
  while (first != results.begin() && own(*std::prev(first))) --first;
  if (current->from_start) {
    first = results.begin() + static_cast<std::ptrdiff_t>(current->results_seen);
  }
  current->results_seen = results.size();
  for (; first != results.end(); ++first) {
    count_result(*first, summary);
    add_verdict(*first, summary.events);
    summary.results.push_back(*first);
    if (!own(*first)) continue;
    op->results.push_back(*first);
    op->worst = worse(op->worst, first->verdict);
    op->budget_used = std::max(op->budget_used, first->budget_used);
  }
  time_op(timing, summary);
  summary.timings.push_back(timing);
  summary.seconds = session.current().seconds;
  summary.wall_seconds = session.current().wall_seconds;
  summary.decode_only = session.current().decode_only;
  summary.decisions = session.current().decisions;
  summary.pools = session.current().pools;
  summary.selective = session.current().selective;
  if (!summary.coverage) summary.coverage.emplace();
  note_coverage(session, &*summary.coverage);
  trace.bytes += copy_bytes(*op);
  std::shared_ptr<const OpTrace> done = std::move(op);
  current->outputs.add(session, done);
  trace.ops.push_back(std::move(done));
  if (bytes() > options.budget_bytes) evict();
}

void TraceRecorder::State::finish(const Session& session) {
  position = session.cursor().step;
  const StepRecord& record = session.history().back();
  if (!current || current->trace.step != record.step) return;  // it watched none of its ops
  StepTrace& trace = current->trace;
  StepSummary& summary = current->summary;
  trace.complete = summary.complete = true;
  trace.sampled = record.sampled;
  summary.decisions = record.decisions;
  summary.pools = record.pools;
  // Those before it began to watch too; and times that a device told at the end.
  summary.timings = record.timings;
  // What was found when its last op had run.
  for (std::size_t i = current->results_seen; i < record.results.size(); ++i) {
    count_result(record.results[i], summary);
    add_verdict(record.results[i], summary.events);
    summary.results.push_back(record.results[i]);
  }
  add_witnessed(record);
  summary.seconds = record.seconds;
  summary.wall_seconds = record.wall_seconds;
  add_samples(session, record, summary.events);
  take_events(session, true);
  stash();
  evict();
}

// A copy of a tap has bytes of its own: its tensors lie there.
void point_to_own(const TapCopy& from, TapCopy& copy) {
  for (as_tensor* t : {&copy.value, &copy.reference}) {
    if (t->data == nullptr) continue;
    if (t->data == from.value_bytes.data()) t->data = copy.value_bytes.data();
    if (t->data == from.reference_bytes.data()) t->data = copy.reference_bytes.data();
  }
}

// What the witness said at the step's end, of ops that were recorded before.
void TraceRecorder::State::add_witnessed(const StepRecord& record) {
  for (const TapResult& result : record.results) {
    if (!result.tap.ends_with(kWiringTap)) continue;
    for (std::shared_ptr<const OpTrace>& op : current->trace.ops) {
      if (op->place.op != result.op || op->place.layer != result.layer) continue;
      auto changed = std::make_shared<OpTrace>(*op);
      for (std::size_t t = 0; t < changed->taps.size(); ++t)
        point_to_own(op->taps[t], changed->taps[t]);
      changed->results.push_back(result);
      changed->worst = worse(changed->worst, result.verdict);
      changed->budget_used = std::max(changed->budget_used, result.budget_used);
      op = std::move(changed);
    }
  }
}

bool TraceRecorder::State::shows_current_trace() const {
  if (!current) return false;
  const auto old = traces.find(current->trace.step);
  return old == traces.end() || current->trace.complete ||
         current->trace.ops.size() >= old->second->ops.size();
}

bool TraceRecorder::State::shows_current_summary() const {
  if (!current) return false;
  const auto old = summaries.find(current->summary.step);
  return old == summaries.end() || current->summary.complete ||
         (!old->second->complete && current->summary.results.size() >= old->second->results.size());
}

// Replays are exact: a step that is replayed in part does not hide what it was as a whole.
void TraceRecorder::State::stash() {
  if (!current) return;
  if (shows_current_summary()) {
    keep_summary(std::move(current->summary));
  }
  if (shows_current_trace()) {
    auto& slot = traces[current->trace.step];
    if (slot) kept_bytes -= slot->bytes;
    slot = std::make_shared<const StepTrace>(std::move(current->trace));
    kept_bytes += slot->bytes;
    awake.insert(slot->step);
  }
  current.reset();
  if (options.rest) rest_old();
}

void TraceRecorder::State::rest_old() {
  while (std::ssize(awake) > kAwake) {
    const auto found = traces.find(*awake.begin());
    awake.erase(awake.begin());
    if (found == traces.end()) continue;
    std::shared_ptr<const StepTrace> trace;
    try {
      trace = resting(*found->second, resting_file);
    } catch (const std::bad_alloc&) {  // a service that there is no memory for: it stays awake
    }
    if (trace == nullptr) continue;
    freed += trace->bytes;
    found->second = std::move(trace);
  }
  // The allocator keeps what lay between other things unless it is asked.
  if (freed < kFreedAtOnce) return;
  freed = 0;
  ::malloc_trim(0);
}

void TraceRecorder::State::evict() {
  auto it = traces.begin();
  while (bytes() > options.budget_bytes && it != traces.end()) {
    // The newest ones, and the one the session stands in with the one before it.
    const auto newer = static_cast<int>(std::distance(it, traces.end())) - 1;
    const std::int64_t step = it->first;
    const bool here = step == position || step == position - 1;
    const bool ahead_of_all = current && current->trace.step > traces.rbegin()->first;
    if (newer + (ahead_of_all ? 1 : 0) < kAlwaysKept || here) {
      ++it;
      continue;
    }
    kept_bytes -= it->second->bytes;
    it = traces.erase(it);
  }
}

void TraceRecorder::State::add_event(std::int64_t step, Event event) {
  const auto add = [&](std::vector<Event>& events) {
    const bool again =
        !events.empty() && events.back().kind == event.kind && events.back().text == event.text;
    if (!again) events.push_back(event);
  };
  if (current && current->summary.step == step) add(current->summary.events);
  if (const auto known = summaries.find(step); known != summaries.end()) {
    auto changed = std::make_shared<StepSummary>(*known->second);
    add(changed->events);
    known->second = std::move(changed);
  } else if (!current || current->summary.step != step) {
    add(pending[step]);
  }
}

TraceRecorder::TraceRecorder(TraceOptions options)
    : state_(std::make_unique<State>(std::move(options))) {}
TraceRecorder::~TraceRecorder() = default;

void TraceRecorder::op_done(const Session& session) {
  try {
    state_->record_op(session);
  } catch (const std::bad_alloc&) {
    state_->drop();
  }
}

void TraceRecorder::step_done(const Session& session) {
  try {
    state_->finish(session);
  } catch (const std::bad_alloc&) {
    state_->drop();
  }
}

void TraceRecorder::went_back(const Session& session) {
  try {
    state_->stash();
    const bool back = session.cursor().step <= state_->position;
    state_->position = session.cursor().step;
    if (back) state_->add_event(state_->position, back_event(session));
  } catch (const std::bad_alloc&) {
    state_->drop();
  }
}

void TraceRecorder::lanes_changed(const Session& session) {
  state_->forget_from(session.cursor().step);
}

void TraceRecorder::failed(const Session& session, const Error& error) {
  try {
    const Place last = last_place(session);
    state_->add_event(std::max<std::int64_t>(0, last.step), error_event(last, error));
  } catch (const std::bad_alloc&) {
    state_->drop();
  }
}

StepSummary summary_of(const Session& session, const StepRecord& record) {
  StepSummary summary;
  summary.step = record.step;
  summary.tokens = record.tokens;
  summary.decisions = record.decisions;
  summary.pools = record.pools;
  summary.decode_only = record.decode_only;
  summary.selective = record.selective;
  summary.complete = true;
  summary.seconds = record.seconds;
  summary.wall_seconds = record.wall_seconds;
  summary.layers = empty_cells(session.parts().config);
  summary.results = record.results;
  summary.timings = record.timings;
  for (const OpTiming& timing : record.timings) time_op(timing, summary);
  for (const TapResult& result : record.results) {
    count_result(result, summary);
    add_verdict(result, summary.events);
  }
  add_samples(session, record, summary.events);
  return summary;
}

void TraceRecorder::adopt_history(const Session& session) {
  for (const StepRecord& record : session.history()) {
    StepSummary summary = summary_of(session, record);
    summary.resumed = true;
    state_->summaries[record.step] = std::make_shared<const StepSummary>(std::move(summary));
  }
  state_->position = session.cursor().step;
}

std::vector<std::shared_ptr<const StepSummary>> TraceRecorder::summaries() const {
  std::map<std::int64_t, std::shared_ptr<const StepSummary>> all = state_->summaries;
  if (state_->shows_current_summary()) {
    const StepSummary& now = state_->current->summary;
    all[now.step] = std::make_shared<const StepSummary>(now);
  }
  std::vector<std::shared_ptr<const StepSummary>> out;
  out.reserve(all.size());
  for (auto& [step, summary] : all) out.push_back(std::move(summary));
  return out;
}

std::vector<std::shared_ptr<const StepTrace>> TraceRecorder::traces() const {
  std::map<std::int64_t, std::shared_ptr<const StepTrace>> all = state_->traces;
  if (state_->shows_current_trace()) {
    const StepTrace& now = state_->current->trace;
    all[now.step] = std::make_shared<const StepTrace>(now);
  }
  std::vector<std::shared_ptr<const StepTrace>> out;
  out.reserve(all.size());
  for (auto& [step, trace] : all) out.push_back(std::move(trace));
  return out;
}

std::shared_ptr<const StepSummary> TraceRecorder::summary(std::int64_t step) const {
  const auto it = state_->summaries.find(step);
  return it != state_->summaries.end() && it->second->complete ? it->second : nullptr;
}

std::shared_ptr<const StepTrace> TraceRecorder::trace(std::int64_t step) const {
  const auto it = state_->traces.find(step);
  return it != state_->traces.end() && it->second->complete ? it->second : nullptr;
}

std::int64_t TraceRecorder::bytes() const { return state_->bytes(); }

}  // namespace attnscope
