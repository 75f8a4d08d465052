#include "engine/opcase/case_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "engine/io/json_file.h"
#include "engine/io/json_object.h"
#include "engine/io/old_names.h"
#include "engine/io/printable.h"
#include "engine/tensorfile/tensor_file.h"
#include "engine/tensorfile/tensor_writer.h"
#include "kernels/layout/records.h"
#include "kernels/params/paged_params.h"
#include "kernels/params/tensor_view.h"

namespace attnscope {
namespace {

using nlohmann::json;

constexpr const char* kFrequencies[] = {"fp64", "fp32"};  // by as_rope_frequencies
constexpr std::int64_t kMostInCase = std::int64_t{1} << 40;
// In the metadata of a case's tensors.
constexpr const char* kTensorsOfCase = "attnscope.case";

namespace fs = std::filesystem;

std::string beside(const std::string& path, const std::string& name) {
  return (fs::path(path).parent_path() / name).string();
}

Result<json> read_json(const std::string& path) {
  auto text = read_text_file(path);
  if (!text) return text.error();
  return parse_json(*text, path);
}

// A file that a case may write its tensors to: none is there, or one that a case left when it was
// interrupted. A dump that a case is made of may lie beside it under the same name.
bool takes_tensors(const std::string& path) {
  std::error_code code;
  if (!fs::exists(fs::symlink_status(path, code))) return true;
  auto file = TensorFile::open(path);
  return file && file->metadata().contains(kTensorsOfCase);
}

// The two names that the tensors of a case can have: those of the case that is there keep theirs.
struct TensorNames {
  std::string free, used;  // free: empty where both are taken; used: empty where there is no case

  explicit TensorNames(const std::string& path) {
    const std::string first = fs::path(path).stem().string() + ".safetensors";
    const std::string second = fs::path(path).filename().string() + ".safetensors";
    std::error_code code;
    if (fs::exists(path, code)) {
      if (auto file = case_tensors(path)) used = fs::path(*file).filename().string();
    }
    for (const std::string& name : {second, first}) {
      if (used != name && takes_tensors(beside(path, name))) free = name;
    }
    // Of another program's, or of a case that was moved: not ours to take away.
    if (used != first && used != second) used.clear();
  }
};

// A name of a file beside a case's JSON, read from it.
std::string read_tensors_name(JsonObject& object) {
  std::string name = object.text("tensors");
  if (!name.empty() && name.find_first_of("/\\") == std::string::npos && !name.starts_with(".")) {
    return name;
  }
  object.fail("tensors", shown_name(name) + " is no name of a file beside this one");
  return {};
}

as_tensor numbers(const std::vector<std::int64_t>& values) {
  return make_tensor(values.data(), {static_cast<std::int64_t>(values.size())});
}

json rope_json(const StoredRope& r) {
  json out = {{"base", r.base},
              {"factor", r.factor},
              {"original_max_pos", r.original_max_pos},
              {"beta_fast", r.beta_fast},
              {"beta_slow", r.beta_slow},
              {"frequencies", kFrequencies[r.frequencies]},
              {"table_rows", r.table_rows}};
  if (r.dims != AS_ROPE_DIM) out["dims"] = r.dims;
  return out;
}

json cache_json(const StoredCache& c) {
  json out = {{"record", as_row_format_of(c.record)->name},
              {"blocks", c.blocks},
              {"rows_per_block", c.rows_per_block},
              {"page_stride", c.page_stride},
              {"width", c.width}};
  if (c.heads > 1) out["heads"] = c.heads;
  return out;
}

json origin_json(const CaseOrigin& o) {
  json out = {{"from", o.from}, {"lane", o.lane}};
  if (o.step >= 0) {
    out["step"] = o.step;
    out["layer"] = o.layer;
  }
  return out;
}

// Reads the parts of a case whose JSON is right so far.
class CaseReader {
 public:
  CaseReader(JsonReader& reader, const TensorFile& file) : reader_(reader), file_(file) {}

  bool failed() const { return !reader_.ok(); }

