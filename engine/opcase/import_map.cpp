#include "engine/opcase/import_map.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "engine/family/family.h"
#include "engine/io/assets_folder.h"
#include "engine/io/json_file.h"
#include "engine/io/json_object.h"
#include "engine/io/old_names.h"
#include "engine/opcase/import_model_sizes.h"
#include "kernels/params/row_format.h"

namespace attnscope {
namespace {

constexpr const char* kFormat = "attnscope-import-map";
constexpr std::int64_t kMostInDump = std::int64_t{1} << 40;
constexpr std::int64_t kMostJoined = 64;
constexpr std::int64_t kTooMany = 4096;  // elements to write out in a map

ImportTensor read_tensor(JsonObject o) {
  ImportTensor t;
  if (o.has("values")) {
    t.values = o.integers("values", -kMostInDump, kMostInDump);
    t.shape = o.integers("shape", 1, kMostInDump);
    std::int64_t count = t.shape.empty() ? 0 : 1;
    for (const std::int64_t n : t.shape) count = std::min(count * std::min(n, kTooMany), kTooMany);
    if (count == kTooMany || count != std::ssize(t.values)) {
      o.fail("values", "are not as many as the shape has elements");
    }
    o.finish();
    return t;
  }
  if (o.has("stack")) {
    t.stack = o.texts("stack");
    if (t.stack.empty()) o.fail("stack", "names no tensor");
  } else if (o.has("concat")) {
    t.concat = o.texts("concat");
    if (t.concat.empty() || std::ssize(t.concat) > kMostJoined) {
      o.fail("concat", fmt::format("names 1 to {} tensors", kMostJoined));
    }
    t.axis = o.integer("axis", -1, AS_MAX_RANK - 1, 0);
  } else {
    t.name = o.text("name");
  }
  if (o.has("shape")) t.shape = o.integers("shape", -1, kMostInDump);
  if (o.has("stride")) t.stride = o.integers("stride", 0, kMostInDump);
  t.offset = o.integer("offset", 0, kMostInDump, 0);
  t.axes = o.integer("axes", 1, AS_MAX_RANK, 0);
  if (t.axes > 0 && !t.shape.empty()) o.fail("axes", "is no choice beside a shape");
  if (o.has("slice")) t.slice = o.integers("slice", 0, kMostInDump);
  if (!t.slice.empty() && (t.slice.size() != 3 || t.slice[1] >= t.slice[2])) {
    o.fail("slice", "is [axis, first, behind the last]");
  }
  if (o.has("permute")) t.permute = o.integers("permute", 0, AS_MAX_RANK - 1);
  t.decode = o.choice("decode", {"e4m3", "e4m3fnuz"}, "");
  t.factor = o.number("factor", 0, 1e30, 1);
  t.factor_name = o.text("factor_name", "");
  if (o.has("pad")) t.pad = o.integers("pad", 0, kMostInDump);
  t.tolerance = o.text("class", "");
  if (std::count(t.shape.begin(), t.shape.end(), -1) > 1) o.fail("shape", "has more than one -1");
  if (!t.stride.empty() && t.stride.size() != t.shape.size()) {
    o.fail("stride", "needs a shape with as many numbers");
  }
  if (!t.stack.empty() && (!t.decode.empty() || t.factor != 1 || !t.factor_name.empty())) {
    o.fail("stack", "is of integers, which are not decoded");
  }
  o.finish();
  return t;
}

ImportCache read_cache(JsonObject o) {
  ImportCache c;
  c.name = o.text("name");
  c.scales = o.text("scales", "");
  // Of one head, a page after the other: what import_pages() can take apart.
  std::vector<std::string> records;
  for (std::int32_t i = 0; as_row_format_at(i) != nullptr; ++i) {
    const as_row_format& known = *as_row_format_at(i);
    if (known.placement == AS_PLANAR) records.emplace_back(known.name);
  }
  const std::string record = o.choice("record", records, "latent");
  const as_row_format& format = *as_row_format_by_name(record.c_str());
  c.record = format.record;
  c.interleaved = o.choice("rows", {"planar", "interleaved"}, "planar") == "interleaved";
  c.fnuz = o.choice("codes", {"e4m3fn", "e4m3fnuz"}, "e4m3fn") == "e4m3fnuz";
  c.rows_per_block =
      static_cast<std::int32_t>(o.integer("rows_per_block", 1, std::int64_t{1} << 20));
  c.width = static_cast<std::int32_t>(as_row_width(c.record));
  if (c.width == 0) {
    c.width = static_cast<std::int32_t>(o.integer("width", 1, std::int64_t{1} << 20));
  }
  c.page_stride = o.integer("page_stride", 0, kMostInDump, 0);
  c.offset = o.integer("offset", 0, kMostInDump, 0);
  if (c.fnuz && format.parts[0].code != AS_CODE_E4M3) {
    o.fail("codes", "this record has no e4m3 codes");
  }
  o.finish();
  return c;
}

ImportRope read_rope(JsonObject o) {
  ImportRope r;
  r.base = o.number("base", 1, 1e30);
  r.factor = o.number("factor", 1, 1e30, r.factor);
  r.original_max_pos = o.number("original_max_pos", 1, 1e30, r.original_max_pos);
  r.beta_fast = o.number("beta_fast", 0, 1e30, r.beta_fast);
  r.beta_slow = o.number("beta_slow", 0, 1e30, r.beta_slow);
  r.frequencies =
      o.choice("frequencies", {"fp64", "fp32"}, "fp32") == "fp64" ? AS_ROPE_FP64 : AS_ROPE_FP32;
  r.table = o.text("table", "");
  o.finish();
  return r;
}

std::vector<std::string> read_layer_types(JsonObject& o) {
  std::vector<std::string> out;
  if (!o.has("layers")) return out;
  std::vector<std::string_view> types;
  for (const Family* family : families()) {
    types.insert(types.end(), family->layer_types.begin(), family->layer_types.end());
  }
  for (const std::string& name : o.texts("layers")) {
    if (std::ranges::count(types, name) == 0) {
      o.fail("layers", shown_name(name) + " is no type of a layer",
             fmt::format("allowed: {}", fmt::join(types, ", ")));
      return out;
    }
    out.push_back(name);
  }
  return out;
}

// Maps of before have the taps' old names.
void name_taps(nlohmann::json& ops) {
  if (!ops.is_object()) return;
  for (int i = 0; const as_op_info* info = as_op_at(i); ++i) {
    const auto found = ops.find(info->name);
    if (found == ops.end()) continue;
    const auto name_taps_of = [&](nlohmann::json& entry) {
      if (!entry.is_object()) return;
      if (const auto t = entry.find("tensors"); t != entry.end()) rename_tap_keys(*t, info->id);
    };
    if (found->is_array()) {
      std::ranges::for_each(*found, name_taps_of);
    } else {
      name_taps_of(*found);
    }
  }
}

ImportOp read_op(const CaseOp& op, JsonObject o) {
  ImportOp out;
  out.op = op;
  out.layers = read_layer_types(o);
  JsonObject tensors = o.object("tensors");
  for (const as_tap_info& tap : op.taps) {
    if (tap.kind == AS_TAP_TENSOR && tensors.has(tap.name)) {
      out.tensors[tap.name] = read_tensor(tensors.object(tap.name));
    }
  }
  tensors.finish();
  if (o.has("caches")) {
    JsonObject caches = o.object("caches");
    for (const as_tap_info& tap : op.taps) {
      if (tap.kind == AS_TAP_CACHE && caches.has(tap.name)) {
        out.caches[tap.name] = read_cache(caches.object(tap.name));
      }
    }
    caches.finish();
  }
  if (o.has("ropes")) {
    JsonObject ropes = o.object("ropes");
    for (const as_param_info& field : op.fields) {
      if (field.kind == AS_PARAM_ROPE && ropes.has(field.name)) {
        out.ropes[field.name] = read_rope(ropes.object(field.name));
      }
    }
    ropes.finish();
  }
  if (o.has("numbers")) {
    JsonObject numbers = o.object("numbers");
    for (const as_param_info& field : op.fields) {
      if (field.kind != AS_PARAM_ROPE && numbers.has(field.name)) {
        out.numbers[field.name] = numbers.number(field.name, -1e30, 1e30);
      }
    }
    numbers.finish();
  }
  o.finish();
  return out;
}

}  // namespace

std::vector<const ImportOp*> ops_of_layer(const ImportMap& map,
                                          std::optional<std::string_view> type) {
  std::vector<const ImportOp*> out;
  for (const ImportOp& op : map.ops) {
    const bool taken = !out.empty() && out.back()->op.id == op.op.id;
    const bool fits = op.layers.empty() || !type || std::ranges::count(op.layers, *type) > 0;
    if (!taken && fits) out.push_back(&op);
  }
  return out;
}

Result<ImportMap> read_import_map(const std::string& name, const ModelConfig* model) {
  std::string path = name;
  std::error_code code;
  if (!std::filesystem::is_regular_file(path, code)) {
    auto assets = assets_folder();
    if (!assets) return assets.error();
    const std::string known = fmt::format("{}/maps/{}.json", *assets, name);
    if (name.find('/') == std::string::npos && std::filesystem::exists(known, code)) path = known;
  }
  auto text = read_text_file(path);
  if (!text) {
    return Error{text.error().code, text.error().message,
                 "name a map, or one of assets/maps: vllm, sglang, hf"};
  }
  auto root = parse_json(*text, path);
  if (!root) return root.error();
  // Before anything of it is read: a scenario has a "model" too.
  if (root->is_object() && (!root->contains("format") || (*root)["format"] != kFormat)) {
    return bad_input(path + ": is no map of tensors",
                     fmt::format("it begins with \"format\": \"{}\"; see the manual", kFormat));
  }
  rename_step_keys(*root);
  if (auto ok = fill_in_sizes(*root, path, model); !ok) return ok.error();
  JsonReader reader(path);
  JsonObject object(reader, *root);
  object.text("format", "");
  object.integer("version", 1, 1);
  ImportMap map;
  map.engine = object.text("engine", "");
  if (object.has("token_ids")) map.token_ids = read_tensor(object.object("token_ids"));
  if (object.has("sample_rows")) map.sample_rows = read_tensor(object.object("sample_rows"));
  if (object.has("token_to_req")) map.token_to_req = read_tensor(object.object("token_to_req"));
  if (const auto entries = root->find("ops"); entries != root->end()) name_taps(*entries);
  JsonObject ops = object.object("ops");
  for (int i = 0; const as_op_info* info = as_op_at(i); ++i) {
    const CaseOp op = *find_case_op(info->id);
    if (!ops.has(op.name)) continue;
    if (!(*root)["ops"][op.name].is_array()) {
      map.ops.push_back(read_op(op, ops.object(op.name)));
      continue;
    }
    for (JsonObject& entry : ops.objects(op.name)) map.ops.push_back(read_op(op, entry));
  }
  ops.finish();
  object.finish();
  if (!reader.ok()) return reader.error();
  return map;
}

}  // namespace attnscope
