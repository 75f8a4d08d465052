#include "engine/session/what_if/what_if_after.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <utility>

#include "engine/backend/call_op.h"
#include "engine/session/place.h"
#include "engine/session/step/op_change.h"
#include "engine/session/step/own_rows.h"
#include "engine/session/step/rows_as_read.h"
#include "engine/session/what_if/unquantised_rows.h"
#include "engine/session/what_if/what_if.h"
#include "engine/session/what_if/what_if_changes.h"
#include "engine/trace/compare.h"

namespace attnscope {
namespace {

constexpr const char* kUnquantised = "unquantised cache";
constexpr const char* kFp32 = "fp32 accumulation";

// One thing to change: inputs, or who computes.
struct Plan {
  std::string name, sentence;
  const Change* inputs = nullptr;
  const Lane* by = nullptr;         // a lane on the op's own inputs
  const Lane* reference = nullptr;  // a reference on the rows the op reads
  bool unquantised = false;         // .. as they were before quantisation
};

class PlannedChange : public OpChange {
 public:
  PlannedChange(const Session& session, const Plan& plan, const Place& place, int layer, bool once,
                std::vector<UnquantisedRows>& rows)
      : session_(session), plan_(plan), place_(place), layer_(layer), once_(once), rows_(rows) {}

  bool changes(as_op_id op, int layer) const override {
    const std::int64_t step = session_.cursor().step;
    if (op != place_.op) return false;
    if (once_) return step == place_.step && layer == layer_;
    return step > place_.step || (step == place_.step && layer >= layer_);
  }

  Result<void> run(int layer, const OpParams& params, const OwnLane& lane) override {
    if (plan_.reference != nullptr) return run_reference(layer, params, lane);
    if (plan_.by != nullptr) {
      applied_ = true;
      return call(*plan_.by, params);
    }
    OpParams changed = params, free;
    ChangedInputs& memory = memory_[0];
    memory = {};
    memory.layer = layer;
    if (params.info().phase == AS_PHASE_LAYER) {
      free = session_.verifier().free_inputs(layer, params.op());
      memory.free = &free;
    }
    applied_ = plan_.inputs->apply(session_, changed, memory) || applied_;
    return lane(changed);
  }

  void change_reference(int layer, bool exact, OpParams& params) override {
    if (plan_.inputs == nullptr || plan_.name == kReferenceLists) return;
    ChangedInputs& memory = memory_[exact ? 2 : 1];
    memory = {};
    memory.layer = layer;
    plan_.inputs->apply(session_, params, memory);
  }

  bool applied() const { return applied_; }

 private:
  Result<void> run_reference(int layer, const OpParams& params, const OwnLane& lane) {
    OpParams changed = params;
    rows_as_read_.replace(params, changed);
    if (plan_.unquantised && !rows_[static_cast<std::size_t>(layer)].replace(params, changed)) {
      return lane(params);
    }
    applied_ = true;
    own_rows_.replace(changed);
    if (auto ok = call(*plan_.reference, changed); !ok) return ok;
    own_rows_.put(params);
    return {};
  }

  Result<void> call(const Lane& lane, const OpParams& params) const {
    return call_op(lane.ops[params.op()], params.data(), host_call(session_.parts().threads));
  }

  const Session& session_;
  const Plan& plan_;
  Place place_;
  int layer_;  // running index
  bool once_;
  std::vector<UnquantisedRows>& rows_;
  ChangedInputs memory_[3];  // the engine's, ref.sim's, ref.exact's
  RowsAsRead rows_as_read_;
  OwnRows own_rows_;
  bool applied_ = false;
};

// Takes the drift of every layer's output from the op on, and the rows before quantisation while
// somebody will read them.
class Watch : public SessionObserver {
 public:
  Watch(const Place& place, int layer, std::vector<UnquantisedRows>& rows)
      : place_(place), layer_(layer), rows_(rows) {}

