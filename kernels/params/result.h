// Result<T>: a value, or an error with a code, what went wrong where, and what to do next. Crosses
// every library border in place of an exception.
//
//   Result<Scenario> s = load_scenario(path);
//   if (!s) return s.error();
//   use(*s);
#pragma once

#include <string>
#include <utility>
#include <variant>

#include "kernels/params/lane.h"

namespace attnscope {

struct Error {
  as_status code = AS_INTERNAL;
  std::string message;  // what went wrong, where
  std::string hint;     // what to do next; may be empty

  // "message; hint" for one line on stderr.
  std::string text() const { return hint.empty() ? message : message + "; " + hint; }
};

template <class T>
class [[nodiscard]] Result {
 public:
  Result(T value) : value_(std::move(value)) {}
  Result(Error error) : value_(std::move(error)) {}

  explicit operator bool() const { return std::holds_alternative<T>(value_); }
  T& operator*() & { return std::get<T>(value_); }
  const T& operator*() const& { return std::get<T>(value_); }
  T&& operator*() && { return std::get<T>(std::move(value_)); }
  T* operator->() { return &std::get<T>(value_); }
  const T* operator->() const { return &std::get<T>(value_); }
  const Error& error() const { return std::get<Error>(value_); }

 private:
  std::variant<T, Error> value_;
};

template <>
class [[nodiscard]] Result<void> {
 public:
  Result() = default;
  Result(Error error) : error_(std::move(error)), failed_(true) {}

  explicit operator bool() const { return !failed_; }
  const Error& error() const { return error_; }

 private:
  Error error_;
  bool failed_ = false;
};

inline Error bad_input(std::string message, std::string hint = {}) {
  return {AS_BAD_INPUT, std::move(message), std::move(hint)};
}

inline Error usage_error(std::string message, std::string hint = {}) {
  return {AS_USAGE, std::move(message), std::move(hint)};
}

inline Error internal_error(std::string message) {
  return {AS_INTERNAL, std::move(message), "please report this with the scenario file"};
}

}  // namespace attnscope
