#include "engine/golden/golden_spec.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "engine/backend/registry.h"
#include "engine/golden/golden_values.h"
#include "engine/golden/op_inputs.h"
#include "engine/io/byte_stream.h"
#include "engine/io/json_file.h"
#include "engine/io/json_object.h"
#include "engine/io/old_names.h"
#include "engine/io/printable.h"
#include "engine/trace/tap_stats.h"

namespace attnscope {
namespace {

using nlohmann::json;

constexpr double kLargestBound = 1e30;

bool has_text(const std::string& text) {
  return text.find_first_not_of(" \t\n") != std::string::npos;
}

std::vector<std::string> output_names(const as_op_info& info) {
  std::vector<std::string> names;
  for (std::uint32_t i = 0; i < info.num_taps; ++i) {
    if (info.taps[i].direction == AS_TAP_OUT) names.emplace_back(info.taps[i].name);
  }
  return names;
}

as_op_id read_op_id(JsonObject& object, const std::string& key) {
  const std::string name = object.text(key);
  const int op = as_step_op_by_name(name.c_str());
  if (op < 0) {
    object.fail(key, fmt::format("there is no op '{}'", name), "ops: " + join(op_names()));
    return AS_OP_SCHEDULE;
  }
  return static_cast<as_op_id>(op);
}

// A tap of `info`, or of any op.
void check_tap(JsonObject& object, const std::string& key, const std::string& tap,
               const as_op_info& info) {
  const std::vector<std::string> known = output_names(info);
  if (std::ranges::find(known, tap) == known.end()) {
    object.fail(key, fmt::format("{} has no output '{}'", info.name, tap),
                "outputs: " + join(known));
  }
}

GoldenTaps read_golden_taps(JsonObject& object) {
  GoldenTaps taps;
  taps.op = read_op_id(object, "op");
  if (object.has("taps")) {
    taps.taps = object.texts("taps");
    for (std::string& tap : taps.taps) {
      tap = tap_name_now(taps.op, tap);
      check_tap(object, "taps", tap, *as_op_find(taps.op));
    }
  }
  if (object.has("layers")) {
    for (const std::int64_t layer : object.integers("layers", -1, 1 << 20)) {
      taps.layers.push_back(static_cast<int>(layer));
    }
  }
  const std::string steps = object.text("steps", "");
  if (!steps.empty()) {
    auto ranges = parse_ranges(steps, "steps");
    if (ranges) {
      taps.steps = std::move(*ranges);
    } else {
      object.fail("steps", ranges.error().message, ranges.error().hint);
    }
  }
  object.finish();
  return taps;
}

std::optional<double> read_bound(JsonObject& object, const char* key, double most) {
  return object.has(key) ? std::optional(object.number(key, 0, most)) : std::nullopt;
}

// Whether the op, or where none is named any op, has it.
bool has_tap(const std::string& op, const std::string& tap) {
  for (int id = 0; id < AS_OP_COUNT; ++id) {
    const as_op_info& info = *as_op_find(static_cast<as_op_id>(id));
    if (!op.empty() && op != info.name) continue;
    if (std::any_of(info.taps, info.taps + info.num_taps,
                    [&](const as_tap_info& t) { return tap == t.name; })) {
      return true;
    }
  }
  return false;
}

GoldenTolerance read_tolerance(JsonObject& object) {
  GoldenTolerance t;
  t.rule = object.text("class", "");
  t.op = object.text("op", "");
  if (!t.op.empty() && as_step_op_by_name(t.op.c_str()) < 0) read_op_id(object, "op");
  const std::string tap = object.text("tap", "");
  const int op = as_step_op_by_name(t.op.c_str());
  t.tap = op < 0 ? tap_name_now(tap) : tap_name_now(static_cast<as_op_id>(op), tap);
  if (!t.tap.empty() && !has_tap(t.op, t.tap)) {
    object.fail("tap", fmt::format("no op has a tap {}", shown_name(t.tap)),
                "attnscope ops lists the taps of every op");
  }
  t.abs = read_bound(object, "abs", kLargestBound);
  t.rel = read_bound(object, "rel", kLargestBound);
  t.bf16_ulp = read_bound(object, "bf16_ulp", 1e6);
  t.row_max = read_bound(object, "row_max", kLargestBound);
  t.score_rel = read_bound(object, "score_rel", 1);
  t.reason = object.text("reason");
  if (!has_text(t.reason)) object.fail("reason", "is empty", "say why this bound may be another");
  if (!t.abs && !t.rel && !t.bf16_ulp && !t.row_max && !t.score_rel) {
    object.fail("reason", "gives a reason but no bound",
                "give at least one of abs, rel, bf16_ulp, row_max, score_rel");
  }
  object.finish();
  return t;
}

GoldenCase read_golden_case(JsonObject& object) {
  GoldenCase c;
  c.name = object.text("name");
  if (!has_text(c.name) || c.name.find('/') != std::string::npos) {
    object.fail("name", "is empty or has a '/'", "give each case a short name");
  }
  c.lengths = object.integers("lengths", 1, 1 << 16);
  if (c.lengths.empty() || c.lengths.size() > 16) {
    object.fail("lengths", "names no request, or more than 16");
  }
  c.new_tokens = object.integer("new_tokens", 1, 256, 1);
  c.seed = object.unsigned_integer("seed", 1);
  object.finish();
  return c;
}

void read_what(JsonObject& root, GoldenSpec& spec) {
  const bool of_op = root.has("op"), of_case = root.has("case");
  const int kinds = (of_op ? 1 : 0) + (of_case ? 1 : 0) + (root.has("scenario") ? 1 : 0);
  if (kinds != 1) {
    root.fail(of_op ? "op" : "scenario",
              kinds > 1 ? "a golden runs a scenario, an op or a case, not several"
                        : "missing, and so are \"op\" and \"case\"",
              "give \"scenario\" with \"steps\" and \"taps\", \"op\" with \"cases\", or \"case\"");
    return;
  }
  if (of_case) {
    spec.saved_case = root.text("case");
    if (!is_golden_name(spec.saved_case)) {
      root.fail("case", fmt::format("'{}' is no name", spec.saved_case),
                "give the name of a case in the golden's own folder, without .json");
    }
    return;
  }
  if (of_op) {
    spec.op = read_op_id(root, "op");
    if (!has_own_inputs(*spec.op)) {
      root.fail("op", "is carried out by the engine and has no inputs apart from a session",
                "name a scenario, its steps, and this op among the taps");
    }
    for (JsonObject& object : root.objects("cases")) {
      spec.cases.push_back(read_golden_case(object));
      const auto same = [&](const GoldenCase& c) { return c.name == spec.cases.back().name; };
      if (std::ranges::count_if(spec.cases, same) > 1) object.fail("name", "is given twice");
    }
    if (spec.cases.empty()) root.fail("cases", "is empty", "give at least one case");
    spec.taps.push_back({*spec.op, {}, {}, {}});
    return;
  }
  spec.scenario = root.text("scenario");
  if (!is_golden_name(spec.scenario)) {
    root.fail("scenario", fmt::format("'{}' is no name", spec.scenario),
              "give a name from assets/scenarios, or of a file in the golden's own folder");
  }
  spec.steps = root.integer("steps", 1, 1 << 20);
  for (JsonObject& object : root.objects("taps")) spec.taps.push_back(read_golden_taps(object));
  if (spec.taps.empty()) root.fail("taps", "is empty", "name at least one op");
}

// Without what changes no value: the sentence about it and the bounds.
std::string definition_digest(json definition) {
  definition.erase("about");
  definition.erase("tolerances");
  const std::string text = definition.dump();
  return text_checksum(text);
}

// Whether a replacement allows more than the class.
bool loosens(const GoldenTolerance& t, const Tolerance& rule) {
  return t.abs.value_or(0) > rule.abs || t.rel.value_or(0) > rule.rel ||
         t.bf16_ulp.value_or(0) > rule.bf16_ulp || t.row_max.value_or(0) > rule.row_max ||
         t.score_rel.value_or(0) > rule.score_rel;
}

}  // namespace

bool is_golden_name(std::string_view name) {
  const auto allowed = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
           c == '-' || c == '.';
  };
  return !name.empty() && name.size() <= 100 && name.front() != '.' &&
         name.find("..") == std::string_view::npos && std::ranges::all_of(name, allowed);
}

