#include "app/reports/what_if_run.h"

#include <fmt/format.h>

#include "app/text/format.h"
#include "engine/session/place.h"
#include "engine/session/what_if/what_if_changes.h"
#include "kernels/params/op_table.h"
#include "reference/register.h"

namespace attnscope {

namespace {

Result<void> run_on_to_op(Session& s, const Place& place,
                          const std::function<bool(Session&)>& after_op) {
  while (!s.finished()) {
    if (auto ok = s.op(); !ok) return ok;
    if (!s.ran_any()) continue;
    if (after_op && !after_op(s)) return {};
    const Place now = last_place(s);
    if (now == place) return {};
    if (now.step > place.step) break;
  }
  // Says which layers and ops there are.
  if (auto ok = go_to(s, place); !ok) return ok;
  return bad_input(fmt::format("{} was not reached", format_place(place)), "name an earlier step");
}

}  // namespace

Result<std::unique_ptr<Session>> run_to_op(const Scenario& scenario, const LaneRegistry& registry,
                                           const SessionOptions& options, const Place& place,
                                           const std::function<bool(Session&)>& after_op) {
  auto session = Session::create(scenario, registry, options);
  if (!session) return session;
  if (auto ok = run_on_to_op(**session, place, after_op); !ok) return ok.error();
  return session;
}

Result<std::unique_ptr<Session>> run_beside(const Scenario& scenario, const LaneRegistry& registry,
                                            SessionOptions options, const LanesFrom& later,
                                            const SessionState* begin, const Place& place,
                                            const std::function<bool(double)>& progress,
                                            const std::function<void(Session&)>& after_op) {
  options.references = References::kSim;
  options.rewind_every = 0;
  if (later.step == 0) options.lanes = later.lanes;
  auto session = Session::create(scenario, registry, options);
  if (!session) return session;
  if (begin != nullptr) {
    if (auto ok = begin_from(**session, *begin); !ok) return ok.error();
    if (later.step > 0 && later.step <= begin->step) {
      auto changed = (*session)->change_lanes(registry, later.lanes, begin->step);
      if (!changed) return changed.error();
    }
  }
  const std::int64_t first = begin != nullptr ? begin->step : 0;
  bool given_up = false;
  Result<void> changed;
  auto ran = run_on_to_op(**session, place, [&](Session& s) {
    if (after_op) after_op(s);
    const Cursor& next = s.cursor();
    const bool step_begins = next.layer < 0 && next.op == 0 && !next.after_layers;
    if (step_begins && next.step > 0 && next.step == later.step) {
      changed = s.change_lanes(registry, later.lanes, later.step);
    }
    const auto steps = static_cast<double>(place.step + 1 - first);
    given_up = !changed || !progress(static_cast<double>(last_place(s).step - first) / steps);
    return !given_up;
  });
  if (!ran) return ran.error();
  if (!changed) return changed.error();
  if (given_up) return Error{};
  return session;
}

Result<WhatIfOf> what_if_of(const Scenario& scenario, const LaneRegistry& registry,
                            SessionOptions options, const LanesFrom& later,
                            const SessionState* begin, const Place& place,
                            const std::function<bool(double)>& progress) {
  const bool from_start = begin == nullptr || begin->step == 0;
  UnquantisedRows unquantised(place.layer);
  auto session = run_beside(scenario, registry, std::move(options), later, begin, place, progress,
                            [&](Session& s) {
                              if (from_start) unquantised.op_done(s);
                            });
  if (!session) return session.error();
  WhatIfOf out;
  out.place = place;
  out.lane = (*session)->lanes().lane(place.op);
  out.whole = from_start || !reads_quantised_rows(place.op);
  auto changes = what_if(**session, registry,
                         {{"cpu"}, reference::fp32_lane(), from_start ? &unquantised : nullptr});
  if (!changes) return changes.error();
  out.changes = std::move(*changes);
  out.sentence = what_if_sentence(out.changes);
  out.alone = run_row_alone(**session, token_to_run_alone(**session, out.changes.front()));
  return out;
}

std::int64_t token_to_run_alone(const Session& session, const WhatIf& as_it_ran) {
  const std::int64_t last = session.metadata().num_tokens_in_step() - 1;
  const bool wrong = as_it_ran.introduced && !as_it_ran.introduced->right();
  const std::int64_t row = wrong ? as_it_ran.introduced->worst_row : -1;
  return row >= 0 && row <= last ? row : last;
}

}  // namespace attnscope