  void rope(JsonObject object, const std::string& name, OpCase& kept) {
    StoredRope rope;
    rope.base = object.number("base", 0, 1e30);
    rope.factor = object.number("factor", 0, 1e30);
    rope.original_max_pos = object.number("original_max_pos", 0, 1e30);
    rope.beta_fast = object.number("beta_fast", 0, 1e30);
    rope.beta_slow = object.number("beta_slow", 0, 1e30);
    rope.table_rows = object.integer("table_rows", 1, std::int64_t{1} << 30);
    if (object.has("dims")) rope.dims = object.integer("dims", 0, AS_MAX_HEAD_SIZE);
    // Files of before say nothing: float64.
    rope.frequencies = object.choice("frequencies", {kFrequencies[0], kFrequencies[1]},
                                     kFrequencies[AS_ROPE_FP64]) == kFrequencies[AS_ROPE_FP32]
                           ? AS_ROPE_FP32
                           : AS_ROPE_FP64;
    object.finish();
    rope.positions = integers(name + ".positions", rope.table_rows);
    const as_tensor rows = get(name + ".rows");
    if (failed()) return;
    const auto count = static_cast<std::int64_t>(rope.positions.size());
    if (!is(rows, AS_F32, {count, rope.dims})) {
      return fail(name + ".rows", fmt::format("expected f32 [{},{}]", count, rope.dims));
    }
    rope.rows.resize(static_cast<std::size_t>(count * rope.dims));
    copy(rows, rope.rows.data());
    kept.ropes[name] = std::move(rope);
  }

  void cache(JsonObject object, const std::string& name, OpCase& kept) {
    StoredCache cache;
    const std::string record = object.choice("record", row_format_names(), "latent");
    cache.record = as_row_format_by_name(record.c_str())->record;
    cache.blocks = object.integer("blocks", 1, kMostInCase);
    cache.rows_per_block =
        static_cast<std::int32_t>(object.integer("rows_per_block", 1, std::int64_t{1} << 20));
    cache.page_stride = object.integer("page_stride", 1, kMostInCase);
    cache.width = static_cast<std::int32_t>(object.integer("width", 1, std::int64_t{1} << 20));
    cache.heads = static_cast<std::int32_t>(object.integer("heads", 0, 1 << 16, 0));
    object.finish();
    if (failed()) return;
    const as_row_layout layout = cache.layout();
    if (layout.format == nullptr) {
      return object.fail("width", fmt::format("{} does not fit the record", cache.width),
                         fmt::format("rows of {} have {}", record,
                                     as_row_width(as_row_format_by_name(record.c_str())->record)));
    }
    const std::int64_t page = layout.page;
    if (cache.page_stride < page) {
      return object.fail("page_stride", fmt::format("{} is less than a page", cache.page_stride),
                         fmt::format("a page of this record has {} bytes", page));
    }
    cache.slots = integers(name + ".slots", cache.blocks * cache.rows_per_block);
    const as_tensor rows = get(name + ".rows");
    if (failed()) return;
    const auto count = static_cast<std::int64_t>(cache.slots.size());
    const bool state = as_row_is_values(cache.record) != 0;
    const std::int64_t width = state ? cache.width : cache.row_bytes();
    if (!is(rows, state ? AS_F32 : AS_U8, {count, width})) {
      return fail(name + ".rows",
                  fmt::format("expected {} [{},{}]", state ? "f32" : "u8", count, width));
    }
    cache.rows.resize(static_cast<std::size_t>(count * cache.row_bytes()));
    copy(rows, cache.rows.data());
    kept.caches[name] = std::move(cache);
  }

  // The tap may have another name now than the tensor of the file.
  void tensor(const std::string& name, const std::string& tap, OpCase& kept) {
    const as_tensor t = get(name);
    if (failed()) return;
    StoredTensor stored;
    stored.dtype = t.dtype;
    stored.shape.assign(t.shape, t.shape + t.rank);
    stored.bytes.resize(static_cast<std::size_t>(as_tensor_numel(&t) * as_dtype_size(t.dtype)));
    copy(t, stored.bytes.data());
    kept.tensors[tap] = std::move(stored);
  }

 private:
  void fail(const std::string& name, const std::string& what) {
    reader_.fail("", fmt::format("{}: tensor {} {}", file_.path(), name, what),
                 "the case is damaged: save it again");
  }
  as_tensor get(const std::string& name) {
    if (failed()) return {};
    auto entry = file_.get(name);
    if (!entry) {
      fail(name, "is missing");
      return {};
    }
    auto tensor = as_tensor_of(file_, **entry);
    if (tensor) return *tensor;
    fail(name, "cannot be used: " + tensor.error().message);
    return {};
  }
  std::vector<std::int64_t> integers(const std::string& name, std::int64_t end) {
    const as_tensor t = get(name);
    if (failed()) return {};
    if (t.dtype != AS_I64 || t.rank != 1) {
      fail(name, "is no list of i64");
      return {};
    }
    std::vector<std::int64_t> out(static_cast<std::size_t>(t.shape[0]));
    copy(t, out.data());
    for (std::size_t i = 0; i < out.size(); ++i) {
      if (out[i] >= 0 && out[i] < end && (i == 0 || out[i] > out[i - 1])) continue;
      fail(name, fmt::format("has {} at {}; expected ascending numbers below {}", out[i], i, end));
      return {};
    }
    return out;
  }
  static bool is(const as_tensor& t, std::int32_t dtype,
                 std::initializer_list<std::int64_t> shape) {
    return t.dtype == dtype && t.rank == static_cast<std::int32_t>(shape.size()) &&
           std::equal(shape.begin(), shape.end(), t.shape);
  }
  static void copy(const as_tensor& t, void* to) {
    const std::int64_t bytes = as_tensor_numel(&t) * as_dtype_size(t.dtype);
    if (bytes > 0) std::memcpy(to, t.data, static_cast<std::size_t>(bytes));
  }

