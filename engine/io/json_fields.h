// Structs from JSON, field by field, from one list of their fields (trace_fields.h):
//
//   template <class V>
//   void fields(V& v, StepHeader& h) { v("step", h.step), v("tokens", h.tokens); }
//   if (std::string wrong = from_json_fields(json, header); !wrong.empty()) ..
//
// names the field that is missing or of another kind. json_text.h writes them.
//
// A list of structs is a table: {"columns": ["step", ..], "rows": [[12, ..], ..]}, a third of the
// size. NaN and infinities are texts, since JSON has none. Keys that nobody asks for are ignored:
// they are what a later program of the same format version wrote.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <type_traits>
#include <vector>

#include "kernels/params/op_table.h"

namespace attnscope {

// Text of an enumerator and back: specialise with `kCount` and `name(int)`, nullptr = no such
// value.
template <class E>
struct EnumText;

template <>
struct EnumText<as_op_id> {
  static constexpr int kCount = AS_OP_COUNT;
  static const char* name(int i) { return as_op_find(i)->name; }
};

// What has fields: neither a number nor a text, an enumerator, a list or an optional.
template <class T>
struct IsPlain : std::bool_constant<std::is_arithmetic_v<T> || std::is_enum_v<T>> {};
template <>
struct IsPlain<std::string> : std::true_type {};
template <class T>
struct IsPlain<std::vector<T>> : std::true_type {};
template <class T>
struct IsPlain<std::optional<T>> : std::true_type {};

// JSON has neither NaN nor infinities: they are the texts "nan", "inf" and "-inf".
inline nlohmann::json json_number(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  return value;
}

class JsonFieldReader {
 public:
  JsonFieldReader(const nlohmann::json& in, std::string& wrong) : in_(in), wrong_(wrong) {}
  template <class T>
  void operator()(const char* key, T& value) {
    if (!wrong_.empty()) return;
    const auto it = in_.find(key);
    if (it == in_.end() || !get(*it, value, wrong_)) {
      wrong_ = wrong_.empty() ? std::string(key) : key + ("." + wrong_);
    }
  }
  // A field that older files of the same format version lack: the value stays.
  template <class T>
  void later(const char* key, T& value) {
    if (in_.contains(key)) (*this)(key, value);
  }
  template <class T>
  static bool get(const nlohmann::json& in, T& value, std::string& wrong) {
    if constexpr (std::is_same_v<T, bool>) {
      if (!in.is_boolean()) return false;
      value = in.get<bool>();
      return true;
    } else if constexpr (std::is_floating_point_v<T>) {
      return get_number(in, value);
    } else if constexpr (std::is_enum_v<T>) {
      return get_enum(in, value);
    } else if constexpr (std::is_integral_v<T>) {
      return get_integer(in, value);
    } else if constexpr (std::is_same_v<T, std::string>) {
      if (!in.is_string()) return false;
      value = in.get_ref<const std::string&>();
      return true;
    } else {
      if (!in.is_object()) return false;
      JsonFieldReader reader(in, wrong);
      fields(reader, value);
      return wrong.empty();
    }
  }
  template <class T>
  static bool get(const nlohmann::json& in, std::vector<T>& list, std::string& wrong) {
    list.clear();
    if constexpr (IsPlain<T>::value) {
      if (!in.is_array()) return false;
      list.reserve(in.size());
      for (const nlohmann::json& item : in) {
        if (!get(item, list.emplace_back(), wrong)) return wrong_item(list.size(), wrong);
      }
      return true;
    } else {
      return get_table(in, list, wrong);
    }
  }
  template <class T>
  static bool get(const nlohmann::json& in, std::optional<T>& value, std::string& wrong) {
    value.reset();
    return in.is_null() || get(in, value.emplace(), wrong);
  }

 private:
  // One row of a table; columns in whatever order.
  struct RowReader {
    const nlohmann::json &names, &values;
    std::string& wrong;
    std::size_t next = 0;
    template <class T>
    void operator()(const char* key, T& value) {
      if (!wrong.empty()) return;
      std::size_t at = next;
      if (at >= names.size() || names[at] != key) {
        for (at = 0; at < names.size() && names[at] != key;) ++at;
      }
      next = at + 1;
      if (at >= values.size() || !get(values[at], value, wrong)) {
        wrong = wrong.empty() ? std::string(key) : key + ("." + wrong);
      }
    }
    // A column that tables of before do not have.
    template <class T>
    void later(const char* key, T& value) {
      if (std::find(names.begin(), names.end(), key) != names.end()) (*this)(key, value);
    }
  };
  template <class T>
  static bool get_table(const nlohmann::json& in, std::vector<T>& list, std::string& wrong) {
    if (!in.is_object() || !in.contains("columns") || !in.contains("rows")) return false;
    const nlohmann::json &names = in["columns"], &rows = in["rows"];
    if (!names.is_array() || !rows.is_array()) return false;
    list.reserve(rows.size());
    for (const nlohmann::json& values : rows) {
      T& item = list.emplace_back();
      if (!values.is_array()) return wrong_item(list.size(), wrong);
      RowReader reader{names, values, wrong};
      fields(reader, item);
      if (!wrong.empty()) return wrong_item(list.size(), wrong);
    }
    return true;
  }
  static bool wrong_item(std::size_t count, std::string& wrong) {
    wrong = std::to_string(count - 1) + (wrong.empty() ? "" : "." + wrong);
    return false;
  }

  template <class T>
  static bool get_number(const nlohmann::json& in, T& value) {
    if (in.is_number()) {
      value = in.get<T>();
      return true;
    }
    if (!in.is_string()) return false;
    const auto& text = in.get_ref<const std::string&>();
    if (text != "nan" && text != "inf" && text != "-inf") return false;
    const T infinity = std::numeric_limits<T>::infinity();
    value = text == "nan"   ? std::numeric_limits<T>::quiet_NaN()
            : text == "inf" ? infinity
                            : -infinity;
    return true;
  }
  template <class T>
  static bool get_integer(const nlohmann::json& in, T& value) {
    if (in.is_number_unsigned()) {
      const auto n = in.get<std::uint64_t>();
      value = static_cast<T>(n);
      return n <= static_cast<std::uint64_t>(std::numeric_limits<T>::max());
    }
    if (!in.is_number_integer()) return false;
    const auto n = in.get<std::int64_t>();
    value = static_cast<T>(n);
    return std::is_signed_v<T> && n >= static_cast<std::int64_t>(std::numeric_limits<T>::min());
  }
  template <class E>
  static bool get_enum(const nlohmann::json& in, E& value) {
    if (!in.is_string()) return false;
    const auto& text = in.get_ref<const std::string&>();
    for (int i = 0; i < EnumText<E>::kCount; ++i) {
      if (text == EnumText<E>::name(i)) {
        value = static_cast<E>(i);
        return true;
      }
    }
    return false;
  }

  const nlohmann::json& in_;
  std::string& wrong_;  // path of the first field that does not fit; empty = all fit so far
};

// Path of the first field that is missing or of another kind; empty = all is read.
template <class T>
std::string from_json_fields(const nlohmann::json& in, T& value) {
  std::string wrong;
  if (!JsonFieldReader::get(in, value, wrong) && wrong.empty()) wrong = "(itself)";
  return wrong;
}

}  // namespace attnscope
