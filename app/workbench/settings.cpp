#include "app/workbench/settings.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>

#include "app/text/text.h"
#include "app/workbench/command_registry.h"
#include "engine/io/json_file.h"
#include "engine/io/nearest.h"

namespace attnscope {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr std::size_t kMaxFile = 1 << 20;
constexpr std::size_t kMaxRecent = 10;
constexpr std::size_t kMaxShortcuts = 1000;
constexpr std::size_t kMaxText = 4096;

// A value as it stands in the file, short enough for a sentence.
std::string shown(const json& value) {
  if (value.is_array()) return fmt::format("a list of {}", value.size());
  if (value.is_object()) return "an object";
  const std::string text = value.dump(-1, ' ', false, json::error_handler_t::replace);
  return shortened(text);
}

bool plain_id(const std::string& text) {
  return !text.empty() && text.size() <= 64 && std::ranges::all_of(text, [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_' || c == '-' || c == '.';
  });
}

// Reads values key by key; a bad one is said and leaves what was there.
class Reader {
 public:
  Reader(const json& root, std::string path, std::vector<std::string>& problems)
      : root_(root), path_(std::move(path)), problems_(problems) {}

  void text(const char* key, std::string& out) {
    const json* value = find(key);
    if (value == nullptr) return;
    if (!value->is_string() || value->get_ref<const std::string&>().empty() ||
        value->get_ref<const std::string&>().size() > kMaxText) {
      return wrong(key, *value, "a text", '"' + out + '"');
    }
    out = value->get<std::string>();
  }

  void id(const char* key, std::string& out) {
    const json* value = find(key);
    if (value == nullptr) return;
    if (!value->is_string() || !plain_id(value->get_ref<const std::string&>())) {
      return wrong(key, *value, "a name of small letters, digits, _ and -", '"' + out + '"');
    }
    out = value->get<std::string>();
  }

  void choice(const char* key, const std::vector<std::string>& allowed, std::string& out) {
    const json* value = find(key);
    if (value == nullptr) return;
    if (!value->is_string() ||
        std::ranges::find(allowed, value->get<std::string>()) == allowed.end()) {
      return wrong(key, *value, fmt::format("{}", fmt::join(allowed, " or ")), '"' + out + '"');
    }
    out = value->get<std::string>();
  }

  void flag(const char* key, bool& out) {
    const json* value = find(key);
    if (value == nullptr) return;
    if (!value->is_boolean()) return wrong(key, *value, "true or false", out ? "true" : "false");
    out = value->get<bool>();
  }

  void real(const char* key, double least, double most, float& out) {
    const json* value = find(key);
    if (value == nullptr) return;
    const double number = value->is_number() ? value->get<double>() : least - 1;
    if (!(number >= least && number <= most)) {
      return wrong(key, *value, fmt::format("a number from {} to {}", least, most),
                   fmt::format("{}", out));
    }
    out = static_cast<float>(number);
  }

  template <class T>
  void whole(const char* key, std::int64_t least, std::int64_t most, T& out) {
    const json* value = find(key);
    if (value == nullptr) return;
    // A number beyond int64 must not wrap into the range.
    const bool fits = value->is_number_integer() &&
                      !(value->is_number_unsigned() && value->get<std::uint64_t>() > INT64_MAX);
    const std::int64_t number = fits ? value->get<std::int64_t>() : least - 1;
    if (number < least || number > most) {
      return wrong(key, *value, fmt::format("a whole number from {} to {}", least, most),
                   fmt::format("{}", out));
    }
    out = static_cast<T>(number);
  }

  void texts(const char* key, std::size_t most, std::vector<std::string>& out) {
    const json* value = find(key);
    if (value == nullptr) return;
    if (!value->is_array()) return wrong(key, *value, "a list of texts", "the empty list");
    std::size_t left_out = 0;
    for (const json& item : *value) {
      if (!item.is_string() || item.get_ref<const std::string&>().empty() ||
          item.get_ref<const std::string&>().size() > kMaxText || out.size() == most) {
        ++left_out;
      } else if (std::ranges::find(out, item.get<std::string>()) == out.end()) {
        out.push_back(item.get<std::string>());
      }
    }
    if (left_out > 0) {
      say(key, fmt::format("{} of {} entries left out; allowed: at most {} texts", left_out,
                           value->size(), most));
    }
  }

  void shortcuts(const char* key, std::map<std::string, std::string>& out) {
    const json* value = find(key);
    if (value == nullptr) return;
    if (!value->is_object()) {
      return wrong(key, *value, "an object of command ids and key combinations",
                   "the built-in shortcuts");
    }
    if (value->size() > kMaxShortcuts) {
      return say(key,
                 fmt::format("{} entries, at most {} are read; the built-in shortcuts are used",
                             value->size(), kMaxShortcuts));
    }
    std::map<std::string, std::string> taken;
    for (const auto& [id, text] : value->items()) {
      const std::string place = fmt::format("{}.{}", key, shortened(id));
      if (!text.is_string()) {
        say(place, shown(text) + " is no text; its built-in shortcut is used");
        continue;
      }
      if (text.get_ref<const std::string&>().empty()) {
        out[id] = "";
        continue;
      }
      const auto normal = normalise_shortcut(text.get<std::string>());
      if (!normal) {
        say(place, normal.error().text() + "; its built-in shortcut is used");
      } else if (const auto [at, fresh] = taken.emplace(*normal, id); !fresh) {
        say(place, fmt::format("{} is already that of {}; its built-in shortcut is used", *normal,
                               at->second));
      } else {
        out[id] = *normal;
      }
    }
  }