bool GoldenTaps::admits(const Place& place, std::string_view tap) const {
  const auto holds = [&](const CaptureFilter::Range& r) {
    return r.first <= place.step && place.step <= r.last;
  };
  return place.op == op && (taps.empty() || std::ranges::find(taps, tap) != taps.end()) &&
         (layers.empty() || std::ranges::find(layers, place.layer) != layers.end()) &&
         (steps.empty() || std::ranges::any_of(steps, holds));
}

bool GoldenSpec::wants(const Place& place, std::string_view tap) const {
  return !saved_case.empty() ||
         std::ranges::any_of(taps, [&](const GoldenTaps& t) { return t.admits(place, tap); });
}

bool GoldenTolerance::names(std::string_view a_rule, std::string_view an_op,
                            std::string_view a_tap) const {
  return (rule.empty() || rule == a_rule) && (op.empty() || op == an_op) &&
         (tap.empty() || tap == a_tap);
}

std::string GoldenTolerance::text() const {
  std::string whom;
  const auto who = [&](const char* kind, const std::string& name) {
    if (!name.empty()) whom += fmt::format("{}{} {}", whom.empty() ? "" : ", ", kind, name);
  };
  who("class", rule);
  who("op", op);
  who("tap", tap);
  std::string bounds;
  const auto bound = [&](const char* kind, const std::optional<double>& value) {
    if (value) bounds += fmt::format("{}{} {:g}", bounds.empty() ? "" : ", ", kind, *value);
  };
  bound("abs", abs);
  bound("rel", rel);
  bound("bf16_ulp", bf16_ulp);
  bound("row_max", row_max);
  bound("score_rel", score_rel);
  return fmt::format("{}: {}", whom.empty() ? "all taps" : whom, bounds);
}

