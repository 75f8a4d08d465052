#include "engine/golden/golden_values.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <nlohmann/json.hpp>

#include "engine/io/json_fields.h"
#include "engine/io/json_file.h"
#include "engine/io/json_object.h"
#include "engine/io/old_names.h"
#include "engine/io/printable.h"
#include "kernels/params/tensor.h"

namespace attnscope {
namespace {

using nlohmann::json;

constexpr std::int64_t kMostElements = std::int64_t{1} << 40;

json numbers_json(const std::vector<double>& values, std::int32_t dtype) {
  json out = json::array();
  for (const double v : values) out.push_back(json_number(short_number(v, dtype)));
  return out;
}

json tap_json(const GoldenTap& t) {
  json out = {{"where", t.where},
              {"op", as_op_find(t.op)->name},
              {"step", t.step},
              {"tap", t.tap},
              {"rule", t.rule},
              {"lane", t.lane},
              {"dtype", as_dtype_name(t.dtype)},
              {"shape", t.shape}};
  if (!t.requests.empty()) out["requests"] = t.requests;
  if (t.stats) {
    const auto statistic = [](double v) { return json_number(short_number(v, AS_F32)); };
    out["stats"] = {{"nans", t.stats->nans},
                    {"infinities", t.stats->infinities},
                    {"min", statistic(t.stats->min)},
                    {"max", statistic(t.stats->max)},
                    {"mean", statistic(t.stats->mean)},
                    {"l2", statistic(t.stats->l2)}};
    out["samples"] = {{"at", t.at}, {"values", numbers_json(t.values, t.dtype)}};
    std::vector<double> mean, rms, max;
    for (const GoldenRange& r : t.ranges) {
      mean.push_back(r.mean);
      rms.push_back(r.rms);
      max.push_back(r.max);
    }
    out["ranges"] = {{"mean", numbers_json(mean, AS_F32)},
                     {"rms", numbers_json(rms, AS_F32)},
                     {"max", numbers_json(max, AS_F32)}};
  }
  if (!t.parts.empty()) {
    json checksums = json::array(), given = json::array();
    for (const GoldenPart& p : t.parts) {
      checksums.push_back(p.checksum);
      given.push_back(p.given);
    }
    out["checksums"] = std::move(checksums);
    if (std::ranges::any_of(t.parts, [](const auto& p) { return !p.given.empty(); })) {
      out["given"] = std::move(given);
    }
  }
  if (!t.numbers.empty()) out["numbers"] = t.numbers;
  if (!t.sets.empty()) out["sets"] = t.sets;
  return out;
}

// Numbers, of which NaN and infinities are texts.
std::vector<double> read_numbers(const json& object, const char* key, JsonObject& reader) {
  std::vector<double> out;
  const auto it = object.find(key);
  const std::string wrong = it == object.end() ? std::string("it") : from_json_fields(*it, out);
  reader.has(key);
  if (!wrong.empty()) reader.fail(key, "expected a list of numbers, \"nan\", \"inf\" or \"-inf\"");
  return out;
}

std::int32_t dtype_by_name(const std::string& name) {
  for (int i = 0; i < AS_DTYPE_COUNT; ++i) {
    if (name == as_dtype_name(i)) return i;
  }
  return AS_F32;
}

void read_floats(const json& raw, JsonObject& object, GoldenTap& t) {
  const auto part = [&](const char* key) -> const json& {
    static const json kNone = json::object();
    const auto it = raw.find(key);
    return it != raw.end() && it->is_object() ? *it : kNone;
  };
  TapStats stats;
  JsonObject s = object.object("stats");
  stats.nans = s.integer("nans", 0, kMostElements);
  stats.infinities = s.integer("infinities", 0, kMostElements);
  for (const auto& [key, value] : {std::pair{"min", &stats.min},
                                   {"max", &stats.max},
                                   {"mean", &stats.mean},
                                   {"l2", &stats.l2}}) {
    *value = s.number(key, -1e300, 1e300);
  }
  s.finish();
  stats.elements = t.elements();
  t.stats = stats;
  JsonObject samples = object.object("samples");
  t.at = samples.integers("at", 0, std::max<std::int64_t>(0, t.elements() - 1));
  t.values = read_numbers(part("samples"), "values", samples);
  for (double& v : t.values) v = full_number(v, t.dtype);
  if (t.at.size() != t.values.size()) {
    samples.fail("values", fmt::format("{} values for {} places", t.values.size(), t.at.size()));
  }
  samples.finish();
  JsonObject ranges = object.object("ranges");
  const auto mean = read_numbers(part("ranges"), "mean", ranges);
  const auto rms = read_numbers(part("ranges"), "rms", ranges);
  const auto max = read_numbers(part("ranges"), "max", ranges);
  if (mean.size() != rms.size() || mean.size() != max.size()) {
    ranges.fail("mean", "mean, rms and max are lists of different lengths");
    return;
  }
  ranges.finish();
  for (std::size_t i = 0; i < mean.size(); ++i) t.ranges.push_back({mean[i], rms[i], max[i]});
}

bool is_checksum(const std::string& text) {
  return text.size() == 16 && text.find_first_not_of("0123456789abcdef") == std::string::npos;
}

void read_parts(JsonObject& object, GoldenTap& t) {
  const std::vector<std::string> checksums = object.texts("checksums");
  const auto given =
      object.has("given") ? object.texts("given") : std::vector<std::string>(checksums.size());
  if (given.size() != checksums.size()) {
    object.fail("given",
                fmt::format("{} of them for {} checksums", given.size(), checksums.size()));
    return;
  }
  for (std::size_t i = 0; i < checksums.size(); ++i) {
    if (!is_checksum(checksums[i]) || (!given[i].empty() && !is_checksum(given[i]))) {
      object.fail("checksums", fmt::format("[{}] is no checksum of 16 hex digits", i));
      return;
    }
    t.parts.push_back({checksums[i], given[i]});
  }
}

GoldenTap read_tap(const json& raw, JsonObject object) {
  GoldenTap t;
  t.where = object.text("where");
  const std::string op = object.text("op");
  const int id = as_step_op_by_name(op.c_str());
  if (id < 0) object.fail("op", fmt::format("there is no op '{}'", op));
  t.op = static_cast<as_op_id>(std::max(0, id));
  t.step = object.integer("step", 0, kMostElements);
  t.tap = tap_name_now(t.op, object.text("tap"));
  t.rule = object.text("rule");
  t.lane = object.text("lane");
  t.dtype = dtype_by_name(object.choice("dtype", {"f64", "f32", "bf16", "u8", "i32", "i64"}, ""));
  t.shape = object.integers("shape", 0, kMostElements);
  std::int64_t total = 1;
  for (const std::int64_t n : t.shape) {
    if (n > 0 && total > kMostElements / n) {
      object.fail("shape", "more elements than any tensor has");
      return t;
    }
    total *= n;
  }
  if (object.has("requests")) {
    for (const std::int64_t r : object.integers("requests", 0, 1 << 30)) {
      t.requests.push_back(static_cast<std::int32_t>(r));
    }
    if (t.shape.empty() || static_cast<std::int64_t>(t.requests.size()) != t.shape[0]) {
      object.fail("requests", "not one for each row");
    }
  }
  const int kinds = (object.has("stats") ? 1 : 0) + (object.has("checksums") ? 1 : 0) +
                    (object.has("sets") ? 1 : 0);
  if (kinds != 1) {
    object.fail("stats", "a tap has exactly one of stats, checksums and sets");
    return t;
  }
  if (object.has("stats")) read_floats(raw, object, t);
  if (object.has("checksums")) read_parts(object, t);
  if (object.has("numbers")) {
    const auto most = std::numeric_limits<std::int64_t>::max();
    t.numbers = object.integers("numbers", -most, most);
  }
  if (object.has("sets")) {
    t.sets = object.texts("sets");
    for (const std::string& set : t.sets) {
      if (!parse_set(set))
        object.fail("sets", fmt::format("'{}' is no set", set.substr(0, 40)),
                    "write ascending entries such as 0-99,104");
    }
  }
  object.finish();
  return t;
}

GoldenOrigin read_origin(const json& raw, JsonObject object) {
  GoldenOrigin origin;
  origin.reason = object.text("reason");
  origin.commit = object.text("commit");
  origin.program = object.text("program");
  object.object("machine");
  const auto it = raw.find("machine");
  if (it == raw.end() || !it->is_object()) return origin;
  for (const auto& [name, value] : it->items()) {
    if (!value.is_string()) {
      object.fail("machine." + name, "expected a text in quotes");
      return origin;
    }
    origin.machine.push_back({name, value.get<std::string>()});
  }
  object.finish();
  return origin;
}

GoldenFinding read_finding(const json& raw, JsonObject object) {
  GoldenFinding f;
  f.where = object.text("where");
  const std::size_t slash = f.where.rfind('/');
  const int op = slash == std::string::npos ? -1 : as_step_op_by_name(f.where.c_str() + slash + 1);
  f.tap = object.text("tap");
  if (op >= 0) f.tap = tap_name_now(static_cast<as_op_id>(op), f.tap);
  std::vector<std::string> names;
  names.reserve(kGoldenVerdicts);
  for (int v = 0; v < kGoldenVerdicts; ++v) {
    names.emplace_back(golden_verdict_name(static_cast<GoldenVerdict>(v)));
  }
  const std::string verdict = object.choice("verdict", names, names[0]);
  f.verdict = static_cast<GoldenVerdict>(std::ranges::find(names, verdict) - names.begin());
  object.has("budget_used");
  const auto used = raw.find("budget_used");
  if (used == raw.end() || !from_json_fields(*used, f.budget_used).empty()) {
    object.fail("budget_used", "expected a number");
  }
  f.note = object.text("note");
  object.finish();
  return f;
}

}  // namespace

const char* golden_verdict_name(GoldenVerdict verdict) {
  switch (verdict) {
    case GoldenVerdict::kEqual:
      return "equal";
    case GoldenVerdict::kWithin:
      return "within";
    case GoldenVerdict::kNearTie:
      return "near_tie";
    case GoldenVerdict::kFollows:
      return "follows";
    case GoldenVerdict::kLeftOut:
      return "left_out";
    case GoldenVerdict::kWithheld:
      return "withheld";
    case GoldenVerdict::kWrong:
      return "wrong";
    case GoldenVerdict::kMissing:
      return "missing";
    case GoldenVerdict::kUnexpected:
      return "unexpected";
  }
  return "?";
}

std::int64_t GoldenTap::elements() const {
  std::int64_t n = shape.empty() ? 0 : 1;
  for (const std::int64_t extent : shape) n *= extent;
  return n;
}

double full_number(double value, std::int32_t dtype) {
  if (dtype == AS_F64 || !std::isfinite(value)) return value;
  const auto single = static_cast<float>(value);
  if (dtype != AS_BF16) return single;
  // Nearest, ties to even, as the value was rounded that the digits were made from.
  const auto bits = std::bit_cast<std::uint32_t>(single);
  return std::bit_cast<float>((bits + 0x7fffu + (bits >> 16 & 1)) & 0xffff0000u);
}

double short_number(double value, std::int32_t dtype) {
  if (!std::isfinite(value) || value == 0) return value;
  // 4 digits tell neighbours of bf16 apart, 9 those of fp32, 17 those of float64.
  const int digits = dtype == AS_BF16 ? 4 : dtype == AS_F64 ? 17 : 9;
  return std::strtod(fmt::format("{:.{}e}", value, digits - 1).c_str(), nullptr);
}

std::string set_text(std::vector<std::int32_t> entries) {
  std::ranges::sort(entries);
  std::string out;
  for (std::size_t i = 0; i < entries.size();) {
    std::size_t end = i + 1;
    while (end < entries.size() && entries[end] == entries[end - 1] + 1) ++end;
    if (!out.empty()) out += ',';
    out += end - i > 1 ? fmt::format("{}-{}", entries[i], entries[end - 1])
                       : fmt::format("{}", entries[i]);
    i = end;
  }
  return out;
}

std::optional<std::vector<std::int32_t>> parse_set(const std::string& text) {
  constexpr std::size_t kMost = 1 << 20;
  std::vector<std::int32_t> out;
  const char *at = text.data(), *const end = at + text.size();
  while (at != end) {
    std::int32_t first = 0;
    auto read = std::from_chars(at, end, first);
    // Entries that were selected twice stay twice: a fault to be seen.
    if (read.ec != std::errc() || first < 0 || (!out.empty() && first < out.back())) return {};
    std::int32_t last = first;
    if (read.ptr != end && *read.ptr == '-') {
      read = std::from_chars(read.ptr + 1, end, last);
      if (read.ec != std::errc() || last <= first) return {};
    }
    if (out.size() + static_cast<std::size_t>(last - first) >= kMost) return {};
    for (std::int32_t e = first; e < last; ++e) out.push_back(e);
    out.push_back(last);
    at = read.ptr;
    if (at == end) break;
    if (*at++ != ',' || at == end) return {};
  }
  return out;
}

Result<void> check_golden_format(const json& parsed, const std::string& path, const char* format) {
  const auto text = [&](const char* key) {
    const auto it = parsed.is_object() ? parsed.find(key) : parsed.end();
    return it != parsed.end() && it->is_string() ? it->get<std::string>() : std::string();
  };
  if (text("format") != format) {
    return bad_input(fmt::format("{}: is no {} file (\"format\" is '{}')", path, format,
                                 text("format").substr(0, 40)),
                     fmt::format("it must begin with \"format\": \"{}\", \"version\": {}", format,
                                 kGoldenVersion));
  }
  const auto version = parsed.find("version");
  if (version != parsed.end() && version->is_number_unsigned() &&
      version->get<std::uint64_t>() > static_cast<std::uint64_t>(kGoldenVersion)) {
    return bad_input(fmt::format("{}: made by a newer program: version {}, this one reads up to {}",
                                 path, version->get<std::uint64_t>(), kGoldenVersion),
                     "use a newer attnscope");
  }
  return {};
}

std::string golden_values_text(const GoldenValues& v) {
  json machine = json::object();
  for (const CaptureProperty& p : v.origin.machine) machine[p.name] = p.value;
  const json origin = {{"reason", v.origin.reason},
                       {"commit", v.origin.commit},
                       {"program", v.origin.program},
                       {"machine", machine}};
  std::string out = fmt::format("{{\n\"format\": \"{}\",\n\"version\": {},\n", kGoldenValuesFormat,
                                kGoldenVersion);
  const auto line = [&](const char* key, const json& value, bool last = false) {
    out += fmt::format("\"{}\": {}{}\n", key, json_text(value), last ? "" : ",");
  };
  line("name", v.name);
  line("definition", v.definition);
  line("inputs", v.inputs);
  line("lanes", v.lanes);
  line("profiles", v.profiles);
  line("origin", origin);
  json sampled = json::array();
  for (const GoldenToken& t : v.sampled) sampled.push_back({t.step, t.request, t.token});
  line("sampled", sampled);
  json findings = json::array();
  for (const GoldenFinding& f : v.findings) {
    findings.push_back({{"where", f.where},
                        {"tap", f.tap},
                        {"verdict", golden_verdict_name(f.verdict)},
                        {"budget_used", json_number(f.budget_used)},
                        {"note", f.note}});
  }
  if (!v.findings.empty()) line("findings", findings);
  out += "\"taps\": [";
  const char* separator = "\n";
  for (const GoldenTap& t : v.taps) {
    out += separator + json_text(tap_json(t));
    separator = ",\n";
  }
  return out + "\n]}\n";
}

Result<GoldenValues> parse_golden_values(const std::string& text, const std::string& path) {
  auto parsed = parse_json(text, path);
  if (!parsed) return parsed.error();
  if (auto ok = check_golden_format(*parsed, path, kGoldenValuesFormat); !ok) return ok.error();
  GoldenValues v;
  JsonReader reader(path);
  JsonObject root(reader, *parsed);
  root.text("format");
  root.integer("version", kGoldenVersion, kGoldenVersion);
  v.name = root.text("name");
  if (!is_golden_name(v.name)) root.fail("name", "is no name of a golden");
  v.definition = root.text("definition");
  v.inputs = root.text("inputs");
  v.lanes = root.text("lanes");
  v.profiles = static_cast<int>(root.integer("profiles", 1, kProfilesVersion, 1));
  // Objects are read from the value itself where their keys are free or numbers may be texts.
  const auto raw = [&](const char* key) -> const json& {
    static const json kNone;
    const auto it = parsed->find(key);
    return it != parsed->end() ? *it : kNone;
  };
  v.origin = read_origin(raw("origin"), root.object("origin"));
  const std::string wrong = [&] {
    std::vector<std::vector<std::int64_t>> sampled;
    root.has("sampled");
    if (!raw("sampled").is_array()) return std::string("expected a list");
    for (const json& item : raw("sampled")) {
      std::vector<std::int64_t> triple;
      if (!from_json_fields(item, triple).empty() || triple.size() != 3 ||
          *std::ranges::min_element(triple) < 0 || triple[1] > 1 << 30 || triple[2] > 1 << 30) {
        return fmt::format("[{}] is not [step, request, token]", v.sampled.size());
      }
      v.sampled.push_back({triple[0],
                           static_cast<std::int32_t>(triple[1]),
                           static_cast<std::int32_t>(triple[2]),
                           {}});
    }
    return std::string();
  }();
  if (!wrong.empty()) root.fail("sampled", wrong);
  const auto each = [&](const char* key, const auto& take) {
    root.has(key);
    const json& list = raw(key);
    if (!list.is_array()) return root.fail(key, "expected a list [..]");
    for (std::size_t i = 0; i < list.size() && reader.ok(); ++i) {
      take(list[i], JsonObject(reader, list[i], fmt::format("{}[{}]", key, i)));
    }
  };
  if (root.has("findings")) {
    each("findings", [&](const json& item, const JsonObject& object) {
      v.findings.push_back(read_finding(item, object));
    });
  }
  each("taps", [&](const json& item, const JsonObject& object) {
    v.taps.push_back(read_tap(item, object));
  });
  root.finish();
  if (!reader.ok()) return reader.error();
  return v;
}

}  // namespace attnscope
