#include "engine/config/kv_event_file.h"

#include <fmt/format.h>

#include <array>
#include <iterator>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string_view>

#include "engine/io/json_file.h"
#include "engine/io/json_object.h"

namespace attnscope {
namespace {

using nlohmann::json;

constexpr std::array kStored = {"block_hashes",
                                "parent_block_hash",
                                "token_ids",
                                "block_size",
                                "lora_id",
                                "medium",
                                "lora_name",
                                "extra_keys",
                                "group_idx",
                                "kv_cache_spec_kind",
                                "kv_cache_spec_sliding_window"};
constexpr std::array kRemoved = {"block_hashes", "medium", "group_idx"};

// The fields of an event by name, whichever form they came in: an object, or a list in the order of
// `names` after the event's own name.
class Fields {
 public:
  Fields(const json& value, std::span<const char* const> names) : value_(value), names_(names) {}
  // Null when missing or null.
  const json* find(const char* name) const {
    const json* found = nullptr;
    if (value_.is_object()) {
      const auto it = value_.find(name);
      if (it != value_.end()) found = &*it;
    } else {
      for (std::size_t i = 0; i < names_.size() && i + 1 < value_.size(); ++i) {
        if (std::string_view(names_[i]) == name) found = &value_[i + 1];
      }
    }
    return found == nullptr || found->is_null() ? nullptr : found;
  }
  std::size_t too_many() const {
    return value_.is_array() && value_.size() > names_.size() + 1 ? value_.size() - 1 : 0;
  }
  std::size_t known() const { return names_.size(); }

 private:
  const json& value_;
  std::span<const char* const> names_;
};

// A stream is foreign data: every access is checked, and says where it was.
class EventReader {
 public:
  explicit EventReader(std::string place) : place_(std::move(place)) {}
  const std::optional<Error>& error() const { return error_; }
  void fail(const std::string& what, const std::string& hint) {
    if (!error_) error_ = bad_input(place_ + ": " + what, hint);
  }

  KvEventBatch batch(const json& value) {
    KvEventBatch out;
    const json* events = nullptr;
    if (value.is_array() && value.size() >= 2 && value.size() <= 3 && value[0].is_number()) {
      out.time = value[0].get<double>();
      events = &value[1];
      if (value.size() == 3 && value[2].is_number_integer())
        out.rank = value[2].get<std::int64_t>();
    } else if (value.is_object() && value.contains("events")) {
      if (value.contains("ts") && value["ts"].is_number()) out.time = value["ts"].get<double>();
      if (value.contains("data_parallel_rank") && value["data_parallel_rank"].is_number_integer()) {
        out.rank = value["data_parallel_rank"].get<std::int64_t>();
      }
      events = &value["events"];
    }
    if (events == nullptr || !events->is_array()) {
      fail("is no batch of events",
           "a batch is [time, [events], rank] or an object with \"events\"");
      return out;
    }
    for (std::size_t i = 0; i < events->size() && !error_; ++i) {
      where_ = fmt::format("event {}: ", i);
      out.events.push_back(event((*events)[i]));
    }
    return out;
  }

 private:
  void wrong(const std::string& what, const std::string& hint) { fail(where_ + what, hint); }

  KvEvent event(const json& value) {
    KvEvent out;
    std::string name;
    if (value.is_object() && value.contains("type") && value["type"].is_string()) {
      name = value["type"].get<std::string>();
    } else if (value.is_array() && !value.empty() && value[0].is_string()) {
      name = value[0].get<std::string>();
    } else {
      wrong("has no name", "an event is an object with \"type\" or a list that begins with it");
      return out;
    }
    if (name == "BlockStored") {
      out.kind = KvEventKind::kBlockStored;
      stored(named(value, kStored), out);
    } else if (name == "BlockRemoved") {
      out.kind = KvEventKind::kBlockRemoved;
      const Fields fields = named(value, kRemoved);
      hashes(fields, out);
      common(fields, out);
    } else if (name == "AllBlocksCleared") {
      out.kind = KvEventKind::kAllBlocksCleared;
    } else {
      wrong(shown_name(name) + " is no event",
            "known: BlockStored, BlockRemoved, AllBlocksCleared");
    }
    return out;
  }

  Fields named(const json& value, std::span<const char* const> names) {
    Fields fields(value, names);
    if (fields.too_many() > 0) {
      wrong(fmt::format("has {} fields, at most {} are known", fields.too_many(), fields.known()),
            "this version of the stream is too new");
    }
    return fields;
  }

