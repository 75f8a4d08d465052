#include "engine/golden/golden_large.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <nlohmann/json.hpp>
#include <tuple>
#include <utility>

#include "engine/io/byte_stream.h"
#include "engine/io/json_file.h"
#include "engine/io/json_object.h"
#include "engine/io/old_names.h"

namespace attnscope {
namespace {

// Checksums of taps that no float had a part in, and how many taps those are.
std::pair<std::string, std::int64_t> integers_of(const GoldenValues& all) {
  std::string text;
  std::int64_t taps = 0;
  for (const GoldenTap& t : all.taps) {
    const auto exact = [](const GoldenPart& p) { return p.given.empty(); };
    if (t.parts.empty() || !std::ranges::all_of(t.parts, exact)) continue;
    ++taps;
    text += fmt::format("{}/{}", t.where, tap_name_at_first(t.op, t.tap));
    for (const GoldenPart& p : t.parts) text += " " + p.checksum;
    text += "\n";
  }
  return {text_checksum(text), taps};
}

}  // namespace

std::string LargeGolden::accepted_file() const {
  return fmt::format("{}.{}.json", values.name, digest);
}

std::string LargeGolden::made_file() const {
  return fmt::format("{}.{}.made.json", values.name,
                     text_checksum(values.definition + values.inputs + integers));
}

bool LargeGolden::is_of(const GoldenValues& all) const {
  return all.name == values.name && all.definition == values.definition &&
         all.inputs == values.inputs && integers_of(all) == std::pair(integers, integer_taps);
}

LargeGolden make_large_golden(const GoldenValues& all, const std::string& text) {
  LargeGolden large;
  large.values = all;
  large.values.taps.clear();
  large.values.findings.clear();
  large.bytes = static_cast<std::int64_t>(text.size());
  large.digest = text_checksum(text);
  std::tie(large.integers, large.integer_taps) = integers_of(all);
  return large;
}

std::string large_golden_text(const LargeGolden& large) {
  return fmt::format(
      "{{\n\"format\": \"{}\",\n\"version\": {},\n\"bytes\": {},\n\"digest\": \"{}\",\n"
      "\"integers\": \"{}\",\n\"integer_taps\": {},\n\"values\": {}}}\n",
      kLargeGoldenFormat, kGoldenVersion, large.bytes, large.digest, large.integers,
      large.integer_taps, golden_values_text(large.values));
}

bool is_large_golden(const std::string& text) {
  return text.substr(0, 80).find(kLargeGoldenFormat) != std::string::npos;
}

Result<LargeGolden> parse_large_golden(const std::string& text, const std::string& path) {
  auto parsed = parse_json(text, path);
  if (!parsed) return parsed.error();
  if (auto ok = check_golden_format(*parsed, path, kLargeGoldenFormat); !ok) return ok.error();
  JsonReader reader(path);
  JsonObject root(reader, *parsed);
  root.text("format");
  root.integer("version", kGoldenVersion, kGoldenVersion);
  LargeGolden large;
  large.bytes = root.integer("bytes", 0, std::int64_t{1} << 40);
  large.digest = root.text("digest");
  large.integers = root.text("integers");
  large.integer_taps = root.integer("integer_taps", 0, std::int64_t{1} << 40);
  // It becomes the name of a file.
  const auto is_hex = [](unsigned char c) { return std::isxdigit(c) != 0; };
  if (reader.ok() && (large.digest.size() != 16 || !std::ranges::all_of(large.digest, is_hex))) {
    root.fail("digest", "expected 16 hexadecimal digits");
  }
  root.has("values");
  root.finish();
  if (!reader.ok()) return reader.error();
  const auto inner = parsed->find("values");
  if (inner == parsed->end() || !inner->is_object()) {
    return bad_input(path + ": values: expected an object", "accept the golden again");
  }
  auto values = parse_golden_values(inner->dump(), path);
  if (!values) return values.error();
  large.values = std::move(*values);
  return large;
}

}  // namespace attnscope
