#include "engine/sched/workload_file.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <limits>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "engine/io/assets_folder.h"
#include "engine/io/json_file.h"
#include "engine/io/json_object.h"

namespace attnscope {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kMostOfSetting = std::int64_t{1} << 30;
// Tokens of different requests stay apart modulo 2^32, and digests hold ids in 32 bits.
constexpr std::int64_t kMostInWorkload = 1000000;
// About a gigabyte of bookkeeping.
constexpr std::int64_t kMostWorkloadBlocks = std::int64_t{1} << 24;

template <class Enum>
struct Choice {
  const char* name;
  Enum value;
};

// One switch by name; what the file does not say stays.
template <class Enum, std::size_t N>
void read_choice(JsonObject& object, const char* key, const Choice<Enum> (&choices)[N],
                 Enum& value) {
  std::vector<std::string> names;
  std::string current;
  for (const Choice<Enum>& c : choices) {
    names.emplace_back(c.name);
    if (c.value == value) current = c.name;
  }
  const std::string chosen = object.choice(key, names, current);
  for (const Choice<Enum>& c : choices) {
    if (chosen == c.name) value = c.value;
  }
}

constexpr Choice<FreeOrder> kFreeOrders[] = {{"append", FreeOrder::kAppend},
                                             {"split-front", FreeOrder::kSplitFront},
                                             {"lifo-when-uncached", FreeOrder::kLifoWhenUncached}};
constexpr Choice<RetentionMask> kMasks[] = {{"tail", RetentionMask::kTail},
                                            {"tail+draft-shift", RetentionMask::kTailDraftShift}};
constexpr Choice<WindowBasis> kBases[] = {{"computed", WindowBasis::kComputed},
                                          {"processed", WindowBasis::kProcessed}};
constexpr Choice<AdoptOrder> kAdopts[] = {{"per-group", AdoptOrder::kPerGroup},
                                          {"two-phase", AdoptOrder::kTwoPhase}};
constexpr Choice<CapBasis> kCaps[] = {{"budget", CapBasis::kBudget},
                                      {"in-flight", CapBasis::kInFlight}};
constexpr Choice<VictimCursor> kCursors[] = {{"scheduled-only", VictimCursor::kScheduledOnly},
                                             {"below-cursor", VictimCursor::kBelowCursor}};
constexpr Choice<StatsPoint> kStats[] = {{"lookup", StatsPoint::kLookup},
                                         {"admission", StatsPoint::kAdmission}};
constexpr Choice<FullTrim> kTrims[] = {{"floor", FullTrim::kFloor},
                                       {"stored-length", FullTrim::kStoredLength}};
constexpr Choice<ConcurrencyFigure> kFigures[] = {{"by-bytes", ConcurrencyFigure::kByBytes},
                                                  {"by-group", ConcurrencyFigure::kByGroup}};

// `holder` has the key "retention".
void read_retention(JsonObject& holder, const nlohmann::json& parsed,
                    std::optional<std::int64_t>& retention) {
  if (parsed.is_string()) {
    holder.choice("retention", {"dense"}, "dense");
    retention.reset();
  } else {
    retention = holder.integer("retention", 0, kMostOfSetting);
  }
}

void read_chunks(JsonObject& root, AdaptiveChunks& chunks) {
  if (!root.has("adaptive_chunks")) return;
  JsonObject object = root.object("adaptive_chunks");
  chunks.least = object.integer("least", 1, kMostOfSetting);
  chunks.most = object.integer("most", 1, kMostOfSetting);
  object.finish();
}

void read_swap(JsonObject& root, SchedulerOptions& options) {
  const bool swaps = root.choice("preemption", {"recompute", "swap"}, "recompute") == "swap";
  if (swaps) {
    options.swap_blocks = root.integer("swap_blocks", 1, kMostWorkloadBlocks);
  } else if (root.has("swap_blocks")) {
    root.fail("swap_blocks", "nothing is swapped: preempted requests are computed anew",
              "give \"preemption\": \"swap\" too, or leave the key out");
  }
}

void read_switches(JsonObject& root, const nlohmann::json& parsed, SchedulerOptions& options) {
  if (!root.has("switches")) return;
  JsonObject object = root.object("switches");
  CacheSwitches& s = options.kv.switches;
  read_choice(object, "free_order", kFreeOrders, s.free_order);
  read_choice(object, "mask", kMasks, s.mask);
  read_choice(object, "window_basis", kBases, s.window_basis);
  read_choice(object, "adopt", kAdopts, s.adopt);
  read_choice(object, "cap_B", kCaps, s.cap);
  s.partial_hashes = object.boolean("partial_hashes", s.partial_hashes);
  read_choice(object, "victim_cursor", kCursors, s.victim_cursor);
  s.defer_frees = object.boolean("defer_frees", s.defer_frees);
  read_choice(object, "stats", kStats, s.stats);
  read_choice(object, "full_trim", kTrims, s.full_trim);
  const bool packed = object.boolean("packed_layout", s.layout == StorageLayout::kPacked);
  s.layout = packed ? StorageLayout::kPacked : StorageLayout::kPerTensor;
  read_choice(object, "concurrency", kFigures, s.concurrency);
  for (const char* key : {"retention", "watermark"}) {
    if (object.has(key) && root.has(key)) {
      object.fail(key, "is given here and outside of \"switches\"", "give it once");
    }
  }
  if (object.has("retention")) {
    read_retention(object, parsed.at("switches").at("retention"), options.kv.retention);
  }
  if (object.has("watermark")) options.kv.watermark = object.number("watermark", 0, 1);
  object.finish();
}

void read_groups(JsonObject& root, std::vector<GroupSpec>& groups) {
  for (JsonObject& item : root.objects("groups")) {
    GroupSpec g;
    const std::string kind = item.choice("kind", {"full", "swa", "chunked", "first"}, "");
    if (!item.has("kind")) item.fail("kind", "is missing", "allowed: full, swa, chunked, first");
    g.block_tokens = static_cast<std::int32_t>(item.integer("block_size", 1, kMostOfSetting));
    if (kind == "swa") {
      g.kind = GroupKind::kSliding;
      g.window = static_cast<std::int32_t>(item.integer("window", 1, kMostOfSetting));
    } else if (kind == "chunked") {
      g.kind = GroupKind::kChunked;
      g.window = static_cast<std::int32_t>(item.integer("chunk", 1, kMostOfSetting));
    } else if (kind == "first") {
      g.kind = GroupKind::kFirst;
      g.window = static_cast<std::int32_t>(item.integer("first", 1, kMostOfSetting));
    }
    item.finish();
    groups.push_back(g);
  }
}

void read_flagged(JsonObject& root, std::vector<GroupSpec>& groups) {
  if (!root.has("flagged")) return;
  const auto most = std::numeric_limits<std::int32_t>::max();
  for (const std::int64_t g : root.integers("flagged", 0, most)) {
    if (g >= static_cast<std::int64_t>(groups.size())) {
      root.fail("flagged", fmt::format("there is no group {}", g),
                fmt::format("groups are numbered from 0; there are {}", groups.size()));
      return;
    }
    groups[static_cast<std::size_t>(g)].flagged = true;
  }
}

void read_generator(JsonObject& root, Workload& w) {
  w.seed = root.unsigned_integer("seed", w.seed);
  w.requests = root.integer("requests", 0, kMostInWorkload);
  w.shared_unit = root.integer("S", 0, kMostOfSetting / 8);
  w.tail_range = root.integer("T", 1, kMostOfSetting / 8);
  w.output_range = root.integer("O", 1, kMostOfSetting / 8);
  w.duplicate_unit = root.integer("dup", 0, kMostOfSetting / 8, 0);
}

// A prompt beyond the model's limit would never be served.
void check_lengths(JsonObject& root, const Workload& w) {
  const std::int64_t most = w.options.kv.max_model_len;
  // No prompt is longer than four shared units and the longest tail, which fit 64 bits.
  const std::int64_t longest =
      4 * w.shared_unit + w.tail_range * std::max<std::int64_t>(w.duplicate_unit, 1);
  if (w.requests == 0 || longest < most) return;
  const std::vector<GeneratedRequest> requests = generate_requests(w);
  for (std::size_t i = 0; i < requests.size(); ++i) {
    const std::int64_t length = requests[i].shared + requests[i].tail;
    if (length < most) continue;
    root.fail(
        "max_model_len",
        fmt::format("the prompt of request {} has {} tokens, the limit is {}", i, length, most),
        "raise max_model_len, or lower S, T or dup");
    return;
  }
}

}  // namespace

