#include "engine/golden/golden_run.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>

#include "engine/backend/stand_in.h"
#include "engine/golden/golden_collect.h"
#include "engine/golden/op_inputs.h"
#include "engine/golden/saved_case.h"
#include "engine/io/byte_stream.h"
#include "engine/io/json_file.h"
#include "engine/session/lanes_ran.h"
#include "engine/session/session.h"
#include "engine/session/session_config.h"
#include "engine/session/trace_recorder.h"
#include "engine/trace/recount.h"

namespace attnscope {
namespace {

namespace fs = std::filesystem;

// The model, the limits and every prompt; comments and spaces change nothing.
std::string inputs_digest(const Scenario& scenario) {
  auto parsed = parse_json(scenario.text, scenario.path);
  std::string text = parsed ? parsed->dump() : scenario.text;
  for (const ScenarioRequest& r : scenario.requests) {
    text += fmt::format("\n{}:", r.name);
    for (const std::int32_t token : r.tokens) text += fmt::format(" {}", token);
  }
  return text_checksum(text);
}

Result<Scenario> find_scenario(const GoldenSpec& spec) {
  const fs::path folder = fs::path(spec.path).parent_path();
  for (const std::string& file : {spec.scenario, spec.scenario + ".json"}) {
    std::error_code code;
    if (fs::is_regular_file(folder / file, code)) return load_scenario((folder / file).string());
  }
  auto scenario = load_scenario(spec.scenario);
  if (!scenario) {
    return Error{scenario.error().code,
                 fmt::format("{}: scenario: {}", spec.path, scenario.error().message),
                 scenario.error().hint};
  }
  return scenario;
}

// What another lane computed says nothing of the one that was to be tested.
Error stood_in(const std::string& golden, const std::string& chosen, as_op_id op,
               const std::string& instead) {
  return bad_input(fmt::format("{}: lane {} failed at {}, and lane {} carried it out: nothing is "
                               "known of the golden's values on it",
                               golden, chosen, as_op_find(op)->name, instead),
                   "mend the plugin, or choose another --lane");
}

// A golden that holds without the lane that was asked for says nothing of it.
Error not_tested(const std::string& why, const std::string& hint) {
  return {AS_NO_ENVIRONMENT, why + ": nothing of it was tested", hint};
}

// Of lanes in place of the definition's: each has to carry out an op.
Result<void> check_not_idle(const GoldenRunOptions& options, const LaneSelector& chosen,
                            const Session& session) {
  std::vector<std::string> by_op;
  by_op.reserve(AS_OP_COUNT);
  for (int op = 0; op < AS_OP_COUNT; ++op) by_op.push_back(chosen.lane(static_cast<as_op_id>(op)));
  const auto idle = idle_lanes(options.lanes, by_op, chosen.merge_lane(), session.history());
  if (idle.empty()) return {};
  return not_tested(idle_text(idle), "name a golden whose steps run its ops");
}

Result<void> run_scenario_steps(const GoldenSpec& spec, const LaneRegistry& registry,
                                const GoldenRunOptions& options, GoldenValues& out) {
  auto scenario = find_scenario(spec);
  if (!scenario) return scenario.error();
  out.inputs = inputs_digest(*scenario);
  scenario->model.switches = switches_of_version(scenario->model.switches, options.profiles);
  SessionOptions session_options;
  session_options.references = options.judged ? References::kSim : References::kNone;
  session_options.tolerance_file = options.tolerance_file;
  session_options.witness = true;  // values to compare with may be those of a wrong model
  session_options.lanes = options.lanes.empty() ? spec.lanes : options.lanes;
  session_options.threads = options.threads;
  session_options.rewind_every = 0;
  if (!options.lanes.empty()) {
    if (auto known = LaneSelector::make(registry, options.lanes); !known) return known.error();
    if (auto ok = check_lane_ops(options.lanes, *scenario); !ok) {
      return not_tested(ok.error().message, ok.error().hint);
    }
  }
  auto created = Session::create(*scenario, registry, session_options);
  if (!created) return created.error();
  Session& session = **created;
  out.lanes = session.lanes().description();
  const LaneSelector chosen = session.lanes();
  TraceOptions trace;
  trace.budget_bytes = 0;  // the newest alone is looked at
  trace.max_rows = spec.rows;
  trace.attention = false;
  TraceRecorder recorder(trace);
  session.set_observer(&recorder);
  std::vector<TapResult> all;
  for (std::int64_t step = 0; step < spec.steps && !session.finished(); ++step) {
    const double share = static_cast<double>(step) / static_cast<double>(spec.steps);
    if (options.going && !options.going(share)) {
      return usage_error(spec.name + ": stopped before its end", "run it again");
    }
    if (auto ok = session.step(); !ok) return ok;
    if (session.device_error()) return *session.device_error();
    const auto now = recorder.trace(step);
    if (now == nullptr) {
      return Error{AS_NO_ENVIRONMENT, fmt::format("step {}: not enough memory to trace it", step),
                   "keep fewer rows"};
    }
    const std::vector<TapResult>& results = session.history().back().results;
    all.insert(all.end(), results.begin(), results.end());
    const RowOwners owners = row_owners(*now);
    for (const auto& op : now->ops) {
      const std::string layer = op->place.layer < 0 ? "-" : std::to_string(op->place.layer);
      collect_taps(*op, owners, spec,
                   fmt::format("{}/{}/{}", step, layer, as_op_find(op->place.op)->name), out.taps);
    }
    collect_tokens(*now, out.sampled);
  }
  session.set_observer(nullptr);
  const Summary summary = summarise(all, session.parts().tolerances.drift_limit());
  Recount recount;
  for (const TapResult& result : all) recount.add(result);
  if (auto ok = recount.hold(summary); !ok) return ok;
  out.judged = options.judged && summary.verdict() != "not_compared";
  if (!summary.blamed.empty()) {
    out.fault = summary.blamed.front().sentence();
  } else if (options.judged && summary.verdict() != "ok") {
    out.fault = "the run is " + summary.verdict();
  }
  for (int i = 0; i < AS_OP_COUNT; ++i) {
    const auto op = static_cast<as_op_id>(i);
    if (chosen.lane(op) == session.lanes().lane(op)) continue;
    return stood_in(spec.name, chosen.lane(op), op, session.lanes().lane(op));
  }
  return check_not_idle(options, chosen, session);
}

void decide(const GoldenSpec& spec, const Tolerances& tolerances, bool accepted,
            GoldenOutcome& out) {
  out.comparison = {};
  if (!accepted) {
    out.state = GoldenState::kNew;
    out.sentence =
        fmt::format("{} values, of which none was accepted yet", out.received.taps.size());
    return;
  }
  auto compared = compare_golden(spec, out.accepted, out.received, tolerances);
  if (!compared) {
    out.error = compared.error();
    out.sentence = compared.error().text();
    return;
  }
  out.comparison = std::move(*compared);
  out.received.findings = out.comparison.findings;
  if (out.accepted.definition != spec.digest) {
    out.state = GoldenState::kStale;
    out.sentence = "its definition has changed since its values were accepted";
  } else if (out.accepted.inputs != out.received.inputs) {
    out.state = GoldenState::kStale;
    out.sentence =
        spec.saved_case.empty()
            ? "its scenario, or the text of a prompt, is another than when it was accepted"
            : "its case is another than when it was accepted";
  } else {
    out.state = out.comparison.passed() ? GoldenState::kPassed : GoldenState::kFailed;
    out.sentence = out.comparison.sentence();
  }
}

// Another lane or SIMD level rounds otherwise, and what is beyond a bound may be right: its ops are
// held against ref.sim, each on its own inputs.
Result<void> judge_by_itself(const GoldenSpec& spec, const LaneRegistry& registry,
                             const GoldenRunOptions& options,
                             const std::function<Result<void>()>& decide_again,
                             GoldenOutcome& out) {
  // What holds on another lane is held against ref.sim too where that costs no more than an op.
  const bool other_lane = out.accepted.lanes != out.received.lanes;
  const bool one_op = spec.op || !spec.saved_case.empty();
  const bool looked_at = out.state == GoldenState::kFailed ||
                         (out.state == GoldenState::kPassed && other_lane && one_op);
  if (!looked_at || !rounds_otherwise(out.accepted, out.received) ||
      registry.find("ref.sim") == nullptr) {
    return {};
  }
  GoldenRunOptions again = options;
  again.judged = true;
  auto received = compute_golden(spec, registry, again);
  if (!received) return received.error();
  out.received = std::move(*received);
  if (auto ok = decide_again(); !ok) return ok;
  if (!out.received.fault.empty()) {
    out.state = GoldenState::kFailed;
    out.sentence += "; beside ref.sim: " + out.received.fault;
  }
  return {};
}

void broken(const Error& error, GoldenOutcome& out) {
  out.state = error.code == AS_NO_ENVIRONMENT ? GoldenState::kSkipped : GoldenState::kBroken;
  out.error = error;
  out.sentence = error.text();
}

// What a run found wrong of itself, whatever values it was to have.
void decide_by_fault(const GoldenSpec& spec, bool accepted, GoldenOutcome& out) {
  if (out.received.fault.empty()) return;
  if (!accepted) {
    return broken(Error{AS_MISMATCH, spec.name + ": " + out.received.fault,
                        "its values say nothing before that is mended"},
                  out);
  }
  if (out.state == GoldenState::kPassed) {
    out.state = GoldenState::kFailed;
    out.sentence = out.received.fault;
  } else if (out.state == GoldenState::kFailed) {
    out.sentence += "; " + out.received.fault;
  }
}

// Of a large golden whose values are not on this machine: what is exact is compared, and the values
// of the run are kept in their place.
Result<void> decide_by_record(const GoldenSpec& spec, const Tolerances& tolerances,
                              const LargeGolden& large, const GoldenRunOptions& options,
                              GoldenFolder& folder, GoldenOutcome& out) {
  GoldenValues tokens = out.received;
  tokens.taps.clear();
  auto compared = compare_golden(spec, large.values, tokens, tolerances);
  if (!compared) return compared.error();
  out.comparison = std::move(*compared);
  const bool same = large.is_of(out.received);
  if (large.values.definition != spec.digest || large.values.inputs != out.received.inputs) {
    out.state = GoldenState::kStale;
    out.sentence = "its definition or its inputs have changed since its values were accepted";
  } else if (!same || !out.comparison.passed()) {
    out.state = GoldenState::kFailed;
    out.sentence = same ? out.comparison.sentence()
                        : fmt::format("its {} taps of integers are others than the accepted ones",
                                      large.integer_taps);
  } else {
    out.state = GoldenState::kPassed;
    const bool keep = !options.ci && options.lanes.empty();
    out.sentence = fmt::format(
        "its {} taps of integers hold; its values, {} bytes, are not on this machine: {}",
        large.integer_taps, large.bytes,
        keep ? "made anew, for the runs to come" : "a run without --ci and --lane makes them anew");
    if (keep) return folder.keep_made(large, out.received);
  }
  return {};
}

// Computes the golden and holds it against what was accepted.
void compute_and_decide(GoldenFolder& folder, const GoldenSpec& spec, const Tolerances& tolerances,
                        bool accepted, const LaneRegistry& registry,
                        const GoldenRunOptions& options, GoldenOutcome& out) {
  out.error.reset();
  auto received = compute_golden(spec, registry, options);
  if (!received) return broken(received.error(), out);
  out.received = std::move(*received);
  out.lanes = out.received.lanes;
  if (accepted) out.origin = origin_changes(out.accepted, out.received);
  if (out.received.taps.empty()) {
    return broken(bad_input(fmt::format("{}: no op that runs has the taps it names", spec.path),
                            "check layers, steps and ops: attnscope ops lists them"),
                  out);
  }
  std::optional<LargeGolden> large;
  if (accepted && out.accepted.taps.empty()) {
    auto record = folder.large(spec.name);
    if (!record) return broken(record.error(), out);
    large = std::move(*record);
  }
  const auto decide_now = [&]() -> Result<void> {
    if (large) return decide_by_record(spec, tolerances, *large, options, folder, out);
    decide(spec, tolerances, accepted, out);
    return {};
  };
  auto decided = decide_now();
  if (decided) decide_by_fault(spec, accepted, out);
  if (decided) decided = judge_by_itself(spec, registry, options, decide_now, out);
  if (!decided) broken(decided.error(), out);
}

void run_and_decide(GoldenFolder& folder, const std::string& name, const LaneRegistry& registry,
                    const GoldenRunOptions& given, GoldenOutcome& out) {
  GoldenRunOptions options = given;
  auto tolerances = Tolerances::load(options.tolerance_file);
  if (!tolerances) return broken(tolerances.error(), out);
  auto spec = folder.spec(name);
  if (!spec) return broken(spec.error(), out);
  out.about = spec->about;
  if (auto ok = check_classes(*spec, *tolerances); !ok) return broken(ok.error(), out);
  out.loosened = loosened_tolerances(*spec, *tolerances);
  const bool accepted = folder.entries().at(name).accepted;
  if (accepted) {
    auto values = folder.values(name, kAcceptedSuffix);
    if (!values) return broken(values.error(), out);
    out.accepted = std::move(*values);
    options.profiles = out.accepted.profiles;
  }
  compute_and_decide(folder, *spec, *tolerances, accepted, registry, options, out);
  if (options.profiles < given.profiles && out.state != GoldenState::kPassed &&
      out.state != GoldenState::kBroken && out.state != GoldenState::kSkipped) {
    compute_and_decide(folder, *spec, *tolerances, accepted, registry, given, out);
  }
  if (options.ci || !options.lanes.empty() || out.state == GoldenState::kBroken) return;
  const bool pending = out.state != GoldenState::kPassed;
  if (!pending) {
    if (const auto ok = folder.remove_received(name); !ok) broken(ok.error(), out);
  } else if (const auto ok = folder.write_received(out.received); ok) {
    out.wrote = folder.file(name, kReceivedSuffix);
  } else {
    // What it found is worth more than what came of keeping it.
    out.sentence += "; what was received could not be kept: " + ok.error().text();
  }
}

}  // namespace

const char* golden_state_name(GoldenState state) {
  switch (state) {
    case GoldenState::kPassed:
      return "passed";
    case GoldenState::kFailed:
      return "failed";
    case GoldenState::kNew:
      return "new";
    case GoldenState::kStale:
      return "stale";
    case GoldenState::kSkipped:
      return "skipped";
    case GoldenState::kBroken:
      return "broken";
  }
  return "?";
}

Result<GoldenValues> compute_golden(const GoldenSpec& spec, const LaneRegistry& registry,
                                    const GoldenRunOptions& options) {
  GoldenValues out;
  out.name = spec.name;
  out.definition = spec.digest;
  out.profiles = options.profiles;
  out.origin = options.origin;
  StandInWatch watch;
  const auto ok = spec.op                    ? run_op_cases(spec, registry, options, out)
                  : !spec.saved_case.empty() ? run_saved_case(spec, registry, options, out)
                                             : run_scenario_steps(spec, registry, options, out);
  if (!ok) return ok.error();
  if (watch.seen()) {
    return bad_input(fmt::format("{}: {}: nothing is known of the golden's values on that lane",
                                 spec.name, watch.seen()->why),
                     "mend the plugin, or choose another --lane");
  }
  return out;
}

Result<void> check_golden(const GoldenSpec& spec, const LaneRegistry& registry) {
  if (auto lanes = LaneSelector::make(registry, spec.lanes);
      !lanes && lanes.error().code != AS_NO_ENVIRONMENT) {
    return lanes.error();
  }
  if (spec.op) return {};
  if (!spec.saved_case.empty()) {
    auto kept = read_saved_case(spec);
    return kept ? Result<void>() : kept.error();
  }
  auto scenario = find_scenario(spec);
  return scenario ? check_lane_ops(spec.lanes, *scenario) : scenario.error();
}

GoldenOutcome run_golden(GoldenFolder& folder, const std::string& name,
                         const LaneRegistry& registry, const GoldenRunOptions& options) {
  const auto start = std::chrono::steady_clock::now();
  GoldenOutcome out;
  out.name = name;
  run_and_decide(folder, name, registry, options, out);
  out.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return out;
}

std::int64_t GoldenReport::count(GoldenState state) const {
  return std::ranges::count(outcomes, state, &GoldenOutcome::state);
}

as_status GoldenReport::status() const {
  for (const GoldenOutcome& o : outcomes) {
    if (o.state == GoldenState::kBroken) return o.error ? o.error->code : AS_INTERNAL;
  }
  const bool pending =
      count(GoldenState::kFailed) + count(GoldenState::kNew) + count(GoldenState::kStale) > 0;
  if (pending || !orphans.empty()) return AS_MISMATCH;
  return count(GoldenState::kSkipped) > 0 ? AS_NO_ENVIRONMENT : AS_OK;
}

}  // namespace attnscope
