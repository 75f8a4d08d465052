#include "app/reports/explain_call.h"

#include <nlohmann/json.hpp>
#include <string_view>
#include <vector>

#include "app/wiring/case_lane.h"

namespace attnscope {

using nlohmann::json;

Result<Explanation> explain_call(const OpCase& kept, const LaneRegistry& lanes,
                                 const Tolerances& tolerances, const as_threads* threads,
                                 double seconds) {
  auto sim = find_case_lane(lanes, "ref.sim", kept.op);
  if (!sim) return sim.error();
  std::vector<Mistake> mistakes;
  for (const Lane& lane : lanes.all()) {
    if (!std::string_view(lane.name).starts_with("mutant:")) continue;
    if (lane.ops[kept.op.id] == nullptr) continue;
    mistakes.push_back({{lane.name, lane.ops[kept.op.id], false}, lane.description});
  }
  return explain_case(kept, *sim, mistakes, case_options(lanes, kept.op, tolerances, threads),
                      seconds);
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
          {"lines", why.lines()},
          {"tried", why.hypotheses.tried},
          {"left", why.hypotheses.left}};
}

}  // namespace attnscope
