#include "app/reports/case_python.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "engine/io/assets_folder.h"
#include "engine/io/json_file.h"
#include "engine/io/printable.h"
#include "engine/opcase/case_run.h"

namespace attnscope {
namespace {

using nlohmann::json;

json rule_json(const CaseOp& op, const as_tap_info& tap, const Tolerance& rule) {
  json out = {{"class", rule.name}};
  // True and False are not JSON's: numbers serve as well.
  if (rule.exact) out["exact"] = 1;
  if (rule.top_k) {
    out["top_k"] = 1;
    out["score_rel"] = rule.score_rel;
  }
  if (rule.abs > 0) out["abs"] = rule.abs;
  if (rule.rel > 0) out["rel"] = rule.rel;
  if (rule.row_max > 0) out["row_max"] = rule.row_max;
  if (rule.bf16_ulp > 0) out["bf16_ulp"] = rule.bf16_ulp;
  if (rule.cosine) out["cosine"] = *rule.cosine;
  if (tap.mask == AS_MASK_ALL || tap.kind == AS_TAP_CACHE) return out;
  for (const as_tap_info& mask : op.taps) {
    if (mask.kind != AS_TAP_TENSOR || mask.offset != tap.mask_offset) continue;
    out[tap.mask == AS_MASK_SLOTS ? "slots" : "lens"] = mask.name;
  }
  return out;
}

bool replace(std::string& text, const std::string& from, const std::string& to) {
  const std::size_t at = text.find(from);
  if (at == std::string::npos) return false;
  text.replace(at, from.size(), to);
  return true;
}

}  // namespace

std::string script_fault(const std::string& script, const OpCase& kept,
                         const Tolerances& tolerances) {
  const std::string begin = "\nRULES = ", end = "\n}";
  const std::size_t at = script.find(begin) + begin.size();
  const bool none = script.compare(at, 2, "{}") == 0;
  const std::size_t size = none ? 2 : script.find(end, at) + end.size() - at;
  const json rules = json::parse(script.substr(at, size), nullptr, false);
  if (!rules.is_object()) return "its rules cannot be read";
  const auto call = CaseCall::make(kept);
  if (!call) return call.error().text();
  for (const as_tap_info& tap : kept.op.taps) {
    const bool kept_here = kept.tensors.contains(tap.name) || kept.caches.contains(tap.name);
    if (tap.direction != AS_TAP_OUT || !kept_here || kept.unknown.contains(tap.name)) continue;
    if (!rules.contains(tap.name)) return fmt::format("{} has no rule", tap.name);
    const json& rule = rules.at(tap.name);
    const std::string wanted = class_of_output(kept, tap, call->params());
    if (tap.mask != AS_MASK_ALL && tap.kind != AS_TAP_CACHE && !rule.contains("slots") &&
        !rule.contains("lens")) {
      return fmt::format("{} has no mask", tap.name);
    }
    const std::string name = rule.value("class", "");
    if (name.starts_with("exception for ")) continue;  // the file names it for this tap
    const auto known = tolerances.classes().find(name);
    if (name != wanted || known == tolerances.classes().end()) {
      return fmt::format("{} is of class {}, not {}", tap.name, name, wanted);
    }
    const Tolerance& most = known->second;
    const std::pair<const char*, double> bounds[] = {{"abs", most.abs},
                                                     {"rel", most.rel},
                                                     {"row_max", most.row_max},
                                                     {"bf16_ulp", most.bf16_ulp},
                                                     {"score_rel", most.score_rel},
                                                     {"cosine", most.cosine.value_or(0)}};
    for (const auto& [key, bound] : bounds) {
      if (rule.value(key, 0.0) <= bound) continue;
      return fmt::format("{} of {} is {}, class {} allows {}", key, tap.name, rule.value(key, 0.0),
                         name, bound);
    }
    if (most.cosine && !rule.contains("cosine")) return fmt::format("{} has no cosine", tap.name);
  }
  return {};
}

Result<std::string> python_script(const OpCase& kept, const std::string& case_name,
                                  const Tolerances& tolerances) {
  auto assets = assets_folder();
  if (!assets) return assets.error();
  const std::string path = *assets + "/python/case.py";
  auto text = read_text_file(path);
  if (!text) return text.error();
  const auto call = CaseCall::make(kept);
  if (!call) return call.error();
  json rules = json::object();
  for (const as_tap_info& tap : kept.op.taps) {
    if (tap.direction != AS_TAP_OUT || kept.unknown.contains(tap.name)) continue;
    if (!kept.tensors.contains(tap.name) && !kept.caches.contains(tap.name)) continue;
    const auto tensor = kept.tensors.find(tap.name);
    const char* dtype = tensor != kept.tensors.end() ? as_dtype_name(tensor->second.dtype) : "";
    const std::string of = class_of_output(kept, tap, call->params());
    auto rule = case_rule(kept.op, tap, of, "python", dtype, tolerances);
    if (!rule) return rule.error();
    rules[tap.name] = rule_json(kept.op, tap, *rule);
  }
  if (!replace(*text, "CASE = None", "CASE = " + json_text(json(case_name))) ||
      !replace(*text, "OP = None", "OP = " + json_text(json(kept.op.name))) ||
      !replace(*text, "RULES = {}", "RULES = " + rules.dump(1))) {
    return bad_input(path + ": has no line for the case and its rules",
                     "take the file that came with this program");
  }
  if (const std::string fault = script_fault(*text, kept, tolerances); !fault.empty()) {
    return Error{
        AS_MISMATCH,
        fmt::format("the script for {} would not judge as the program does: {}", case_name, fault),
        "the export itself is at fault: please report it"};
  }
  return *text;
}

}  // namespace attnscope
