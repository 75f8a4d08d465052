#include "engine/io/json_object.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>

#include "engine/io/nearest.h"

namespace attnscope {
namespace {

using nlohmann::json;

// A value as a message shows it: short, on one line.
std::string shown(const json& value) {
  constexpr std::size_t kLongest = 60;
  if (value.is_object()) return "an object";
  if (value.is_array()) return fmt::format("a list of {}", value.size());
  std::string text = value.dump(-1, ' ', true, json::error_handler_t::replace);
  if (text.size() > kLongest) text = text.substr(0, kLongest) + "..";
  return text;
}

template <class T>
std::string range_text(const char* kind, T min, T max) {
  if (min == max) return fmt::format("{}", min);
  if (max == std::numeric_limits<T>::max()) return fmt::format("{} of at least {}", kind, min);
  return fmt::format("{} from {} to {}", kind, min, max);
}

// False when the value does not fit into 64 bits with a sign.
bool as_int64(const json& value, std::int64_t* out) {
  if (!value.is_number_integer()) return false;
  if (value.is_number_unsigned()) {
    const auto u = value.get<std::uint64_t>();
    if (u > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max())) return false;
  }
  *out = value.get<std::int64_t>();
  return true;
}

}  // namespace

std::string join(const std::vector<std::string>& items, const char* separator) {
  return fmt::format("{}", fmt::join(items, separator));
}

std::string shown_name(std::string_view name) {
  constexpr std::size_t kLongest = 100;
  const bool cut = name.size() > kLongest;
  std::string text(name.substr(0, kLongest));
  text = json(text).dump(-1, ' ', true, json::error_handler_t::replace);
  return cut ? text + ".." : text;
}

void JsonReader::fail(const std::string& place, const std::string& what, std::string hint) {
  if (failed_) return;
  failed_ = true;
  const std::string message = place.empty() ? fmt::format("{}: {}", file_, what)
                                            : fmt::format("{}: {}: {}", file_, place, what);
  error_ = bad_input(message, std::move(hint));
}

JsonObject::JsonObject(JsonReader& reader, const json& value, std::string place)
    : reader_(&reader), place_(std::move(place)) {
  if (value.is_object()) {
    value_ = &value;
  } else {
    reader_->fail(place_, "expected an object {..}, found " + shown(value));
  }
}

std::string JsonObject::place(const std::string& key) const {
  return place_.empty() ? key : place_ + "." + key;
}

void JsonObject::fail(const std::string& key, const std::string& what, std::string hint) {
  reader_->fail(place(key), what, std::move(hint));
}

void JsonObject::wrong(const std::string& where, const std::string& expected, const json& found) {
  reader_->fail(where, fmt::format("expected {}, found {}", expected, shown(found)));
}

const json* JsonObject::find(const std::string& key, bool required) {
  if (std::find(known_.begin(), known_.end(), key) == known_.end()) known_.push_back(key);
  if (value_ == nullptr) return nullptr;
  const auto it = value_->find(key);
  if (it != value_->end() && !it->is_null()) return &*it;
  if (required) fail(key, "required key is missing", misspelt(key));
  return nullptr;
}

std::string JsonObject::misspelt(const std::string& key) const {
  const int most = std::min<int>(2, static_cast<int>(key.size()) / 3);
  for (const auto& item : value_->items()) {
    if (std::ranges::find(known_, item.key()) != known_.end()) continue;
    if (edit_distance(item.key(), key) > most) continue;
    return fmt::format("there is {}: did you mean {}?", shown_name(item.key()), key);
  }
  return "";
}

bool JsonObject::has(const std::string& key) { return find(key, false) != nullptr; }

std::int64_t JsonObject::integer(const std::string& key, std::int64_t min, std::int64_t max) {
  const json* value = find(key, true);
  if (value == nullptr) return min;
  std::int64_t n = 0;
  if (as_int64(*value, &n) && n >= min && n <= max) return n;
  wrong(place(key), range_text("an integer", min, max), *value);
  return min;
}

std::int64_t JsonObject::integer(const std::string& key, std::int64_t min, std::int64_t max,
                                 std::int64_t fallback) {
  return has(key) ? integer(key, min, max) : fallback;
}

std::uint64_t JsonObject::unsigned_integer(const std::string& key, std::uint64_t fallback) {
  const json* value = find(key, false);
  if (value == nullptr) return fallback;
  if (value->is_number_unsigned()) return value->get<std::uint64_t>();
  wrong(place(key),
        fmt::format("an integer from 0 to {}", std::numeric_limits<std::uint64_t>::max()), *value);
  return fallback;
}

