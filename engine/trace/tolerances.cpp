#include "engine/trace/tolerances.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "engine/io/assets_folder.h"
#include "engine/io/json_file.h"
#include "engine/io/json_object.h"
#include "engine/io/old_names.h"
#include "kernels/params/op_table.h"

namespace attnscope {
namespace {

Tolerance read_bounds(JsonObject& object, const std::string& name) {
  Tolerance t;
  t.name = name;
  const std::string kind = object.choice("kind", {"elements", "exact", "top_k"}, "elements");
  t.exact = kind == "exact";
  t.top_k = kind == "top_k";
  t.abs = object.number("abs", 0, 1e30, 0);
  t.rel = object.number("rel", 0, 1e30, 0);
  t.bf16_ulp = object.number("bf16_ulp", 0, 1e6, 0);
  t.row_max = object.number("row_max", 0, 1e30, 0);
  t.score_rel = object.number("score_rel", 0, 1, 0);
  if (object.has("cosine")) t.cosine = object.number("cosine", 1e-300, 2);
  t.reason = object.text("reason");
  if (t.reason.find_first_not_of(" \t\n") == std::string::npos) {
    object.fail("reason", "is empty",
                "say why this bound is right; a bound without a reason counts "
                "as loosened by mistake");
  }
  const bool bounded = t.abs > 0 || t.rel > 0 || t.bf16_ulp > 0 || t.row_max > 0;
  if (kind == "elements" && !bounded) {
    object.fail("kind", "no bound for the elements",
                "give at least one of abs, rel, bf16_ulp, row_max");
  }
  if (t.top_k && t.score_rel == 0) {
    object.fail("score_rel", "missing for kind top_k", "give the relative score tolerance");
  }
  return t;
}

}  // namespace

Result<Tolerances> Tolerances::load(const std::string& path) {
  std::string file = path;
  if (file.empty()) {
    auto assets = assets_folder();
    if (!assets) return assets.error();
    file = *assets + "/tolerances.json";
  }
  auto text = read_text_file(file);
  if (!text) return text.error();
  return parse(*text, file);
}

Result<Tolerances> Tolerances::parse(const std::string& text, const std::string& name) {
  auto json = parse_json(text, name);
  if (!json) return json.error();
  Tolerances out;
  JsonReader reader(name);
  JsonObject root(reader, *json);
  root.integer("version", 1, 1);
  JsonObject classes = root.object("classes");
  if (reader.ok()) {
    for (const auto& [key, value] : (*json)["classes"].items()) {
      JsonObject object(reader, value, "classes." + key);
      out.classes_[key] = read_bounds(object, key);
      object.finish();
    }
  }
  for (JsonObject& object : root.objects("exceptions")) {
    Exception e;
    e.rule = object.text("class", "");
    e.op = object.text("op", "");
    const std::string tap = object.text("tap", "");
    const int op = as_op_by_name(e.op.c_str());
    e.tap = op < 0 ? tap_name_now(tap) : tap_name_now(static_cast<as_op_id>(op), tap);
    e.lane = object.text("lane", "");
    if (object.has("dtype")) {
      e.dtype = object.choice("dtype", {"bf16", "f32", "u8", "i32", "i64"}, "bf16");
    }
    if (e.rule.empty() && e.op.empty() && e.tap.empty() && e.lane.empty() && e.dtype.empty()) {
      object.fail("op", "an exception for everything",
                  "name at least one of class, op, tap, dtype, lane; "
                  "change the class to change a rule");
    }
    if (!e.op.empty() && as_op_by_name(e.op.c_str()) < 0) {
      object.fail("op", fmt::format("unknown op \"{}\"", e.op), "'attnscope ops' lists them");
    }
    e.tolerance = read_bounds(object, "exception for " + (e.op.empty() ? e.rule : e.op));
    object.finish();
    out.exceptions_.push_back(std::move(e));
  }
  JsonObject drift = root.object("free_running");
  out.drift_limit_ = drift.number("cosine", 0, 2);
  out.drift_reason_ = drift.text("reason");
  drift.finish();
  root.finish();
  if (!reader.ok()) return reader.error();
  return out;
}

Result<Tolerance> Tolerances::find(as_op_id op, std::string_view tap, std::string_view lane,
                                   std::string_view rule, std::string_view dtype) const {
  const std::string_view name = as_op_find(op)->name;
  for (const Exception& e : exceptions_) {
    if ((e.rule.empty() || e.rule == rule) && (e.op.empty() || e.op == name) &&
        (e.tap.empty() || e.tap == tap) && (e.lane.empty() || e.lane == lane) &&
        (e.dtype.empty() || e.dtype == dtype)) {
      return e.tolerance;
    }
  }
  auto it = classes_.find(std::string(rule));
  if (it == classes_.end()) {
    return bad_input(
        fmt::format("tolerances: no class \"{}\" for tap {} of op {}", rule, tap, name),
        "add the class to tolerances.json, or an exception for this tap");
  }
  return it->second;
}

}  // namespace attnscope
