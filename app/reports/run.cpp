#include "app/reports/run.h"

#include <sys/resource.h>

#include <algorithm>
#include <chrono>

#include "app/reports/explain_call.h"
#include "engine/session/lanes_ran.h"
#include "engine/session/place.h"
#include "kernels/params/op_table.h"

namespace attnscope {
namespace {

std::int64_t peak_bytes() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return usage.ru_maxrss * 1024;
}

// How far a run is, in tokens: prompts plus wanted decode steps, or steps.
class Meter {
 public:
  Meter(const Scenario& scenario, const RunOptions& options) : options_(options) {
    for (const ScenarioRequest& request : scenario.requests) {
      total_ += static_cast<double>(request.tokens.size());
    }
    if (options.steps) total_ = static_cast<double>(*options.steps);
    decode_ = static_cast<double>(options.decode_steps.value_or(scenario.decode_steps));
  }

  // position: share of the running step that is done.
  double share(std::int64_t steps, double tokens, double decode_steps, double position) const {
    if (options_.steps) {
      return std::min(1.0, (static_cast<double>(steps) + position) / std::max(1.0, total_));
    }
    // A decode step weighs as much as a prompt token's share of attention, roughly 16 tokens.
    const double weight = 16;
    return std::min(
        1.0, (tokens + weight * (decode_steps + position)) / (total_ + weight * (decode_ + 1)));
  }

 private:
  const RunOptions& options_;
  double total_ = 0, decode_ = 0;
};

void collect(Distributions& distributions, const Session& session) {
  const OpParams& params = session.last_params();
  const int layer = session.current().timings.empty() ? -1 : session.current().timings.back().layer;
  if (params.op() == AS_OP_SPARSE_ATTENTION) {
    distributions.add(layer, params.get<as_sparse_attention_params>());
  } else if (as_op_role(params.op()) == AS_ROLE_SCORE) {
    distributions.add(layer, params.get<as_indexer_logits_params>(),
                      session.parts().config.index_topk);
  }
}

// The call that ran last, where it came out wrong: an output of its own, not what it was given. On
// a GPU its tensors are not here.
std::optional<OpCase> wrong_call(const Session& session, std::size_t before) {
  const std::vector<TapResult>& results = session.current_results();
  const OpParams& params = session.last_called();
  const as_op_info& info = params.info();
  if (session.current().timings.empty()) return {};
  const int layer = session.current().timings.back().layer;  // results may come later than calls
  const bool wrong = std::any_of(
      results.begin() + static_cast<std::ptrdiff_t>(std::min(before, results.size())),
      results.end(), [&](const TapResult& r) {
        return r.verdict == Verdict::kWrong && r.op == params.op() && r.layer == layer &&
               std::any_of(info.taps, info.taps + info.num_taps, [&](const as_tap_info& tap) {
                 return tap.direction == AS_TAP_OUT && r.tap == tap.name;
               });
      });
  if (!wrong || as_op_has(params.op(), AS_BY_ENGINE) != 0) return {};
  for (std::uint32_t i = 0; i < info.num_taps; ++i) {
    const as_tap_info& tap = info.taps[i];
    const bool cache = tap.kind == AS_TAP_CACHE;
    if ((cache ? params.cache(tap.offset).data : params.tensor(tap.offset)).device != 0) return {};
  }
  auto kept = keep_case(*find_case_op(params.op()), params.data(),
                        {"", session.lanes().lane(params.op()), 0, 0});
  if (!kept) return {};
  return std::move(*kept);
}

}  // namespace

