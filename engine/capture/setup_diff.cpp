#include "engine/capture/setup_diff.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <iterator>
#include <set>

#include "engine/io/json_file.h"
#include "engine/io/json_text.h"
#include "engine/model/profile_switches.h"
#include "kernels/params/row_format.h"

namespace attnscope {
namespace {

using nlohmann::json;

std::string two_values(const std::string& what, const std::string& a, const std::string& b) {
  return fmt::format("{} is {} in the first capture and {} in the second", what, a, b);
}

json model_numbers(const ModelConfig& model) {
  json numbers = to_json_fields(model);
  numbers.erase("name");      // the place that it was read from
  numbers.erase("switches");  // by their own names
  // Formats of rows by their names, not by their numbers.
  const auto named = [&numbers](const char* place) {
    const json::json_pointer at(place);
    if (!numbers.contains(at)) return;
    const as_row_format* format = as_row_format_of(numbers[at].get<std::int32_t>());
    if (format != nullptr) numbers[at] = format->name;
  };
  named("/dense/cache_record");
  named("/mla/latent_record");
  return numbers;
}

// Keys whose values differ, in the order of their names.
void compare_keys(const json& a, const json& b, const std::string& prefix, bool numbers,
                  std::vector<SetupDiff>& out) {
  std::set<std::string> keys;
  for (const json* side : {&a, &b}) {
    for (const auto& item : side->items()) keys.insert(item.key());
  }
  const auto text = [](const json& object, const std::string& key) {
    return object.contains(key) ? object[key].dump() : std::string("not set");
  };
  for (const std::string& key : keys) {
    if (a.contains(key) && b.contains(key) && a[key].is_object() && b[key].is_object()) {
      compare_keys(a[key], b[key], prefix + key + ".", numbers, out);
      continue;
    }
    const std::string x = text(a, key), y = text(b, key);
    if (x != y) out.push_back({two_values(prefix + key, x, y), numbers});
  }
}

// The scenario's own text; null where the capture has none.
json scenario_json(const CaptureIndex& index) {
  if (index.origin.scenario_text.empty()) return {};
  auto parsed = parse_json(index.origin.scenario_text, index.origin.scenario);
  return parsed && parsed->is_object() ? std::move(*parsed) : json();
}

json part_of(const json& scenario, const char* place, const json& otherwise) {
  const json::json_pointer at(place);
  return scenario.contains(at) ? scenario[at] : otherwise;
}

std::string weights_text(const std::string& checkpoint) {
  return checkpoint.empty() ? "synthetic" : "that of " + checkpoint;
}

}  // namespace

std::vector<SetupDiff> compare_setups(const CaptureIndex& a, const CaptureIndex& b) {
  std::vector<SetupDiff> out;
  compare_keys(model_numbers(a.model), model_numbers(b.model), "", true, out);
  for (const SwitchInfo& info : all_switches()) {
    const int x = info.get(a.model.switches), y = info.get(b.model.switches);
    if (x == y) continue;
    const auto value = [&](int i) { return std::string(info.values[static_cast<std::size_t>(i)]); };
    out.push_back({two_values(fmt::format("switch {}", info.name), value(x), value(y)), true});
  }
  const CaptureOrigin &p = a.origin, &q = b.origin;
  const json first = scenario_json(a), second = scenario_json(b);
  const bool texts = first.is_object() && second.is_object();
  if (p.checkpoint != q.checkpoint) {
    out.push_back(
        {two_values("the set of weights", weights_text(p.checkpoint), weights_text(q.checkpoint)),
         true});
  } else if (texts && p.checkpoint.empty()) {
    const json x = part_of(first, "/model/seed", 1), y = part_of(second, "/model/seed", 1);
    if (x != y) out.push_back({two_values("the seed of the weights", x.dump(), y.dump()), true});
  }
  if (p.hidden_states != q.hidden_states) {
    const auto file = [](const std::string& name) { return name.empty() ? "none" : name; };
    out.push_back(
        {two_values("the file of hidden states", file(p.hidden_states), file(q.hidden_states)),
         true});
  }
  struct Key {
    const char* place;
    json otherwise;  // where a scenario does not say
  };
  const Key keys[] = {{"/model/sink_shift", 0.0},
                      {"/model/sinks", json::object()},
                      {"/model/logit_gain", 1.0},
                      {"/model/twin_tokens", false},
                      {"/lists", "plain"},
                      {"/ess", json::object()},
                      {"/context_parallel", json::object()}};
  for (const Key& key : keys) {
    if (!texts) break;
    const json x = part_of(first, key.place, key.otherwise);
    const json y = part_of(second, key.place, key.otherwise);
    const char* name = std::strrchr(key.place, '/') + 1;
    if (x != y) out.push_back({two_values(name, x.dump(), y.dump()), true});
  }
  const auto limits = [](const CaptureIndex& i) {
    return json{{"token_budget", i.token_budget},
                {"max_requests", i.max_requests},
                {"first_block", i.first_block},
                {"pool_blocks", i.num_blocks - i.first_block + 1}};
  };
  compare_keys(limits(a), limits(b), "", false, out);
  if (texts) {
    const json x = part_of(first, "/serving", json::object());
    const json y = part_of(second, "/serving", json::object());
    if (x.is_object() && y.is_object()) compare_keys(x, y, "serving.", false, out);
  }
  return out;
}

}  // namespace attnscope