  void op_done(const Session& session) override {
    if (keep_rows) {
      for (UnquantisedRows& rows : rows_) rows.op_done(session);
    }
    const OpParams& params = session.last_params();
    if (params.op() != AS_OP_RESIDUAL) return;
    const Place now = last_place(session);
    const auto& layers = session.parts().config.layers;
    const auto layer = std::ranges::find(layers, now.layer) - layers.begin();
    if (now.step < place_.step || (now.step == place_.step && layer < layer_)) return;
    if (drift.empty() || drift.back().step != now.step) drift.push_back({now.step, 0, {}});
    const auto from = [&](const OpParams& free) {
      return measure(params.get<as_residual_params>().out, free.get<as_residual_params>().out, {},
                     session.parts().threads)
          .cosine;
    };
    const Verifier& verifier = session.verifier();
    Drift& d = drift.back();
    d.from_sim = worse(d.from_sim, from(*verifier.free_params(false)));
    if (const OpParams* exact = verifier.free_params(true)) {
      d.from_exact = worse(d.from_exact.value_or(0), from(*exact));
    }
  }
  void step_done(const Session&) override {}
  void went_back(const Session&) override { drift.clear(); }

  static double worse(double a, double b) { return std::isnan(b) || b > a ? b : a; }

  bool keep_rows = false;
  std::vector<Drift> drift;

