// Reading a C++ struct from parsed JSON with checks: every getter names file and place
// ("default.json: requests[1].tokens") and the allowed values when something is wrong.
//
//   JsonReader reader(file);
//   JsonObject root(reader, json);
//   budget = root.integer("token_budget", 1, 65536, 512);
//   root.finish();                       // a key nobody asked for is an error
//   if (!reader.ok()) return reader.error();
//
// The first error is kept; after it getters return their fallback, so that callers check once.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/params/result.h"

namespace attnscope {

class JsonReader {
 public:
  explicit JsonReader(std::string file) : file_(std::move(file)) {}

  // place "" = the file as a whole.
  void fail(const std::string& place, const std::string& what, std::string hint = {});
  bool ok() const { return !failed_; }
  const Error& error() const { return error_; }
  const std::string& file() const { return file_; }

 private:
  std::string file_;
  bool failed_ = false;
  Error error_;
};

// A view of one JSON object; the JSON value and the reader outlive it.
class JsonObject {
 public:
  JsonObject(JsonReader& reader, const nlohmann::json& value, std::string place = {});

  bool has(const std::string& key);  // present and not null
  std::vector<std::string> keys() const;

  // Without a fallback the key is required. Ranges are inclusive.
  std::int64_t integer(const std::string& key, std::int64_t min, std::int64_t max);
  std::int64_t integer(const std::string& key, std::int64_t min, std::int64_t max,
                       std::int64_t fallback);
  std::uint64_t unsigned_integer(const std::string& key, std::uint64_t fallback);
  double number(const std::string& key, double min, double max);
  double number(const std::string& key, double min, double max, double fallback);
  // The same, or one of the texts "-inf" and "inf".
  double number_or_infinity(const std::string& key, double min, double max);
  bool boolean(const std::string& key, bool fallback);
  std::string text(const std::string& key);
  std::string text(const std::string& key, const std::string& fallback);
  // A text that must be one of `allowed`.
  std::string choice(const std::string& key, const std::vector<std::string>& allowed,
                     const std::string& fallback);
  std::vector<std::int64_t> integers(const std::string& key, std::int64_t min, std::int64_t max);
  std::vector<std::string> texts(const std::string& key);
  JsonObject object(const std::string& key);
  std::vector<JsonObject> objects(const std::string& key);

  // Every key that no getter asked for is unknown.
  void finish();

  std::string place(const std::string& key) const;
  void fail(const std::string& key, const std::string& what, std::string hint = {});

 private:
  JsonObject(JsonReader& reader, std::string place) : reader_(&reader), place_(std::move(place)) {}
  const nlohmann::json* find(const std::string& key, bool required);
  // What to do about a missing key: names one that looks like it, which nobody asked for.
  std::string misspelt(const std::string& key) const;
  const nlohmann::json* array(const std::string& key);
  void wrong(const std::string& where, const std::string& expected, const nlohmann::json& found);

  JsonReader* reader_;
  const nlohmann::json* value_ = nullptr;  // null after an error
  std::string place_;
  std::vector<std::string> known_;
};

// A name as it is shown in messages: quoted, control characters escaped, cut when long.
std::string shown_name(std::string_view name);

// "a, b, c" for messages.
std::string join(const std::vector<std::string>& items, const char* separator = ", ");

}  // namespace attnscope
