#include "app/reports/causes_run.h"

#include <span>

#include "app/reports/case_of_capture.h"
#include "app/reports/explain_call.h"
#include "kernels/cpu/thread_pool.h"
#include "kernels/params/op_table.h"

namespace attnscope {

namespace {

// Of the same op one step earlier, as far as the capture has them.
TablesBefore tables_before(const Capture& capture, const Place& place) {
  TablesBefore out;
  const auto trace = capture.trace(place.step - 1);
  const OpTrace* op = trace && *trace ? (*trace)->find(place.layer, place.op) : nullptr;
  if (op == nullptr) return out;
  const as_op_info& info = *as_op_find(place.op);
  for (const as_tap_info& tap : std::span(info.taps, info.num_taps)) {
    const TapCopy* copy = is_block_table(tap) ? op->tap(tap.name) : nullptr;
    if (copy == nullptr || copy->value.data == nullptr) continue;
    out.insert_or_assign(tap.name, keep_tensor(copy->value));
  }
  return out;
}

}  // namespace

Result<CausesOf> causes_in_scenario(const Scenario& scenario, const LaneRegistry& registry,
                                    SessionOptions options, const LanesFrom& later,
                                    const SessionState* begin, const Place& place,
                                    const std::function<bool(double)>& progress) {
  TablesWatch tables;
  auto session = run_beside(scenario, registry, std::move(options), later, begin, place, progress,
                            [&](Session& s) { tables.op_done(s); });
  if (!session) return session.error();
  Session& s = **session;
  const OpParams& params = s.last_called();
  const std::string lane = s.lanes().lane(place.op);
  auto kept = keep_case(*find_case_op(params.op()), params.data(),
                        {scenario.name, lane, place.step, place.layer});
  if (!kept) return kept.error();
  auto why = explain_call(*kept, registry, s.parts().tolerances, s.parts().threads,
                          kSecondsOfCauses, tables.before(place.op, place.layer));
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
  auto why = explain_call(*kept, registry, *tolerances, pool.handle(), kSecondsOfCauses,
                          tables_before(capture, place));
  if (!why) return why.error();
  return CausesOf{place, kept->origin.lane, std::move(*why)};
}

}  // namespace attnscope