  std::string hash(const json& value) {
    if (value.is_string()) return value.get<std::string>();
    if (value.is_number_unsigned()) return fmt::format("{:016x}", value.get<std::uint64_t>());
    if (value.is_number_integer()) {
      return fmt::format("{:016x}", static_cast<std::uint64_t>(value.get<std::int64_t>()));
    }
    if (value.is_binary()) {
      std::string out;
      for (const std::uint8_t byte : value.get_binary()) out += fmt::format("{:02x}", byte);
      return out;
    }
    wrong("a hash is of the wrong type", "hashes are integers, texts or bytes");
    return {};
  }

  void hashes(const Fields& fields, KvEvent& out) {
    const json* list = fields.find("block_hashes");
    if (list == nullptr || !list->is_array()) {
      wrong("block_hashes is missing or no list", "list the hashes of the blocks");
      return;
    }
    for (const json& value : *list) out.hashes.push_back(hash(value));
  }

  std::int64_t integer(const Fields& fields, const char* name, std::int64_t low, std::int64_t high,
                       std::int64_t fallback) {
    const json* value = fields.find(name);
    if (value == nullptr) return fallback;
    if (value->is_number_integer()) {
      const bool big = value->is_number_unsigned() &&
                       value->get<std::uint64_t>() > static_cast<std::uint64_t>(high);
      if (!big && value->get<std::int64_t>() >= low && value->get<std::int64_t>() <= high) {
        return value->get<std::int64_t>();
      }
    }
    wrong(fmt::format("{} is no integer from {} to {}", name, low, high), "");
    return fallback;
  }

  std::string text(const Fields& fields, const char* name) {
    const json* value = fields.find(name);
    if (value == nullptr) return {};
    if (value->is_string()) return value->get<std::string>();
    wrong(fmt::format("{} is no text", name), "");
    return {};
  }

  void common(const Fields& fields, KvEvent& out) {
    out.group = static_cast<std::int32_t>(integer(fields, "group_idx", 0, 1 << 20, -1));
    out.medium = text(fields, "medium");
  }

  void stored(const Fields& fields, KvEvent& out) {
    hashes(fields, out);
    common(fields, out);
    if (const json* parent = fields.find("parent_block_hash")) out.parent = hash(*parent);
    out.block_tokens = integer(fields, "block_size", 1, 1 << 30, 0);
    out.adapter = text(fields, "lora_name");
    out.spec_kind = text(fields, "kv_cache_spec_kind");
    out.window = integer(fields, "kv_cache_spec_sliding_window", 0, 1 << 30, 0);
    const json* tokens = fields.find("token_ids");
    if (tokens == nullptr) return;
    if (!tokens->is_array()) return wrong("token_ids is no list", "");
    for (const json& token : *tokens) {
      constexpr std::int64_t kLow = std::numeric_limits<std::int32_t>::min();
      constexpr std::int64_t kHigh = std::numeric_limits<std::int32_t>::max();
      const bool unsigned_fits = !token.is_number_unsigned() ||
                                 token.get<std::uint64_t>() <= static_cast<std::uint64_t>(kHigh);
      const std::int64_t id =
          token.is_number_integer() && unsigned_fits ? token.get<std::int64_t>() : kHigh + 1;
      if (id < kLow || id > kHigh) {
        return wrong(fmt::format("token id {} is no integer of 32 bits", out.tokens.size()), "");
      }
      out.tokens.push_back(static_cast<std::int32_t>(id));
    }
  }

  std::string place_;
  std::string where_;
  std::optional<Error> error_;
};

// Lets a MessagePack reader, which calls itself for what is nested, go no deeper than a stream
// does.
class DepthGuard : public json::json_sax_t {
 public:
  bool null() override { return true; }
  bool boolean(bool /*value*/) override { return true; }
  bool number_integer(number_integer_t /*value*/) override { return true; }
  bool number_unsigned(number_unsigned_t /*value*/) override { return true; }
  bool number_float(number_float_t /*value*/, const string_t& /*text*/) override { return true; }
  bool string(string_t& /*value*/) override { return true; }
  bool binary(binary_t& /*value*/) override { return true; }
  bool start_object(std::size_t /*size*/) override { return ++depth_ <= kDeepest; }
  bool key(string_t& /*value*/) override { return true; }
  bool end_object() override { return --depth_ >= 0; }
  bool start_array(std::size_t /*size*/) override { return ++depth_ <= kDeepest; }
  bool end_array() override { return --depth_ >= 0; }
  bool parse_error(std::size_t at, const std::string& /*token*/,
                   const json::exception& /*error*/) override {
    at_ = at;
    return false;
  }
  // Where it ended: "nested too deeply" or the byte.
  std::string where() const {
    return depth_ > kDeepest ? fmt::format("nested deeper than {} levels", kDeepest)
                             : fmt::format("no MessagePack from byte {}", at_);
  }

