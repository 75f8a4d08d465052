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
  const CaseRunOptions options = case_options(lanes, kept.op, tolerances, threads);
  auto why = explain_case(kept, *sim, mistakes, options, seconds);
  // Lanes of the CPU give the same bytes always; other kernels are asked again.
  const std::string_view name = kept.origin.lane;
  if (why && why->wrong() && (name.starts_with("plugin:") || name == "cuda")) {
    const auto own = find_case_lane(lanes, kept.origin.lane, kept.op);
    if (own) why->unsteady = unsteady_text(kept, *own, options);
  }
  return why;
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
