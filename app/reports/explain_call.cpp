#include "app/reports/explain_call.h"

#include <nlohmann/json.hpp>
#include <span>
#include <string_view>
#include <vector>

#include "app/wiring/case_lane.h"
#include "engine/session/place.h"
#include "kernels/params/op_table.h"

namespace attnscope {

using nlohmann::json;

Result<Explanation> explain_call(const OpCase& kept, const LaneRegistry& lanes,
                                 const Tolerances& tolerances, const as_threads* threads,
                                 double seconds, const TablesBefore& before) {
  auto sim = find_case_lane(lanes, "ref.sim", kept.op);
  if (!sim) return sim.error();
  std::vector<Mistake> mistakes;
  for (const Lane& lane : lanes.all()) {
    if (!std::string_view(lane.name).starts_with("mutant:")) continue;
    if (lane.ops[kept.op.id] == nullptr) continue;
    mistakes.push_back({{lane.name, lane.ops[kept.op.id], false}, lane.description});
  }
  const CaseRunOptions options = case_options(lanes, kept.op, tolerances, threads);
  auto why = explain_case(kept, *sim, mistakes, before, options, seconds);
  // Lanes of the CPU give the same bytes always; other kernels are asked again.
  const std::string_view name = kept.origin.lane;
  if (why && why->wrong() && (name.starts_with("plugin:") || name == "cuda")) {
    const auto own = find_case_lane(lanes, kept.origin.lane, kept.op);
    if (own) why->unsteady = unsteady_text(kept, *own, options);
  }
  return why;
}

void TablesWatch::op_done(const Session& session) {
  const Place place = last_place(session);
  if (place.step != step_) {
    before_ = place.step == step_ + 1 ? std::move(own_) : ByOp();
    own_.clear();
    step_ = place.step;
  }
  const OpParams& params = session.last_called();
  if (params.op() != place.op || as_op_has(place.op, AS_BY_ENGINE) != 0) return;
  const as_op_info& info = params.info();
  for (const as_tap_info& tap : std::span(info.taps, info.num_taps)) {
    if (!is_block_table(tap)) continue;
    const as_tensor& table = params.tensor(tap.offset);
    if (table.data == nullptr || table.device != 0) continue;
    own_[{place.op, place.layer}].insert_or_assign(tap.name, keep_tensor(table));
  }
}

TablesBefore TablesWatch::before(as_op_id op, int layer) const {
  const auto it = before_.find({op, layer});
  return it != before_.end() ? it->second : TablesBefore();
}

json explanation_json(const Explanation& why) {
  json taps = json::array(), hypotheses = json::array();
  for (const ExplainedTap& tap : why.taps) {
    json findings = json::array();
    for (const ErrorFinding& f : tap.findings) {
      findings.push_back({{"kind", f.kind}, {"sentence", f.sentence}, {"share", f.share}});
    }
    taps.push_back({{"tap", tap.tap}, {"findings", findings}});
  }
  for (const Hypothesis& h : why.hypotheses.likely) {
    hypotheses.push_back(
        {{"lane", h.lane}, {"words", h.words}, {"share", h.share}, {"same_output", h.whole}});
  }
  return {{"op", why.op},
          {"wrong_elements", why.hypotheses.wrong},
          {"taps", taps},
          {"hypotheses", hypotheses},
          {"unsteady", why.unsteady},
          {"lines", why.lines()},
          {"tried", why.hypotheses.tried},
          {"left", why.hypotheses.left}};
}

}  // namespace attnscope
