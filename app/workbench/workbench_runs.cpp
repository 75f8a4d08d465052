// What a workbench runs beside its session, on a thread of its own: recordings, captures to save,
// what-ifs, streams of events to read; and what its thread is asked for between two commands.
#include <fmt/format.h>

#include <algorithm>

#include "app/reports/capture_record.h"
#include "app/reports/causes_run.h"
#include "app/reports/report_parts.h"
#include "app/reports/what_if_run.h"
#include "app/text/format.h"
#include "app/text/overwrite.h"
#include "app/workbench/workbench_impl.h"
#include "engine/session/what_if/what_if_changes.h"
#include "kernels/params/row_access.h"

namespace attnscope {

using Clock = std::chrono::steady_clock;

Result<void> Workbench::in_background(const char* what,
                                      std::function<std::function<void()>()> work) {
  if (impl_->background.valid()) return usage_error(impl_->doing, "wait for it");
  impl_->doing = what;
  impl_->background = std::async(
      std::launch::async, [this, work = std::move(work), changed = impl_->options.on_change] {
        std::function<void()> done;
        try {
          done = work();
        } catch (const std::exception& e) {  // no memory, say
          done = [this, what = std::string(e.what())] {
            say(Message::Kind::kError, fmt::format("It was given up: {}", what));
          };
        }
        if (changed) changed();
        return done;
      });
  return {};
}

Result<void> Workbench::save_capture(const std::string& path) {
  if (!snapshot_) return usage_error("there is nothing to save yet", "open a scenario first");
  if (capture_) return usage_error("this is a capture already", "copy its folder");
  if (is_taken(path)) return usage_error(path + ": exists already", "choose another name");
  auto begun = in_background(
      "a capture is being saved",
      [this, path, snapshot = snapshot_, scenario = setup_.scenario,
       notes = notes_]() -> std::function<void()> {
        auto totals = write_capture(*snapshot, scenario, path);
        if (totals && !notes.empty()) {
          if (auto kept = write_notes(path + "/" + kNotesFile, notes); !kept) totals = kept.error();
        }
        std::string text =
            totals ? fmt::format("{} saved in {} ({})", plural(totals->steps, "step", "steps"),
                                 path, format_bytes(static_cast<double>(totals->bytes)))
                   : totals.error().text();
        return [this, text = std::move(text),
                kind = totals ? Message::Kind::kInfo : Message::Kind::kError] { say(kind, text); };
      });
  if (begun) say(Message::Kind::kInfo, "Saving the steps that are kept in " + path);
  return begun;
}

Result<void> Workbench::record(const std::string& path, CaptureLevel level) {
  if (no_scenario_) return *no_scenario_;
  if (setup_.scenario.requests.empty()) {
    return usage_error("there is no scenario to record", "open one first");
  }
  if (capture_ && capture_->path() == path) {
    return usage_error(path + " is what is shown", "choose another name");
  }
  if (is_taken(path)) return usage_error(path + ": exists already", "choose another name");
  RecordOptions options;
  options.run.session.lanes = setup_.lanes;
  options.run.session.references = setup_.references;
  options.run.session.threads = impl_->options.threads;
  options.capture.level = level;
  options.capture.replace = false;
  auto state = std::make_shared<Impl::Recording>();
  state->path = path;
  options.cancelled = [state] { return state->cancelled.load(); };
  auto begun = in_background(
      "a capture is being recorded",
      [this, state, path, options = std::move(options), scenario = setup_.scenario, notes = notes_,
       registry = impl_->registry, changed = impl_->options.on_change]() -> std::function<void()> {
        auto result = record_scenario(scenario, registry, options, path, [&](const RunProgress& p) {
          state->share = p.share;
          if (changed) changed();
        });
        if (result && result->totals.steps > 0 && !notes.empty()) {
          if (auto kept = write_notes(path + "/" + kNotesFile, notes); !kept) result = kept.error();
        }
        std::string text;
        auto kind = result ? Message::Kind::kInfo : Message::Kind::kError;
        if (!result) {
          text = result.error().text();
        } else if (!result->cancelled) {
          text =
              fmt::format("{} recorded in {} ({}, level {}); {}: open it with File, Open capture",
                          plural(result->totals.steps, "step", "steps"), path,
                          format_bytes(static_cast<double>(result->totals.bytes)),
                          capture_level_name(options.capture.level), taps_text(result->summary));
        } else if (result->totals.steps == 0) {
          text = "Recording stopped before its first step was whole; nothing was kept.";
        } else {
          const std::int64_t steps = result->totals.steps;
          text = fmt::format(
              "Recording stopped: {} in an incomplete capture, {}",
              steps == 1 ? "its first step is" : fmt::format("its first {} steps are", steps),
              result->folder);
        }
        return [this, text = std::move(text), kind] { say(kind, text); };
      });
  if (begun) {
    impl_->recording = state;
    say(Message::Kind::kInfo, fmt::format("Recording {} in {}, level {}.", setup_.scenario.name,
                                          path, capture_level_name(level)));
  }
  return begun;
}

std::optional<std::pair<double, std::string>> Workbench::recording() const {
  if (!impl_->recording) return std::nullopt;
  return std::pair(impl_->recording->share.load(), impl_->recording->path);
}

Result<void> Workbench::ask_beside(
    const char* what,
    std::function<std::function<void()>(const std::function<bool(double)>& progress)> work) {
  auto state = std::make_shared<Impl::Asking>();
  state->place = cursor_;
  auto begun =
      in_background(what,
                    [this, what, state, work = std::move(work),
                     changed = impl_->options.on_change]() -> std::function<void()> {
                      auto last = Clock::now();
                      auto done = work([&](double share) {
                        state->share = share;
                        if (changed && Clock::now() - last > std::chrono::milliseconds(100)) {
                          last = Clock::now();
                          changed();
                        }
                        return !state->cancelled;
                      });
                      return [this, what, state, done = std::move(done)] {
                        if (!state->cancelled) return done();
                        say(Message::Kind::kInfo, fmt::format("Stopped: {}.", what));
                      };
                    });
  if (begun) {
    impl_->asking = state;
    ++version_;
  }
  return begun;
}

LanesFrom Workbench::lanes_from() const {
  if (planted_.empty() || !impl_->changed_at) return {};
  return {*impl_->changed_at, planted_lanes()};
}

// Of a session beside the one that is shown.
SessionOptions Workbench::options_beside() const {
  SessionOptions options;
  options.lanes = setup_.lanes;
  options.threads = impl_->options.threads;
  return options;
}

// What the session was before a step: asked of its thread where that is free, which answers soon.
// Nothing where it computes, or cannot say.
StateAsked Workbench::Impl::ask_state(std::int64_t step) {
  if (!worker || !worker->idle() || background.valid()) return {};
  auto answer = std::make_shared<std::promise<Result<SessionState>>>();
  StateAsked asked = answer->get_future();
  worker->post("handing on what it was", [answer, step](Session& s) {
    answer->set_value(session_state(s, step, References::kSim));
    return Result<void>();
  });
  return asked;
}

namespace {

// The answer; nothing where there is none, or nothing is gained by it.
std::optional<SessionState> state_of(StateAsked asked) {
  if (!asked.valid()) return std::nullopt;
  try {
    auto state = asked.get();
    if (state && state->step > 0) return std::move(*state);
  } catch (const std::future_error&) {
    // The command was dropped.
  }
  return std::nullopt;
}

}  // namespace

Result<void> Workbench::ask_what_if() {
  if (capture_) return usage_error("a capture runs nothing", "open its scenario");
  if (cursor_.step < 0) return usage_error("no op has run yet", "run a step first");
  const as_op_info& op = *as_op_find(cursor_.op);
  if (op.phase == AS_PHASE_BEFORE) {
    return nothing_to_change(cursor_.op);
  }
  auto asked = std::make_shared<StateAsked>(impl_->ask_state(cursor_.step));
  return ask_beside(
      "a what-if is being computed",
      [this, asked, options = options_beside(), later = lanes_from(), place = cursor_,
       scenario = setup_.scenario, registry = impl_->registry, box = impl_->mailbox,
       changed = impl_->options.on_change](
          const std::function<bool(double)>& progress) -> std::function<void()> {
        const auto said = [this](Result<WhatIfOf> found) {
          return [this, found = std::move(found)] {
            if (!found) return say(Message::Kind::kError, found.error().text());
            what_if_ = std::make_shared<const WhatIfOf>(*found);
            say(Message::Kind::kInfo,
                fmt::format("{}: {}", format_place(what_if_->place), what_if_->sentence));
          };
        };
        const auto from = [&](const SessionState* begin) {
          return what_if_of(scenario, registry, options, later, begin, place, progress);
        };
        // First what can be said from near by; the rest needs the rows of all steps before.
        if (const auto near = state_of(std::move(*asked))) {
          auto early = from(&*near);
          if (early && early->whole) return said(std::move(early));
          if (!early && early.error().message.empty()) return said(std::move(early));  // given up
          if (early) {
            std::lock_guard lock(box->mutex);
            box->what_if = std::make_shared<const WhatIfOf>(std::move(*early));
          }
          if (changed) changed();
        }
        return said(from(nullptr));
      });
}

Result<void> Workbench::ask_causes() {
  if (cursor_.step < 0) return usage_error("no op has run yet", "run a step first");
  if (as_op_has(cursor_.op, AS_BY_ENGINE) != 0) {
    return bad_input(
        fmt::format("{} is carried out by the engine itself", as_op_find(cursor_.op)->name),
        "go to an op that a lane carries out");
  }
  auto asked = std::make_shared<StateAsked>(impl_->ask_state(cursor_.step));
  return ask_beside(
      "known mistakes are being tried",
      [this, asked, options = options_beside(), later = lanes_from(), place = cursor_,
       capture = capture_, scenario = setup_.scenario, registry = impl_->registry](
          const std::function<bool(double)>& progress) -> std::function<void()> {
        const auto from = [&](const SessionState* begin) {
          return causes_in_scenario(scenario, registry, options, later, begin, place, progress);
        };
        const auto near = state_of(std::move(*asked));
        auto found = capture ? causes_in_capture(*capture, registry, place, options.threads)
                             : from(near ? &*near : nullptr);
        // What is planted may have led elsewhere than its steps say.
        if (!found && near && !found.error().message.empty()) found = from(nullptr);
        return [this, found = std::move(found)] {
          if (!found) return say(Message::Kind::kError, found.error().text());
          causes_ = std::make_shared<const CausesOf>(*found);
          const std::vector<std::string> lines = causes_->why.causes();
          say(Message::Kind::kInfo,
              fmt::format(
                  "{}: {}", format_place(causes_->place),
                  lines.empty() ? "it is right, there is nothing to explain" : lines.front()));
        };
      });
}

std::optional<std::pair<double, Place>> Workbench::asking() const {
  if (!impl_->asking) return std::nullopt;
  return std::pair(impl_->asking->share.load(), impl_->asking->place);
}

namespace {

// From the rows that were written, whichever block they are in.
void read_index_key(const Session& s, int layer, PooledTokens& to) {
  const CacheSpec* spec = s.parts().layout.find(layer, {AS_CACHE_INDEX, 0});
  if (spec == nullptr) return;
  const Shadow& shadow = s.verifier().shadow();
  const std::int64_t row = s.verifier().space().base(to.of.request, row_ratio(*spec)) + to.of.entry;
  if (shadow.written(*spec, row) < 0) return;
  to.record = spec->record;
  to.index_key.resize(static_cast<std::size_t>(spec->row_bytes()));
  const as_cache cache = shadow.cache(*spec);
  as_row_get(&cache, row, to.index_key.data());
}

}  // namespace

void Workbench::request_pooled(const PooledOf& of) {
  Impl& impl = *impl_;
  if (!impl.worker || !snapshot_ || of.entry < 0) return;
  if (impl.asked_pooled == of && impl.pooled_at == snapshot_->last) return;
  impl.asked_pooled = of;
  impl.pooled_at = snapshot_->last;
  impl.worker->post("reading an entry's tokens", [box = impl.mailbox, of](Session& s) {
    const auto& layers = s.parts().config.layers;
    const auto layer = std::ranges::find(layers, of.layer) - layers.begin();
    auto tokens =
        pooled_tokens(s, static_cast<int>(layer), of.request, of.entry, of.channel, of.index);
    auto found = std::make_shared<PooledTokens>();
    found->of = of;
    if (tokens) {
      found->tokens = std::move(*tokens);
      read_index_key(s, static_cast<int>(layer), *found);
    } else {
      found->why_empty = tokens.error().text();
    }
    std::lock_guard lock(box->mutex);
    box->pooled = std::move(found);
    return Result<void>();
  });
}

std::shared_ptr<const PooledTokens> Workbench::pooled() const {
  std::lock_guard lock(impl_->mailbox->mutex);
  const auto& pooled = impl_->mailbox->pooled;
  return pooled && pooled->of == impl_->asked_pooled ? pooled : nullptr;
}

Result<void> Workbench::open_events(const std::string& path) {
  return in_background("a stream of events is being read", [this, path]() -> std::function<void()> {
    auto stream = read_kv_stream(path);
    return [this, stream = std::move(stream)] {
      if (!stream) {
        say(Message::Kind::kError, stream.error().text());
        return;
      }
      events_ = *stream;
      ++version_;
      say(Message::Kind::kInfo,
          fmt::format("{}: {} of cache events", events_->name,
                      plural(std::ssize(events_->batches), "batch", "batches")));
    };
  });
}

}  // namespace attnscope