 private:
  Place place_;
  int layer_;
  std::vector<UnquantisedRows>& rows_;
};

// Everything that can be asked of the op, in the order of what_if().
Result<std::vector<Plan>> plans_of(const std::vector<Change>& changes, const Lane* sim,
                                   const LaneRegistry& registry, const Place& place,
                                   const WhatIfAfterOptions& options) {
  std::vector<Plan> all;
  for (std::size_t i = 1; i < changes.size(); ++i) {
    all.push_back({changes[i].name, changes[i].sentence, &changes[i]});
  }
  if (reads_quantised_rows(place.op)) {
    all.push_back(
        {kUnquantised, "the rows as they were before quantisation", nullptr, nullptr, sim, true});
  }
  if (options.fp32 != nullptr) {
    all.push_back(
        {kFp32, "ref.sim with products and sums in fp32", nullptr, nullptr, options.fp32});
  }
  for (const std::string& name : options.lanes) {
    const Lane* lane = registry.find(name);
    if (lane == nullptr || lane->ops[place.op] == nullptr || name == DeviceRun::kLane) continue;
    Plan plan{"lane " + name, "nothing else changed"};
    (name.starts_with("ref.") ? plan.reference : plan.by) = lane;
    all.push_back(std::move(plan));
  }
  if (options.changes.empty()) return all;
  std::vector<Plan> chosen;
  for (const std::string& name : options.changes) {
    const auto found = std::ranges::find(all, name, &Plan::name);
    if (found == all.end()) {
      std::vector<std::string> names;
      names.reserve(all.size());
      for (const Plan& plan : all) names.push_back(plan.name);
      return usage_error(fmt::format("no change \"{}\" of {}", name, as_op_find(place.op)->name),
                         fmt::format("changes: {}", fmt::join(names, ", ")));
    }
    chosen.push_back(*found);
  }
  return chosen;
}

// Runs from where the session stands.
Result<void> run_steps(Session& session, std::int64_t first, std::int64_t steps) {
  while (!session.finished() && (steps == 0 || session.cursor().step < first + steps)) {
    if (auto ok = session.step(); !ok) return ok;
  }
  return {};
}

}  // namespace

double WhatIfAfter::from_sim() const {
  double worst = 0;
  for (const Drift& d : steps) worst = Watch::worse(worst, d.from_sim);
  return worst;
}

std::optional<double> WhatIfAfter::from_exact() const {
  std::optional<double> worst;
  for (const Drift& d : steps) {
    if (d.from_exact) worst = Watch::worse(worst.value_or(0), *d.from_exact);
  }
  return worst;
}

Result<std::vector<WhatIfAfter>> what_if_after(const Scenario& scenario,
                                               const LaneRegistry& registry, SessionOptions options,
                                               const Place& place,
                                               const WhatIfAfterOptions& asked) {
  const as_op_info* info = as_op_find(place.op);
  if (info == nullptr || info->phase == AS_PHASE_BEFORE) {
    return nothing_to_change(place.op);
  }
  const std::vector<Change> changes = changes_of(place.op);
  const Lane* sim = registry.find("ref.sim");
  auto plans = plans_of(changes, sim, registry, place, asked);
  if (!plans) return plans.error();
  // Rows before quantisation are gathered on the way, so they come first.
  const auto unquantised = std::ranges::find(*plans, true, &Plan::unquantised);
  const bool exact = unquantised != plans->end();
  options.references = exact ? References::kBoth : References::kSim;
  options.rewind_every = std::max<std::int64_t>(1, place.step);
  auto made = Session::create(scenario, registry, options);
  if (!made) return made.error();
  Session& session = **made;
  std::vector<UnquantisedRows> rows;
  rows.reserve(session.parts().config.layers.size());
  for (const int published : session.parts().config.layers) rows.emplace_back(published);
  const auto& layers = session.parts().config.layers;
  const auto layer = static_cast<int>(
      place.layer < 0 ? -1 : std::ranges::find(layers, place.layer) - layers.begin());
  Watch watch(place, layer, rows);
  session.set_observer(&watch);
  watch.keep_rows = exact;
  if (auto ok = go_to(session, place); !ok) return ok.error();

  const auto run = [&](const Plan* plan) -> std::optional<WhatIfAfter> {
    WhatIfAfter result;
    result.change = plan != nullptr ? plan->name : kAsItRan;
    result.sentence = plan != nullptr ? plan->sentence : "nothing changed";
    result.other_code = plan != nullptr && plan->inputs == nullptr;
    std::optional<PlannedChange> change;
    if (plan != nullptr) change.emplace(session, *plan, place, layer, asked.once, rows);
    auto ok = session.change_ops(change ? &*change : nullptr, place.step);
    if (ok) ok = run_steps(session, place.step, asked.steps);
    if (!ok) result.error = ok.error().text();
    result.steps = watch.drift;
    const bool applied = !change || change->applied() || !ok;
    session.forget_change();
    if (!applied) return {};
    return result;
  };
  std::optional<WhatIfAfter> on_unquantised;
  if (exact) on_unquantised = run(&*unquantised);
  watch.keep_rows = false;
  std::vector<WhatIfAfter> results;
  results.push_back(*run(nullptr));
  for (const Plan& plan : *plans) {
    auto result = plan.unquantised ? std::exchange(on_unquantised, {}) : run(&plan);
    if (result) results.push_back(std::move(*result));
  }
  session.set_observer(nullptr);
  if (!session.replay_faults().empty()) {
    return Error{AS_MISMATCH, session.replay_faults().front(),
                 "what was run from there on says nothing: going back is at fault, not the op"};
  }
  return results;
}

bool no_number(const std::vector<WhatIfAfter>& results) {
  return std::ranges::any_of(results, [](const WhatIfAfter& r) {
    return std::isnan(r.from_sim()) || std::isnan(r.from_exact().value_or(0));
  });
}

std::string what_if_after_sentence(const std::vector<WhatIfAfter>& results) {
  if (results.empty()) return "Nothing was run.";
  const WhatIfAfter& ran = results.front();
  if (!ran.error.empty()) return "It does not run: " + ran.error;
  // Layers of a sound run, near ties included, stay below.
  constexpr double kSound = 1e-3;
  const double before = ran.from_sim();
  std::string text;
  if (before < kSound) {
    text = fmt::format(
        "Free-running, the layers after it stay within {:.2g} (1-cos) of ref.sim: there is no "
        "error to remove.",
        before);
  } else {
    std::vector<std::string> cures, others;
    for (std::size_t i = 1; i < results.size(); ++i) {
      const WhatIfAfter& r = results[i];
      // Rows that ref.sim has not got lead away from it.
      if (!r.error.empty() || r.change == kUnquantised || !(r.from_sim() < before / 10)) continue;
      (r.other_code ? others : cures).push_back(fmt::format("{} ({:.2g})", r.change, r.from_sim()));
    }
    text = fmt::format("As it ran the layers after it drift {:.2g} (1-cos) from ref.sim", before);
    text += cures.empty() ? ", and no single change of its inputs takes that to a tenth."
                          : fmt::format(". That goes away with: {}.", fmt::join(cures, "; "));
    if (!others.empty()) text += fmt::format(" So it does with: {}.", fmt::join(others, "; "));
  }
  const auto found = std::ranges::find(results, kUnquantised, &WhatIfAfter::change);
  if (found != results.end() && found->from_exact() && ran.from_exact()) {
    text += fmt::format(" From ref.exact it is {:.2g}, on unquantised rows {:.2g}.",
                        *ran.from_exact(), *found->from_exact());
  }
  return text;
}

}  // namespace attnscope
