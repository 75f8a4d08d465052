#include "app/reports/report_decisions.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

namespace attnscope {

using nlohmann::json;

json decisions_json(const RunResult& result) {
  json kinds = json::array();
  std::int64_t total = 0;
  for (std::size_t i = 0; i < kDecisions; ++i) {
    const auto decision = static_cast<Decision>(i);
    total += result.decisions[i];
    kinds.push_back({{"name", decision_name(decision)},
                     {"sentence", decision_sentence(decision)},
                     {"judged", result.decisions[i]}});
  }
  json wrong = nullptr;
  if (const auto& w = result.wrong_decision) {
    wrong = {{"decision", decision_name(w->decision)},
             {"step", w->step},
             {"request", w->request < 0 ? json(nullptr) : json(w->request)},
             {"note", w->note}};
  }
  return {{"judged", total},
          {"equal", total - (wrong.is_null() ? 0 : 1)},
          {"kinds", kinds},
          {"wrong", wrong}};
}

json guard_json(const RunResult& result) {
  json violation = nullptr;
  if (const auto& v = result.violation) {
    violation = {{"invariant", v->invariant}, {"what", v->what}, {"met", v->met}};
  }
  return {{"level", invariants_name(result.guard)},
          {"steps", result.guarded_steps},
          {"violation", violation}};
}

std::string format_decisions(const json& decisions) {
  const auto judged = decisions.at("judged").get<std::int64_t>();
  const auto equal = decisions.at("equal").get<std::int64_t>();
  std::string out =
      fmt::format("decisions {} = {} equal + {} wrong\n", judged, equal, judged - equal);
  const json& wrong = decisions.at("wrong");
  if (wrong.is_null()) return out;
  return out + fmt::format("wrong decision: {} in step {}, {}; later ones are not judged\n",
                           wrong.at("decision").get<std::string>(),
                           wrong.at("step").get<std::int64_t>(),
                           wrong.at("note").get<std::string>());
}

std::string format_guard(const json& guard) {
  const auto level = guard.at("level").get<std::string>();
  if (level == "off") return "invariants of block manager and scheduler: off\n";
  const json& violation = guard.at("violation");
  return fmt::format("invariants of block manager and scheduler ({}): checked in {} steps, {}\n",
                     level, guard.at("steps").get<std::int64_t>(),
                     violation.is_null() ? "none broken"
                                         : fmt::format("{} broken, met by {}",
                                                       violation.at("invariant").get<std::string>(),
                                                       violation.at("met").get<std::string>()));
}

}  // namespace attnscope
