#include "engine/capture/notes.h"

#include <fmt/format.h>

#include <filesystem>
#include <limits>
#include <nlohmann/json.hpp>

#include "engine/io/json_file.h"
#include "engine/io/json_object.h"

namespace attnscope {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr const char* kFormat = "attnscope-notes";
constexpr int kVersion = 1;
constexpr std::int64_t kMost = std::numeric_limits<std::int32_t>::max();
constexpr std::int64_t kLongest = std::int64_t{1} << 40;

Note read_note(JsonObject& item) {
  Note note;
  note.place.step = item.integer("step", 0, kLongest);
  note.place.layer = static_cast<int>(item.integer("layer", -1, kMost, -1));
  const std::string op = item.text("op");
  const int id = as_step_op_by_name(op.c_str());
  if (id < 0) item.fail("op", shown_name(op) + " is no op of a step", "'attnscope ops' lists them");
  note.place.op = id < 0 ? AS_OP_SCHEDULE : static_cast<as_op_id>(id);
  note.request = static_cast<std::int32_t>(item.integer("request", -1, kMost, -1));
  note.position = item.integer("position", -1, kLongest, -1);
  note.head = static_cast<int>(item.integer("head", -1, kMost, -1));
  note.block = static_cast<std::int32_t>(item.integer("block", -1, kMost, -1));
  note.tap = item.text("tap", "");
  if (item.has("element")) note.element = item.integers("element", 0, kLongest);
  note.text = item.text("text", "");
  if (note.text.size() > kLongestNote) {
    item.fail("text", fmt::format("has {} bytes", note.text.size()),
              fmt::format("at most {}", kLongestNote));
  }
  item.finish();
  return note;
}

json note_json(const Note& note) {
  json item = {{"step", note.place.step},
               {"layer", note.place.layer},
               {"op", as_op_find(note.place.op)->name}};
  if (note.request >= 0) item["request"] = note.request;
  if (note.position >= 0) item["position"] = note.position;
  if (note.head >= 0) item["head"] = note.head;
  if (note.block >= 0) item["block"] = note.block;
  if (!note.tap.empty()) item["tap"] = note.tap;
  if (!note.element.empty()) item["element"] = note.element;
  if (!note.text.empty()) item["text"] = note.text;
  return item;
}

}  // namespace

Result<std::vector<Note>> read_notes(const std::string& file) {
  std::error_code code;
  if (!fs::exists(file, code) && !code) return std::vector<Note>();
  auto text = read_text_file(file, kLargestNotes);
  if (!text) return text.error();
  auto parsed = parse_json(*text, file);
  if (!parsed) return parsed.error();
  JsonReader reader(file);
  JsonObject root(reader, *parsed);
  root.choice("format", {kFormat}, kFormat);
  const std::int64_t version = root.integer("version", 1, kMost);
  if (version > kVersion) {
    root.fail("version", fmt::format("{} is newer than this program", version),
              fmt::format("allowed: {}", kVersion));
  }
  std::vector<JsonObject> items = root.objects("notes");
  if (items.size() > kMostNotes) {
    root.fail("notes", fmt::format("{} of them", items.size()),
              fmt::format("at most {}", kMostNotes));
  }
  std::vector<Note> notes;
  for (JsonObject& item : items) {
    if (!reader.ok()) break;
    notes.push_back(read_note(item));
  }
  root.finish();
  if (!reader.ok()) return reader.error();
  return notes;
}

Result<void> write_notes(const std::string& file, const std::vector<Note>& notes) {
  if (notes.empty()) {
    std::error_code code;
    fs::remove(file, code);
    if (!code) return {};
    return bad_input(fmt::format("{}: cannot be removed: {}", file, code.message()),
                     "remove it by hand");
  }
  json items = json::array();
  for (const Note& note : notes) items.push_back(note_json(note));
  const json root = {{"format", kFormat}, {"version", kVersion}, {"notes", std::move(items)}};
  return write_text_file(file, root.dump(2, ' ', false, json::error_handler_t::replace) + "\n");
}

}  // namespace attnscope
