#include "app/workbench/workbench.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <mutex>

#include "app/reports/capture_record.h"
#include "app/reports/report.h"
#include "app/text/format.h"
#include "app/views/error_view.h"
#include "app/views/op_order.h"
#include "app/wiring/lane_list.h"
#include "app/wiring/plugins.h"
#include "app/wiring/wiring.h"
#include "app/workbench/workbench_impl.h"
#include "engine/capture/trace_fields.h"
#include "engine/family/models.h"
#include "engine/io/json_text.h"
#include "engine/session/persist/session_file.h"
#include "engine/session/session_config.h"

namespace attnscope {
namespace {

// A kept session stands this many decode steps in; two more run live, so that the first picture has
// a step and the one before it.
constexpr std::int64_t kKeptDecodeSteps = 6;
constexpr std::int64_t kLiveSteps = 2;
constexpr std::size_t kKeptSessions = 4;
constexpr std::size_t kMaxMessages = 2000;

std::int64_t decode_steps(const Session& session) {
  const auto& history = session.history();
  return std::count_if(history.begin(), history.end(),
                       [](const StepRecord& r) { return r.decode_only; });
}

// Oldest kept sessions go when there are too many.
void prune(const std::filesystem::path& folder) {
  std::error_code error;
  std::vector<std::filesystem::directory_entry> files;
  for (const auto& entry : std::filesystem::directory_iterator(folder, error)) {
    if (entry.path().extension() == ".session") files.push_back(entry);
  }
  std::sort(files.begin(), files.end(), [&](const auto& a, const auto& b) {
    return a.last_write_time(error) > b.last_write_time(error);
  });
  for (std::size_t i = kKeptSessions; i < files.size(); ++i) {
    std::filesystem::remove(files[i].path(), error);
  }
}

Result<void> warm_up(Session& session, const std::string& file, const std::string& key,
                     bool resumed) {
  if (!resumed) {
    auto ran = session.run_until([](const Session& s) {
      return s.cursor().layer < 0 && s.cursor().op == 0 && !s.cursor().after_layers &&
             decode_steps(s) >= kKeptDecodeSteps;
    });
    if (!ran) return ran.error();
    if (*ran && !file.empty()) {
      // Keeping it is a service: without it the next start is slower and nothing else.
      if (plugin_faults().empty() && save_session(session, file, key))
        prune(std::filesystem::path(file).parent_path());
      session.rest_old_rows();  // they have been read
    }
    if (!*ran) return {};  // finished or cancelled before
  }
  // With nothing left to run there would be no tensor to show: the last step runs again.
  if (resumed && session.finished()) {
    if (auto ok = session.step_back(); !ok) return ok;
  }
  for (std::int64_t i = 0; i < kLiveSteps && !session.finished(); ++i) {
    if (auto ok = session.step(); !ok) return ok;
  }
  return {};
}

// Whether what was selected in a session of one still means something in one of the other.
bool same_scenario(const Scenario& a, const Scenario& b) {
  const auto same_request = [](const ScenarioRequest& x, const ScenarioRequest& y) {
    return x.name == y.name && x.tokens == y.tokens;
  };
  return a.name == b.name && a.path == b.path && a.text == b.text && a.seed == b.seed &&
         a.pool_blocks == b.pool_blocks && a.checkpoint == b.checkpoint &&
         a.hidden_states == b.hidden_states && a.parallel == b.parallel &&
         to_json_fields(a.model) == to_json_fields(b.model) &&
         std::ranges::equal(a.requests, b.requests, same_request);
}

}  // namespace

void Workbench::Impl::start(const RunSetup& setup, bool warm) {
  retire();
  SessionOptions session_options;
  session_options.lanes = setup.lanes;
  session_options.references = setup.references;
  session_options.threads = options.threads;
  session_options.invariants = invariants;
  std::string file, key;
  if (warm && !options.cache_folder.empty()) {
    RunOptions run;
    run.session = session_options;
    key = run_key(setup.scenario, run);
    file = options.cache_folder + "/" + key + ".session";
  }
  auto resumed = std::make_shared<bool>(false);
  WorkerOptions worker_options;
  session_options.rewind_bytes = options.rewind_budget_mb << 20;
  session_options.rest_old_rows = true;
  worker_options.trace.budget_bytes = options.trace_budget_mb << 20;
  worker_options.trace.max_events = options.kept_events;
  worker_options.trace.rest = true;
  worker_options.on_change = options.on_change;
  const auto factory = [=, this, scenario = setup.scenario]() {
    auto session = Session::create(scenario, registry, session_options);
    if (session && !file.empty()) *resumed = static_cast<bool>(load_session(**session, file, key));
    if (session && *resumed) (*session)->rest_old_rows();
    return session;
  };
  worker = std::make_unique<SessionWorker>(factory, worker_options);
  if (warm) {
    worker->post("first steps", [=](Session& s) { return warm_up(s, file, key, *resumed); });
  }
  seen = nullptr;
  follow = true;
  first_picture = true;
  unwitnessed.clear();
  asked_block = -1;
  changed_at.reset();
  failure_wanted = false;
  reached.reset();
  mailbox = std::make_shared<Mailbox>();
}

Workbench::Workbench(Options options) : impl_(std::make_unique<Impl>(std::move(options))) {}

Workbench::~Workbench() {
  if (impl_->recording) impl_->recording->cancelled = true;
  if (impl_->asking) impl_->asking->cancelled = true;
  if (impl_->worker) impl_->worker->cancel();
}

void Workbench::forget_shown() {
  capture_.reset();
  comparison_.reset();
  no_scenario_.reset();
  what_if_.reset();
  causes_.reset();
  if (impl_->asking) impl_->asking->cancelled = true;
  planted_.clear();
  lane_faults_.clear();
  target_.reset();
}

void Workbench::open(RunSetup setup, bool warm) {
  const bool other = capture_ != nullptr || !same_scenario(setup.scenario, setup_.scenario);
  if (other) {
    selection_ = {};
    take_stops(setup.scenario);
  }
  setup_ = std::move(setup);
  forget_shown();
  if (other) load_notes();
  impl_->start(setup_, warm);
  ++version_;
}

Result<void> Workbench::open_scenario(const std::string& name_or_path) {
  if (is_capture_folder(name_or_path)) return open_capture(name_or_path);
  auto scenario = load_scenario(name_or_path);
  if (!scenario) return scenario.error();
  RunSetup setup;
  setup.scenario = std::move(*scenario);
  setup.references = setup_.references;
  open(std::move(setup), true);
  return {};
}

Result<void> Workbench::open_capture(const std::string& path) {
  auto capture = Capture::open(path);
  if (!capture) return capture.error();
  const auto& steps = (*capture)->summaries();
  if (steps.empty()) {
    return bad_input(path + ": no step was whole when its recording was interrupted",
                     "record it again");
  }
  impl_->retire();
  impl_->mailbox = std::make_shared<Impl::Mailbox>();
  impl_->asked_block = -1;
  forget_shown();
  capture_ = std::move(*capture);
  selection_ = {};
  // What it was recorded from, to start it anew; else nothing rather than something else.
  auto scenario = scenario_of(*capture_);
  no_scenario_ = scenario ? std::nullopt : std::optional(scenario.error());
  setup_.scenario = scenario ? std::move(*scenario) : Scenario{};
  setup_.lanes = lanes_of_description(capture_->index().lanes);
  if (scenario) {
    // A lane for all ops is described by each of its ops, also those that the model does not have.
    const auto graph = model_graph(session_config(setup_.scenario));
    std::erase_if(setup_.lanes, [&](const std::string& lane) {
      return !check_lane_ops(std::span(&lane, 1), *graph);
    });
  }
  take_stops(setup_.scenario);
  load_notes();
  auto first = std::make_shared<Snapshot>();
  first->info = capture_->info();
  first->steps = steps;
  first->finished = true;
  first->last = places_of_step(*first->info, steps.back()->step).back();
  first->decoding = steps.back()->decode_only;
  first->cursor.step = steps.back()->step + 1;
  for (std::size_t i = 0; i < first->info->request_names.size(); ++i) {
    Request request;
    request.id = static_cast<std::int32_t>(i);
    request.name = first->info->request_names[i];
    request.prompt_tokens = first->info->prompt_tokens[i];
    first->requests.push_back({request, {}});
  }
  snapshot_ = std::move(first);
  impl_->seen = nullptr;
  if (!capture_->complete()) {
    say(Message::Kind::kWarning,
        fmt::format("{} is incomplete: its recording was interrupted after step {}.",
                    capture_->path(), steps.back()->step));
  }
  show_capture(first_view(*snapshot_->info, steps.back()->step));
  return {};
}

void Workbench::close() {
  impl_->retire();
  impl_->mailbox = std::make_shared<Impl::Mailbox>();
  impl_->asked_block = -1;
  impl_->seen = nullptr;
  forget_shown();
  snapshot_.reset();
  landing_.reset();
  setup_.scenario = {};
  stops_.clear();
  selection_ = {};
  cursor_ = {-1, -1, AS_OP_SCHEDULE};
  load_notes();
  ++version_;
}

Result<void> Workbench::check_lanes(const std::vector<std::string>& lanes) const {
  auto selector = LaneSelector::make(impl_->registry, lanes);
  return selector ? Result<void>() : Result<void>(selector.error());
}

Result<void> Workbench::check_setup(const RunSetup& setup) const {
  if (auto ok = check_lanes(setup.lanes); !ok) return ok;
  const auto graph = model_graph(session_config(setup.scenario));
  if (auto ok = check_lane_ops(setup.lanes, *graph); !ok) return ok;
  const auto ops = ops_of_model(*graph);
  for (const std::string& name : setup.lanes) {
    const Lane* lane = impl_->registry.find(name);
    if (lane == nullptr) continue;  // OP=LANE
    if (std::ranges::any_of(ops, [&](as_op_id op) { return lane->ops[op] != nullptr; })) continue;
    std::vector<std::string> own;
    for (int op = 0; op < AS_OP_COUNT; ++op) {
      if (lane->ops[op] != nullptr) own.emplace_back(as_op_find(op)->name);
    }
    return bad_input(fmt::format("--lane {}: this model runs no op of it", name),
                     fmt::format("its ops: {}", fmt::join(own, ", ")));
  }
  return {};
}

std::vector<std::string> Workbench::lane_names() const { return impl_->registry.names(); }
void Workbench::set_kept_events(std::int64_t events) { impl_->options.kept_events = events; }
void Workbench::set_trace_budget(std::int64_t mb) { impl_->options.trace_budget_mb = mb; }

void Workbench::set_rewind_budget(std::int64_t mb) {
  impl_->options.rewind_budget_mb = mb;
  if (!impl_->worker) return;
  impl_->worker->post_setting("thinning out checkpoints", [mb](Session& s) -> Result<void> {
    s.set_rewind_budget(mb << 20);
    return {};
  });
}

void Workbench::set_invariants(Invariants level) {
  impl_->invariants = level;
  if (!impl_->worker) return;
  impl_->worker->post_setting("switching the invariants", [level](Session& s) -> Result<void> {
    s.set_invariants(level);
    return {};
  });
}

bool Workbench::busy() const {
  return (impl_->worker && !impl_->worker->idle()) || impl_->background.valid();
}
std::string Workbench::running() const {
  return impl_->worker ? impl_->worker->running() : std::string();
}
double Workbench::running_seconds() const {
  return impl_->worker ? impl_->worker->running_seconds() : 0;
}

void Workbench::cancel() {
  if (!busy()) return;
  if (impl_->recording) impl_->recording->cancelled = true;
  if (impl_->asking) impl_->asking->cancelled = true;
  if (impl_->worker && !impl_->worker->idle()) {
    impl_->worker->cancel();
    target_.reset();
    say(Message::Kind::kInfo, "Stopped between two ops.");
  } else if (!impl_->recording && !impl_->asking) {
    say(Message::Kind::kInfo, fmt::format("That cannot be stopped: {}.", impl_->doing));
  }
}

void Workbench::wait_idle() {
  if (impl_->worker) impl_->worker->wait_idle();
  if (impl_->background.valid()) impl_->background.wait();
  poll();
}

bool Workbench::poll() {
  const std::uint64_t before = version_;
  Impl& impl = *impl_;
  if (impl.background.valid() &&
      impl.background.wait_for(std::chrono::seconds(0)) == std::future_status::ready) {
    const std::function<void()> done = impl.background.get();
    impl.recording.reset();  // however it ended
    impl.asking.reset();
    done();
  }
  {
    std::lock_guard lock(impl.mailbox->mutex);
    if (impl.asking && impl.mailbox->what_if) {
      what_if_ = impl.mailbox->what_if;
      ++version_;
    }
    impl.mailbox->what_if.reset();
  }
  for (std::string& fault : take_plugin_faults()) {
    lane_faults_.push_back(fault);
    say(Message::Kind::kError, std::move(fault));
  }
  if (!impl.worker) return version_ != before;
  // In this order: what is idle now has published everything that this picture shows.
  const bool idle = impl.worker->idle();
  auto now = impl.worker->snapshot();
  if (auto error = impl.worker->take_error()) {
    say(Message::Kind::kError, error->text());
    target_.reset();
  }
  if (now && now.get() != impl.seen) {
    const bool fresh = impl.first_picture;
    snapshot_ = std::move(now);
    impl.seen = snapshot_.get();
    impl.first_picture = false;
    ++version_;
    if (snapshot_->unwitnessed != impl.unwitnessed) {
      impl.unwitnessed = snapshot_->unwitnessed;
      if (!impl.unwitnessed.empty()) say(Message::Kind::kWarning, impl.unwitnessed);
    }
    if (fresh) {
      cursor_ = {-1, -1, AS_OP_SCHEDULE};
      impl.view.reset();
      selection_.head = std::min(selection_.head, snapshot_->info->config.heads - 1);
    }
  }
  if (idle == impl.was_busy) {  // one of them has just changed
    impl.was_busy = !idle;
    ++version_;
  }
  if (snapshot_ && impl.seen == snapshot_.get()) {
    const auto kept = [&](const Place& place) {
      const StepTrace* trace = snapshot_->trace(place.step);
      return trace != nullptr && trace->find(place.layer, place.op) != nullptr;
    };
    if (target_ && kept(*target_)) {
      cursor_ = *target_;
      target_.reset();
      ++version_;
    } else if (target_ && idle) {
      // Cancelled, or there was an error and it was said, or its step has no such op.
      if (is_absent(*target_)) {
        const auto behind = beyond_absent(*target_, place_after);
        const bool there = behind && behind->step == target_->step && kept(*behind);
        const Place instead = there ? *behind : or_begin_of_step(*target_);
        if (kept(instead)) cursor_ = instead;
      }
      target_.reset();
      ++version_;
    } else if (!target_ && impl.follow && snapshot_->last.step >= 0) {
      const Place& last = snapshot_->last;
      const Place view = impl.view.value_or(first_view(*snapshot_->info, last.step));
      Place wanted{last.step, view.layer, view.op};
      if (!kept(wanted)) --wanted.step;
      if (!kept(wanted)) wanted = last;
      if (kept(wanted) && wanted != cursor_) {
        cursor_ = wanted;
        ++version_;
      }
    }
  }
  if (impl.reached && idle && snapshot_) take_reached();
  if (impl.failure_wanted && idle && snapshot_) {
    impl.failure_wanted = false;
    if (!go_to_first_failure()) {
      say(Message::Kind::kInfo, "The planted bug has not shown itself yet: run some steps on.");
    }
  }
  if (landing_ && cursor_ == Place{landing_->step, landing_->layer, landing_->op} &&
      op() != nullptr) {
    land_on(TapResult(*landing_));
  } else if (landing_ && !target_) {
    landing_.reset();
  }
  {
    std::lock_guard lock(impl.mailbox->mutex);
    if (impl.mailbox->error) {
      say(Message::Kind::kError, impl.mailbox->error->text());
      impl.mailbox->error.reset();
    }
  }
  return version_ != before;
}

void Workbench::move_to(const Place& place, bool one_op) {
  landing_.reset();
  if (!snapshot_ || (!impl_->worker && !capture_)) return;
  const SessionInfo& info = *snapshot_->info;
  if (!has_place(info, place)) {
    say(Message::Kind::kError, fmt::format("There is no {} in this model.", format_place(place)));
    return;
  }
  if (capture_) {
    show_capture(place);
    return;
  }
  impl_->follow = false;
  impl_->view = place;
  ++version_;
  const StepTrace* trace = snapshot_->trace(place.step);
  if (trace != nullptr && trace->find(place.layer, place.op) != nullptr) {
    cursor_ = place;
    target_.reset();
    return;
  }
  target_ = place;
  const StepSummary* known = snapshot_->summary(place.step);
  const bool whole = known != nullptr && known->complete;
  const Place from = one_op ? cursor_ : place;
  impl_->worker->post("going to " + format_place(place), [place, whole, from](Session& s) {
    if (from != place && s.ran_any() && last_place(s) == from) return s.op();
    return whole ? go_to_step_of(s, place) : attnscope::go_to(s, place);
  });
}

// In a step that is not complete, of ops before the layers, which run in their order.
bool Workbench::is_absent(const Place& place) const {
  const StepSummary* known = snapshot_ ? snapshot_->summary(place.step) : nullptr;
  if (known == nullptr || known->timings.empty()) return false;
  if (has_run(known->timings, place)) return false;
  if (known->complete) return true;
  const std::vector<as_op_id>& before = snapshot_->info->ops_before;
  const auto at = std::ranges::find(before, place.op);
  return place.layer < 0 && at != before.end() && std::any_of(at, before.end(), [&](as_op_id op) {
           return has_run(known->timings, {place.step, -1, op});
         });
}

std::optional<Place> Workbench::beyond_absent(
    const Place& from,
    std::optional<Place> (*next)(const SessionInfo& info, const Place& place)) const {
  std::optional<Place> place = next(*snapshot_->info, from);
  while (place && is_absent(*place)) place = next(*snapshot_->info, *place);
  return place;
}

Place Workbench::or_begin_of_step(const Place& place) const {
  return is_absent(place) ? Place{place.step, -1, AS_OP_SCHEDULE} : place;
}

void Workbench::next_op() {
  if (!snapshot_) return;
  const Place from = target_.value_or(cursor_);
  if (from.step < 0) {
    move_to(places_of_step(*snapshot_->info, 0).front());
  } else if (const auto place = beyond_absent(from, place_after)) {
    if (snapshot_->finished && place->step > snapshot_->last.step && !target_) return;
    move_to(*place, !target_);
  }
}

void Workbench::previous_op() {
  if (!snapshot_ || cursor_.step < 0) return;
  if (auto place = beyond_absent(target_.value_or(cursor_), place_before)) move_to(*place);
}

void Workbench::next_layer() {
  if (!snapshot_ || cursor_.step < 0) return;
  if (auto p = beyond_absent(target_.value_or(cursor_), place_in_next_layer)) move_to(*p);
}

void Workbench::previous_layer() {
  if (!snapshot_ || cursor_.step < 0) return;
  if (auto p = beyond_absent(target_.value_or(cursor_), place_in_previous_layer)) move_to(*p);
}

void Workbench::next_step() {
  if (capture_) {
    move_to(or_begin_of_step({cursor_.step + 1, cursor_.layer, cursor_.op}));
    return;
  }
  if (!snapshot_ || !impl_->worker) return;
  Place place = target_.value_or(cursor_);
  if (place.step < 0) place = first_view(*snapshot_->info, -1);
  ++place.step;
  const StepTrace* trace = snapshot_->trace(place.step);
  if (trace != nullptr && trace->complete) {
    move_to(or_begin_of_step(place));
    return;
  }
  if (snapshot_->finished && place.step > snapshot_->last.step) {
    say(Message::Kind::kInfo, "All requests are finished; there is no further step.");
    return;
  }
  impl_->follow = false;
  target_ = place;
  ++version_;
  impl_->worker->post(fmt::format("running step {}", place.step),
                      [place](Session& s) { return go_to_step_end(s, place.step); });
}

void Workbench::previous_step() {
  if (!snapshot_ || cursor_.step < 0) return;
  Place place = target_.value_or(cursor_);
  if (place.step == 0) return;
  --place.step;
  move_to(or_begin_of_step(place));
}

void Workbench::first_step() {
  if (!snapshot_ || cursor_.step < 0) return;
  go_to(
      or_begin_of_step({capture_ ? snapshot_->steps.front()->step : 0, cursor_.layer, cursor_.op}));
}

void Workbench::last_step() {
  if (!snapshot_ || snapshot_->steps.empty()) return;
  Place place = cursor_.step < 0 ? first_view(*snapshot_->info, 0) : cursor_;
  place.step = snapshot_->steps.back()->step;
  go_to(or_begin_of_step(place));
}

void Workbench::run_until(std::string title, std::function<bool(const Session&)> predicate) {
  if (capture_) say_read_only();
  if (!impl_->worker) return;
  impl_->follow = true;
  target_.reset();
  ++version_;
  impl_->worker->post(std::move(title), [predicate = std::move(predicate)](Session& s) {
    auto ran = s.run_until([&](const Session& at) {
      const Cursor& c = at.cursor();
      return c.layer < 0 && c.op == 0 && !c.after_layers && predicate(at);
    });
    return ran ? Result<void>() : Result<void>(ran.error());
  });
}

bool Workbench::go_to_first_failure() {
  const TapResult* wrong = snapshot_ ? first_wrong(*snapshot_) : nullptr;
  if (wrong == nullptr) return false;
  go_to_result(*wrong);
  return true;
}

void Workbench::go_to_result(const TapResult& wrong) {
  const Place place{wrong.step, wrong.layer, wrong.op};
  go_to(place);
  if (cursor_ == place && op() != nullptr) return land_on(wrong);
  landing_ = wrong;  // its step is replayed first
  Selection selection = selection_;
  selection.tap = wrong.tap;
  select(selection);
}

void Workbench::land_on(const TapResult& wrong) {
  landing_.reset();
  ++landed_;
  Selection selection = selection_;
  selection.tap = wrong.tap;
  select(worst_selection(*step(), *op(), wrong, selection));
}

bool Workbench::go_back_to(const std::function<bool(const StepSummary&)>& predicate) {
  if (!snapshot_ || cursor_.step < 0) return false;
  const auto& steps = snapshot_->steps;
  const auto found = std::find_if(steps.rbegin(), steps.rend(), [&](const auto& known) {
    return known->complete && known->step < cursor_.step && predicate(*known);
  });
  if (found == steps.rend()) return false;
  if (const TapResult* wrong = first_wrong((*found)->results)) {
    go_to_result(*wrong);
  } else {
    go_to({(*found)->step, cursor_.layer, cursor_.op});
  }
  return true;
}

const StepTrace* Workbench::step() const {
  return snapshot_ && cursor_.step >= 0 ? snapshot_->trace(cursor_.step) : nullptr;
}
const StepTrace* Workbench::step_before() const {
  return snapshot_ && cursor_.step > 0 ? snapshot_->trace(cursor_.step - 1) : nullptr;
}
const OpTrace* Workbench::op() const {
  const StepTrace* trace = step();
  return trace != nullptr ? trace->find(cursor_.layer, cursor_.op) : nullptr;
}
const StepSummary* Workbench::summary() const {
  return snapshot_ && cursor_.step >= 0 ? snapshot_->summary(cursor_.step) : nullptr;
}

void Workbench::select(const Selection& selection) {
  if (selection == selection_) return;
  selection_ = selection;
  ++version_;
}

void Workbench::select_token(std::int32_t request, std::int64_t position) {
  Selection selection = selection_;
  selection.request = request;
  selection.position = position;
  select(selection);
}

std::int64_t Workbench::selected_row() const {
  const StepTrace* trace = step();
  if (trace == nullptr || trace->metadata.positions.empty()) return -1;
  const std::int64_t exact = trace->token_row(selection_.request, selection_.position);
  if (exact >= 0) return exact;
  const auto tokens = static_cast<std::int64_t>(trace->metadata.positions.size());
  for (std::int64_t row = tokens - 1; row >= 0; --row) {
    if (trace->request_of(row) == selection_.request) return row;
  }
  return tokens - 1;
}

std::int32_t Workbench::selected_request() const {
  const std::int64_t row = selected_row();
  return row < 0 ? -1 : step()->request_of(row);
}

std::int64_t Workbench::selected_position() const {
  const std::int64_t row = selected_row();
  return row < 0 ? -1 : step()->metadata.positions[static_cast<std::size_t>(row)];
}

const TapCopy* Workbench::selected_tap() const {
  const OpTrace* trace = op();
  if (trace == nullptr) return nullptr;
  if (const TapCopy* tap = trace->tap(selection_.tap)) return tap;
  for (const TapCopy& tap : trace->taps) {
    if (tap.output) return &tap;
  }
  return trace->taps.empty() ? nullptr : &trace->taps.front();
}

void Workbench::request_block(std::int32_t block) {
  Impl& impl = *impl_;
  if (capture_ && block >= 0) {
    if (impl.asked_block == block && impl.asked_at == cursor_) return;
    impl.asked_block = block;
    impl.asked_at = cursor_;
    auto bytes = capture_->block(capture_->block_step(cursor_.step), block);
    std::lock_guard lock(impl.mailbox->mutex);
    impl.mailbox->bytes = bytes ? *bytes : nullptr;
    return;
  }
  if (!impl.worker || !snapshot_ || block < 0) return;
  if (impl.asked_block == block && impl.asked_at == snapshot_->last) return;
  impl.asked_block = block;
  impl.asked_at = snapshot_->last;
  impl.worker->post("reading a block", [box = impl.mailbox, block](Session& s) -> Result<void> {
    auto bytes = read_block(s, block);
    std::lock_guard lock(box->mutex);
    if (bytes) {
      box->bytes = std::make_shared<const BlockBytes>(std::move(*bytes));
    } else {
      box->error = bytes.error();
    }
    return {};
  });
}

std::shared_ptr<const BlockBytes> Workbench::block_bytes() const {
  std::lock_guard lock(impl_->mailbox->mutex);
  const auto& bytes = impl_->mailbox->bytes;
  return bytes && bytes->block == impl_->asked_block ? bytes : nullptr;
}

void Workbench::plant(const std::string& mutant) {
  if (capture_) say_read_only();
  if (!snapshot_ || !impl_->worker) return;
  const Lane* lane = impl_->registry.find("mutant:" + mutant);
  if (lane == nullptr) {
    say(Message::Kind::kError, fmt::format("There is no planted bug '{}'.", mutant));
    return;
  }
  planted_ = mutant;
  change_lanes(planted_lanes(), "planting a bug", true);
}

std::vector<std::string> Workbench::planted_lanes() const {
  std::vector<std::string> lanes = setup_.lanes;
  const Lane* lane = impl_->registry.find("mutant:" + planted_);
  for (int id = 0; id < AS_OP_COUNT; ++id) {
    if (lane->ops[id] != nullptr) set_lane(lanes, static_cast<as_op_id>(id), lane->name);
  }
  return lanes;
}

void Workbench::remove_planted() {
  if (planted_.empty() || !impl_->worker) return;
  planted_.clear();
  change_lanes(setup_.lanes, "taking the bug out", false);
}

// From the newest complete step on, so that nothing before it has to be computed again.
void Workbench::change_lanes(const std::vector<std::string>& lanes, const std::string& title,
                             bool until_wrong) {
  std::int64_t step = 0;
  for (const auto& known : snapshot_->steps) {
    if (known->complete) step = known->step;
  }
  if (!impl_->changed_at) impl_->changed_at = step;
  step = *impl_->changed_at;
  if (!until_wrong) impl_->changed_at.reset();
  impl_->failure_wanted = until_wrong;
  target_.reset();
  ++version_;
  // Some bugs show only when an entry is written, every fourth token. Taken out, the step that is
  // looked at is computed again.
  const std::int64_t end = until_wrong ? step + 8 : std::max(step, cursor_.step) + 1;
  impl_->worker->post(title, [=, registry = impl_->registry](Session& s) -> Result<void> {
    if (auto ok = s.change_lanes(registry, lanes, step); !ok) return ok;
    while (s.cursor().step < end && !s.finished()) {
      if (auto ok = s.step(); !ok) return ok;
      if (s.cancelled() || s.history().empty()) return {};
      if (until_wrong && first_wrong(s.history().back().results) != nullptr) break;
    }
    return {};
  });
}

void Workbench::say(Message::Kind kind, std::string text) {
  const double seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - impl_->start_time).count();
  messages_.push_back({kind, std::move(text), seconds});
  if (messages_.size() > kMaxMessages) messages_.pop_front();
  ++version_;
}

}  // namespace attnscope