 private:
  static constexpr int kDeepest = 32;
  int depth_ = 0;
  std::size_t at_ = 0;
};

bool is_batch(const json& value) {
  return value.is_object() || (value.is_array() && value.size() >= 2 && value[0].is_number());
}

Result<std::vector<KvEventBatch>> read_value(const json& value, const std::string& place) {
  std::vector<KvEventBatch> out;
  if (is_batch(value)) {
    EventReader reader(place);
    out.push_back(reader.batch(value));
    if (reader.error()) return *reader.error();
    return out;
  }
  if (!value.is_array()) {
    return bad_input(place + ": is no batch of events",
                     "a batch is [time, [events], rank] or an object with \"events\"");
  }
  for (std::size_t i = 0; i < value.size(); ++i) {
    EventReader reader(fmt::format("{}: batch {}", place, i));
    out.push_back(reader.batch(value[i]));
    if (reader.error()) return *reader.error();
  }
  return out;
}

Result<std::vector<KvEventBatch>> read_lines(const std::string& text, const std::string& name) {
  std::vector<KvEventBatch> out;
  auto ok = for_each_json_line(
      text, name, [&](const json& value, int /*line*/, const std::string& place) -> Result<void> {
        Result<std::vector<KvEventBatch>> some = read_value(value, place);
        if (!some) return some.error();
        std::move(some->begin(), some->end(), std::back_inserter(out));
        return {};
      });
  if (!ok) return ok.error();
  return out;
}

}  // namespace

Result<std::vector<KvEventBatch>> parse_kv_events(const std::string& bytes,
                                                  const std::string& name) {
  const std::size_t start = bytes.find_first_not_of(" \t\r\n");
  if (start == std::string::npos) return bad_input(name + ": is empty", "give a stream of events");
  if (bytes[start] == '{' || bytes[start] == '[') {
    // Several lines that each hold a value are no value as a whole.
    const Result<json> whole = parse_json(bytes, name);
    if (whole) return read_value(*whole, name);
    const std::size_t end = bytes.find('\n', start);
    const bool lines = end < bytes.find_last_not_of(" \t\r\n") &&
                       static_cast<bool>(parse_json(bytes.substr(start, end - start), name));
    if (!lines) return whole.error();
    return read_lines(bytes, name);
  }
  DepthGuard guard;
  if (!json::sax_parse(bytes, &guard, json::input_format_t::msgpack)) {
    return bad_input(fmt::format("{}: is neither JSON nor MessagePack of batches of events ({})",
                                 name, guard.where()),
                     "give batches of events in one of the two");
  }
  const json value = json::from_msgpack(bytes.begin(), bytes.end(), true, false);
  if (value.is_discarded()) {
    return bad_input(name + ": is neither JSON nor MessagePack",
                     "give batches of events in one of the two");
  }
  return read_value(value, name);
}

std::string kv_events_json(const KvEventBatch& batch) {
  nlohmann::ordered_json events = nlohmann::ordered_json::array();
  for (const KvEvent& e : batch.events) {
    nlohmann::ordered_json j;
    if (e.kind == KvEventKind::kAllBlocksCleared) {
      j["type"] = "AllBlocksCleared";
      events.push_back(j);
      continue;
    }
    const bool stored = e.kind == KvEventKind::kBlockStored;
    j["type"] = stored ? "BlockStored" : "BlockRemoved";
    j["block_hashes"] = e.hashes;
    if (stored) {
      j["parent_block_hash"] =
          e.parent ? nlohmann::ordered_json(*e.parent) : nlohmann::ordered_json(nullptr);
      j["token_ids"] = e.tokens;
      if (e.block_tokens > 0) j["block_size"] = e.block_tokens;
      if (!e.adapter.empty()) j["lora_name"] = e.adapter;
    }
    if (!e.medium.empty()) j["medium"] = e.medium;
    if (e.group >= 0) j["group_idx"] = e.group;
    if (stored && !e.spec_kind.empty()) j["kv_cache_spec_kind"] = e.spec_kind;
    if (stored && e.window > 0) j["kv_cache_spec_sliding_window"] = e.window;
    events.push_back(std::move(j));
  }
  nlohmann::ordered_json out = {{"ts", batch.time}, {"events", events}};
  if (batch.rank >= 0) out["data_parallel_rank"] = batch.rank;
  return out.dump();
}

}  // namespace attnscope