  JsonReader& reader_;
  const TensorFile& file_;
};

as_op_id id_of(const CaseOp& op) { return static_cast<as_op_id>(op.id); }

bool is_name_of(const CaseOp& op, std::uint8_t kind, const std::string& name) {
  return std::any_of(op.taps.begin(), op.taps.end(),
                     [&](const as_tap_info& t) { return t.kind == kind && name == t.name; });
}

// Optional in the struct: what may be missing from a case is decided by the lane that runs it.
void read_parts(JsonObject& object, CaseReader& reader, OpCase& kept) {
  JsonObject integers = object.object("integers");
  JsonObject reals = object.object("reals");
  JsonObject ropes = object.object("ropes");
  for (const as_param_info& field : kept.op.fields) {
    switch (field.kind) {
      case AS_PARAM_INTEGER:
        kept.integers[field.name] = field.may_be_absent && !integers.has(field.name)
                                        ? 0
                                        : integers.integer(field.name, INT32_MIN, INT32_MAX);
        break;
      case AS_PARAM_REAL:
        kept.reals[field.name] = reals.number(field.name, -1e300, 1e300);
        break;
      case AS_PARAM_ROPE:
        reader.rope(ropes.object(field.name), field.name, kept);
        break;
    }
  }
  integers.finish();
  reals.finish();
  ropes.finish();
  JsonObject caches = object.object("caches");
  for (const as_tap_info& tap : kept.op.taps) {
    if (tap.kind == AS_TAP_CACHE && caches.has(tap.name)) {
      reader.cache(caches.object(tap.name), tap.name, kept);
    }
  }
  caches.finish();
  for (const char* key : {"inputs", "outputs"}) {
    for (const std::string& name : object.texts(key)) {
      const std::string tap(tap_name_now(id_of(kept.op), name));
      if (is_name_of(kept.op, AS_TAP_CACHE, tap)) continue;
      if (!is_name_of(kept.op, AS_TAP_TENSOR, tap)) {
        object.fail(key, fmt::format("op {} has no tensor {}", kept.op.name, shown_name(name)));
        return;
      }
      reader.tensor(name, tap, kept);
    }
  }
  if (object.has("unknown")) {
    for (const std::string& written : object.texts("unknown")) {
      const std::string name(tap_name_now(id_of(kept.op), written));
      const auto tap =
          std::ranges::find_if(kept.op.taps, [&](const as_tap_info& t) { return name == t.name; });
      if (tap == kept.op.taps.end() || tap->direction != AS_TAP_OUT || tap->kind != AS_TAP_TENSOR) {
        object.fail("unknown",
                    fmt::format("op {} puts out no tensor {}", kept.op.name, shown_name(name)));
        return;
      }
      kept.unknown.insert(name);
    }
  }
  if (object.has("classes")) {
    JsonObject classes = object.object("classes");
    for (const as_tap_info& tap : kept.op.taps) {
      if (classes.has(tap.name)) kept.classes[tap.name] = classes.text(tap.name);
    }
    classes.finish();
  }
  JsonObject strides = object.object("strides");
  for (auto& [name, tensor] : kept.tensors) {
    if (!strides.has(name)) continue;
    tensor.stride = strides.integers(name, 0, kMostInCase);
    if (tensor.stride.size() != tensor.shape.size() && !reader.failed()) {
      strides.fail(name, fmt::format("expected {} numbers", tensor.shape.size()));
    }
  }
  strides.finish();
}

}  // namespace

Result<void> write_case(const OpCase& kept, const std::string& path) {
  if (!path.ends_with(".json") || fs::path(path).stem().empty()) {
    return usage_error(fmt::format("'{}': a case is a file NAME.json", path),
                       "its tensors go to NAME.safetensors beside it");
  }
  const TensorNames names(path);
  if (names.free.empty()) {
    return bad_input(
        fmt::format("{}: files with both names that its tensors could have are there", path),
        "choose another name: nothing but the tensors of cases is replaced");
  }
  if (!is_utf8(names.free)) {
    return usage_error(path + ": its name is no UTF-8",
                       "a case keeps the name of its tensors, as JSON");
  }
  json out = {{"format", kCaseFormat},      {"version", kCaseVersion},
              {"op", kept.op.name},         {"origin", origin_json(kept.origin)},
              {"tensors", names.free},      {"inputs", json::array()},
              {"outputs", json::array()},   {"unknown", kept.unknown},
              {"integers", json::object()}, {"reals", json::object()},
              {"ropes", json::object()},    {"caches", json::object()},
              {"strides", json::object()}};
  if (!kept.classes.empty()) out["classes"] = kept.classes;
  TensorWriter writer;
  writer.metadata(kTensorsOfCase, kept.op.name);
  for (const auto& [name, value] : kept.integers) out["integers"][name] = value;
  for (const auto& [name, value] : kept.reals) {
    if (!std::isfinite(value)) {
      return bad_input(fmt::format("{}: {} is {}", kept.op.name, name, value),
                       "a case holds finite numbers");
    }
    out["reals"][name] = value;
  }
  for (const auto& [name, rope] : kept.ropes) {
    out["ropes"][name] = rope_json(rope);
    writer.add(name + ".positions", numbers(rope.positions));
    writer.add(name + ".rows",
               make_tensor(rope.rows.data(),
                           {static_cast<std::int64_t>(rope.positions.size()), rope.dims}));
  }
  for (const as_tap_info& tap : kept.op.taps) {
    const char* side = tap.direction == AS_TAP_IN ? "inputs" : "outputs";
    if (const auto it = kept.tensors.find(tap.name); it != kept.tensors.end()) {
      out[side].push_back(tap.name);
      writer.add(tap.name, stored_view(it->second));
      if (!it->second.stride.empty()) out["strides"][tap.name] = it->second.stride;
    } else if (const auto cache = kept.caches.find(tap.name); cache != kept.caches.end()) {
      out[side].push_back(tap.name);
      out["caches"][tap.name] = cache_json(cache->second);
      writer.add(fmt::format("{}.slots", tap.name), numbers(cache->second.slots));
      writer.add(fmt::format("{}.rows", tap.name), stored_rows(cache->second));
    }
  }
  auto size = writer.write(beside(path, names.free));
  if (!size) return size.error();
  out["digest"] = fmt::format("{:016x}", size->digest);
  auto ok = write_text_file(path, json_text(out, 1) + "\n");
  // Of the two files of tensors the one that the JSON does not name goes.
  const std::string now = TensorNames(path).used;
  std::error_code code;
  if (now != names.free) fs::remove(beside(path, names.free), code);
  if (now == names.free && !names.used.empty()) fs::remove(beside(path, names.used), code);
  return ok;
}

Result<std::string> case_tensors(const std::string& path) {
  auto root = read_json(path);
  if (!root) return root.error();
  JsonReader reader(path);
  JsonObject object(reader, *root);
  const std::string name = read_tensors_name(object);
  if (!reader.ok()) return reader.error();
  return beside(path, name);
}

Result<OpCase> read_case(const std::string& path) {
  auto root = read_json(path);
  if (!root) return root.error();
  JsonReader reader(path);
  JsonObject object(reader, *root);
  if (object.text("format", "") != kCaseFormat) {
    return bad_input(fmt::format("{}: is no case", path),
                     "name the .json file that 'attnscope case save' made");
  }
  const std::int64_t version = object.integer("version", 1, INT32_MAX);
  if (version > kCaseVersion) {
    return bad_input(
        fmt::format("{}: has version {}, this program reads up to {}", path, version, kCaseVersion),
        "open it with a newer attnscope");
  }
  auto op = case_op_by_name(object.text("op"));
  if (!reader.ok()) return reader.error();
  if (!op) return bad_input(fmt::format("{}: {}", path, op.error().message), op.error().hint);
  const std::string name = read_tensors_name(object);
  OpCase kept;
  kept.op = *op;
  JsonObject origin = object.object("origin");
  kept.origin.from = origin.text("from", "");
  kept.origin.lane = origin.text("lane", "");
  kept.origin.step = origin.integer("step", 0, kMostInCase, -1);
  kept.origin.layer = static_cast<int>(origin.integer("layer", -1, INT32_MAX, -1));
  origin.finish();
  const std::string digest = object.text("digest", "");
  if (!reader.ok()) return reader.error();
  auto file = TensorFile::open(beside(path, name));
  if (!file) return file.error();
  if (!digest.empty() && fmt::format("{:016x}", file->digest()) != digest) {
    return bad_input(fmt::format("{}: is not the file that {} was saved with", file->path(), path),
                     "one of the two is damaged or of another case: save it again; for another "
                     "input than it was saved with: attnscope case edit");
  }
  for (const char* keyed : {"classes", "strides"}) {
    if (const auto part = root->find(keyed); part != root->end()) {
      rename_tap_keys(*part, id_of(kept.op));
    }
  }
  CaseReader parts(reader, *file);
  read_parts(object, parts, kept);
  object.finish();
  if (!reader.ok()) return reader.error();
  return kept;
}

}  // namespace attnscope