void read_engine(JsonObject& root, const nlohmann::json& parsed, CacheProfile profile,
                 SchedulerOptions& options) {
  KvOptions& kv = options.kv;
  kv.switches = switches_of(profile);
  read_groups(root, kv.groups);
  kv.num_blocks = root.integer("blocks", 1, kMostWorkloadBlocks);
  kv.alignment = root.integer("scheduler_block_size", 1, kMostOfSetting, 0);
  kv.hash_block = root.integer("hash_block_size", 1, kMostOfSetting, 0);
  options.token_budget = root.integer("token_budget", 1, kMostOfSetting);
  options.max_requests = root.integer("max_seqs", 1, kMostOfSetting);
  kv.max_model_len = root.integer("max_model_len", 1, kMostOfSetting, kv.max_model_len);
  const std::string policy = root.choice("policy", {"fcfs", "priority"}, "fcfs");
  options.policy = policy == "priority" ? SchedulePolicy::kPriority : SchedulePolicy::kFcfs;
  kv.caching = root.boolean("caching", true);
  options.whole_sequence = root.boolean("reserve_full_sequence", true);
  kv.watermark = root.number("watermark", 0, 1, 0);
  options.lookahead = root.integer("lookahead", 0, kMostOfSetting, 0);
  read_chunks(root, options.chunks);
  read_swap(root, options);
  if (root.has("retention")) read_retention(root, parsed.at("retention"), kv.retention);
  read_flagged(root, kv.groups);
  read_switches(root, parsed, options);
}

