#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string_view>

#include "app/cli/look_at.h"
#include "app/cli/look_commands.h"
#include "app/reports/run.h"
#include "app/text/interrupt.h"
#include "app/text/say.h"
#include "app/wiring/wiring.h"
#include "engine/family/family.h"
#include "engine/family/model_weights.h"
#include "engine/family/models.h"
#include "engine/io/json_file.h"
#include "engine/model/profile_switches.h"

namespace attnscope {
namespace {

using nlohmann::json;

constexpr std::int64_t kMostRuns = 4096;

struct Vary {
  std::string parameter;
  std::vector<std::string> values;
};

bool read(const std::string& text, std::int64_t* value) {
  const auto end = std::from_chars(text.data(), text.data() + text.size(), *value);
  return end.ec == std::errc() && end.ptr == text.data() + text.size();
}

const char* const kParameters =
    "prompt, topk, window, seed, sink, switch, token_budget, max_seqs, or any key of the scenario, "
    "such as pool_blocks, serving.policy, requests[0].max_new_tokens";
// Keys of a scenario that change a run.
constexpr const char* kKeys[] = {"model",           "hidden_states",    "profile",
                                 "tensor_parallel", "context_parallel", "pool_blocks",
                                 "token_budget",    "max_requests",     "serving",
                                 "decode_steps",    "requests"};

// "prompt=126..190", "topk=64,128", "switch=hadamard,q_norm=bf16".
Result<Vary> parse_vary(const std::string& text) {
  const std::size_t equals = text.find('=');
  if (equals == std::string::npos || equals + 1 == text.size()) {
    return usage_error(
        fmt::format("--vary {}: no values", text),
        fmt::format("write PARAMETER=FIRST..LAST or PARAMETER=A,B,C; parameters: {}", kParameters));
  }
  Vary vary;
  vary.parameter = text.substr(0, equals);
  const std::string values = text.substr(equals + 1);
  const std::size_t dots = values.find("..");
  if (dots != std::string::npos) {
    std::int64_t first = 0, last = 0;
    if (!read(values.substr(0, dots), &first) || !read(values.substr(dots + 2), &last) ||
        first > last ||
        static_cast<std::uint64_t>(last) - static_cast<std::uint64_t>(first) >=
            std::uint64_t{kMostRuns}) {
      return usage_error(
          fmt::format("--vary {}: {} is no range", text, values),
          fmt::format("write FIRST..LAST, whole numbers, at most {} of them", kMostRuns));
    }
    for (std::int64_t v = first; v <= last; ++v) vary.values.push_back(std::to_string(v));
    return vary;
  }
  std::size_t begin = 0;
  while (begin <= values.size()) {
    const std::size_t comma = std::min(values.find(',', begin), values.size());
    vary.values.push_back(values.substr(begin, comma - begin));
    begin = comma + 1;
  }
  return vary;
}

// "hadamard" turns a switch of two values over, "q_norm=bf16" sets one, "none" leaves all.
Result<void> turn_switch(ModelConfig& model, const std::string& text) {
  if (text == "none") return {};
  const auto own = family_of(model).switches(model);
  const std::size_t equals = std::min(text.find('='), text.size());
  const std::string name = text.substr(0, equals);
  std::string value = equals < text.size() ? text.substr(equals + 1) : "";
  const auto named = [&](std::string_view one) { return one == name; };
  const bool known = std::ranges::any_of(all_switches(), named, &SwitchInfo::name);
  if (own.empty() || (known && std::ranges::none_of(own, named))) {
    return usage_error(fmt::format("--vary switch={}: model {} of family {} has no such switch",
                                   text, model.name, model.family),
                       fmt::format("switches of this family: {}", switches_of_model(model)));
  }
  ProfileSwitches& switches = model.switches;
  for (const SwitchInfo& info : all_switches()) {
    if (name != info.name || equals < text.size()) continue;
    if (info.values.size() == 2) value = info.values[info.get(switches) == 0 ? 1 : 0];
  }
  if (auto set = set_switch(switches, name, value); !set) {
    return usage_error(fmt::format("--vary switch={}: {}", text, set.error().message),
                       fmt::format("{}; a name alone turns a switch of two values over, none is "
                                   "the scenario as it is",
                                   set.error().hint));
  }
  return {};
}

// Added to every sink, on top of what the scenario shifts them by.
Result<void> shift_sink(ModelConfig& model, const std::string& value) {
  if (!has_weight(model, "sinks")) {
    return usage_error(fmt::format("--vary sink={}: model {} has no sinks", value, model.name),
                       "choose a model that has");
  }
  double shift = 0;
  const auto end = std::from_chars(value.data(), value.data() + value.size(), shift);
  if (end.ec != std::errc() || end.ptr != value.data() + value.size() ||
      !(std::fabs(shift) <= 1e4)) {  // nor NaN
    return usage_error(fmt::format("--vary sink={}: no number from -10000 to 10000", value),
                       "what is added to every sink, such as sink=-4..4 or sink=-1.5,0,1.5");
  }
  model.sink_shift += shift;
  return {};
}

// topk or window, of the layers that have one.
Result<void> set_size(ModelConfig& model, const std::string& parameter, std::int64_t n) {
  constexpr std::int64_t kMost = 1 << 20;
  if (n < 0 || n > kMost) {
    return usage_error(fmt::format("--vary {}={}: out of range", parameter, n),
                       fmt::format("at most {}", kMost));
  }
  const auto size = static_cast<int>(n);
  bool selects = false, slides = false;
  for (int i = 0; i < model.num_layers(); ++i) selects = selects || layer_selects(model, i);
  for (const CacheSpec& cache : family_of(model).caches(model)) {
    slides = slides || cache.retention.kind == GroupKind::kSliding;
  }
  if (parameter == "topk" ? !selects : !slides) {
    return usage_error(fmt::format("--vary {}={}: no layer of {} that runs {}", parameter, n,
                                   model.name, parameter == "topk" ? "selects" : "has a window"),
                       "choose another parameter, or a model with such layers");
  }
  if (parameter == "topk") {
    model.index_topk = size;
    return {};
  }
  for (int& window : model.dense.windows) {
    if (window == model.window) window = size;
  }
  model.window = size;
  return {};
}

// The place of "serving.policy" or "requests[0].tokens"; null where a list has no such element.
json* place_of(json& root, std::string_view key) {
  json* at = &root;
  while (!key.empty()) {
    const std::size_t end = std::min(key.find_first_of(".[]"), key.size());
    const std::string part(key.substr(0, end));
    key.remove_prefix(std::min(key.size(), end + 1));
    if (part.empty()) continue;
    if (at->is_array()) {
      std::int64_t i = 0;
      if (!read(part, &i) || i < 0 || i >= std::ssize(*at)) return nullptr;
      at = &(*at)[static_cast<std::size_t>(i)];
    } else if (at->is_object() || at->is_null()) {
      at = &(*at)[part];
    } else {
      return nullptr;
    }
  }
  return at;
}

// A key of the scenario's file set to `value`: a number or other JSON, else a text.
Result<void> set_key(Scenario& scenario, const std::string& key, const std::string& value) {
  const std::string what = fmt::format("--vary {}={}", key, value);
  if (key == "model.seed" && !scenario.checkpoint.empty()) {
    return usage_error(
        fmt::format("{} has no effect: the weights are read from {}", what, scenario.checkpoint),
        "seeds are of synthetic weights");
  }
  auto parsed = parse_json(scenario.text, scenario.path);
  if (!parsed) return parsed.error();
  json* place = place_of(*parsed, key);
  if (place == nullptr) {
    return usage_error(what + ": the scenario has no place of this name",
                       "keys stand behind dots, elements of lists in brackets, from 0 on");
  }
  *place = json::parse(value, nullptr, false);
  if (place->is_discarded()) *place = value;
  auto changed = parse_scenario(parsed->dump(1), scenario.path);
  if (!changed) {
    return Error{changed.error().code, fmt::format("{}: {}", what, changed.error().message),
                 changed.error().hint};
  }
  scenario = std::move(*changed);
  return {};
}

bool is_key(const std::string& parameter) {
  const std::string first = parameter.substr(0, parameter.find_first_of(".["));
  return std::ranges::any_of(kKeys, [&](const char* key) { return first == key; });
}

Result<void> apply(Scenario& scenario, const std::string& parameter, const std::string& value) {
  if (parameter == "max_seqs") return set_key(scenario, "max_requests", value);
  if (parameter == "seed") return set_key(scenario, "model.seed", value);
  if (is_key(parameter)) return set_key(scenario, parameter, value);
  if (parameter == "switch") return turn_switch(scenario.model, value);
  if (parameter == "sink") return shift_sink(scenario.model, value);
  if (parameter != "prompt" && parameter != "topk" && parameter != "window") {
    return usage_error(fmt::format("--vary {}: no such parameter", parameter),
                       fmt::format("parameters: {}", kParameters));
  }
  std::int64_t n = 0;
  if (!read(value, &n)) {
    return usage_error(fmt::format("--vary {}={}: no whole number", parameter, value),
                       "write FIRST..LAST or a list of numbers");
  }
  if (parameter == "prompt") {
    ScenarioRequest& longest = *std::max_element(
        scenario.requests.begin(), scenario.requests.end(),
        [](const auto& a, const auto& b) { return a.tokens.size() < b.tokens.size(); });
    if (n < 1 || n > static_cast<std::int64_t>(longest.tokens.size())) {
      return usage_error(
          fmt::format("--vary prompt={}: the scenario's longest prompt cannot be that long", n),
          fmt::format("1 to {}: request \"{}\" is cut to each length", longest.tokens.size(),
                      longest.name));
    }
    longest.tokens.resize(static_cast<std::size_t>(n));
  } else if (auto ok = set_size(scenario.model, parameter, n); !ok) {
    return ok;
  }
  return validate(scenario.model);
}

struct Metric {
  const char* name;
  const char* sentence;
  double (*of)(const RunResult&);
};

double worst_budget(const RunResult& run) {
  double worst = 0;
  for (const BudgetUse& b : run.summary.budgets) worst = std::max(worst, b.used);
  return worst;
}
// Elements that a lane put out other than ref.sim on the same inputs, by op and tap.
struct Changed {
  std::string tap;  // "OP.TAP"
  double differing = 0, elements = 0;
  double share() const { return elements > 0 ? differing / elements : 0; }
};
std::vector<Changed> changed_taps(const RunResult& run) {
  std::vector<Changed> all;
  for (const StepRecord& step : run.steps) {
    for (const TapResult& r : step.results) {
      if (!r.introduced) continue;
      const std::string name = fmt::format("{}.{}", as_op_find(r.op)->name, r.tap);
      auto at = std::ranges::find(all, name, &Changed::tap);
      if (at == all.end()) at = all.insert(at, {name});
      at->differing += static_cast<double>(r.introduced->differing);
      at->elements += static_cast<double>(r.elements);
    }
  }
  return all;
}
double changed(const RunResult& run) {
  Changed total;
  for (const Changed& c : changed_taps(run)) {
    total.differing += c.differing;
    total.elements += c.elements;
  }
  return total.share();
}
// The tap with the largest share; empty where no element differs.
Changed worst_tap(const RunResult& run) {
  Changed worst;
  for (const Changed& c : changed_taps(run)) {
    if (c.share() > worst.share()) worst = c;
  }
  return worst;
}
double wrong(const RunResult& run) {
  return static_cast<double>(run.summary.count(Verdict::kWrong));
}
double near_ties(const RunResult& run) {
  return static_cast<double>(run.summary.count(Verdict::kNearTie));
}
double drift(const RunResult& run) {
  double worst = 0;
  for (const LayerDrift& d : run.summary.drift) {
    worst = std::isnan(d.cosine) ? INFINITY : std::max(worst, d.cosine);
  }
  return worst;
}
double swapped(const RunResult& run) {
  double entries = 0;
  for (const TapResult& r : run.summary.selections) {
    entries += static_cast<double>(r.selection->entries);
  }
  return entries;
}
double sink(const RunResult& run) {
  std::vector<double> all;
  for (const LayerDistributions& d : run.distributions.layers()) {
    all.insert(all.end(), d.sink_mass.begin(), d.sink_mass.end());
  }
  return quantiles(std::move(all)).median;
}
double selective(const RunResult& run) {
  double tokens = 0;
  for (const LayerDistributions& d : run.distributions.layers()) {
    tokens += static_cast<double>(d.selective_tokens);
  }
  return tokens;
}

constexpr Metric kMetrics[] = {
    {"wrong", "wrong taps", wrong},
    {"changed", "share of elements that are not those of ref.sim on the same inputs", changed},
    {"budget", "worst element in units of its bound", worst_budget},
    {"drift", "worst 1-cos of a layer's output, free-running", drift},
    {"swapped", "entries selected otherwise than by ref.sim on its own history", swapped},
    {"near_ties", "taps with a near-tie", near_ties},
    {"sink", "median sink mass", sink},
    {"selective", "tokens that saw more entries than may be selected", selective},
};

Result<std::vector<const Metric*>> chosen_metrics(const std::vector<std::string>& names) {
  std::vector<const Metric*> chosen;
  for (const std::string& name : names) {
    const auto* found = std::find_if(std::begin(kMetrics), std::end(kMetrics),
                                     [&](const Metric& m) { return name == m.name; });
    if (found == std::end(kMetrics)) {
      std::vector<std::string> all;
      for (const Metric& m : kMetrics) all.push_back(fmt::format("{} ({})", m.name, m.sentence));
      return usage_error(fmt::format("--metric {}: no such metric", name),
                         fmt::format("metrics: {}", fmt::join(all, ", ")));
    }
    chosen.push_back(found);
  }
  return chosen;
}

// A bar of one metric, its largest value 20 characters wide.
std::string bar(double value, double largest) {
  if (!std::isfinite(value)) return "!";
  const auto width = largest > 0 ? static_cast<std::size_t>(std::lround(20 * value / largest)) : 0;
  return std::string(width, '#');
}

}  // namespace

Result<as_status> sweep_command(const SweepCommand& command) {
  auto scenario = scenario_with_profile(command.scenario, "", command.model);
  if (!scenario) return scenario.error();
  auto vary = parse_vary(command.vary);
  if (!vary) return vary.error();
  auto metrics = chosen_metrics(command.metrics);
  if (!metrics) return metrics.error();
  const LaneRegistry lanes = all_lanes();
  // All values are looked at before the first run.
  std::vector<Scenario> scenarios;
  for (const std::string& value : vary->values) {
    scenarios.push_back(*scenario);
    if (auto ok = apply(scenarios.back(), vary->parameter, value); !ok) return ok.error();
  }
  RunOptions options;
  options.session.lanes = command.lanes;
  options.session.references = References::kSim;
  options.session.threads = command.threads;
  options.decode_steps = command.decode_steps;
  options.stopped = [] { return interrupted() != 0; };
  catch_interrupts();
  json rows = json::array();
  std::vector<std::vector<double>> table;
  bool any_wrong = false, complete = true;
  if (!command.json) {
    say("{:>12}", vary->parameter);
    for (const Metric* m : *metrics) say("{:>12}", m->name);
    say("   {:<32} verdict\n", "worst op, its share");
  }
  for (std::size_t i = 0; i < scenarios.size(); ++i) {
    if (vary->parameter == "decode_steps") options.decode_steps = scenarios[i].decode_steps;
    auto run = run_scenario(scenarios[i], lanes, options, {});
    if (!run) return run.error();
    if (run->error) return *run->error;
    if (run->stopped) {
      ended_early();
      complete = false;
      break;
    }
    any_wrong = any_wrong || run->summary.verdict() == "wrong" || run->summary.stood_in;
    json row = {{vary->parameter, vary->values[i]}, {"verdict", run->summary.verdict()}};
    table.emplace_back();
    for (const Metric* m : *metrics) {
      const double value = m->of(*run);
      table.back().push_back(value);
      row[m->name] = std::isfinite(value) ? json(value) : json(nullptr);
    }
    const Changed worst = worst_tap(*run);
    row["worst_op"] = worst.tap.empty() ? json(nullptr) : json(worst.tap);
    row["worst_share"] = worst.share();
    if (!run->summary.blamed.empty()) row["blamed"] = run->summary.blamed.front().sentence();
    rows.push_back(row);
    if (command.json) continue;
    say("{:>12}", vary->values[i]);
    for (const double value : table.back()) say("{:>12.4g}", value);
    say("   {:<32} {}{}\n",
        worst.tap.empty() ? "-" : fmt::format("{}, {:.2g}", worst.tap, worst.share()),
        run->summary.verdict(),
        run->summary.blamed.empty()
            ? ""
            : fmt::format(" ({})", as_op_find(run->summary.blamed.front().op)->name));
    std::fflush(stdout);
  }
  if (command.json) {
    say_json(json{{"format", "attnscope-sweep"},
                  {"version", 1},
                  {"scenario", scenario->name},
                  {"parameter", vary->parameter},
                  {"complete", complete},
                  {"interrupted", complete ? json(nullptr) : json(interrupt_name())},
                  {"rows", rows}});
  } else if (table.size() > 1) {
    for (std::size_t m = 0; m < metrics->size(); ++m) {
      double largest = 0;
      for (const auto& row : table) {
        if (std::isfinite(row[m])) largest = std::max(largest, row[m]);
      }
      say("\n{}: {}\n", (*metrics)[m]->name, (*metrics)[m]->sentence);
      for (std::size_t i = 0; i < table.size(); ++i) {
        say("{:>12} {}\n", vary->values[i], bar(table[i][m], largest));
      }
    }
  }
  if (!complete && !command.json) {
    say("\nINCOMPLETE: {} ended the sweep after {} of {} values\n", interrupt_name(), table.size(),
        scenarios.size());
  }
  return any_wrong ? AS_MISMATCH : AS_OK;
}

}  // namespace attnscope
