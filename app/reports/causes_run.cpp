#include "app/reports/causes_run.h"

#include "app/reports/case_of_capture.h"
#include "app/reports/explain_call.h"
#include "kernels/cpu/thread_pool.h"

namespace attnscope {

Result<CausesOf> causes_in_scenario(const Scenario& scenario, const LaneRegistry& registry,
                                    SessionOptions options, const LanesFrom& later,
                                    const SessionState* begin, const Place& place,
                                    const std::function<bool(double)>& progress) {
  auto session =
      run_beside(scenario, registry, std::move(options), later, begin, place, progress, nullptr);
  if (!session) return session.error();
  Session& s = **session;
  const OpParams& params = s.last_called();
  const std::string lane = s.lanes().lane(place.op);
  auto kept = keep_case(*find_case_op(params.op()), params.data(),
                        {scenario.name, lane, place.step, place.layer});
  if (!kept) return kept.error();
  auto why =
      explain_call(*kept, registry, s.parts().tolerances, s.parts().threads, kSecondsOfCauses);
  if (!why) return why.error();
  return CausesOf{place, lane, std::move(*why)};
}

Result<CausesOf> causes_in_capture(const Capture& capture, const LaneRegistry& registry,
                                   const Place& place, int threads) {
  auto kept = case_of_capture(capture, place);
  if (!kept) return kept.error();
  auto tolerances = Tolerances::load();
  if (!tolerances) return tolerances.error();
  const cpu::ThreadPool pool(threads);
  auto why = explain_call(*kept, registry, *tolerances, pool.handle(), kSecondsOfCauses);
  if (!why) return why.error();
  return CausesOf{place, kept->origin.lane, std::move(*why)};
}

}  // namespace attnscope