void read_serving(JsonObject& object, const nlohmann::json& parsed, SchedulerOptions& options) {
  KvOptions& kv = options.kv;
  kv.switches = switches_of(read_profile(object, {}));
  kv.caching = object.boolean("prefix_caching", true);
  const std::string policy = object.choice("policy", {"fcfs", "priority"}, "fcfs");
  options.policy = policy == "priority" ? SchedulePolicy::kPriority : SchedulePolicy::kFcfs;
  kv.alignment = object.integer("scheduler_block_size", 1, kMostOfSetting, 0);
  kv.hash_block = object.integer("hash_block_size", 1, kMostOfSetting, 0);
  options.whole_sequence = object.boolean("reserve_full_sequence", true);
  kv.watermark = object.number("watermark", 0, 1, 0);
  if (object.has("retention")) read_retention(object, parsed.at("retention"), kv.retention);
  read_chunks(object, options.chunks);
  read_swap(object, options);
  options.drafts.tokens = object.integer("draft_tokens", 0, kMostDrafts, 0);
  if (object.has("draft_accept") && options.drafts.tokens == 0) {
    object.fail("draft_accept", "there are no drafts to accept", "give draft_tokens too");
  } else if (object.has("draft_accept")) {
    options.drafts.accept = object.integers("draft_accept", 0, options.drafts.tokens);
    if (options.drafts.accept.empty()) {
      object.fail("draft_accept", "is an empty list",
                  "name at least one number, or leave the key out: then all drafts are right");
    }
  }
  read_switches(object, parsed, options);
  object.finish();
}

CacheProfile read_profile(JsonObject& root, std::optional<CacheProfile> instead) {
  const std::string named = root.choice("profile", {"M", "A"}, "M");
  return instead.value_or(named == "A" ? CacheProfile::kA : CacheProfile::kM);
}

Result<Workload> parse_workload(const std::string& text, const std::string& name,
                                std::optional<CacheProfile> profile) {
  Result<nlohmann::json> parsed = parse_json(text, name);
  if (!parsed) return parsed.error();
  JsonReader reader(name);
  JsonObject root(reader, *parsed);
  Workload w;
  w.name = root.text("name", fs::path(name).stem().string());
  w.profile = read_profile(root, profile);
  read_engine(root, *parsed, w.profile, w.options);
  read_generator(root, w);
  root.finish();
  if (reader.ok()) check_lengths(root, w);
  if (!reader.ok()) return reader.error();
  if (Result<SchedulerOptions> good = check_options(w.options); !good) {
    return bad_input(name + ": " + good.error().message, good.error().hint);
  }
  return w;
}

Result<Workload> load_workload(std::string_view name_or_path, std::optional<CacheProfile> profile) {
  std::string path(name_or_path);
  std::error_code error;
  if (path.find('/') == std::string::npos && !fs::is_regular_file(path, error)) {
    Result<std::string> assets = assets_folder();
    if (!assets) return assets.error();
    const std::string folder = *assets + "/workloads";
    const std::string shipped = folder + "/" + path + ".json";
    if (!fs::is_regular_file(shipped, error)) {
      std::vector<std::string> names;
      for (const auto& entry : fs::directory_iterator(folder, error)) {
        if (entry.path().extension() == ".json") names.push_back(entry.path().stem().string());
      }
      std::ranges::sort(names);
      return bad_input(fmt::format("there is no workload '{}', nor a file of this name", path),
                       fmt::format("shipped: {}", fmt::join(names, ", ")));
    }
    path = shipped;
  }
  Result<std::string> text = read_text_file(path);
  if (!text) return text.error();
  return parse_workload(*text, path, profile);
}

}  // namespace attnscope