Result<GoldenSpec> parse_golden_spec(const std::string& text, const std::string& path) {
  auto parsed = parse_json(text, path);
  if (!parsed) return parsed.error();
  if (auto ok = check_golden_format(*parsed, path, kGoldenFormat); !ok) return ok.error();
  GoldenSpec spec;
  spec.path = path;
  spec.name = std::filesystem::path(path).filename().string();
  spec.name.resize(spec.name.size() - std::min(spec.name.size(), std::string(kSpecSuffix).size()));
  JsonReader reader(path);
  JsonObject root(reader, *parsed);
  root.text("format");
  root.integer("version", kGoldenVersion, kGoldenVersion);
  spec.about = root.text("about");
  if (!has_text(spec.about)) root.fail("about", "is empty", "say in one sentence what it guards");
  read_what(root, spec);
  spec.lanes = root.has("lanes") ? root.texts("lanes") : std::vector<std::string>{"cpu"};
  if (spec.lanes.empty()) root.fail("lanes", "is empty", "name a lane, such as cpu");
  spec.rows = root.integer("rows", 1, 64, 4);
  spec.samples = root.integer("samples", 1, 4096, 24);
  if (root.has("tolerances")) {
    for (JsonObject& object : root.objects("tolerances")) {
      spec.tolerances.push_back(read_tolerance(object));
    }
  }
  root.finish();
  if (!reader.ok()) return reader.error();
  spec.digest = definition_digest(std::move(*parsed));
  return spec;
}

Result<GoldenBound> golden_bound(const GoldenSpec& spec, const Tolerances& tolerances, as_op_id op,
                                 std::string_view tap, std::string_view lane, std::string_view rule,
                                 std::string_view dtype) {
  auto found = tolerances.find(op, tap, lane, rule, dtype);
  if (!found) return found.error();
  GoldenBound bound{*found, std::nullopt};
  const auto it = std::ranges::find_if(spec.tolerances, [&](const GoldenTolerance& t) {
    return t.names(rule, as_op_find(op)->name, tap);
  });
  if (it == spec.tolerances.end() || found->exact) return bound;
  if (loosens(*it, *found)) bound.loosened = *it;
  bound.tolerance.abs = it->abs.value_or(found->abs);
  bound.tolerance.rel = it->rel.value_or(found->rel);
  bound.tolerance.bf16_ulp = it->bf16_ulp.value_or(found->bf16_ulp);
  bound.tolerance.row_max = it->row_max.value_or(found->row_max);
  bound.tolerance.score_rel = it->score_rel.value_or(found->score_rel);
  return bound;
}

Result<void> check_classes(const GoldenSpec& spec, const Tolerances& tolerances) {
  for (std::size_t i = 0; i < spec.tolerances.size(); ++i) {
    const std::string& rule = spec.tolerances[i].rule;
    if (rule.empty() || tolerances.classes().contains(rule)) continue;
    std::string known;
    for (const auto& [name, tolerance] : tolerances.classes()) {
      known += (known.empty() ? "" : ", ") + name;
    }
    return bad_input(fmt::format("{}: tolerances[{}].class: there is no class {}", spec.path, i,
                                 shown_name(rule)),
                     "classes of the tolerance file: " + known);
  }
  return {};
}

std::vector<GoldenTolerance> loosened_tolerances(const GoldenSpec& spec,
                                                 const Tolerances& tolerances) {
  std::vector<GoldenTolerance> out;
  for (const GoldenTolerance& t : spec.tolerances) {
    const bool loose = std::ranges::any_of(tolerances.classes(), [&](const auto& rule) {
      return (t.rule.empty() || t.rule == rule.first) && !rule.second.exact &&
             loosens(t, rule.second);
    });
    if (loose) out.push_back(t);
  }
  return out;
}

}  // namespace attnscope
