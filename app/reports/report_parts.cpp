#include "app/reports/report_parts.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>

#include "app/text/format.h"
#include "kernels/params/op_table.h"

namespace attnscope {
namespace {

using nlohmann::json;

// One character a step, a level every decade from 1e-8 up; '!' beyond any number.
std::string sparkline(const json& values) {
  static const char* const kLevels[] = {"▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
  constexpr std::size_t kWidest = 60;
  std::string text;
  const std::size_t count = values.size();
  const std::size_t columns = std::min(count, kWidest);
  for (std::size_t column = 0; column < columns; ++column) {
    // Of several steps in a column the worst.
    double worst = -1;
    bool beyond = false, any = false;
    for (std::size_t i = column * count / columns; i < (column + 1) * count / columns; ++i) {
      if (values[i].is_string()) {
        beyond = true;
      } else if (!values[i].is_null()) {
        any = true;
        worst = std::max(worst, values[i].get<double>());
      }
    }
    if (beyond) {
      text += "!";
    } else if (!any) {
      text += " ";
    } else {
      const int level = worst <= 0 ? 0 : static_cast<int>(std::floor(std::log10(worst))) + 8;
      text += kLevels[std::clamp(level, 0, 7)];
    }
  }
  return text;
}

}  // namespace

json number_json(double value) { return std::isfinite(value) ? json(value) : json(nullptr); }

json blamed_json(const Summary& summary) {
  json out = json::array();
  for (const Blame& b : summary.blamed) {
    out.push_back({{"op", as_op_find(b.op)->name},
                   {"cache", b.cache},
                   {"step", b.first.step},
                   {"layer", b.first.layer < 0 ? json(nullptr) : json(b.first.layer)},
                   {"tap", b.first.tap},
                   {"lane", b.first.lane},
                   {"wrong_taps", b.taps},
                   {"sentence", b.sentence()}});
  }
  return out;
}

json budgets_json(const Summary& summary) {
  json out = json::array();
  for (const BudgetUse& b : summary.budgets) {
    out.push_back({{"op", as_op_find(b.op)->name},
                   {"tap", b.tap},
                   {"lane", b.lane},
                   {"tolerance", b.tolerance},
                   {"used", number_json(b.used)},
                   {"taps", b.taps},
                   {"slack", b.slack()}});
  }
  return out;
}

json invariants_json(const std::vector<Invariant>& invariants) {
  json out = json::array();
  for (const Invariant& i : invariants) {
    out.push_back({{"name", i.name},
                   {"sentence", i.sentence},
                   {"checked", i.checked},
                   {"broken", i.broken},
                   {"first", i.first}});
  }
  return out;
}

json coverage_json(const std::vector<CoveredPath>& coverage) {
  json out = json::array();
  for (const CoveredPath& e : coverage) {
    out.push_back({{"name", e.name},
                   {"sentence", e.sentence},
                   {"advice", e.advice},
                   {"count", e.count},
                   {"first", e.count > 0 ? fmt::format("step {}", e.first_step) : ""}});
  }
  return out;
}

json curves_json(const std::vector<StepRecord>& steps) {
  json numbers = json::array();
  struct Curve {
    json forced = json::array(), free = json::array();
  };
  std::map<int, Curve> curves;
  for (const StepRecord& step : steps) {
    for (const TapResult& r : step.results) curves.try_emplace(r.layer);
  }
  for (const StepRecord& step : steps) {
    numbers.push_back(step.step);
    for (auto& [layer, curve] : curves) {
      double forced = -1, free = -1;
      for (const TapResult& r : step.results) {
        if (r.layer != layer || !r.introduced) continue;
        forced = std::max(forced, r.budget_used);
        if (as_op_role(r.op) == AS_ROLE_RESIDUAL && r.inherited) {
          free = std::isnan(r.inherited->cosine) ? INFINITY : std::max(0.0, r.inherited->cosine);
        }
      }
      const auto value = [](double v) {
        return v < 0 ? json(nullptr) : std::isfinite(v) ? json(v) : json("beyond");
      };
      curve.forced.push_back(value(forced));
      curve.free.push_back(value(free));
    }
  }
  json layers = json::array();
  for (auto& [layer, curve] : curves) {
    layers.push_back({{"layer", layer < 0 ? json(nullptr) : json(layer)},
                      {"forced", std::move(curve.forced)},
                      {"free", std::move(curve.free)}});
  }
  return {{"steps", numbers}, {"layers", layers}};
}

std::string format_blamed(const json& blamed) {
  if (blamed.empty()) return "";
  std::string out;
  for (const json& b : blamed) {
    out += fmt::format("blamed: {}{}, {} wrong taps: {}\n", b.at("op").get<std::string>(),
                       b.at("cache").get<bool>() ? " (the cache it reads, not the op)" : "",
                       b.at("wrong_taps").get<std::int64_t>(), b.at("sentence").get<std::string>());
  }
  return out;
}

std::string format_slack(const json& budgets) {
  std::string names;
  int count = 0;
  for (const json& b : budgets) {
    if (!b.at("slack").get<bool>()) continue;
    ++count;
    names += fmt::format("  {}.{}: {:.2g} of the bound \"{}\" used over {} taps\n",
                         b.at("op").get<std::string>(), b.at("tap").get<std::string>(),
                         b.at("used").get<double>(), b.at("tolerance").get<std::string>(),
                         b.at("taps").get<std::int64_t>());
  }
  if (count == 0) return "";
  return fmt::format("\n{} bounds are more than 20 times what this run needed:\n{}", count, names);
}

std::string format_invariants(const json& invariants) {
  std::string out;
  std::int64_t checked = 0;
  int broken = 0;
  for (const json& i : invariants) {
    checked += i.at("checked").get<std::int64_t>();
    const auto times = i.at("broken").get<std::int64_t>();
    if (times == 0) continue;
    ++broken;
    out +=
        fmt::format("  {} broken {} times, first in {}\n    {}\n", i.at("name").get<std::string>(),
                    times, i.at("first").get<std::string>(), i.at("sentence").get<std::string>());
  }
  return fmt::format("\n{} invariants, checked {} times, {} broken\n{}", invariants.size(), checked,
                     broken, out);
}

std::string taps_text(const Summary& summary) {
  const std::int64_t compared = summary.taps - summary.count(Verdict::kNotCompared);
  const std::int64_t wrong = summary.count(Verdict::kWrong);
  std::string text = "no tap compared";
  if (compared > 0) {
    text = fmt::format("{} compared, ", plural(compared, "tap", "taps"));
    text += wrong == 0 ? "none wrong" : format_count(wrong) + " wrong";
  }
  if (compared > 0 && compared < summary.taps) {
    text += fmt::format(", {} not compared", format_count(summary.taps - compared));
  }
  if (summary.diverged) text += "; a layer has drifted beyond the limit";
  if (summary.stood_in) text += "; a lane failed, and another one stood in";
  return text;
}

std::string format_coverage(const json& coverage) {
  std::string out;
  std::size_t missing = 0;
  for (const json& e : coverage) {
    if (e.at("count").get<std::int64_t>() > 0) continue;
    ++missing;
    out += fmt::format("  {:<26} {}; to get there: {}\n", e.at("name").get<std::string>(),
                       e.at("sentence").get<std::string>(), e.at("advice").get<std::string>());
  }
  if (missing == 0) return fmt::format("all {} paths exercised\n", coverage.size());
  return fmt::format("not exercised, {} of {}:\n{}", missing, coverage.size(), out);
}

std::string format_curves(const json& curves) {
  if (curves.at("steps").size() < 2) return "";
  std::string out =
      "\nover the steps, a level a decade from 1e-8: forced = budget used by the layer's ops, free "
      "= 1-cos of its output:\n";
  for (const json& layer : curves.at("layers")) {
    const std::string name = layer.at("layer").is_null()
                                 ? "outside"
                                 : fmt::format("layer {}", layer.at("layer").get<int>());
    out += fmt::format("  {:<9} forced {}\n", name, sparkline(layer.at("forced")));
    const json& free = layer.at("free");
    if (std::any_of(free.begin(), free.end(), [](const json& v) { return !v.is_null(); })) {
      out += fmt::format("  {:<9} free   {}\n", "", sparkline(free));
    }
  }
  return out;
}

}  // namespace attnscope