Result<RunResult> run_scenario(const Scenario& scenario, const LaneRegistry& lanes,
                               const RunOptions& options,
                               const std::function<void(const RunProgress&)>& progress) {
  const auto start = std::chrono::steady_clock::now();
  RunResult result;
  SessionOptions session_options = options.session;
  // A headless run never goes back, unless a GPU fails it.
  const bool on_gpu =
      std::any_of(options.session.lanes.begin(), options.session.lanes.end(),
                  [](const std::string& lane) { return lane.ends_with(DeviceRun::kLane); });
  if (!on_gpu) session_options.rewind_every = 0;
  session_options.references_lag = options.observer == nullptr;
  // Nobody looks at tensors then: steps run as a whole and leave them on the GPU.
  const bool whole_steps =
      on_gpu && options.session.references == References::kNone && options.observer == nullptr;
  auto created = Session::create(scenario, lanes, session_options);
  if (!created) return created.error();
  Session& session = **created;
  session.set_observer(options.observer);
  result.weights_read = session.parts().weights_read;
  std::vector<std::string> chosen;
  chosen.reserve(AS_OP_COUNT);
  for (int op = 0; op < AS_OP_COUNT; ++op) {
    chosen.push_back(session.lanes().lane(static_cast<as_op_id>(op)));
  }
  const std::string merge_lane = session.lanes().merge_lane();
  const Meter meter(scenario, options);
  const std::int64_t wanted_decode = options.decode_steps.value_or(scenario.decode_steps);
  DumpInvariants invariants(session.parts().config);
  const bool check_invariants = options.session.invariants != Invariants::kOff;
  Coverage coverage(session.parts().config);
  std::int64_t tokens = 0;
  const auto more = [&] {
    if (session.finished()) return false;
    if (options.steps) return static_cast<std::int64_t>(session.history().size()) < *options.steps;
    return !session.decoding() || result.decode_steps < wanted_decode;
  };
  std::optional<OpCase> first_wrong;
  TablesWatch tables;
  TablesBefore before_wrong;  // of the first wrong call
  while (more() && !result.error && !result.stopped) {
    const std::size_t step = session.history().size();
    const bool decoding = session.decoding();
    double done = 0;
    while (session.history().size() == step) {
      const Cursor cursor = session.cursor();
      const as_op_id op = session.next_op();
      if (options.stopped && options.stopped()) {
        result.stopped = true;
        break;
      }
      if (progress) {
        const double layers = std::max(1, session.parts().config.num_layers());
        done = cursor.after_layers ? 1 : std::max(0, cursor.layer) / layers;
        const double in_step = decoding ? done : 0;
        progress(
            {cursor.step,
             meter.share(cursor.step,
                         static_cast<double>(tokens) +
                             (decoding ? 0 : done * static_cast<double>(session.current().tokens)),
                         static_cast<double>(result.decode_steps), in_step),
             as_op_find(op)->name, cursor.layer});
      }
      const std::size_t judged = session.current_results().size();
      if (auto ok = whole_steps ? session.step() : session.op(); !ok) {
        result.error = ok.error();
        break;
      }
      if (!session.ran_any()) continue;
      collect(result.distributions, session);
      if (options.explain_seconds > 0 && !first_wrong) {
        tables.op_done(session);
        first_wrong = wrong_call(session, judged);
        if (first_wrong)
          before_wrong = tables.before(last_place(session).op, last_place(session).layer);
      }
      if (check_invariants) invariants.op_done(session);
      coverage.op_done(session);
    }
    if (result.error || result.stopped) break;
    if (decoding) {
      ++result.decode_steps;
    } else {
      tokens += session.history().back().tokens;
    }
  }
  if (auto ok = session.settle(); !ok && !result.error) result.error = ok.error();
  result.device_error = session.device_error();
  result.steps = session.history();
  result.serving = session.serving().totals();
  result.invariants = invariants.all();
  result.coverage = coverage.all();
  result.guard = session.guard().level();
  result.guarded_steps = session.guard().steps();
  result.violation = session.guard().violation();
  result.decisions = session.judge().counts();
  result.wrong_decision = session.judge().wrong();
  result.witnessed = session.witnessed();
  // The step that did not end.
  if ((result.error || result.stopped) && !session.at_boundary()) {
    result.steps.push_back(session.current());
    result.steps.back().results = session.current_results();
  }
  for (const TapResult& broken : invariants.broken()) {
    result.steps[static_cast<std::size_t>(broken.step)].results.push_back(broken);
  }
  std::vector<TapResult> all;
  for (const StepRecord& step : result.steps) {
    result.engine_seconds += step.seconds;
    all.insert(all.end(), step.results.begin(), step.results.end());
  }
  result.summary = summarise(all, session.parts().tolerances.drift_limit());
  for (const StepRecord& step : result.steps) {
    for (const TapResult& r : step.results) result.recount.add(r);
  }
  if (auto ok = result.recount.hold(result.summary); !ok) result.error = ok.error();
  result.summary.stood_in = !session.device_error() && another_stood_in(chosen, session.lanes());
  result.idle_lanes = idle_lanes(session_options.lanes, chosen, merge_lane, result.steps);
  result.cut_short =
      result.stopped || ((options.steps || options.decode_steps) && !session.finished());
  LanesRan ran(std::move(chosen));
  ran.add(all);
  result.lanes = ran.description();
  result.wall_seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  if (const WeightWatch* weights = session.verifier().weights()) {
    result.hashing_seconds = weights->seconds();
  }
  result.peak_bytes = peak_bytes();
  if (first_wrong) {
    auto why = explain_call(*first_wrong, lanes, session.parts().tolerances,
                            session.parts().threads, options.explain_seconds, before_wrong);
    if (why) result.why = std::move(*why);
  }
  return result;
}

}  // namespace attnscope
