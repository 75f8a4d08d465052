#include "engine/decisions/replay_judge.h"

#include <map>
#include <vector>

#include "engine/decisions/decision_watch.h"

namespace attnscope {

Result<ReplayJudge> ReplayJudge::make(const Replay& replay) {
  Result<SchedulerOptions> checked = check_options(replay.options);
  if (!checked) return checked.error();
  return ReplayJudge(*checked);
}

void ReplayJudge::after(const ReplayCall& call, const BlockScheduler& scheduler,
                        const StepPlan& plan, bool done) {
  if (wrong()) return;
  line_ = call.line;
  plain::Scheduler& model = judge_.model();
  switch (call.kind) {
    case ReplayCallKind::kAdd: {
      plain::Request request = plain_request(call.request);
      request.prompt = request.known();
      judge_.add(request);
      return;
    }
    case ReplayCallKind::kSchedule:
      judge_.planned(scheduler, plan);
      return;
    case ReplayCallKind::kResults: {
      std::map<std::int64_t, std::vector<std::int32_t>> tokens;
      for (const auto& [id, sampled] : call.tokens) tokens[id] = sampled;
      model.results(tokens, false);
      judge_.ended(scheduler);
      return;
    }
    case ReplayCallKind::kAbort: {
      const bool must = model.knows(call.id) && !model.request(call.id).is_over();
      if (must) model.abort(call.id);
      judge_.aborted(scheduler, call.id, done, must);
      return;
    }
    case ReplayCallKind::kReset:
      judge_.reset(scheduler, done, model.reset(call.preempt_running));
      return;
  }
}

}  // namespace attnscope
