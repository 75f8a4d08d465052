#include "engine/sched/replay_file.h"

#include <fmt/format.h>

#include <array>
#include <charconv>
#include <limits>
#include <nlohmann/json.hpp>

#include "engine/io/json_file.h"
#include "engine/io/json_object.h"
#include "engine/sched/workload_file.h"

namespace attnscope {
namespace {

constexpr const char* kFormat = "attnscope-blocks-replay";
constexpr std::int64_t kReplayVersion = 1;
constexpr std::int64_t kMostOfCall = std::int64_t{1} << 30;
constexpr std::int64_t kMostId = std::int64_t{1} << 53;  // what every JSON reader keeps exactly
constexpr std::int64_t kLowToken = std::numeric_limits<std::int32_t>::min() + 1;
constexpr std::int64_t kHighToken = std::numeric_limits<std::int32_t>::max();
constexpr std::array kCalls = {"add", "schedule", "results", "abort", "reset"};

std::vector<std::int32_t> narrow(const std::vector<std::int64_t>& wide) {
  std::vector<std::int32_t> out;
  out.reserve(wide.size());
  for (const std::int64_t w : wide) out.push_back(static_cast<std::int32_t>(w));
  return out;
}

// longest: tokens of a prompt, so that a short line cannot ask for gigabytes.
void read_prompt(JsonObject& line, std::int64_t longest, SchedRequest& r) {
  if (line.has("prompt_range") == line.has("tokens")) {
    line.fail("tokens", "a prompt is \"tokens\" or \"prompt_range\", one of them");
    return;
  }
  if (line.has("tokens")) {
    r.tokens = narrow(line.integers("tokens", kLowToken, kHighToken));
    return;
  }
  const std::vector<std::int64_t> range = line.integers("prompt_range", 0, kHighToken);
  if (range.size() != 2 || range[1] < range[0]) {
    line.fail("prompt_range", "is no range", "give [first, last] with first <= last");
    return;
  }
  if (range[1] - range[0] >= longest) {
    line.fail("prompt_range",
              fmt::format("has {} tokens, max_model_len is {}", range[1] - range[0] + 1, longest),
              "raise max_model_len in the first line, or give a shorter prompt");
    return;
  }
  r.tokens.reserve(static_cast<std::size_t>(range[1] - range[0] + 1));
  for (std::int64_t t = range[0]; t <= range[1]; ++t) {
    r.tokens.push_back(static_cast<std::int32_t>(t));
  }
}

void read_add(JsonObject& line, std::int64_t adds, std::int64_t longest, SchedRequest& r) {
  r.id = line.integer("id", 0, kMostId);
  read_prompt(line, longest, r);
  r.arrival = line.number("arrival", -1e18, 1e18, static_cast<double>(adds));
  r.priority = line.integer("priority", -kMostOfCall, kMostOfCall, 0);
  r.stop.max_tokens = line.integer("max_tokens", 1, kMostOfCall);
  r.stop.min_tokens = line.integer("min_tokens", 0, kMostOfCall, 0);
  r.stop.end_token = static_cast<std::int32_t>(line.integer("end_token", -1, kHighToken, -1));
  r.stop.ignore_end = line.boolean("ignore_end", false);
  if (line.has("stop_tokens")) {
    r.stop.stop_tokens = narrow(line.integers("stop_tokens", kLowToken, kHighToken));
  }
  r.skip_lookup = line.boolean("skip_lookup", false);
  r.extras.adapter = line.text("adapter", "");
  r.extras.salt = line.text("salt", "");
  if (!line.has("media")) return;
  for (JsonObject& item : line.objects("media")) {
    MediaItem media;
    media.identifier = item.text("identifier");
    media.offset = item.integer("offset", 0, kMostOfCall);
    media.length = item.integer("length", 1, kMostOfCall);
    item.finish();
    const std::vector<MediaItem>& before = r.extras.media;
    if (!before.empty() && media.offset < before.back().offset + before.back().length) {
      line.fail("media",
                fmt::format("\"{}\" begins before \"{}\" ends", media.identifier,
                            before.back().identifier),
                "give media by offset; no two share a token");
      return;
    }
    r.extras.media.push_back(std::move(media));
  }
}

// "tokens": {"0": [9], "3": []}
void read_results(JsonObject& line, const nlohmann::json& parsed, ReplayCall& call) {
  JsonObject tokens = line.object("tokens");
  const auto it = parsed.find("tokens");
  if (it == parsed.end() || !it->is_object()) return;  // told already
  for (const auto& [key, value] : it->items()) {
    std::int64_t id = -1;
    const auto [end, error] = std::from_chars(key.data(), key.data() + key.size(), id);
    if (error != std::errc() || end != key.data() + key.size() || id < 0 ||
        key != std::to_string(id)) {
      tokens.fail(key, "is no request id", "keys of \"tokens\" are ids, in quotes");
      return;
    }
    call.tokens.emplace_back(id, narrow(tokens.integers(key, kLowToken, kHighToken)));
  }
  tokens.finish();
}

void read_call(JsonObject& line, const nlohmann::json& parsed, std::int64_t& adds,
               std::int64_t longest, ReplayCall& call) {
  const std::string name = line.choice("call", {kCalls.begin(), kCalls.end()}, "");
  if (!line.has("call")) {
    line.fail("call", "is missing",
              fmt::format("allowed: {}", join({kCalls.begin(), kCalls.end()})));
    return;
  }
  for (std::size_t i = 0; i < kCalls.size(); ++i) {
    if (name == kCalls[i]) call.kind = static_cast<ReplayCallKind>(i);
  }
  switch (call.kind) {
    case ReplayCallKind::kAdd:
      read_add(line, adds++, longest, call.request);
      break;
    case ReplayCallKind::kResults:
      read_results(line, parsed, call);
      break;
    case ReplayCallKind::kAbort:
      call.id = line.integer("id", 0, kMostId);
      break;
    case ReplayCallKind::kReset:
      call.preempt_running = line.boolean("preempt_running", false);
      break;
    case ReplayCallKind::kSchedule:
      break;
  }
  if (line.has("expect")) {
    if (parsed.at("expect").is_object()) {
      call.expect = std::make_shared<const nlohmann::json>(parsed.at("expect"));
    } else {
      line.fail("expect", "is no object", "give the keys to compare and their values");
    }
  }
  line.finish();
}

void read_header(JsonObject& line, const nlohmann::json& parsed, Replay& replay) {
  line.choice("format", {kFormat}, "");
  if (!line.has("format")) line.fail("format", "is missing", fmt::format("allowed: {}", kFormat));
  line.integer("version", kReplayVersion, kReplayVersion);
  if (line.has("show")) {
    replay.show_tables = false;
    for (const std::string& part : line.texts("show")) {
      if (part == "tables") {
        replay.show_tables = true;
      } else if (part == "queue") {
        replay.show_queue = true;
      } else {
        line.fail("show", shown_name(part) + " is unknown", "allowed: tables, queue");
      }
    }
  }
  replay.options.steps_in_flight = line.integer("steps_in_flight", 1, 16, 1);
  read_engine(line, parsed, read_profile(line, std::nullopt), replay.options);
  line.finish();
}

}  // namespace

const char* replay_call_name(ReplayCallKind kind) { return kCalls[static_cast<std::size_t>(kind)]; }

Result<Replay> parse_replay(const std::string& text, const std::string& name) {
  Replay replay;
  replay.name = name;
  std::int64_t adds = 0;
  bool header = false;
  const auto take = [&](const nlohmann::json& parsed, int number,
                        const std::string& place) -> Result<void> {
    JsonReader reader(place);
    JsonObject object(reader, parsed);
    if (!header) {
      read_header(object, parsed, replay);
      header = true;
    } else {
      ReplayCall call;
      call.line = number;
      read_call(object, parsed, adds, replay.options.kv.max_model_len, call);
      replay.calls.push_back(std::move(call));
    }
    if (!reader.ok()) return reader.error();
    return {};
  };
  if (auto ok = for_each_json_line(text, name, take); !ok) return ok.error();
  if (!header) {
    return bad_input(name + ": holds no line",
                     fmt::format("the first line names the format, {}", kFormat));
  }
  if (Result<SchedulerOptions> good = check_options(replay.options); !good) {
    return bad_input(name + ": " + good.error().message, good.error().hint);
  }
  return replay;
}

}  // namespace attnscope
