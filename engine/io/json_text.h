// Structs to JSON text, without a tree in between: a step of a capture names thousands of values,
// and building their tree took longer than writing their tensors. What it writes is read by
// json_fields.h, which says what becomes of structs, lists, enumerators, NaN and infinities.
#pragma once

#include <fmt/format.h>

#include <iterator>
#include <string>
#include <string_view>

#include "engine/io/json_fields.h"

namespace attnscope {

class JsonText {
 public:
  template <class T>
  void operator()(const char* key, const T& value) {
    put_key(key);
    put(value);
  }
  template <class T>
  void later(const char* key, const T& value) {
    (*this)(key, value);
  }

  template <class T>
  void put(const T& value) {
    if constexpr (std::is_same_v<T, bool>) {
      append(value ? "true" : "false");
    } else if constexpr (std::is_floating_point_v<T>) {
      put_number(static_cast<double>(value));
    } else if constexpr (std::is_enum_v<T>) {
      put_text(EnumText<T>::name(static_cast<int>(value)));
    } else if constexpr (std::is_arithmetic_v<T>) {
      fmt::format_to(std::back_inserter(out_), "{}", +value);
    } else if constexpr (std::is_same_v<T, std::string>) {
      put_text(value);
    } else {
      open('{');
      fields(*this, const_cast<T&>(value));
      close('}');
    }
  }
  template <class T>
  void put(const std::vector<T>& list) {
    if constexpr (IsPlain<T>::value) {
      open('[');
      for (const T& item : list) {
        comma();
        put(item);
      }
      close(']');
    } else {
      put_table(list);
    }
  }
  template <class T>
  void put(const std::optional<T>& value) {
    if (value) return put(*value);
    append("null");
  }

  std::string text() const { return fmt::to_string(out_); }

 private:
  // Rows of a table: values alone, or names alone.
  struct Values {
    JsonText& out;
    template <class T>
    void operator()(const char*, const T& value) {
      out.comma();
      out.put(value);
    }
    template <class T>
    void later(const char* key, const T& value) {
      (*this)(key, value);
    }
  };
  struct Names {
    JsonText& out;
    template <class T>
    void operator()(const char* key, const T&) {
      out.comma();
      out.put_text(key);
    }
    template <class T>
    void later(const char* key, const T& value) {
      (*this)(key, value);
    }
  };
  template <class T>
  void put_table(const std::vector<T>& list) {
    open('{');
    put_key("columns");
    open('[');
    Names names{*this};
    if (!list.empty()) fields(names, const_cast<T&>(list.front()));
    close(']');
    put_key("rows");
    open('[');
    Values values{*this};
    for (const T& item : list) {
      comma();
      open('[');
      fields(values, const_cast<T&>(item));
      close(']');
    }
    close(']');
    close('}');
  }

  void append(std::string_view text) { out_.append(text.data(), text.data() + text.size()); }
  void open(char bracket) {
    out_.push_back(bracket);
    first_ = true;
  }
  void close(char bracket) {
    out_.push_back(bracket);
    first_ = false;
  }
  void comma() {
    if (!first_) out_.push_back(',');
    first_ = false;
  }
  void put_key(std::string_view key) {
    comma();
    put_text(key);
    out_.push_back(':');
  }
  void put_text(std::string_view text);
  void put_number(double value);

  fmt::memory_buffer out_;
  bool first_ = true;  // no item stands before the next one in its brackets
};

// Bytes that are no UTF-8 become U+FFFD.
template <class T>
std::string to_json_text(const T& value) {
  JsonText writer;
  writer.put(value);
  return writer.text();
}
// The same as a tree, for what is small.
template <class T>
nlohmann::json to_json_fields(const T& value) {
  return nlohmann::json::parse(to_json_text(value));
}

}  // namespace attnscope