double JsonObject::number(const std::string& key, double min, double max) {
  const json* value = find(key, true);
  if (value == nullptr) return min;
  if (value->is_number()) {
    const double x = value->get<double>();
    if (x >= min && x <= max) return x;
  }
  wrong(place(key), range_text("a number", min, max), *value);
  return min;
}

double JsonObject::number(const std::string& key, double min, double max, double fallback) {
  return has(key) ? number(key, min, max) : fallback;
}

double JsonObject::number_or_infinity(const std::string& key, double min, double max) {
  const json* value = find(key, true);
  if (value == nullptr) return min;
  if (value->is_string()) {
    const auto& text = value->get_ref<const std::string&>();
    if (text == "inf") return std::numeric_limits<double>::infinity();
    if (text == "-inf") return -std::numeric_limits<double>::infinity();
  }
  if (value->is_number()) return number(key, min, max);
  wrong(place(key), range_text("a number", min, max) + ", \"-inf\" or \"inf\"", *value);
  return min;
}

std::vector<std::string> JsonObject::keys() const {
  std::vector<std::string> out;
  if (value_ == nullptr) return out;
  for (const auto& [key, value] : value_->items()) out.push_back(key);
  return out;
}

bool JsonObject::boolean(const std::string& key, bool fallback) {
  const json* value = find(key, false);
  if (value == nullptr) return fallback;
  if (value->is_boolean()) return value->get<bool>();
  wrong(place(key), "true or false", *value);
  return fallback;
}

std::string JsonObject::text(const std::string& key) {
  const json* value = find(key, true);
  if (value == nullptr) return {};
  if (value->is_string()) return value->get<std::string>();
  wrong(place(key), "a text in quotes", *value);
  return {};
}

std::string JsonObject::text(const std::string& key, const std::string& fallback) {
  return has(key) ? text(key) : fallback;
}

std::string JsonObject::choice(const std::string& key, const std::vector<std::string>& allowed,
                               const std::string& fallback) {
  const json* value = find(key, false);
  if (value == nullptr) return fallback;
  if (value->is_string()) {
    auto text = value->get<std::string>();
    if (std::find(allowed.begin(), allowed.end(), text) != allowed.end()) return text;
  }
  wrong(place(key), "one of " + join(allowed), *value);
  return fallback;
}

const json* JsonObject::array(const std::string& key) {
  const json* value = find(key, true);
  if (value != nullptr && !value->is_array()) {
    wrong(place(key), "a list [..]", *value);
    return nullptr;
  }
  return value;
}

std::vector<std::int64_t> JsonObject::integers(const std::string& key, std::int64_t min,
                                               std::int64_t max) {
  std::vector<std::int64_t> out;
  const json* list = array(key);
  if (list == nullptr) return out;
  for (std::size_t i = 0; i < list->size(); ++i) {
    std::int64_t n = 0;
    if (!as_int64((*list)[i], &n) || n < min || n > max) {
      wrong(fmt::format("{}[{}]", place(key), i), range_text("an integer", min, max), (*list)[i]);
      return out;
    }
    out.push_back(n);
  }
  return out;
}

std::vector<std::string> JsonObject::texts(const std::string& key) {
  std::vector<std::string> out;
  const json* list = array(key);
  if (list == nullptr) return out;
  for (std::size_t i = 0; i < list->size(); ++i) {
    if (!(*list)[i].is_string()) {
      wrong(fmt::format("{}[{}]", place(key), i), "a text in quotes", (*list)[i]);
      return out;
    }
    out.push_back((*list)[i].get<std::string>());
  }
  return out;
}

JsonObject JsonObject::object(const std::string& key) {
  const json* value = find(key, true);
  return value != nullptr ? JsonObject(*reader_, *value, place(key))
                          : JsonObject(*reader_, place(key));
}

std::vector<JsonObject> JsonObject::objects(const std::string& key) {
  std::vector<JsonObject> out;
  const json* list = array(key);
  if (list == nullptr) return out;
  for (std::size_t i = 0; i < list->size(); ++i) {
    out.emplace_back(*reader_, (*list)[i], fmt::format("{}[{}]", place(key), i));
  }
  return out;
}

void JsonObject::finish() {
  if (value_ == nullptr) return;
  for (const auto& item : value_->items()) {
    if (std::find(known_.begin(), known_.end(), item.key()) != known_.end()) continue;
    std::vector<std::string> allowed = known_;
    std::sort(allowed.begin(), allowed.end());
    // A key with characters that a line cannot show is quoted.
    const std::string quoted = shown_name(item.key());
    const bool plain = quoted.size() == item.key().size() + 2;
    fail(plain ? item.key() : quoted, "unknown key",
         did_you_mean(item.key(), allowed) + "allowed keys here: " + join(allowed));
    return;
  }
}

}  // namespace attnscope
