// Themes as JSON files: {"version": 1, "base": "dark", "colours": {"accent": "#7cc7ff"}}.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>

#include "app/gui/themes.h"
#include "app/text/text.h"
#include "engine/io/assets_folder.h"
#include "engine/io/json_file.h"
#include "engine/io/json_object.h"
#include "engine/io/nearest.h"

namespace attnscope::gui {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

struct Key {
  const char* name;
  ImU32 Theme::*colour;
};

constexpr std::array<Key, 25> kKeys = {{
    {"surface", &Theme::surface},
    {"panel", &Theme::panel},
    {"raised", &Theme::raised},
    {"border", &Theme::border},
    {"grid", &Theme::grid},
    {"text", &Theme::text},
    {"text_dim", &Theme::text_dim},
    {"text_faint", &Theme::text_faint},
    {"accent", &Theme::accent},
    {"accent_soft", &Theme::accent_soft},
    {"good", &Theme::good},
    {"warn", &Theme::warn},
    {"bad", &Theme::bad},
    {"tie", &Theme::tie},
    {"none", &Theme::none},
    {"hatch", &Theme::hatch},
    {"nan_cell", &Theme::nan_cell},
    {"inf_positive", &Theme::inf_positive},
    {"inf_negative", &Theme::inf_negative},
    {"out_of_range", &Theme::out_of_range},
    {"window_part", &Theme::window_part},
    {"compressed_part", &Theme::compressed_part},
    {"sink_part", &Theme::sink_part},
    {"negative", &Theme::negative},
    {"positive", &Theme::positive},
}};

constexpr std::size_t kOwners = 8;
constexpr const char* kColourHint =
    "a colour is written \"#rrggbb\" or \"#rrggbbaa\"; \"#7cc7ff\" is light blue";

std::optional<ImU32> parse_colour(const json& value) {
  if (!value.is_string()) return std::nullopt;
  const auto& text = value.get_ref<const std::string&>();
  if ((text.size() != 7 && text.size() != 9) || text[0] != '#') return std::nullopt;
  unsigned bytes = 0;
  for (const char c : std::string_view(text).substr(1)) {
    const char l = lower(c);
    if (l >= '0' && l <= '9') {
      bytes = bytes * 16 + static_cast<unsigned>(l - '0');
    } else if (l >= 'a' && l <= 'f') {
      bytes = bytes * 16 + static_cast<unsigned>(l - 'a' + 10);
    } else {
      return std::nullopt;
    }
  }
  if (text.size() == 7) bytes = bytes << 8 | 0xff;  // opaque
  return IM_COL32(bytes >> 24, (bytes >> 16) & 0xff, (bytes >> 8) & 0xff, bytes & 0xff);
}

Error bad_colour(const std::string& file, const std::string& key, const json& value) {
  const std::string found = value.dump(-1, ' ', false, json::error_handler_t::replace);
  return bad_input(fmt::format("{}: colours.{}: {} is no colour", file, key, shortened(found)),
                   kColourHint);
}

Error unknown_key(const std::string& file, const std::string& place, const std::string& key,
                  const std::vector<std::string>& allowed) {
  return bad_input(fmt::format("{}: {}{}: unknown key", file, place, shortened(key)),
                   did_you_mean(key, allowed) + fmt::format("allowed: {}", join(allowed)));
}

Result<void> read_owners(const std::string& file, const json& value, Theme& theme) {
  if (!value.is_array() || value.size() != kOwners) {
    return bad_input(
        fmt::format("{}: colours.owners: a list of {} colours is expected", file, kOwners),
        kColourHint);
  }
  for (std::size_t i = 0; i < kOwners; ++i) {
    const auto colour = parse_colour(value[i]);
    if (!colour) return bad_colour(file, fmt::format("owners[{}]", i), value[i]);
    theme.owners[i] = *colour;
  }
  return {};
}

Result<void> read_colours(const std::string& file, const json& colours, Theme& theme) {
  if (!colours.is_object()) {
    return bad_input(fmt::format("{}: colours: an object of names and colours is expected", file),
                     kColourHint);
  }
  for (const auto& [name, value] : colours.items()) {
    if (name == "owners") {
      if (auto ok = read_owners(file, value, theme); !ok) return ok;
      continue;
    }
    const auto key = std::ranges::find_if(kKeys, [&](const Key& k) { return name == k.name; });
    if (key == kKeys.end()) {
      std::vector<std::string> allowed;
      allowed.reserve(std::size(kKeys) + 1);
      for (const Key& k : kKeys) allowed.emplace_back(k.name);
      allowed.emplace_back("owners");
      return unknown_key(file, "colours.", name, allowed);
    }
    const auto colour = parse_colour(value);
    if (!colour) return bad_colour(file, name, value);
    theme.*(key->colour) = *colour;
  }
  return {};
}

Result<Theme> read_theme(const std::string& path) {
  constexpr std::size_t kMaxFile = 1 << 20;
  const auto text = read_text_file(path, kMaxFile);
  if (!text) return text.error();
  const auto root = parse_json(*text, path);
  if (!root) return root.error();
  JsonReader reader(path);
  JsonObject object(reader, *root);
  object.integer("version", 1, 1);
  const std::string base = object.choice("base", {"dark", "light"}, "dark");
  if (!reader.ok()) return reader.error();
  for (const auto& [key, value] : root->items()) {
    if (key != "version" && key != "base" && key != "colours") {
      return unknown_key(path, "", key, {"version", "base", "colours"});
    }
  }
  Theme theme = base == "light" ? light_theme() : dark_theme();
  theme.name = fs::path(path).stem().string();
  if (const auto colours = root->find("colours"); colours != root->end()) {
    if (auto ok = read_colours(path, *colours, theme); !ok) return ok.error();
  }
  return theme;
}

}  // namespace

Result<Theme> load_theme(const std::string& name_or_path) {
  if (name_or_path == "dark") return dark_theme();
  if (name_or_path == "light") return light_theme();
  std::error_code code;
  if (const auto assets = assets_folder(); assets && !name_or_path.empty()) {
    const fs::path named = fs::path(*assets) / "themes" / (name_or_path + ".json");
    if (name_or_path.find('/') == std::string::npos && fs::is_regular_file(named, code)) {
      return read_theme(named.string());
    }
  }
  const bool path = name_or_path.find('/') != std::string::npos ||
                    name_or_path.ends_with(".json") || fs::exists(name_or_path, code);
  if (path) return read_theme(name_or_path);
  return bad_input(fmt::format("there is no theme \"{}\"", shortened(name_or_path)),
                   fmt::format("themes: {}, or the path of a theme file", join(theme_names())));
}

std::vector<std::string> theme_names() {
  std::vector<std::string> names;
  if (const auto assets = assets_folder()) {
    std::error_code code;
    for (const auto& entry : fs::directory_iterator(fs::path(*assets) / "themes", code)) {
      const std::string name = entry.path().stem().string();
      if (entry.path().extension() == ".json" && name != "dark" && name != "light") {
        names.push_back(name);
      }
    }
  }
  std::sort(names.begin(), names.end());
  names.insert(names.begin(), {"dark", "light"});
  return names;
}

}  // namespace attnscope::gui