  // Keys that nobody asked for.
  void finish() {
    for (const auto& [key, value] : root_.items()) {
      if (known_.contains(key)) continue;
      const std::vector<std::string> names(known_.begin(), known_.end());
      const auto near = nearest_names(key, names, 1);
      say(shortened(key),
          fmt::format("unknown key, left out; {}",
                      near.empty() ? fmt::format("allowed: {}", fmt::join(names, ", "))
                                   : fmt::format("did you mean {}?", near[0])));
    }
  }

 private:
  const json* find(const char* key) {
    known_.insert(key);
    const auto it = root_.find(key);
    return it == root_.end() ? nullptr : &*it;
  }
  void say(const std::string& key, const std::string& what) {
    problems_.push_back(fmt::format("{}: {}: {}", path_, key, what));
  }
  void wrong(const char* key, const json& found, const std::string& allowed,
             const std::string& taken) {
    say(key,
        fmt::format("{} is not allowed; allowed: {}; taken: {}", shown(found), allowed, taken));
  }

  const json& root_;
  std::string path_;
  std::vector<std::string>& problems_;
  std::set<std::string> known_;
};

// A file nobody can read is moved away, so that the next save does not destroy it.
void keep_aside(const std::string& path, const std::string& why,
                std::vector<std::string>& problems) {
  const std::string aside = path + ".bad";
  std::error_code code;
  fs::rename(path, aside, code);
  problems.push_back(
      code
          ? fmt::format("{}; the built-in settings are used, and the file stays: {}", why,
                        code.message())
          : fmt::format("{}; the built-in settings are used, the file was kept as {}", why, aside));
}

}  // namespace

void keep_state(const Settings& from, Settings& to) {
  to.layout = from.layout;
  to.tour_seen = from.tour_seen;
  to.scenario = from.scenario;
  to.recent = from.recent;
  to.window_width = from.window_width;
  to.window_height = from.window_height;
  to.window_at = from.window_at;
}

LoadedSettings load_settings(const std::string& path) {
  LoadedSettings out;
  std::error_code code;
  if (fs::symlink_status(path, code).type() == fs::file_type::not_found) return out;
  const auto text = read_text_file(path, kMaxFile);
  if (!text) {
    out.problems.push_back(text.error().text() + "; the built-in settings are used");
    return out;
  }
  const auto root = parse_json(*text, path);
  if (!root) {
    keep_aside(path, root.error().message, out.problems);
    return out;
  }
  if (!root->is_object()) {
    keep_aside(path, fmt::format("{}: an object {{..}} is expected, found {}", path, shown(*root)),
               out.problems);
    return out;
  }
  Settings& s = out.settings;
  Reader reader(*root, path, out.problems);
  int version = 1;
  reader.whole("version", 1, 1, version);
  reader.text("theme", s.theme);
  reader.real("scale", 0.75, 3, s.scale);
  reader.id("layout", s.layout);
  reader.flag("animations", s.animations);
  reader.flag("whole_sentences", s.whole_sentences);
  reader.choice("colour_map", {"viridis", "grey"}, s.colour_map);
  reader.flag("free_list_order", s.free_list_order);
  reader.flag("tour_seen", s.tour_seen);
  reader.whole("trace_budget_mb", 16, 1 << 20, s.trace_budget_mb);
  reader.whole("checkpoint_budget_mb", 16, 1 << 20, s.rewind_budget_mb);
  reader.whole("kept_events", 1000, 1 << 24, s.kept_events);
  std::string invariants = invariants_name(s.invariants);
  reader.choice("invariants", {"off", "step", "call"}, invariants);
  s.invariants = *parse_invariants(invariants);
  reader.text("scenario", s.scenario);
  reader.texts("recent", kMaxRecent, s.recent);
  reader.shortcuts("shortcuts", s.shortcuts);
  reader.whole("window_width", 300, 16384, s.window_width);
  reader.whole("window_height", 200, 16384, s.window_height);
  int x = 0, y = 0;
  reader.whole("window_x", -32768, 32767, x);
  reader.whole("window_y", -32768, 32767, y);
  if (root->contains("window_x") && root->contains("window_y")) s.window_at = {x, y};
  reader.finish();
  return out;
}

Result<void> save_settings(const Settings& settings, const std::string& path) {
  nlohmann::ordered_json root;
  root["version"] = 1;
  root["theme"] = settings.theme;
  // As short as the float is: 1.1, not 1.10000002384.
  root["scale"] = std::strtod(fmt::format("{}", settings.scale).c_str(), nullptr);
  root["layout"] = settings.layout;
  root["animations"] = settings.animations;
  root["whole_sentences"] = settings.whole_sentences;
  root["colour_map"] = settings.colour_map;
  root["free_list_order"] = settings.free_list_order;
  root["tour_seen"] = settings.tour_seen;
  root["trace_budget_mb"] = settings.trace_budget_mb;
  root["checkpoint_budget_mb"] = settings.rewind_budget_mb;
  root["kept_events"] = settings.kept_events;
  root["invariants"] = invariants_name(settings.invariants);
  root["scenario"] = settings.scenario;
  root["recent"] = settings.recent;
  root["shortcuts"] = settings.shortcuts;
  root["window_width"] = settings.window_width;
  root["window_height"] = settings.window_height;
  if (settings.window_at) {
    root["window_x"] = settings.window_at->first;
    root["window_y"] = settings.window_at->second;
  }
  return write_text_file(
      path, "// Settings of attnscope, written anew whenever one changes.\n" +
                root.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n");
}

}  // namespace attnscope
