#include "app/workbench/shortcut_keys.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "app/text/text.h"
#include "app/workbench/command_registry.h"
#include "engine/io/nearest.h"

namespace attnscope {
namespace {

std::vector<std::string> all_keys() {
  std::vector<std::string> keys;
  for (char c = 'A'; c <= 'Z'; ++c) keys.emplace_back(1, c);
  for (char c = '0'; c <= '9'; ++c) keys.emplace_back(1, c);
  for (int i = 1; i <= 24; ++i) keys.push_back(fmt::format("F{}", i));
  for (const char* name :
       {"Left",         "Right",        "Up",        "Down",           "Home",
        "End",          "PageUp",       "PageDown",  "Space",          "Enter",
        "Escape",       "Tab",          "Delete",    "Insert",         "Backspace",
        "Comma",        "Period",       "Slash",     "Minus",          "Equal",
        "LeftBracket",  "RightBracket", "Backslash", "Semicolon",      "Apostrophe",
        "Grave",        "KeypadEnter",  "KeypadAdd", "KeypadSubtract", "KeypadMultiply",
        "KeypadDivide", "KeypadDecimal"}) {
    keys.emplace_back(name);
  }
  for (char c = '0'; c <= '9'; ++c) keys.push_back(std::string("Keypad") + c);
  return keys;
}

// Other ways to write a key or a modifier.
constexpr std::array<std::pair<std::string_view, std::string_view>, 34> kAliases = {{
    {"control", "Ctrl"},      {"strg", "Ctrl"},        {"option", "Alt"},
    {"esc", "Escape"},        {"return", "Enter"},     {"del", "Delete"},
    {"ins", "Insert"},        {"pgup", "PageUp"},      {"pgdn", "PageDown"},
    {"pgdown", "PageDown"},   {"page up", "PageUp"},   {"page down", "PageDown"},
    {"leftarrow", "Left"},    {"rightarrow", "Right"}, {"uparrow", "Up"},
    {"downarrow", "Down"},    {"spacebar", "Space"},   {"backquote", "Grave"},
    {"graveaccent", "Grave"}, {"quote", "Apostrophe"}, {"dot", "Period"},
    {"equals", "Equal"},      {",", "Comma"},          {".", "Period"},
    {"/", "Slash"},           {"-", "Minus"},          {"=", "Equal"},
    {"[", "LeftBracket"},     {"]", "RightBracket"},   {"\\", "Backslash"},
    {";", "Semicolon"},       {"'", "Apostrophe"},     {"`", "Grave"},
    {"bksp", "Backspace"},
}};

// Canonical name of a key or modifier, "" when it is none.
std::string canonical(std::string_view part) {
  std::string name = lower(part);
  for (const auto& [alias, key] : kAliases) {
    if (name == alias) return std::string(key);
  }
  for (const char* modifier : {"Ctrl", "Alt", "Shift"}) {
    if (name == lower(modifier)) return modifier;
  }
  for (const std::string& key : shortcut_keys()) {
    if (name == lower(key)) return key;
  }
  return {};
}

constexpr const char* kHint = "write [Ctrl+][Alt+][Shift+]KEY, such as Ctrl+Right, F5 or Shift+H";

}  // namespace

const std::vector<std::string>& shortcut_keys() {
  static const std::vector<std::string> keys = all_keys();
  return keys;
}

Result<std::string> normalise_shortcut(std::string_view text) {
  constexpr std::size_t kLongest = 40;
  const std::string shown = shortened(text, kLongest);
  const auto bad = [&](const std::string& why, const std::string& hint) -> Error {
    return bad_input(fmt::format("\"{}\" is no key combination: {}", shown, why), hint);
  };
  if (trimmed(text).empty()) return bad("it is empty", kHint);
  if (text.size() > kLongest) return bad("it is too long", kHint);
  bool ctrl = false, alt = false, shift = false;
  std::string key;
  for (std::size_t at = 0; at <= text.size();) {
    const std::size_t end = std::min(text.find('+', at), text.size());
    const std::string_view part = trimmed(text.substr(at, end - at));
    at = end + 1;
    if (part.empty()) return bad("a key is missing beside a +", kHint);
    const std::string name = canonical(part);
    if (name == "Ctrl" || name == "Alt" || name == "Shift") {
      bool& held = name == "Ctrl" ? ctrl : name == "Alt" ? alt : shift;
      if (held) return bad(name + " is there twice", kHint);
      held = true;
    } else if (name.empty()) {
      const auto near = nearest_names(part, shortcut_keys());
      return bad(fmt::format("there is no key \"{}\"", part),
                 near.empty() ? kHint : fmt::format("did you mean {}?", fmt::join(near, ", ")));
    } else if (!key.empty()) {
      return bad(fmt::format("{} and {} cannot go together", key, name), kHint);
    } else {
      key = name;
    }
  }
  if (key.empty()) return bad("it has modifiers alone", kHint);
  return fmt::format("{}{}{}{}", ctrl ? "Ctrl+" : "", alt ? "Alt+" : "", shift ? "Shift+" : "",
                     key);
}

}  // namespace attnscope
